"""Delivery queues: the events that wait for one subscriber, in order and within bounds.

Two kinds share one interface. A `DiskQueue` keeps everything that waits in the state store, and a
window of it in memory. A `MemoryQueue` is a buffer with nothing behind it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, NamedTuple

from tamis.ports import Executor
from tamis.storage import Pending, StateStore

# The wake-up of all queues without a listener: most of millions never have one.
NO_LISTENER: Final = asyncio.Event()


class QueuedEvent(NamedTuple):
    """An event to send: its sequence in the log, and the number of earlier attempts."""

    sequence: int
    attempts: int = 0


class InFlightEvent(NamedTuple):
    """An event that was sent and is not yet settled."""

    attempts: int
    lease: float
    """When it counts as not received."""


class DeliveryQueue:
    """What both kinds share: events in flight, and events to send again later."""

    __slots__ = ("_ready", "dropped", "in_flight", "is_attended", "retries", "wake_up", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.in_flight: dict[int, InFlightEvent] = {}
        self.dropped = 0
        """Dropped events that the subscriber has not been notified of."""
        self.is_attended = False
        """Whether somebody is connected; for absent subscribers the disk is enough."""
        self.wake_up = NO_LISTENER
        """Set when there may be something to send."""
        self.retries: list[tuple[float, int, int]] = []
        """A heap of (due, sequence, attempts)."""
        self._ready: list[QueuedEvent] = []

    @property
    def unsettled(self) -> int:
        """Return how many events are in flight or wait for a retry."""
        return len(self.in_flight) + len(self.retries)

    def listen(self) -> asyncio.Event:
        """Return the wake-up; clear it before looking for events, so that none is missed."""
        if self.wake_up is NO_LISTENER:
            self.wake_up = asyncio.Event()
        return self.wake_up

    def next_due(self) -> float:
        """Return when the next retry is due."""
        return self.retries[0][0] if self.retries else inf

    def put_back(self, sequence: int, attempts: int, due: float) -> None:
        """Schedule an event for another attempt."""
        self.in_flight.pop(sequence, None)
        heapq.heappush(self.retries, (due, sequence, attempts))
        self.wake_up.set()

    def settle(self, sequences: Iterable[int], up_to: int) -> list[int]:
        """Remove acknowledged events; return those that were known."""
        meant = set(sequences)
        settled = [s for s in self.in_flight if s in meant or s <= up_to]
        for sequence in settled:
            del self.in_flight[sequence]
        # An acknowledgement may arrive after the connection on which the event was sent has gone.
        if self.retries:
            again = {s for _, s, _ in self.retries if s in meant or s <= up_to}
            self.retries = [retry for retry in self.retries if retry[1] not in again]
            heapq.heapify(self.retries)
            settled += again
        # There may be room in the window now.
        self.wake_up.set()
        return settled

    def late(self, now: float) -> list[int]:
        """Return the events whose lease has run out."""
        return [sequence for sequence, sent in self.in_flight.items() if sent.lease <= now]

    def _take_due(self, limit: int, now: float) -> list[QueuedEvent]:
        taken: list[QueuedEvent] = []
        while len(taken) < limit and self.retries and self.retries[0][0] <= now:
            _, sequence, attempts = heapq.heappop(self.retries)
            taken.append(QueuedEvent(sequence, attempts))
        return taken


class DiskQueue(DeliveryQueue):
    """Everything that waits is on disk; memory holds the next events while somebody is connected.

    All but reading is done on the event loop.
    """

    __slots__ = ("_executor", "_is_whole", "_last", "_number", "_state", "below")

    def __init__(
        self,
        number: int,
        state: StateStore,
        window: int,
        executor: Executor,
        *,
        nothing_yet: bool,
    ) -> None:
        super().__init__(window)
        self._executor = executor
        self._number = number
        self._state = state
        self._is_whole = nothing_yet
        """Whether memory holds everything that waits."""
        self._last = 0
        """The last event that came into memory."""
        self.below: float = inf
        """Events from here on must not be sent yet: a replay still looks for earlier ones."""

    def offer(self, sequences: Sequence[int]) -> None:
        """Add events that have been written to disk."""
        room = self.window - len(self._ready) if self._is_whole and self.is_attended else 0
        taken = sequences[: max(0, room)]
        self._ready.extend(map(QueuedEvent, taken))
        if taken:
            self._last = taken[-1]
        self._is_whole = self._is_whole and len(taken) == len(sequences)
        self.wake_up.set()

    async def take(self, limit: int, now: float, lease: float) -> list[QueuedEvent]:
        """Return the events to send now, no more than may be unsettled; they are then in flight."""
        if not self._ready and not self._is_whole:
            await self._refill()
        room = min(limit, self.window - len(self.in_flight))
        taken = self._take_due(room, now) if self.retries else []
        room = min(limit, self.window - len(self.in_flight) - len(self.retries)) - len(taken)
        if room > 0:
            taken += self._ready[:room]
            del self._ready[:room]
        for queued in taken:
            self.in_flight[queued.sequence] = InFlightEvent(queued.attempts + 1, lease)
        return taken

    async def _refill(self) -> None:
        # Events that are offered while the disk is read are kept and joined to those read.
        before, below, self._is_whole = self._last, self.below, True
        try:
            rows = await self._executor.run(self._read, before)
        except BaseException:
            self._ready.clear()
            self._last, self._is_whole = before, False
            raise
        read = [row for row in rows if row.sequence < below]
        last = read[-1].sequence if read else before
        offered = [queued for queued in self._ready if queued.sequence > last]
        if below != inf or len(rows) == self.window:
            offered, self._is_whole = [], False
        self._ready = [QueuedEvent(row.sequence, row.attempts) for row in read if not row.due]
        self._ready.extend(offered)
        self._last = offered[-1].sequence if offered else last
        for row in read:
            if row.due:
                heapq.heappush(self.retries, (row.due, row.sequence, row.attempts))

    def _read(self, after: int) -> list[Pending]:
        return self._state.pending(self._number, after, inf, self.window)

    def forget_sent(self) -> None:
        """Schedule everything in flight again, after the connection has gone."""
        for sequence, sent in sorted(self.in_flight.items()):
            heapq.heappush(self.retries, (0.0, sequence, sent.attempts))
        self.in_flight.clear()
        self.wake_up.set()


class MemoryQueue(DeliveryQueue):
    """A buffer; when it is full, new events push out the oldest."""

    __slots__ = ()

    @property
    def waiting(self) -> int:
        """Return how many events wait."""
        return len(self._ready)

    def offer(self, sequences: Sequence[int]) -> None:
        """Add events; the oldest make room."""
        self._ready.extend(map(QueuedEvent, sequences))
        excess = max(0, len(self._ready) - self.window)
        del self._ready[:excess]
        self.dropped += excess
        self.wake_up.set()

    async def take(self, limit: int, now: float, lease: float) -> list[QueuedEvent]:
        """Return the events to send now; they are then in flight."""
        taken = self._take_due(limit, now)
        room = max(0, limit - len(taken))
        taken += self._ready[:room]
        del self._ready[:room]
        for queued in taken:
            self.in_flight[queued.sequence] = InFlightEvent(queued.attempts + 1, lease)
        return taken

    def forget_sent(self) -> None:
        """Send nothing again."""
        self.in_flight.clear()
