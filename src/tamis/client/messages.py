"""Events as applications publish and receive them, and as frames carry them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast, get_args

import msgspec

from tamis.client.option_checks import check_duration, check_sendable
from tamis.errors import EventError, LimitError, RefusedError
from tamis.events import CloudEvent, Event, decode_json, encode_cloudevent, encode_json
from tamis.events.event import SINGLE
from tamis.events.gathering import HoldsAttributes
from tamis.events.json_text import dump_json
from tamis.events.places import inside
from tamis.events.values import brief
from tamis.objects.codec import encode_object, is_message_object
from tamis.objects.fields import fields_of
from tamis.protocol import Code, Delivery, Welcome
from tamis.protocol.frames import MAX_REASON_CHARACTERS, EventFormat, event_size
from tamis.units import Duration

if TYPE_CHECKING:
    from tamis.xml import Document

XML: Final = "xml"


class XMLText(NamedTuple):
    r"""An XML document to publish, as text; the broker parses it.

    >>> encode_event(XMLText("<order number='17'/>"))
    EncodedEvent(text=b'"<order number=\'17\'/>"', format='xml')
    """

    text: str


class DocumentDelivery(Delivery, frozen=True):
    """An event with the document that it is, parsed."""

    document: Any = None

    @classmethod
    def of(cls, delivery: Delivery, document: Document) -> DocumentDelivery:
        """Return a delivery with its document."""
        fields = {name: getattr(delivery, name) for name in Delivery.__struct_fields__}
        return cls(**fields, document=document)


def document_of(delivery: Delivery) -> Document | None:
    """Return the document that an event is; None if it is none."""
    if isinstance(delivery, DocumentDelivery):
        return cast("Document", delivery.document)
    if delivery.format != XML:
        return None
    # The extra `xml` is needed only here.
    from tamis.xml import Document, XMLLimits  # noqa: PLC0415

    text = msgspec.json.decode(delivery.data, type=str)
    # The broker has limited it; these only bound what a document of that size can be.
    return Document.parse(text, limits=XMLLimits(size=max(4 * len(text), 1)))


class AcknowledgementSink(Protocol):
    """Takes the acknowledgements and rejections of events."""

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge an event, so that it is not sent again."""

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Reject an event, so that it is sent again later."""


class NoAcknowledgements:
    """For events that need no acknowledgement."""

    def acknowledge(self, sequence: int) -> None:
        """Do nothing."""

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Do nothing."""


class ReceivedEvent(Mapping[str, Any]):
    """An event that matched: its attributes as a mapping, and where and when it was stored."""

    __slots__ = ("_data", "_delivery", "_document", "_is_settled", "_sink")

    def __init__(self, delivery: Delivery, sink: AcknowledgementSink) -> None:
        self._delivery = delivery
        self._sink = sink
        self._data: dict[str, Any] | None = None
        self._document: Document | None = None
        self._is_settled = False

    @property
    def data(self) -> dict[str, Any]:
        """Return the event as it was published, nested objects as dictionaries.

        Of a document, the values of its elements and attributes by their paths.
        """
        if self._data is None:
            document = self.document
            self._data = (
                msgspec.json.decode(self._delivery.data) if document is None else _by_path(document)
            )
        return self._data

    @property
    def document(self) -> Document | None:
        """Return the XML document that it is, parsed; None if it is none."""
        if self._document is None and self._delivery.format == XML:
            self._document = document_of(self._delivery)
        return self._document

    @property
    def xml(self) -> str | None:
        """Return the text of the XML document that it is, as it was sent; None if it is none."""
        if self._delivery.format != XML:
            return None
        return msgspec.json.decode(self._delivery.data, type=str)

    @property
    def text(self) -> bytes:
        """Return the event as JSON; a document is a JSON string."""
        return bytes(self._delivery.data)

    @property
    def delivery(self) -> Delivery:
        """Return the event as it arrived."""
        return self._delivery

    @property
    def sequence(self) -> int:
        """Return its place in the broker's log."""
        return self._delivery.sequence

    @property
    def time(self) -> float:
        """Return when the broker stored it, in seconds since 1970."""
        return self._delivery.time

    @property
    def publisher(self) -> str:
        """Return who published it."""
        return self._delivery.publisher

    @property
    def attempt(self) -> int:
        """Return how often it has been sent, this time included."""
        return self._delivery.attempt

    @property
    def format(self) -> str:
        """Return `json`, `cloudevents` or `xml`."""
        return self._delivery.format

    @property
    def is_settled(self) -> bool:
        """Return whether it was acknowledged or rejected."""
        return self._is_settled

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        shown = repr(self.data) if self.xml is None else self.xml
        return f"<{type(self).__name__} {self.sequence}{again}: {shown}>"

    def acknowledge(self) -> None:
        """Acknowledge it, unless it is settled already."""
        if not self._is_settled:
            self._is_settled = True
            self._sink.acknowledge(self.sequence)

    def reject(self, delay: Duration | None = None, reason: str = "") -> None:
        """Reject it, unless it is settled already."""
        wait = check_duration("delay", delay, may_be_zero=True)
        reason = check_sendable("reason", reason)[:MAX_REASON_CHARACTERS]
        if not self._is_settled:
            self._is_settled = True
            self._sink.reject(self.sequence, wait, reason)


