"""What waits for a subscriber, in order, within bounds.

Two kinds with one interface. A `DiskQueue` has all that waits in the state on disk, and a window
of it in memory. A `MemoryQueue` has a buffer and nothing behind it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from tamis.storage import Pending, StateStore


class QueuedEvent(NamedTuple):
    """An event that is to be sent: its place in the log, and how often it was sent before."""

    sequence: int
    attempts: int = 0


class InFlightEvent(NamedTuple):
    """An event that was sent and not yet settled."""

    attempts: int
    lease: float
    """When it counts as not received."""


class WakeUp:
    """Wakes whoever waits for news; costs next to nothing while nobody does, as with most."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None

    def set(self) -> None:
        """Wake whoever waits."""
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        """Listen from now on: what is there already must be looked for after this."""
        if self._event is None:
            self._event = asyncio.Event()
        self._event.clear()

    async def wait(self) -> None:
        """Wait until someone has rung since `clear`."""
        assert self._event is not None  # noqa: S101 - see above
        await self._event.wait()


class DeliveryQueue:
    """What all mailboxes have: events that were sent, and those to be sent again later."""

    __slots__ = ("_later", "_ready", "arrived", "dropped", "in_flight", "is_attended", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.in_flight: dict[int, InFlightEvent] = {}
        self.dropped = 0
        """Events that will not come and of which the subscriber has not been told."""
        self.is_attended = False
        """Whether somebody is connected: for those who are away the disk is enough."""
        self.arrived = WakeUp()
        self._ready: list[QueuedEvent] = []
        self._later: list[tuple[float, int, int]] = []

    @property
    def unsettled(self) -> int:
        """Return how many events were sent, or are to be sent again."""
        return len(self.in_flight) + len(self._later)

    def next_due(self) -> float:
        """Return when an event is to be sent again."""
        return self._later[0][0] if self._later else inf

    def put_back(self, sequence: int, attempts: int, due: float) -> None:
        """Let an event come again."""
        self.in_flight.pop(sequence, None)
        heapq.heappush(self._later, (due, sequence, attempts))
        self.arrived.set()

    def settle(self, sequences: Iterable[int], up_to: int) -> list[int]:
        """Forget events that need not come again; return those that were known."""
        meant = set(sequences)
        sent = [s for s in self.in_flight if s in meant or s <= up_to]
        for sequence in sent:
            del self.in_flight[sequence]
        # There may be room in the window now.
        self.arrived.set()
        # An acknowledgement may come after the connection on which the event was sent has gone.
        later = [s for _, s, _ in self._later if s in meant or s <= up_to]
        if later:
            gone = set(later)
            self._later = [entry for entry in self._later if entry[1] not in gone]
            heapq.heapify(self._later)
        return sent + later

    def _next(self, count: int) -> list[QueuedEvent]:
        count = max(0, count)
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def _take_due(self, limit: int, now: float) -> list[QueuedEvent]:
        taken: list[QueuedEvent] = []
        while len(taken) < limit and self._later and self._later[0][0] <= now:
            _, sequence, attempts = heapq.heappop(self._later)
            taken.append(QueuedEvent(sequence, attempts))
        return taken

    def _send(self, taken: list[QueuedEvent], lease: float) -> list[QueuedEvent]:
        # From here on they are not lost, whatever becomes of the one who takes them.
        for waiting in taken:
            self.in_flight[waiting.sequence] = InFlightEvent(waiting.attempts + 1, lease)
        return taken

    def late(self, now: float) -> list[int]:
        """Return what was sent and not settled in time."""
        return [sequence for sequence, sent in self.in_flight.items() if sent.lease <= now]


class DiskQueue(DeliveryQueue):
    """All that waits is on disk; memory holds the next of it, while somebody is there."""

    __slots__ = ("_is_whole", "_last", "_number", "_state", "below")

    def __init__(self, number: int, state: StateStore, window: int, *, nothing_yet: bool) -> None:
        super().__init__(window)
        self._number = number
        self._state = state
        self._is_whole = nothing_yet
        """Whether memory holds all that waits."""
        self._last = 0
        """The last event that came into memory."""
        self.below: float = inf
        """What waits from here on must not be sent yet, because earlier events are still sought."""

    def offer(self, sequences: Sequence[int]) -> None:
        """Take events that have been written to disk."""
        room = self.window - len(self._ready) if self._is_whole and self.is_attended else 0
        taken = sequences[: max(0, room)]
        self._ready.extend(map(QueuedEvent, taken))
        if taken:
            self._last = taken[-1]
        self._is_whole = self._is_whole and len(taken) == len(sequences)
        self.arrived.set()

    async def take(self, limit: int, now: float, lease: float) -> list[QueuedEvent]:
        """Return what is to be sent now, no more than may be unsettled."""
        if not self._ready and not self._is_whole:
            await self._refill()
        taken = self._take_due(min(limit, self.window - len(self.in_flight)), now)
        room = min(limit, self.window - self.unsettled) - len(taken)
        return self._send(taken + self._next(room), lease)

    async def _refill(self) -> None:
        # What is offered while the disk is read is kept, and joined to what was read.
        before, below, self._is_whole = self._last, self.below, True
        try:
            rows = await asyncio.to_thread(self._read, before)
        except BaseException:
            self._ready.clear()
            self._last, self._is_whole = before, False
            raise
        read = [row for row in rows if row.sequence < below]
        last = read[-1].sequence if read else before
        offered = [waiting for waiting in self._ready if waiting.sequence > last]
        if below != inf or len(rows) == self.window:
            offered, self._is_whole = [], False
        self._ready = [QueuedEvent(row.sequence, row.attempts) for row in read if not row.due]
        self._ready.extend(offered)
        self._last = offered[-1].sequence if offered else last
        for row in read:
            if row.due:
                heapq.heappush(self._later, (row.due, row.sequence, row.attempts))

    def _read(self, after: int) -> list[Pending]:
        return self._state.pending(self._number, after, inf, self.window)

    def forget_sent(self) -> None:
        """Let all that was sent and not settled come again, after the connection has gone."""
        for sequence, sent in sorted(self.in_flight.items()):
            heapq.heappush(self._later, (0.0, sequence, sent.attempts))
        self.in_flight.clear()
        self.arrived.set()


class MemoryQueue(DeliveryQueue):
    """A buffer; what does not fit pushes out the oldest."""

    __slots__ = ()

    @property
    def waiting(self) -> int:
        """Return how many events wait."""
        return len(self._ready)

    def offer(self, sequences: Sequence[int]) -> None:
        """Take events; the oldest make room."""
        self._ready.extend(map(QueuedEvent, sequences))
        excess = max(0, len(self._ready) - self.window)
        del self._ready[:excess]
        self.dropped += excess
        self.arrived.set()

    async def take(self, limit: int, now: float, lease: float) -> list[QueuedEvent]:
        """Return what is to be sent now."""
        taken = self._take_due(limit, now)
        return self._send(taken + self._next(limit - len(taken)), lease)

    def forget_sent(self) -> None:
        """Do not send anything again."""
        self.in_flight.clear()
