"""Delivery queues: the events that wait for one subscription, in order and within bounds.

Two kinds share one interface. A `DiskQueue` keeps everything that waits in the state store, and a
window of it in memory. A `MemoryQueue`, in a module of its own, is a buffer with nothing behind it.
"""

from __future__ import annotations

import asyncio
import heapq
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final, NamedTuple

import msgspec

from tamis.ports import Executor
from tamis.storage import DeadLetter, Pending, Retry, StateStore

# Readers with other rights have other cursors; beyond this the oldest goes, and its readers begin
# again.
MAX_CURSORS: Final = 4
# Acknowledged events on disk that are looked up at once.
STORED_PER_READ: Final = 1_000


class LostEvent(NamedTuple):
    """An event that cannot be sent, because the log does not have it."""

    number: int
    sequence: int
    reason: str


class QueuedEvent(NamedTuple):
    """An event to send: its sequence in the log, and the number of earlier attempts."""

    sequence: int
    attempts: int = 0
    due: float = 0.0
    """When it was due after it was rejected; 0: nobody has rejected it."""


class InFlightEvent(msgspec.Struct, frozen=True):
    """An event that was sent and is not yet settled."""

    attempts: int
    lease: float
    """When it counts as not received."""
    due: float = 0.0
    """As in the queue."""
    holder: object = None
    """The attachment that sends it; None: it was fetched."""


DeliveryOutcome = InFlightEvent | Retry | DeadLetter | LostEvent | None
"""What became of a delivery; None: the event need not be sent again. What is in flight, or a retry
that is due at 0, was sent and has no outcome yet."""


# Stands for an event without an outcome.
_UNSETTLED: Final = Retry(0, 0, 0, 0.0)


class UnwrittenQueues:
    """The queues with outcomes to write, and how their writer learns of them."""

    __slots__ = ("ahead", "has_rows", "queues", "work")

    def __init__(self) -> None:
        self.queues: dict[DeliveryQueue, None] = {}
        self.work = asyncio.Event()
        """Set when there are some."""
        self.ahead: set[DeliveryQueue] = set()
        """Those with events that are not on disk yet; until then, nobody reads them there."""
        self.has_rows = asyncio.Event()
        """Set while there are none of these."""
        self.has_rows.set()