class Message(ReceivedEvent):
    """An event from a `Consumer`."""

    __slots__ = ()

    async def ack(self) -> None:
        """Acknowledge it, so that it is not sent again; acknowledgements go out in batches."""
        self.acknowledge()

    async def nack(self, *, delay: Duration | None = None, reason: str = "") -> None:
        """Reject it; it is sent again after `delay`, or when the broker decides."""
        self.reject(delay, reason)


def _by_path(document: Document) -> dict[str, Any]:
    from tamis.xml.extracted import one_for_each_node  # noqa: PLC0415 - needs the extra `xml`

    # Events have both the text and the number that it stands for.
    held = document.__attributes__(None).items()
    found = {name: one_for_each_node(values) for name, values in held}
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


Publishable = Mapping[str, Any] | CloudEvent | str | bytes | object
"""A mapping, an `Event`, a `CloudEvent`, a received message, JSON text, an XML document
(`tamis.xml.Document`, or `XMLText`), or an object of a class that declares its fields."""

MAX_EVENTS_PER_FRAME: Final = 500
# The rest of a frame: names, numbers, a comma per event.
FRAME_OVERHEAD_BYTES: Final = 1000


class EncodedEvent(msgspec.Struct, frozen=True):
    """An event as JSON."""

    text: bytes
    format: EventFormat


texts_of: Final[Callable[[Iterable[EncodedEvent]], Iterator[bytes]]] = partial(
    map, attrgetter("text")
)
"""Returns the texts of events; a generator would be called for each of them."""


def encode_event(event: Publishable) -> EncodedEvent:
    """Return an event as JSON; raise `EventError` if JSON cannot express it.

    >>> encode_event({"price": 4, "tags": ("new", "red")})
    EncodedEvent(text=b'{"price":4,"tags":["new","red"]}', format='json')
    """
    match event:
        case str() | bytes():
            return EncodedEvent(_checked(event), "json")
        case CloudEvent():
            return EncodedEvent(encode_cloudevent(event).encode(), "cloudevents")
        case Event():
            return EncodedEvent(encode_json(event).encode(), "json")
        case ReceivedEvent():
            return EncodedEvent(event.text, _format(event.format))
        case XMLText():
            return _encoded_document(event.text)
        case Mapping():
            return EncodedEvent(_json(event), "json")
    text = getattr(event, "text", None) if isinstance(event, HoldsAttributes) else None
    if isinstance(text, str):
        return _encoded_document(text)
    if not is_message_object(event):
        cls: type = type(event)
        if cls.__module__.partition(".")[0] not in sys.stdlib_module_names:
            # It says what is wrong with a class of the user's.
            fields_of(cls)
        raise EventError(
            f"{type(event).__name__!r} is not an event; give a mapping, JSON text, an XML document "
            "or an object of a class that declares its fields"
        )
    return EncodedEvent(encode_object(event), "json")


def _format(name: str) -> EventFormat:
    return cast("EventFormat", name if name in get_args(EventFormat) else "json")


def _encoded_document(text: str) -> EncodedEvent:
    if not isinstance(text, str):
        raise EventError(
            f"XMLText has a text, not {type(text).__name__!r}; for bytes, write "
            "Document.parse(data), which finds their encoding"
        )
    try:
        return EncodedEvent(msgspec.json.encode(text), XML)
    except UnicodeEncodeError:
        raise EventError("a lone surrogate is not a character of XML") from None


def check_several(
    events: object, function: str = "publish_many", one: str = "use publish, or give a list"
) -> None:
    """Refuse one event where several are expected: its names would be taken for events."""
    kind = type(events).__name__
    is_document = isinstance(events, XMLText | HoldsAttributes)
    is_event = isinstance(events, Mapping | CloudEvent | str | bytes) or is_document
    if is_event or is_message_object(events):
        raise EventError(f"{function} takes several events, not one {kind}; {one}")
    if not isinstance(events, Iterable | AsyncIterable):
        raise EventError(f"{function} takes several events, not {kind}; give a list")


_PLAIN_TYPES: Final = frozenset({str, int, float, bool, type(None)})


def _json(event: Mapping[str, Any]) -> bytes:
    try:
        _check_names(event)
        return dump_json(event).encode()
    except (TypeError, ValueError, RecursionError, EventError) as error:
        with contextlib.suppress(LimitError):
            # The walk that flattens events knows the place, so its error says more.
            encode_json(Event(event))
        raise EventError(f"JSON cannot express this event: {error}") from None


