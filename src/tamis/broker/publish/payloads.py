"""Payloads: events as the bytes that were published, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast

import msgspec

from tamis.broker.operations.fair_executor import Slices
from tamis.broker.operations.settings import FRAME_OVERHEAD_BYTES
from tamis.broker.publish.documents import DocumentReader
from tamis.errors import EventError, LimitError, RefusedError, TamisError
from tamis.events import (
    CloudEvent,
    Event,
    EventLimits,
    Schema,
    Value,
    decode_cloudevent,
    decode_json,
)
from tamis.events.batch import EventBatch, EventObjects, EventSource, Projection
from tamis.events.gathering import HoldsAttributes, gather_checked
from tamis.events.json_columns import JsonColumnReader
from tamis.events.json_source import JsonLineEvents
from tamis.filters.printing import ANY
from tamis.languages.exactness import event_of
from tamis.protocol import Code
from tamis.protocol.frames import event_size

JSON: Final = "json"
CLOUDEVENTS: Final = "cloudevents"
XML: Final = "xml"
"""A JSON string with the text of a document, as JSON frames carry it."""
# 3 is the number of events that are handed over.
NUMBER_OF: Final = {JSON: 1, CLOUDEVENTS: 2, XML: 4}
NAME_OF: Final = {number: name for name, number in NUMBER_OF.items()}

DOCUMENTS_PER_BATCH: Final = 512
"""Of events among which there are documents."""
EVENTS_PER_SLICE: Final = 64
"""Of a large publication: small ones are decoded in 0.2 ms."""

_PLAIN_TYPES: Final = frozenset({int, float, str, bool})
_INT64: Final = range(-(2**63), 2**63)


class DecodedEvent(msgspec.Struct, frozen=True):
    """What an event says."""

    event: Event | HoldsAttributes
    """A document gives its attributes when it is asked for them."""
    source: Event | CloudEvent | HoldsAttributes
    """The event with its envelope; rights to binary data depend on it."""


class Payload(msgspec.Struct, gc=False):
    """An event as it was published.

    Many of them are cached. They refer to no cycles, so the garbage collector need not visit them.
    What they say is forgotten when they are matched; those who may not see all of it need it again.
    """

    text: bytes
    format: str
    decoder: PayloadDecoder
    decoded: DecodedEvent | None = None

    @property
    def event(self) -> Event | HoldsAttributes:
        """Return what it says; it was checked when it was published."""
        return self._decode().event

    @property
    def source(self) -> Event | CloudEvent | HoldsAttributes:
        """Return the event with its envelope."""
        return self._decode().source

    def _decode(self) -> DecodedEvent:
        decoded = self.decoded
        if decoded is None and self.format == XML:
            # A tree takes ten times as much memory as its text; the decoder keeps the latest.
            document = self.decoder.documents.read(self.text)
            return DecodedEvent(document, document)
        if decoded is None:
            decoded = self.decoded = self.decoder.decode(self.text, self.format).decoded
        return cast("DecodedEvent", decoded)


class InvalidEventError(RefusedError):
    """An event that is not valid, and the attributes that the reason may reveal."""

    def __init__(self, message: str, attributes: list[str] | None) -> None:
        super().__init__(Code.BAD_EVENT, message)
        self.attributes = attributes
        """None if the reason has nothing to do with a schema."""


class PayloadDecoder:
    """Decodes events, within limits and as a schema says."""

    def __init__(self, schema: Schema | None, limits: EventLimits, *, is_total: bool) -> None:
        self._schema = schema
        self._limits = limits
        self.documents: Final = DocumentReader(limits.size)
        self._is_total = is_total
        self._max_names = min(limits.attributes, limits.values) if limits.depth else 0
        self._reader = JsonColumnReader((), schema, total=is_total, limits=limits)

    def decode(self, text: bytes, format_: str) -> Payload:
        """Return an event that a publisher sent, or refuse it with a sentence.

        Most events are flat JSON objects of plain values, which a C decoder reads at once. It does
        not notice a name that is given twice. But without escapes every quote delimits a name or a
        text, so counting the quotes proves that no member was lost. Whatever is not beyond doubt
        goes the strict way, which also words the refusals.
        """
        if format_ == JSON and self._schema is None and len(text) <= self._limits.size:
            values: dict[str, tuple[Value, ...]] = {}
            strings = 0
            try:
                members = msgspec.json.decode(text) if b"\\" not in text else None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                members = None
            if type(members) is dict and len(members) <= self._max_names:
                for name, value in members.items():
                    kind = type(value)
                    if (
                        kind not in _PLAIN_TYPES
                        or not 0 < len(name) <= self._limits.name
                        or not name.isascii()
                        or (kind is str and not value.isascii())
                        or (kind is int and value not in _INT64)
                    ):
                        break
                    strings += 1 + (kind is str)
                    values[name] = (value,)
                else:
                    if text.count(b'"') == 2 * strings:
                        event = Event.of_checked(values)
                        return Payload(text, format_, self, DecodedEvent(event, event))
        return self._decode_strictly(text, format_)

    def _decode_strictly(self, text: bytes, format_: str) -> Payload:
        try:
            payload = self.decode_matchable(text, format_)
        except LimitError as error:
            raise RefusedError(Code.TOO_LARGE, str(error)) from None
        except EventError as error:
            raise InvalidEventError(str(error), self._attributes_of(text, format_)) from None
        return payload

    def _attributes_of(self, text: bytes, format_: str) -> list[str] | None:
        """Return the attributes that the schema may have refused; None if it refused none."""
        if self._schema is None:
            return None
        try:
            without = PayloadDecoder(None, self._limits, is_total=False)
            names = without.decode_stored(text, format_).event
        except TamisError:
            return None
        if not isinstance(names, Event):
            return None
        return [*names, *self._schema] if self._is_total else [*names]

    def check_all(self, texts: list[bytes], format_: str) -> list[Payload] | None:
        """Return the events of one publication, not decoded; None if some are not beyond doubt."""
        if format_ != JSON or not self._reader.is_sure_of(texts):
            return None
        return [Payload(text, format_, self) for text in texts]

    def decode_all(self, texts: list[bytes], format_: str, first: int = 0) -> list[Payload]:
        """Return events of one publication; a refusal knows the index of its event.

        `first` is the index of the first of them.
        """
        payloads: list[Payload] = []
        try:
            for text in texts:
                payloads.append(self.decode(text, format_))  # noqa: PERF401 - counts them
        except RefusedError as error:
            error.index = first + len(payloads)
            raise
        return payloads

    def decode_slices(
        self, texts: list[bytes], format_: str, *, may_stay_undecoded: bool
    ) -> Slices[list[Payload]]:
        """Return the events of a large publication, piece by piece.

        What is beyond doubt may stay undecoded: the kernel that checks it holds up nobody.
        """
        payloads: list[Payload] = []
        for first in range(0, len(texts), EVENTS_PER_SLICE):
            some = texts[first : first + EVENTS_PER_SLICE]
            checked = self.check_all(some, format_) if may_stay_undecoded else None
            payloads += checked or self.decode_all(some, format_, first)
            yield
        return payloads

    def decode_matchable(self, text: bytes, format_: str) -> Payload:
        """Return an event that can be matched: in mode `total`, it has all attributes."""
        payload = self.decode_stored(text, format_)
        if self._is_total and self._schema is not None and isinstance(payload.event, Event):
            self._schema.require_all(payload.event)
        return payload

    def decode_stored(self, text: bytes, format_: str) -> Payload:
        """Return an event that was checked before it was stored."""
        if format_ == XML:
            return self._document(text)
        if format_ == CLOUDEVENTS:
            source = decode_cloudevent(text, limits=self._limits)
            event = source.event()
            event = event if self._schema is None else self._schema.conform(event)
            return Payload(text, format_, self, DecodedEvent(event, source))
        event = decode_json(text, schema=self._schema, limits=self._limits)
        return Payload(text, format_, self, DecodedEvent(event, event))

    def _document(self, text: bytes) -> Payload:
        if self._schema is not None:
            raise EventError(
                "this broker has a schema, which declares no places in documents: publish JSON, or "
                "use a broker without a schema"
            )
        self.documents.read(text)
        return Payload(text, XML, self)

    def exact_event(self, text: bytes, format_: str) -> Event | HoldsAttributes:
        """Return a stored event with its nested data, or its document, for exact checks."""
        if format_ == XML:
            return self.documents.read_whole(text)
        return cast("Event", self.decode_stored(text, format_).event)

    @property
    def schema(self) -> Schema | None:
        """Return the schema that events conform to."""
        return self._schema

    def lines(self, texts: list[bytes]) -> JsonLineEvents:
        """Return events in JSON as a source for the engine."""
        return JsonLineEvents(texts, limits=self._limits)


class MixedEvents:
    """Documents among other events, as a source; few of them are parsed at the same time."""

    def __init__(self, payloads: Sequence[Payload]) -> None:
        self._payloads = payloads

    def event_batches(self, projection: Projection) -> Iterator[EventBatch]:
        """Yield the events, some hundreds at a time, with the attributes that are wanted."""
        names = projection.wanted
        if names is None:
            names = frozenset({ANY, *(projection.named or ())})
        for first in range(0, len(self._payloads), DOCUMENTS_PER_BATCH):
            some = self._payloads[first : first + DOCUMENTS_PER_BATCH]
            events = [_with_attributes(payload.event, names) for payload in some]
            columns = gather_checked(events, range(len(events)), projection.wanted)
            yield EventBatch(len(events), columns)


def refuse_larger(texts: Sequence[bytes], format_: str, most: float, largest_frame: int) -> None:
    """Refuse events that are too large; a document counts without the escapes of JSON."""
    for index, text in enumerate(texts):
        is_deliverable = len(text) + FRAME_OVERHEAD_BYTES <= largest_frame
        size = event_size(text, format_) if is_deliverable else len(text)
        if size > most:
            message = f"an event of {size:,} bytes exceeds the limit of {most:,.0f}"
            error = RefusedError(Code.TOO_LARGE, message)
            error.index = index
            raise error


def _with_attributes(event: Event | HoldsAttributes, names: frozenset[str]) -> Event:
    return event if isinstance(event, Event) else event_of(event, names)


def source_of(payloads: Sequence[Payload]) -> EventSource:
    """Return what some payloads say, for the engine, which reads of JSON only what it needs."""
    if all(payload.format == JSON for payload in payloads):
        return payloads[0].decoder.lines([payload.text for payload in payloads])
    if any(payload.format == XML for payload in payloads):
        return MixedEvents(payloads)
    return EventObjects([cast("Event", payload.event) for payload in payloads])
