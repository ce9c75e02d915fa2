"""The event cache: stored events, decoded, for the matcher and for the subscribers after it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tamis.broker.publish.payloads import NAME_OF, Payload, PayloadDecoder
from tamis.broker.publish.publishers import owner_of
from tamis.errors import TamisError
from tamis.ports import Executor
from tamis.storage import EventLog, Record

# Roughly what a stored event takes beside its text.
OVERHEAD_BYTES: Final = 1_000


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with its place in the log."""

    sequence: int
    time: float
    publisher: str
    publisher_sequence: int
    payload: Payload
    owner: str
    """The publisher's principal, as `owner_of` has it."""


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
        *,
        max_unmatched: int,
    ) -> None:
        """Make a cache in which at most so many batches wait to be matched."""
        self._log = log
        self._executor = executor
        self._decoder = decoder
        self._max_bytes = max_bytes
        self._bytes = 0
        self.recent: OrderedDict[int, StoredEvent] = OrderedDict()
        """The cached events by sequence."""
        self.unmatched: asyncio.Queue[list[StoredEvent]] = asyncio.Queue(max_unmatched)
        """Batches of events for the matcher, in the order of the log."""
        self.has_work = asyncio.Event()
        """Set when the matcher should look for work."""

    async def put(self, events: list[StoredEvent]) -> None:
        """Add events in the order of the log; wait while there are too many to match."""
        for event in events:
            self.recent[event.sequence] = event
            self._bytes += len(event.payload.text) + OVERHEAD_BYTES
        # The oldest make room.
        while self._bytes > self._max_bytes:
            _, oldest = self.recent.popitem(last=False)
            self._bytes -= len(oldest.payload.text) + OVERHEAD_BYTES
        await self.unmatched.put(events)
        self.has_work.set()

    def is_lost_by_damage(self, sequence: int) -> bool:
        """Return whether an event that is not there was lost, rather than removed by retention."""
        log = self._log
        return sequence >= log.first_sequence or log.damage.lost_in(sequence, sequence + 1) > 0

    async def find(self, sequences: Sequence[int]) -> list[StoredEvent | None]:
        """Return events; None for those that the log no longer has."""
        found = [self.recent.get(sequence) for sequence in sequences]
        missing = [s for s, event in zip(sequences, found, strict=True) if event is None]
        if not missing:
            return found
        read = await self._executor.run(self._read, missing)
        return [event or read[s] for s, event in zip(sequences, found, strict=True)]

    def _read(self, sequences: Iterable[int]) -> dict[int, StoredEvent | None]:
        return {sequence: self.decode_record(self._log.get(sequence)) for sequence in sequences}

    def decode_records(self, records: Iterable[Record]) -> list[StoredEvent]:
        """Return the events in records of the log, without those that cannot be sent."""
        return [event for event in map(self.decode_record, records) if event is not None]

    def decode_record(self, record: Record | None) -> StoredEvent | None:
        """Return the event in a record of the log; it was checked before it was written."""
        if record is None:
            return None
        try:
            payload = self._decoder.decode_stored(record.payload, NAME_OF[record.format])
        except TamisError:
            # The schema or the limits have changed since; such an event cannot be sent to anybody.
            return None
        return StoredEvent(*record[:4], payload, owner_of(record.publisher))
