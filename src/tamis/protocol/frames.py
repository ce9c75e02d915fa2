"""The frames of a WebSocket connection: JSON objects, distinguished by their `type`.

A client starts with `hello`, unless its token came with the HTTP request. A request that expects an
answer has a number, `ref`, which the answer repeats. The broker sends a subscription no more events
than the client has granted credit for.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar, get_args

import msgspec

from tamis.errors import ProtocolError
from tamis.events import EventLimits
from tamis.mismatches import find_mismatch
from tamis.protocol.advertising import (
    Advertise,
    Advertised,
    AdvertisementWithdrawn,
    WantedChange,
    WithdrawAdvertisement,
)
from tamis.protocol.frame_base import Frame, Number
from tamis.protocol.queries import (
    Ask,
    AskMore,
    AskStopped,
    CancelQuery,
    Query,
    Querying,
    QueryMore,
    ResultEnd,
    ResultRows,
    Serve,
    ServedAll,
    ServedRows,
    Serving,
    Withdraw,
    Withdrawn,
)

Overflow = Literal["wait", "drop", "disconnect"]
"""What happens to the events of a subscriber that is too slow for them."""
EventFormat = Literal["json", "cloudevents", "xml"]
"""An event of the format `xml` is a JSON string with the text of a document."""

MAX_NAME_CHARACTERS: Final = 200
MAX_REASON_CHARACTERS: Final = 500
"""Of the reason for a rejection; the rest is cut off."""
MAX_ATTEMPTS: Final = 1_000_000

Attempts = Annotated[int, msgspec.Meta(le=MAX_ATTEMPTS)]
OrderingKeyName = Annotated[str, msgspec.Meta(max_length=EventLimits().name)]


class _AnyFrame(msgspec.Struct):
    """What all frames have."""

    type: str


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that matched a subscription, with its metadata."""

    sequence: int
    """Its position in the broker's log; events of one publisher arrive in this order."""
    time: float
    """When the broker stored it, in seconds since 1970."""
    publisher: str
    data: msgspec.Raw
    """The event as it was published, without the parts that the subscriber may not see."""
    attempt: int = 1
    format: str = "json"


def event_size(text: bytes, format_: str) -> int:
    """Return the bytes of an event as its publisher has it: a document without JSON's escapes."""
    if format_ != "xml":
        return len(text)
    try:
        return len(msgspec.json.decode(text, type=str).encode())
    except (msgspec.MsgspecError, UnicodeError):
        return len(text)


# --- from clients --------------------------------------------------------------------------------


class Hello(Frame):
    """The first frame: authenticates the client."""

    token: str | None = None
    client: str = ""


class Publish(Frame):
    """Events, stored all or none.

    `sequence` is the publisher's number of the first. Numbers follow each other without a gap,
    unless `skip` is set; a number that is stored already is a no-op.
    """

    ref: Number
    events: list[msgspec.Raw]
    publisher: str = ""
    sequence: Number = 0
    skip: bool = False
    """Whether numbers before `sequence` that are not stored are left out on purpose."""
    format: EventFormat = "json"


class Subscribe(Frame):
    """Creates a subscription, or resumes the durable one of this name."""

    ref: Number
    filter: str
    language: str = "tamis"
    mode: str | None = None
    durable: str | None = None
    lifetime: float | None = None
    """Seconds until it expires, counted from the latest connection."""
    start: Number | str = "latest"
    """`latest`, `earliest`, a sequence, or a time as ISO text."""
    overflow: Overflow = "wait"
    acknowledge: Literal["auto", "manual"] = "auto"
    """`auto`: sending an event acknowledges it."""
    credit: Number = 0
    max_attempts: Attempts = 0
    resumes: bool = False
    """Whether this client had it on an earlier connection: its filter may have been replaced."""
    roaming: bool = False
    """Whether to bring it here, with what waits, if another broker has it."""
    group: bool = False
    """Whether a group shares it: each event goes to one of the members."""
    ordering_key: OrderingKeyName = ""
    """The attribute whose value says which events of a group are handled in order."""
    member: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    """What a member of a group calls itself: on its next connection it takes its own place."""


class Credit(Frame):
    """Grants a subscription credit for more events."""

    subscription: str
    events: Number


class Acknowledge(Frame, tag="ack"):
    """Acknowledges events: single ones, or all up to one."""

    subscription: str
    sequences: Annotated[list[Number], msgspec.Meta(max_length=10_000)] = msgspec.field(
        default_factory=list
    )
    up_to: Number = 0


class Reject(Frame, tag="nack"):
    """Rejects an event, so that it is sent again later."""

    subscription: str
    sequence: Number
    delay: float | None = None
    reason: str = ""


class Unsubscribe(Frame):
    """Ends a subscription; a durable one is kept, unless `delete` is set."""

    ref: Number
    subscription: str
    delete: bool = False


class Ping(Frame):
    """Requests a pong."""

    ref: Number = 0
    flush: bool = False
    """Whether the pong waits until all acknowledgements and rejections before it are on disk."""


