"""The event cache: stored events, decoded, for the matcher and for the subscribers after it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from tamis.broker.publish import handed_events
from tamis.broker.publish.handed_events import HandedEvent, Recipient, read_handed
from tamis.broker.publish.payloads import NAME_OF, NUMBER_OF, XML, Payload, PayloadDecoder
from tamis.broker.publish.publishers import publisher_owner
from tamis.broker.publish.unmatchable_events import UnmatchableEvents
from tamis.errors import TamisError
from tamis.ports import Executor
from tamis.storage import EventLog, EventOrigin, Record

# Roughly what a stored event takes beside its text.
OVERHEAD_BYTES: Final = 1_000
# Why an event cannot be sent: by age or size of the log, because it is unreadable, or because the
# schema or the limits have changed since it was stored.
RETENTION: Final = "retention"
DAMAGE: Final = "damage"
INVALID: Final = "invalid"


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with its place in the log."""

    sequence: int
    time: float
    publisher: str
    publisher_sequence: int
    payload: Payload
    owner: str
    """The publisher's principal, as `publisher_owner` has it."""
    origin: EventOrigin | None = None
    """Where it was published; None: here."""
    recipient: Recipient | None = None
    """The only subscription that gets it; None: all that match."""


class DecodedRecords(NamedTuple):
    """Records of the log, sorted by whether they can be matched."""

    events: list[StoredEvent]
    invalid: list[Record]


class UnmatchedBatch(NamedTuple):
    """Events for the matcher; perhaps it has matched them while they were stored."""

    events: list[StoredEvent]
    found: object


class MatcherAhead(Protocol):
    """Matches events while they are being stored, on the event loop.

    What it finds is not in force before they are stored, and it forgets that if it has something
    else to do meanwhile.
    """

    ahead: object
    """What it has found; None if nothing, or if it has forgotten that."""

    def match_ahead(self, events: Sequence[StoredEvent]) -> None:
        """Match events that are about to be stored, if that is quick and nothing comes before."""

    def offer_ahead(self, found: object) -> None:
        """Offer events that are stored now to who waits for them; take what was found for them."""


class EventCache:
    """The events to match, and the latest ones up to a number of bytes.

    Older ones are read from the log.
    """

    def __init__(
        self,
        log: EventLog,
        decoder: PayloadDecoder,
        max_bytes: int,
        executor: Executor,
        unmatchable: UnmatchableEvents,
        *,
        max_unmatched: int,
    ) -> None:
        """Make a cache in which at most this many batches wait to be matched."""
        self._log = log
        self._executor = executor
        self._decoder = decoder
        self.unmatchable = unmatchable
        self._max_bytes = max_bytes
        self._bytes = 0
        self.recent: OrderedDict[int, StoredEvent] = OrderedDict()
        """The cached events by sequence."""
        self.unmatched: asyncio.Queue[UnmatchedBatch] = asyncio.Queue(max_unmatched)
        """Batches of events for the matcher, in the order of the log."""
        self.has_work = asyncio.Event()
        """Set when the matcher should look for work."""
        self.matcher: MatcherAhead
        """Set once."""

    async def put(self, events: list[StoredEvent], found: object = None) -> None:
        """Add events in the order of the log; wait while there are too many to match.

        `found` is what the matcher has found for them ahead.
        """
        for event in events:
            self.recent[event.sequence] = event
            self._bytes += len(event.payload.text) + OVERHEAD_BYTES
        # The oldest make room.
        while self._bytes > self._max_bytes:
            _, oldest = self.recent.popitem(last=False)
            self._bytes -= len(oldest.payload.text) + OVERHEAD_BYTES
        await self.unmatched.put(UnmatchedBatch(events, found))
        self.has_work.set()

    async def find(self, sequences: Sequence[int]) -> list[StoredEvent | str]:
        """Return events to send; for each that cannot be sent, the reason why it is lost."""
        found = [self.recent.get(sequence) for sequence in sequences]
        missing = [s for s, event in zip(sequences, found, strict=True) if event is None]
        read = await self._executor.run(self._read, missing) if missing else {}
        return [event or read[s] for s, event in zip(sequences, found, strict=True)]

    def _read(self, sequences: Iterable[int]) -> dict[int, StoredEvent | str]:
        found = {sequence: self._read_one(sequence) for sequence in sequences}
        self._report({s: self._log.get(s) for s, one in found.items() if one == INVALID})
        return found

    def _read_one(self, sequence: int) -> StoredEvent | str:
        log = self._log
        record = log.get(sequence)
        if record is not None:
            return _decode(record, self._decoder.decode_stored) or INVALID
        is_damaged = sequence >= log.first_sequence or log.damage.lost_in(sequence, sequence + 1)
        return DAMAGE if is_damaged else RETENTION

    def decode_records(self, records: Sequence[Record]) -> DecodedRecords:
        """Return the events in records of the log to match them, and report invalid ones."""
        decoded = DecodedRecords([], [])
        for record in records:
            event = _decode(record, self._decoder.decode_matchable)
            if event is None:
                decoded.invalid.append(record)
            else:
                decoded.events.append(event)
        self._report({record.sequence: record for record in decoded.invalid})
        return decoded

    def _report(self, invalid: Mapping[int, Record | None]) -> None:
        if invalid:
            self.unmatchable.report({s: self._why(record) for s, record in invalid.items()})

    def _why(self, record: Record | None) -> str:
        """Return why an event is invalid now; not the error itself, which quotes the event."""
        missing = self._decoder.documents.missing
        if missing and record is not None and record.format == NUMBER_OF[XML]:
            return f"it is an XML document, and {missing}"
        return "the schema or the limits have changed since it was stored"


def _decode(record: Record, decode: Callable[[bytes, str], Payload]) -> StoredEvent | None:
    """Return the event in a record; None if it is invalid now."""
    if record.format == handed_events.FORMAT:
        return _decode_handed(record, decode)
    try:
        payload = decode(record.payload, NAME_OF[record.format])
    except TamisError:
        return None
    return StoredEvent(*record[:4], payload, publisher_owner(record.publisher), record.origin)


def _decode_handed(record: Record, decode: Callable[[bytes, str], Payload]) -> StoredEvent | None:
    try:
        handed = read_handed(record)
        payload = decode(handed.data, NAME_OF[handed.format])
    except TamisError:
        return None
    return stored_handed(record.sequence, handed, payload)


def stored_handed(sequence: int, handed: HandedEvent, payload: Payload) -> StoredEvent:
    """Return an event that came with a subscription, with its place in the log."""
    origin = EventOrigin(handed.broker, handed.origin_sequence, handed.time, handed.broker)
    return StoredEvent(
        sequence,
        handed.time,
        handed.publisher,
        0,
        payload,
        handed_events.OWNER,
        origin,
        handed.recipient,
    )