class DeliveryQueue:
    """What both kinds share: events in flight, and events to send again later."""

    __slots__ = (
        "dropped",
        "in_flight",
        "is_attended",
        "is_deferred",
        "is_ending",
        "listeners",
        "retries",
        "unwritten",
        "window",
        "writing",
        "written_meanwhile",
    )

    is_shared = False
    """Whether several consumers share its events at the same time."""

    def __init__(self, window: int, writing: UnwrittenQueues | None = None) -> None:
        """Make a queue; without `writing`, nothing of it is on disk."""
        self.window = window
        self.writing = writing
        self.unwritten: dict[int, DeliveryOutcome] = {}
        """Outcomes that are not on disk yet, by sequence."""
        self.in_flight: dict[int, InFlightEvent] = {}
        self.dropped = 0
        """Dropped events that the subscriber has not been notified of."""
        self.is_attended = False
        """Whether somebody is connected; for absent subscribers the disk is enough."""
        self.is_deferred = False
        """Whether events that were matched are not pending yet."""
        self.is_ending = False
        """Whether those who wait are told when nothing is unsettled: no events come any more."""
        self.listeners: tuple[asyncio.Event, ...] = ()
        """Those who wait for events, each with an event of its own: most of millions have none."""
        self.retries: list[tuple[float, int, int]] = []
        """A heap of (due, sequence, attempts)."""
        self.written_meanwhile: dict[int, DeliveryOutcome] | None = None
        """Outcomes that are written while the disk is read: the rows read may be older."""

    @property
    def unsettled(self) -> int:
        """Return how many events are in flight, wait for a retry, or are at least deferred."""
        return len(self.in_flight) + len(self.retries) + self.is_deferred

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set when there may be something to send.

        Clear it before looking for events, so that none is missed.
        """
        wake_up = asyncio.Event()
        self.listeners = (*self.listeners, wake_up)
        try:
            yield wake_up
        finally:
            self.listeners = tuple(one for one in self.listeners if one is not wake_up)

    def wake(self) -> None:
        """Wake everybody who waits for events."""
        for wake_up in self.listeners:
            wake_up.set()

    def offer_ahead(self, sequences: Sequence[int]) -> bool:
        """Add events before they are written, if memory has room; return whether it had.

        Whoever is not sent them at once is to be woken.
        """
        raise NotImplementedError

    def take_now(
        self, limit: int, now: float, lease: float, reader: str = "", holder: object = None
    ) -> list[QueuedEvent]:
        """Return the events to send now that memory has; they are then in flight.

        `reader` is the digest of the reader's rights, `holder` the attachment that sends them.
        """
        raise NotImplementedError

    def forget_readers(self) -> None:
        """Restart all readers, because their rights have changed."""
        self.wake()

    def next_due(self) -> float:
        """Return when the next retry is due."""
        return self.retries[0][0] if self.retries else inf

    def put_back(self, sequence: int, attempts: int, due: float) -> None:
        """Schedule an event for another attempt."""
        self.in_flight.pop(sequence, None)
        heapq.heappush(self.retries, (due, sequence, attempts))
        self.wake()

    def return_taken(self, taken: Iterable[QueuedEvent]) -> None:
        """Put back what was taken and not sent: that was no attempt."""
        for queued in taken:
            if queued.sequence in self.in_flight:
                self.put_back(queued.sequence, queued.attempts, queued.due)

    def unsettled_among(self, sequences: Iterable[int], up_to: int) -> list[int]:
        """Return the events in flight or waiting for a retry that are meant."""
        meant = {*sequences}
        known = (*self.in_flight, *(sequence for _, sequence, _ in self.retries))
        return [sequence for sequence in known if sequence in meant or sequence <= up_to]

    def settle(self, sequences: Iterable[int], up_to: int) -> list[int]:
        """Remove events that need not be sent again, also from disk; return those in memory."""
        meant = {*sequences}
        was_full = len(self.in_flight) + len(self.retries) >= self.window
        settled = [s for s in self.in_flight if s in meant or s <= up_to]
        for sequence in settled:
            del self.in_flight[sequence]
        # An acknowledgement may arrive after the connection on which the event was sent has gone.
        if self.retries:
            again = {s for _, s, _ in self.retries if s in meant or s <= up_to}
            self.retries = [retry for retry in self.retries if retry[1] not in again]
            heapq.heapify(self.retries)
            settled += again
            self.wake()
        if settled and self.writing is not None:
            self.unwritten.update(dict.fromkeys(settled))
            self.writing.queues[self] = None
            self.writing.work.set()
        # There may be room in the window now; with room before, nothing waited for it.
        if was_full or self.is_shared or self.is_ending:
            self.wake()
        return settled

    def received_up_to(self, sequence: int) -> list[int]:
        """Return the events up to one that a connection was sent, and nobody has rejected."""
        sent = [s for s, one in self.in_flight.items() if one.lease == inf and not one.due]
        return [s for s in (*sent, *(s for due, s, _ in self.retries if not due)) if s <= sequence]

    def late(self, now: float) -> list[int]:
        """Return the events whose lease has run out."""
        return [sequence for sequence, sent in self.in_flight.items() if sent.lease <= now]

    def _take_held(self, holder: object) -> list[tuple[int, InFlightEvent]]:
        """Remove what an attachment has in flight, and return it in order."""
        held = sorted(one for one in self.in_flight.items() if one[1].holder is holder)
        for sequence, _ in held:
            del self.in_flight[sequence]
        return held

    def _take_due(self, limit: int, now: float) -> list[QueuedEvent]:
        taken: list[QueuedEvent] = []
        while len(taken) < limit and self.retries and self.retries[0][0] <= now:
            due, sequence, attempts = heapq.heappop(self.retries)
            taken.append(QueuedEvent(sequence, attempts, due))
        return taken


class Cursor:
    """How far the readers with the same rights have come in what waits on disk."""

    __slots__ = ("is_whole", "last", "ready")

    def __init__(self, *, is_whole: bool) -> None:
        self.ready: list[QueuedEvent] = []
        """The next events; other cursors may have them, too, until somebody takes them."""
        self.last = 0
        """The last event that came into memory."""
        self.is_whole = is_whole
        """Whether memory holds everything that waits."""

    def remove(self, sequences: Collection[int]) -> None:
        """Remove events that somebody else has taken or settled."""
        self.ready = [queued for queued in self.ready if queued.sequence not in sequences]


class DiskQueue(DeliveryQueue):
    """Everything that waits is on disk; memory holds the next events while somebody is connected.

    Readers may have different rights. What one of them may not see stays on disk for the others, so
    the readers with each rights have a cursor of their own. All but reading is done on the event
    loop.
    """

    __slots__ = (
        "_cursors",
        "_executor",
        "_first",
        "_is_new",
        "_reading",
        "_seen",
        "_state",
        "below",
        "latest_due",
        "number",
        "requeued",
    )

    def __init__(
        self,
        number: int,
        state: StateStore,
        window: int,
        executor: Executor,
        writing: UnwrittenQueues,
        *,
        nothing_yet: bool,
        latest_due: float = inf,
    ) -> None:
        super().__init__(window, writing)
        self.writing: UnwrittenQueues
        self.latest_due = latest_due
        """No pause that is on disk lasts longer."""
        self._executor = executor
        self.number = number
        self._state = state
        self._first = 0
        """Earlier events have been removed from disk."""
        self._is_new = nothing_yet
        """Whether nothing has ever waited."""
        self._cursors: dict[str, Cursor] = {}
        """By the digest of the rights, the oldest first."""
        self._seen = 0
        """The last event that a cursor had which is forgotten."""
        self._reading: asyncio.Lock | None = None
        self.below: float = inf
        """Events from here on must not be sent yet: a replay still looks for earlier ones."""
        self.requeued: frozenset[int] = frozenset()
        """Dead letters that come back; they may be on disk, and are not to be read there."""

    def hold_from(self, sequence: int) -> None:
        """Send no events from one on until a replay has found all before them."""
        self.below = sequence
        self._is_new = False
        self.forget_readers()

    def release(self) -> None:
        """Send all events."""
        self.below = inf
        self.wake()

    def offer(self, sequences: Sequence[int]) -> None:
        """Add events that have been written to disk."""
        self._is_new = False
        # The disk may have been read between writing these and offering them.
        read = max([self._seen, *(cursor.last for cursor in self._cursors.values())])
        for cursor in self._cursors.values():
            new = [sequence for sequence in sequences if sequence > cursor.last]
            if new and new[0] <= read:
                # Another reader has had them, and they may be settled: the disk knows.
                cursor.is_whole = False
            room = self.window - len(cursor.ready) if cursor.is_whole and self.is_attended else 0
            taken = new[: max(0, room)]
            cursor.ready.extend(map(QueuedEvent, taken))
            if taken:
                cursor.last = taken[-1]
            cursor.is_whole = cursor.is_whole and len(taken) == len(new)
        for wake_up in self.listeners:
            wake_up.set()

    def offer_ahead(self, sequences: Sequence[int]) -> bool:
        """Add events before they are written, if memory has all that waits; return whether it did.

        If the broker ends before they are written, they are matched and sent again.
        """
        if self.below != inf or self.is_deferred or not self._cursors or not self.is_attended:
            return False
        if self._reading is not None and self._reading.locked():
            return False
        cursors, room = self._cursors.values(), self.window - len(sequences)
        for cursor in cursors:
            is_next = max(cursor.last, self._seen) < sequences[0]
            if not (cursor.is_whole and is_next and len(cursor.ready) <= room):
                return False
        self._is_new = False
        self.writing.ahead.add(self)
        self.writing.has_rows.clear()
        for cursor in cursors:
            cursor.ready.extend(map(QueuedEvent, sequences))
            cursor.last = sequences[-1]
        return True

    async def take(
        self, limit: int, now: float, lease: float, reader: str = "", holder: object = None
    ) -> list[QueuedEvent]:
        """Return the events to send now, no more than may be unsettled; read them if need be."""
        cursor = self._cursors.get(reader) or self._add_cursor(reader)
        if self._reading is not None and self._reading.locked():
            await self._until_read()
        if not cursor.ready and not cursor.is_whole:
            await self._refill(cursor)
        if self._cursors.get(reader) is not cursor:
            # The rights have changed meanwhile.
            self.wake()
            return []
        return self.take_now(limit, now, lease, reader, holder)

    def take_now(
        self, limit: int, now: float, lease: float, reader: str = "", holder: object = None
    ) -> list[QueuedEvent]:
        """Return the events to send now that memory has, unless the disk is read meanwhile."""
        cursor = self._cursors.get(reader)
        if cursor is None or (self._reading is not None and self._reading.locked()):
            return []
        room = min(limit, self.window - len(self.in_flight))
        taken = self._take_due(room, now) if self.retries else []
        room = min(limit, self.window - len(self.in_flight) - len(self.retries)) - len(taken)
        if taken and cursor.ready:
            taken = self._in_order(taken, cursor, len(taken) + max(0, room))
        elif room > 0:
            taken += cursor.ready[:room]
            del cursor.ready[:room]
        for queued in taken:
            self.in_flight[queued.sequence] = InFlightEvent(
                queued.attempts + 1, lease, queued.due, holder
            )
        if taken and len(self._cursors) > 1:
            self._remove_from_others(cursor, taken)
        if taken and cursor.ready and len(self.listeners) > 1:
            self.wake()
        return taken

    def _in_order(
        self, again: Sequence[QueuedEvent], cursor: Cursor, limit: int
    ) -> list[QueuedEvent]:
        """Merge events to send again with new ones; those that nobody has rejected are in order."""
        rejected = [queued for queued in again if queued.due]
        returned = [queued for queued in again if not queued.due]
        ordered = sorted([*returned, *cursor.ready])[: limit - len(rejected)]
        chosen = {queued.sequence for queued in ordered}
        for sequence, attempts, due in returned:
            if sequence not in chosen:
                heapq.heappush(self.retries, (due, sequence, attempts))
        cursor.remove(chosen)
        return rejected + ordered

    def leave(self, hidden: Sequence[QueuedEvent], reader: str) -> None:
        """Leave events that a reader has taken, but may not see, to the other readers."""
        for queued in hidden:
            self.in_flight.pop(queued.sequence, None)
        for key, cursor in self._cursors.items():
            if key != reader:
                for queued in hidden:
                    # Those with a cursor behind the event will come to it.
                    if queued.sequence <= cursor.last:
                        insort(cursor.ready, queued)
        if len(self.listeners) > 1:
            self.wake()

    def forget_sent(self, holder: object = None) -> None:
        """Schedule what an attachment had in flight again, after its connection has gone."""
        for sequence, sent in self._take_held(holder):
            # What was rejected once stays so: an event stream must not acknowledge it by another.
            heapq.heappush(self.retries, (sent.due, sequence, sent.attempts))
        self.wake()

    async def find_stored(
        self, sequences: Sequence[int], up_to: int, after: int, *, received: bool = False
    ) -> list[int]:
        """Return some events on disk, in order: those listed, and all up to one.

        With `received`, only those that were sent, and nobody has rejected.
        """
        # What a replay has not passed yet was not sent.
        most = int(min(up_to, self.below - 1))
        while self in self.writing.ahead:
            await self.writing.has_rows.wait()
        return await self._executor.run(
            self._state.pending_among,
            self.number,
            sequences,
            most,
            after=after,
            limit=STORED_PER_READ,
            received=received,
        )

    def others_among(self, sequences: Iterable[int]) -> list[int]:
        """Return stored events without those that were rejected or are leased."""
        kept = {s for s, one in self.in_flight.items() if one.due or one.lease != inf}
        kept.update(sequence for due, sequence, _ in self.retries if due)
        return [sequence for sequence in sequences if sequence not in kept]

    def settle_stored(self, sequences: Iterable[int]) -> list[int]:
        """Settle events on disk, in memory or not; return those that were not settled yet."""
        found = [
            sequence
            for sequence in sequences
            if isinstance(self.unwritten.get(sequence, _UNSETTLED), InFlightEvent | Retry)
        ]
        self.settle(found, 0)
        for cursor in self._cursors.values():
            cursor.remove({*found})
        return found

    def has_passed(self, sequence: int, reader: str) -> bool:
        """Return whether a reader was sent all events up to one that it may see."""
        cursor = self._cursors.get(reader)
        return (
            cursor is not None
            and not (self._reading is not None and self._reading.locked())
            and cursor.last >= sequence
            and not (cursor.ready and cursor.ready[0].sequence <= sequence)
        )

    def drop_below(self, sequence: int) -> None:
        """Forget events that are no longer on disk."""
        self.in_flight = {s: sent for s, sent in self.in_flight.items() if s >= sequence}
        self.retries = [retry for retry in self.retries if retry[1] >= sequence]
        heapq.heapify(self.retries)
        for cursor in self._cursors.values():
            cursor.ready = [queued for queued in cursor.ready if queued.sequence >= sequence]
        self._first = max(self._first, sequence)

    # --- cursors ---------------------------------------------------------------------------------

    def forget_readers(self) -> None:
        """Restart all readers, because their rights have changed."""
        self._seen = max([self._seen, *(cursor.last for cursor in self._cursors.values())])
        self._cursors.clear()
        super().forget_readers()

    def _add_cursor(self, reader: str) -> Cursor:
        if len(self._cursors) >= MAX_CURSORS:
            oldest = self._cursors.pop(next(iter(self._cursors)))
            self._seen = max(self._seen, oldest.last)
        cursor = self._cursors[reader] = Cursor(is_whole=self._is_new)
        return cursor

    def _remove_from_others(self, cursor: Cursor, taken: Iterable[QueuedEvent]) -> None:
        sequences = {queued.sequence for queued in taken}
        for other in self._cursors.values():
            if other is not cursor:
                other.remove(sequences)

    async def _until_read(self) -> None:
        """Wait while the disk is read: what is offered meanwhile comes after what is read."""
        while self._reading is not None and self._reading.locked():
            async with self._reading:
                pass

    async def _refill(self, cursor: Cursor) -> None:
        """Read the next events from disk; other readers wait meanwhile."""
        if self._reading is None:
            self._reading = asyncio.Lock()
        async with self._reading:
            while self in self.writing.ahead:
                await self.writing.has_rows.wait()
            before = -1
            # What is read may be settled already, so that there is nothing in it.
            while before < cursor.last and self._needs_more(cursor):
                before = cursor.last
                await self._read_more(cursor)

    def _needs_more(self, cursor: Cursor) -> bool:
        return not (cursor.ready or cursor.is_whole or len(self.retries) >= self.window)

    async def _read_more(self, cursor: Cursor) -> None:
        # Events that are offered while the disk is read are kept and joined to those read.
        before, below, cursor.is_whole = cursor.last, self.below, True
        self.written_meanwhile = {}
        try:
            rows = await self._executor.run(self._read, before)
            self._join(cursor, rows, before, below)
        except BaseException:
            cursor.ready = [queued for queued in cursor.ready if queued.sequence <= before]
            cursor.last, cursor.is_whole = before, False
            raise
        finally:
            self.written_meanwhile = None

    def _join(self, cursor: Cursor, rows: Sequence[Pending], before: int, below: float) -> None:
        """Put events that were read before those that were offered meanwhile."""
        read = [row for row in rows if row.sequence < below]
        last = read[-1].sequence if read else before
        offered = [queued for queued in cursor.ready if queued.sequence > last]
        # Those that another reader has left to this one meanwhile, say.
        earlier = [queued for queued in cursor.ready if queued.sequence <= before]
        if below != inf or len(rows) == self.window:
            offered, cursor.is_whole = [], False
        known = {*self.in_flight, *(sequence for _, sequence, _ in self.retries)}
        known |= self.requeued
        outcomes = {**(self.written_meanwhile or {}), **self.unwritten}
        cursor.ready = earlier
        for row in read:
            if row.sequence in known or row.sequence < self._first:
                continue
            latest = outcomes.get(row.sequence, row)
            if isinstance(latest, Pending | InFlightEvent | Retry):
                self._add_row(cursor, row.sequence, latest)
        cursor.ready.extend(offered)
        cursor.last = offered[-1].sequence if offered else last

    def _add_row(
        self, cursor: Cursor, sequence: int, latest: Pending | InFlightEvent | Retry
    ) -> None:
        due = min(latest.due, self.latest_due)
        if due:
            heapq.heappush(self.retries, (due, sequence, latest.attempts))
        else:
            cursor.ready.append(QueuedEvent(sequence, latest.attempts))

    def _read(self, after: int) -> list[Pending]:
        return self._state.pending(self.number, after, inf, self.window)
