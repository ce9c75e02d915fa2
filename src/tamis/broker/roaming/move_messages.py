"""What brokers write each other about a subscription that moves, as bodies of letters.

The new home asks, the former one answers. Every question may be asked again: it has the same
answer, whatever happened in between.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from tamis.protocol.frame_base import Number
from tamis.protocol.frames import MAX_NAME_CHARACTERS
from tamis.protocol.management import RoleName

MAX_ORIGINS: Final = 100_000
MAX_EVENTS_PER_TRANSFER: Final = 500
MAX_ROLES: Final = 1_000

MoveId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
OwnerName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
HeldName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]


class _LetterBody(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=str.lower
):
    """The base of all of them."""


class _MoveRequest(_LetterBody, frozen=True):
    """The base of all questions: which subscription is meant."""

    move: MoveId
    owner: OwnerName
    name: HeldName


class HomeQuestion(_MoveRequest, frozen=True, tag="where"):
    """Asks whether a subscription is at home there."""


class FenceRequest(_MoveRequest, frozen=True, tag="fence"):
    """Asks to deliver nothing more: every later event goes to the new home, too."""

    moves: Number = 0
    """How often it had moved when it was found; otherwise this is a letter of an earlier move."""


class TransferRequest(_MoveRequest, frozen=True, tag="send"):
    """Asks for events that wait, after a position."""

    after: Number


class RemovalRequest(_MoveRequest, frozen=True, tag="farewell"):
    """Asks to forget the subscription: everything has arrived."""


class HomeAnswer(_LetterBody, frozen=True, tag="here"):
    """Says whether a subscription is there, and what it is."""

    found: bool
    peers: Annotated[tuple[str, ...], Meta(max_length=10_000)] = ()
    """All brokers that the answering one is linked to, whether they are connected or not."""
    is_moving: bool = False
    """Whether it is on its way to that broker, or from there to another."""
    filter: str = ""
    language: str = "tamis"
    mode: str = "sql"
    max_attempts: int = 0
    roles: Annotated[tuple[RoleName, ...], Meta(max_length=MAX_ROLES)] = ()
    """Of all credentials that have used it."""
    expires_at: float | None = None
    moves: Number = 0
    is_group: bool = False
    """Whether a group shares it, which does not move."""


class FenceAnswer(_LetterBody, frozen=True, tag="fenced"):
    """By origin, the last event that is handed over, or was delivered before."""

    cut: Annotated[dict[str, Number], Meta(max_length=MAX_ORIGINS)]
    is_taken: bool = False
    """Whether it goes to a third broker, which was faster, or has moved since it was found."""
    untold: dict[str, int] = {}
    """How many events were lost that the subscriber has not heard of, by reason."""


class TransferredEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that waited."""

    position: Number
    broker: str
    origin_sequence: Number
    time: float
    publisher: str
    format: str
    data: msgspec.Raw
    attempts: int = 0


class TransferAnswer(_LetterBody, frozen=True, tag="parcel"):
    """Events that wait, in order."""

    events: Annotated[list[TransferredEvent], Meta(max_length=MAX_EVENTS_PER_TRANSFER)]
    after: Number
    """The position up to which these are all."""
    is_last: bool


class RemovalAnswer(_LetterBody, frozen=True, tag="gone"):
    """The subscription is forgotten, or was before."""


class MoveRefusal(_LetterBody, frozen=True, tag="refused"):
    """Why that is impossible."""

    code: str
    message: str


MoveQuestion = HomeQuestion | FenceRequest | TransferRequest | RemovalRequest
MoveAnswer = HomeAnswer | FenceAnswer | TransferAnswer | RemovalAnswer | MoveRefusal
