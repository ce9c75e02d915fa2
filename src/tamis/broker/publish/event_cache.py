"""Events that were stored a moment ago, kept at hand for those who are about to get them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tamis.broker.publish.payloads import NAME_OF, Payload, PayloadDecoder
from tamis.errors import TamisError
from tamis.storage import EventLog, Record

# What a stored event takes beside its text, roughly.
OVERHEAD: Final = 1_000


class StoredEvent(NamedTuple):
    """An event with its place in the log."""

    sequence: int
    time: float
    publisher: str
    publisher_sequence: int
    payload: Payload


class EventCache:
    """The latest events, up to a number of bytes; others are read from the log."""

    def __init__(self, log: EventLog, reader: PayloadDecoder, most_bytes: int) -> None:
        self._log = log
        self._reader = reader
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[int, StoredEvent] = OrderedDict()

    def put(self, events: Iterable[StoredEvent]) -> None:
        """Keep events; the oldest make room."""
        for event in events:
            self._kept[event.sequence] = event
            self._bytes += _size(event)
        while self._bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= _size(oldest)

    async def find(self, sequences: Sequence[int]) -> list[StoredEvent | None]:
        """Return events; None for those that the log has no more."""
        found = [self._kept.get(sequence) for sequence in sequences]
        missing = [s for s, event in zip(sequences, found, strict=True) if event is None]
        if not missing:
            return found
        read = await asyncio.to_thread(self._read, missing)
        return [event or read[s] for s, event in zip(sequences, found, strict=True)]

    def _read(self, sequences: Iterable[int]) -> dict[int, StoredEvent | None]:
        return {sequence: self.stored(self._log.get(sequence)) for sequence in sequences}

    def stored(self, record: Record | None) -> StoredEvent | None:
        """Return what a record of the log holds; it was checked before it was written."""
        if record is None:
            return None
        try:
            payload = self._reader.stored(record.payload, NAME_OF[record.format])
        except TamisError:
            # The schema or the limits are not what they were; nobody can be sent such an event.
            return None
        return StoredEvent(*record[:4], payload)


def _size(event: StoredEvent) -> int:
    return len(event.payload.text) + OVERHEAD