def _check_names(event: Mapping[str, Any]) -> None:
    """Refuse names that are not texts, of which JSON would make some."""
    for name, value in event.items():
        if not isinstance(name, str):
            raise EventError(f"{brief(name)} is not an attribute name")
        if type(value) not in _PLAIN_TYPES:
            _check_names_within(value)


def _check_names_within(value: object) -> None:
    # The exact types first: tests for abstract classes are slow.
    kind = type(value)
    if kind is dict or (kind is not list and isinstance(value, Mapping)):
        _check_names(cast("Mapping[str, Any]", value))
    elif kind is list or (isinstance(value, Sequence) and not isinstance(value, SINGLE)):
        for item in cast("Sequence[object]", value):
            if type(item) not in _PLAIN_TYPES:
                _check_names_within(item)


def _checked(text: str | bytes) -> bytes:
    if text.lstrip()[:1] in {"<", b"<"}:
        raise EventError(
            "this looks like XML, and a text is read as JSON: publish XMLText(text) or "
            "Document.parse(text), on the command line with --xml"
        )
    # It becomes part of a larger JSON text, which it must not break.
    try:
        encoded = text.encode() if isinstance(text, str) else text
        encoded.decode()
        msgspec.json.decode(encoded, type=msgspec.Raw)
    except (UnicodeError, msgspec.DecodeError, RecursionError) as error:
        # This raises a better error, which shows the place.
        decode_json(text)
        raise EventError(f"this is not JSON: {error}") from None
    return encoded


class PublicationLimits(NamedTuple):
    """How large a frame of publications may be."""

    largest_frame: int
    """Bytes of events in a frame."""
    batch_bytes: int
    """Bytes of events, if there are several."""
    events: int = MAX_EVENTS_PER_FRAME

    @classmethod
    def of(cls, welcome: Welcome) -> PublicationLimits:
        """Return the limits of a broker for this client."""
        largest = welcome.largest_frame - FRAME_OVERHEAD_BYTES
        return cls(
            largest,
            min(largest, welcome.largest_batch_bytes or largest),
            min(MAX_EVENTS_PER_FRAME, welcome.largest_batch),
        )


def check_size(event: EncodedEvent, welcome: Welcome) -> None:
    """Refuse an event that is too large, before other events are sent in the same frame."""
    size, most = len(event.text), welcome.largest_frame - FRAME_OVERHEAD_BYTES
    if min(most, welcome.largest_event) < size <= most:
        size, most = event_size(event.text, event.format), min(most, welcome.largest_event)
    if size > most:
        raise RefusedError(
            Code.TOO_LARGE, f"an event of {size:,} bytes exceeds the limit of {most:,}"
        )


class EventGroup(NamedTuple):
    """Events of a batch that go in one frame."""

    indexes: list[int]
    """Their indexes in the batch."""
    events: list[EncodedEvent]

    def locate(self, error: RefusedError) -> None:
        """Say which event of the batch the broker refused, if it is one."""
        if error.index is not None:
            error.index = self.indexes[error.index]
            error.locate(f"events[{error.index}]")


async def in_frames(
    events: Iterable[Publishable] | AsyncIterable[Publishable],
    welcome: Welcome,
    first: int = 0,
    *,
    leaves_out: Callable[[EncodedEvent], bool] = lambda _: False,
) -> AsyncIterator[EventGroup]:
    """Yield events in groups that each fit in a frame; `first` is the index of the first event."""
    limits = PublicationLimits.of(welcome)
    group = EventGroup([], [])
    index, size = first, 0
    async for event in _each(events):
        encoded = encode_indexed(event, index, welcome)
        index += 1
        if leaves_out(encoded):
            continue
        size += len(encoded.text) + 1
        if group.events and not _fits_group(encoded, group.events, size, limits):
            yield group
            group, size = EventGroup([], []), len(encoded.text) + 1
        group.indexes.append(index - 1)
        group.events.append(encoded)
    if group.events:
        yield group


def encode_indexed(event: Publishable, index: int, welcome: Welcome | None = None) -> EncodedEvent:
    """Encode an event of several, as large as a broker takes; an error says which it is."""
    try:
        encoded = encode_event(event)
        if welcome is not None:
            check_size(encoded, welcome)
    except (EventError, LimitError) as error:
        located = inside(f"events[{index}]", error)
        located.index = index
        raise located from None
    except RefusedError as error:
        error.index = index
        error.locate(f"events[{index}]")
        raise
    return encoded


def _fits_group(
    event: EncodedEvent, group: list[EncodedEvent], size: int, limits: PublicationLimits
) -> bool:
    return (
        len(group) < limits.events
        and size <= limits.batch_bytes
        and event.format == group[0].format
    )


async def _each(
    events: Iterable[Publishable] | AsyncIterable[Publishable],
) -> AsyncIterator[Publishable]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event