QueryRequest = Serve | Withdraw | ServedRows | ServedAll | Query | QueryMore | CancelQuery
"""The requests of sources and of those who ask them."""

AdvertisingRequest = Advertise | WithdrawAdvertisement
"""The requests of publishers that advertise."""

Request = (
    Hello
    | Publish
    | Subscribe
    | Credit
    | Acknowledge
    | Reject
    | Unsubscribe
    | Ping
    | Serve
    | Withdraw
    | ServedRows
    | ServedAll
    | Query
    | QueryMore
    | CancelQuery
    | Advertise
    | WithdrawAdvertisement
)


# --- from brokers --------------------------------------------------------------------------------


class Welcome(Frame):
    """The answer to hello."""

    principal: str
    version: str
    largest_frame: int
    largest_event: int
    largest_batch: int = 1000
    """How many events one publication may have, by the settings and this client's quota."""
    largest_batch_bytes: int | None = None
    """How many bytes several events of one publication may have, by this client's quota."""


class Published(Frame):
    """The events are on disk; `first` is the position of the first new one."""

    ref: int
    count: int
    duplicates: int = 0
    first: int | None = None


class Subscribed(Frame):
    """The subscription is active; later frames refer to it by this id."""

    ref: int
    subscription: str
    resumed: bool = False
    expires_at: float | None = None
    start: int = 1
    """The first event it covers: where to start again after a lost connection."""


class Unsubscribed(Frame):
    """No event of the subscription follows this frame."""

    ref: int
    subscription: str


class Deliver(Frame):
    """Events that matched, in order."""

    subscription: str
    events: list[Delivery]


class Dropped(Frame):
    """Events that were dropped, and why.

    The reason is `slow`, `retention`, `damage`, `invalid` or `dead_letters`.
    """

    subscription: str
    count: int
    reason: str


class Ended(Frame):
    """A subscription ended: expired, deleted, revoked, taken over, or too slow."""

    subscription: str
    reason: str


class Refused(Frame):
    """A request was refused; without `ref`, the broker is about to close the connection."""

    code: str
    message: str
    ref: int | None = None
    retry_after: float | None = None
    """Seconds after which to try again."""
    index: int | None = None
    """Which event of a publication is the cause, counted from 0."""
    expected: int | None = None
    """The number that the publisher must use next."""


class Pong(Frame):
    """The answer to ping."""

    ref: int = 0


QueryReply = Serving | Withdrawn | Ask | AskMore | AskStopped | Querying | ResultRows | ResultEnd
"""What sources and those who ask them are told."""

AdvertisingReply = Advertised | AdvertisementWithdrawn | WantedChange
"""What publishers that advertise are told."""

Reply = (
    Welcome
    | Published
    | Subscribed
    | Unsubscribed
    | Deliver
    | Dropped
    | Ended
    | Refused
    | Pong
    | Serving
    | Withdrawn
    | Ask
    | AskMore
    | AskStopped
    | Querying
    | ResultRows
    | ResultEnd
    | Advertised
    | AdvertisementWithdrawn
    | WantedChange
)

ENCODER: Final = msgspec.json.Encoder()
FRAME_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder raises on bytes that are not a frame."""
REQUEST_DECODER: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)
REPLY_DECODER: Final[msgspec.json.Decoder[Reply]] = msgspec.json.Decoder(Reply)
_any_frames: Final = msgspec.json.Decoder(_AnyFrame)

T = TypeVar("T")


def encode_frame(frame: Request | Reply) -> bytes:
    """Return a frame as JSON.

    >>> encode_frame(Credit(subscription="s", events=5))
    b'{"type":"credit","subscription":"s","events":5}'
    """
    return ENCODER.encode(frame)


def decode_request(text: str | bytes) -> Request:
    """Return the frame a client sent; raise `ProtocolError` if it is not one."""
    return _decode(REQUEST_DECODER, text, Request)


def decode_reply(text: str | bytes) -> Reply:
    """Return the frame a broker sent; raise `ProtocolError` if it is not one."""
    return _decode(REPLY_DECODER, text, Reply)


def frame_mismatch(error: Exception, kinds: object, text: str | bytes) -> str:
    """Return a sentence about what a decoder said of a frame."""
    return find_mismatch(error, _kind_of(text, kinds), text=text).sentence("the frame")


def _kind_of(text: str | bytes, kinds: object) -> object:
    """Return which kind of frame a wrong text was meant to be; all if that is unknown."""
    try:
        name = _any_frames.decode(text).type
    except FRAME_ERRORS:
        return kinds
    return next((kind for kind in get_args(kinds) if kind.__struct_config__.tag == name), kinds)


def _decode(decoder: msgspec.json.Decoder[T], text: str | bytes, kinds: object) -> T:
    try:
        return decoder.decode(text)
    except FRAME_ERRORS as error:
        raise ProtocolError(frame_mismatch(error, kinds, text)) from None
