"""The frames of a link between two brokers: JSON objects, distinguished by their `type`.

One broker dials the other at `/v1/peer`; from then on both sides do the same. Each begins with
`link`, then forwards filters and events, and says which of the other's events it has stored. An
event that is not stored when the connection is lost is sent again on the next one.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from tamis.errors import ProtocolError
from tamis.mismatches import find_mismatch
from tamis.protocol.frame_base import Number
from tamis.protocol.frames import (
    FRAME_ERRORS,
    MAX_NAME_CHARACTERS,
    EventFormat,
    Refused,
    frame_mismatch,
)
from tamis.protocol.views import BrokerView

LINK_VERSION: Final = 1
"""Of the protocol of links: brokers of another version cannot be linked."""
LINK_PATH: Final = "/v1/peer"
MAX_BROKERS: Final = 10_000
"""In one overlay."""
MAX_EVENTS_PER_FORWARD: Final = 1_000

BrokerId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
LogPosition = Annotated[int, Meta(ge=1, le=2**63 - 1)]
BrokerName = Annotated[str, Meta(max_length=MAX_NAME_CHARACTERS)]


class _PeerFrame(
    msgspec.Struct,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag=str.lower,
):
    """The base of all frames of a link."""


class LinkHello(_PeerFrame, tag="link"):
    """The first frame of each side: who it is, and what it can take."""

    version: int
    broker: BrokerId
    name: BrokerName = ""
    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    """How many events may be on their way to it before the first of them is stored."""
    largest_frame: Annotated[int, Meta(ge=1)] = 1


class RoutingFrame(_PeerFrame, tag="routing"):
    """A message from one broker's router to the other's."""

    message: msgspec.Raw


class QueryFrame(_PeerFrame, tag="query"):
    """A message about queries and data."""

    message: msgspec.Raw


class ForwardedEvent(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An event on its way from the broker where it was published."""

    sequence: LogPosition
    """Its position in the sender's log, by which it is acknowledged."""
    broker: BrokerId
    """The broker at which it was published: its origin, with the next field."""
    origin_sequence: LogPosition
    """Its position in that broker's log."""
    time: float
    """When that broker stored it, in seconds since 1970."""
    publisher: Annotated[str, Meta(max_length=1_000)]
    data: msgspec.Raw
    """The event as it was published, without the parts that the receiver may not see."""
    number: Number = 0
    """The publisher's own number; 0: none."""
    format: EventFormat = "json"


class Forward(_PeerFrame):
    """Events for the other broker, in the order of the sender's log."""

    events: Annotated[list[ForwardedEvent], Meta(min_length=1, max_length=MAX_EVENTS_PER_FORWARD)]


class Stored(_PeerFrame):
    """All events that were forwarded up to one, by the sender's sequence, are on disk."""

    up_to: LogPosition


class Heartbeat(_PeerFrame):
    """A sign of life."""


class TopologyRequest(_PeerFrame, tag="topology"):
    """Asks which brokers are on the other's side of the link, and what passes between them."""

    ref: Number
    seconds: Annotated[float, Meta(gt=0, le=60)]
    """How long the sender waits for the answer."""


class TopologyReply(_PeerFrame, tag="brokers"):
    """The brokers on the sender's side of the link."""

    ref: Number
    brokers: Annotated[list[BrokerView], Meta(max_length=MAX_BROKERS)]
    missing: Annotated[list[BrokerName], Meta(max_length=MAX_BROKERS)] = []
    """Brokers that are linked, and did not answer in time."""


LinkFrame: TypeAlias = (
    RoutingFrame
    | QueryFrame
    | Forward
    | Stored
    | Heartbeat
    | TopologyRequest
    | TopologyReply
    | Refused
)
_ENCODER: Final = msgspec.json.Encoder()
_FRAMES: Final[msgspec.json.Decoder[LinkFrame]] = msgspec.json.Decoder(LinkFrame)
_HELLOS: Final[msgspec.json.Decoder[LinkHello | Refused]] = msgspec.json.Decoder(
    LinkHello | Refused
)


class _AnyHello(msgspec.Struct):
    """What the first frame of every version has."""

    type: str
    version: int


_any_hellos: Final = msgspec.json.Decoder(_AnyHello)


def encode_link_frame(frame: LinkHello | LinkFrame) -> bytes:
    """Return a frame as JSON.

    >>> encode_link_frame(Stored(up_to=7))
    b'{"type":"stored","up_to":7}'
    """
    return _ENCODER.encode(frame)


def decode_link_hello(data: bytes) -> LinkHello | Refused:
    """Return the first frame of the other side; raise `ProtocolError` if it is none of ours."""
    try:
        first = _any_hellos.decode(data)
    except FRAME_ERRORS:
        first = _AnyHello("", LINK_VERSION)
    if first.type == "link" and first.version != LINK_VERSION:
        raise ProtocolError(
            f"the peer speaks version {first.version} of the link protocol, and this broker "
            f"version {LINK_VERSION}: run the same version of Tamis on both"
        )
    try:
        return _HELLOS.decode(data)
    except FRAME_ERRORS as error:
        reason = find_mismatch(error, LinkHello, text=data).sentence("it")
        raise ProtocolError(f"a link begins with `link`: {reason}") from None


def decode_link_frame(data: bytes) -> LinkFrame:
    """Return a frame that a peer sent; raise `ProtocolError` if it is not one."""
    try:
        return _FRAMES.decode(data)
    except FRAME_ERRORS as error:
        raise ProtocolError(frame_mismatch(error, LinkFrame, data)) from None
