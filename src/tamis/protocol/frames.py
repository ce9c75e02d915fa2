"""The frames of a WebSocket connection: JSON objects, told apart by their `type`.

A client begins with `hello`, unless its token came with the HTTP request. A request that is to be
answered carries a number, `ref`, which the answer repeats. A subscription sends no more events than
the client has given it credit for.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar

import msgspec

from tamis.errors import ProtocolError
from tamis.protocol.delivery import Delivery

Policy = Literal["wait", "drop", "disconnect"]
Format = Literal["json", "cloudevents"]

LONGEST_NAME: Final = 200

# What fits in 64 bits; whether it makes sense is for the one who is asked.
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Attempts = Annotated[int, msgspec.Meta(le=1_000_000)]


class _Frame(
    msgspec.Struct,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
    tag=str.lower,
):
    """What all frames have in common."""


# --- from clients --------------------------------------------------------------------------------


class Hello(_Frame):
    """Says who the client is; the first frame."""

    token: str | None = None
    client: str = ""


class Publish(_Frame):
    """Events, stored all or none. `sequence` is that of the first; a repeated one is a no-op."""

    ref: Number
    events: list[msgspec.Raw]
    publisher: str = ""
    sequence: Number = 0
    format: Format = "json"


class Subscribe(_Frame):
    """A subscription, new or, if it is durable and has this name already, taken up again."""

    ref: Number
    filter: str
    language: str = "tamis"
    mode: str | None = None
    durable: str | None = None
    lifetime: float | None = None
    """Seconds until it expires, renewed at every connection."""
    start: Number | str = "latest"
    """`latest`, `earliest`, a sequence, or a time as ISO text."""
    policy: Policy = "wait"
    acknowledge: Literal["auto", "manual"] = "auto"
    """`auto`: what is sent counts as received."""
    credit: Number = 0
    max_attempts: Attempts = 0


class Credit(_Frame):
    """Lets a subscription send so many events more."""

    subscription: str
    events: Number


class Acknowledge(_Frame, tag="ack"):
    """Events that need not come again: each alone, or all up to one."""

    subscription: str
    sequences: list[Number] = []
    up_to: Number = 0


class Reject(_Frame, tag="nack"):
    """An event that is to come again later."""

    subscription: str
    sequence: Number
    delay: float | None = None
    reason: str = ""


class Unsubscribe(_Frame):
    """Ends the sending; a durable subscription stays unless it is to be deleted."""

    ref: Number
    subscription: str
    delete: bool = False


class Ping(_Frame):
    """Asks for a pong."""

    ref: Number = 0


Request = Hello | Publish | Subscribe | Credit | Acknowledge | Reject | Unsubscribe | Ping

# --- from brokers --------------------------------------------------------------------------------


class Welcome(_Frame):
    """The answer to hello."""

    principal: str
    version: str
    largest_frame: int
    largest_event: int


class Published(_Frame):
    """The events are on disk; `first` is the place of the first that was new."""

    ref: int
    count: int
    duplicates: int = 0
    first: int | None = None


class Subscribed(_Frame):
    """The subscription is in force; its id is for the frames that follow."""

    ref: int
    subscription: str
    resumed: bool = False
    expires_at: float | None = None
    start: int = 1
    """The first event that it is for: a new one can begin there after a lost connection."""


class Unsubscribed(_Frame):
    """No event of the subscription comes after this."""

    ref: int
    subscription: str


class Deliver(_Frame):
    """Events that matched, in order."""

    subscription: str
    events: list[Delivery]


class Dropped(_Frame):
    """Events that will not come, and why: `slow` or `retention`."""

    subscription: str
    count: int
    reason: str


class Ended(_Frame):
    """A subscription is over: expired, deleted, revoked, taken over, or too slow."""

    subscription: str
    reason: str


class Refused(_Frame):
    """A request could not be granted; without `ref` the connection is about to be closed."""

    code: str
    message: str
    ref: int | None = None
    retry_after: float | None = None
    """Seconds after which it may be granted."""


class Pong(_Frame):
    """The answer to ping."""

    ref: int = 0


Reply = Welcome | Published | Subscribed | Unsubscribed | Deliver | Dropped | Ended | Refused | Pong

_encoder: Final = msgspec.json.Encoder()
_requests: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
_replies: Final[msgspec.json.Decoder[Reply]] = msgspec.json.Decoder(Reply)

T = TypeVar("T")


def encode(frame: Request | Reply) -> bytes:
    """Return a frame as JSON.

    >>> encode(Credit(subscription="s", events=5))
    b'{"type":"credit","subscription":"s","events":5}'
    """
    return _encoder.encode(frame)


def decode_request(text: str | bytes) -> Request:
    """Return what a client sent, or say what is wrong with it."""
    return _decoded(_requests, text)


def decode_reply(text: str | bytes) -> Reply:
    """Return what a broker sent."""
    return _decoded(_replies, text)


def _decoded(decoder: msgspec.json.Decoder[T], text: str | bytes) -> T:
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"this is no frame: {error}") from None
