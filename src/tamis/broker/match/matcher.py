"""The publication matcher: stored events meet the subscriptions, batch by batch, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.operations.health import Health
from tamis.broker.operations.metrics import Metrics
from tamis.broker.publish.event_cache import EventCache, StoredEvent
from tamis.errors import StorageError
from tamis.matching import Engine
from tamis.storage import StateStore

MAX_CHANGES_PER_STEP: Final = 256

T = TypeVar("T")


class SubscriptionChange(NamedTuple):
    """Something to do with the subscriptions, and where its result is awaited."""

    make: Callable[[], Any]
    done: asyncio.Future[Any]


class ChangeResult(NamedTuple):
    """What came of a change."""

    done: asyncio.Future[Any]
    value: Any
    error: Exception | None

    def tell(self) -> None:
        """Wake whoever waits for it."""
        if self.done.done():
            return
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.value)


class Updater:
    """A bounded queue of changes."""

    def __init__(self, wake: Callable[[], None], metrics: Metrics, most_waiting: int) -> None:
        self._wake = wake
        self._waiting: asyncio.Queue[SubscriptionChange] = asyncio.Queue(most_waiting)
        metrics.watch_queue("update", self._waiting)

    async def do(self, make: Callable[[], T]) -> T:
        """Return the result of a change once it is in force."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        await self._waiting.put(SubscriptionChange(make, done))
        self._wake()
        return await done

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits."""
        return self._waiting.empty()

    def take(self) -> list[SubscriptionChange]:
        """Return changes that wait."""
        count = min(self._waiting.qsize(), MAX_CHANGES_PER_STEP)
        return [self._waiting.get_nowait() for _ in range(count)]


def make_all(changes: list[SubscriptionChange]) -> list[ChangeResult]:
    """Make changes; one that fails does not keep the others."""
    return [_made(change) for change in changes]


def _made(change: SubscriptionChange) -> ChangeResult:
    try:
        return ChangeResult(change.done, change.make(), None)
    except Exception as error:
        return ChangeResult(change.done, None, error)


# Fewer events than these are matched one by one, which is faster for them.
MIN_BATCH_EVENTS: Final = 4
MAX_EVENTS_PER_STEP: Final = 4_096
AGAIN: Final = 0.5
PROBLEM: Final = "matches cannot be stored"

Found = dict[int, list[int]]


class _StepResult(NamedTuple):
    results: list[ChangeResult]
    found: Found
    """The sequences for each subscription."""
    unwritten: list[tuple[int, int]]
    """What is to wait on disk and could not be written."""


class Matcher:
    """Finds for each event the subscriptions it is for, and hands it to their mailboxes."""

    def __init__(
        self,
        *,
        engine: Engine,
        state: StateStore,
        event_cache: EventCache,
        subscription_index: SubscriptionIndex,
        metrics: Metrics,
        health: Health,
        most_waiting: int,
        on_full: Callable[[ActiveSubscription], None],
    ) -> None:
        self._engine = engine
        self._state = state
        self._event_cache = event_cache
        self._index = subscription_index
        self._metrics = metrics
        self._health = health
        self._on_full = on_full
        self._work = asyncio.Event()
        self._waiting: asyncio.Queue[list[StoredEvent]] = asyncio.Queue(most_waiting)
        self.updater = Updater(self._work.set, metrics, most_waiting * 16)
        self.position = state.matched_up_to
        """The last event that was matched."""
        self._taken = 0
        """Batches that are being matched."""
        self._publishers: dict[str, int] = {}
        """The last numbers of publishers that the state does not have yet."""
        metrics.watch_queue("match", self._waiting)

    async def match(self, events: list[StoredEvent]) -> None:
        """Take events of the log, in its order; waits while too many wait."""
        self._event_cache.put(events)
        await self._waiting.put(events)
        self._work.set()

    async def run(self) -> None:
        """Match what comes, for ever."""
        while True:
            await self._work.wait()
            self._work.clear()
            while not (self._waiting.empty() and self.updater.is_empty):
                changes, events = self.updater.take(), self._take()
                step = await asyncio.to_thread(self._step, changes, events)
                for result in step.results:
                    result.tell()
                if step.unwritten:
                    await self._write(step.unwritten)
                self._hand_out(step.found)
                self._note_matched()

    async def drained(self) -> None:
        """Return when all that came is matched."""
        await self._waiting.join()

    def _take(self) -> list[StoredEvent]:
        taken: list[StoredEvent] = []
        while len(taken) < MAX_EVENTS_PER_STEP and not self._waiting.empty():
            taken += self._waiting.get_nowait()
            self._taken += 1
        return taken

    def _note_matched(self) -> None:
        for _ in range(self._taken):
            self._waiting.task_done()
        self._taken = 0

    def _step(
        self, changes: list[SubscriptionChange], events: Sequence[StoredEvent]
    ) -> _StepResult:
        results = make_all(changes)
        if not events:
            return _StepResult(results, {}, [])
        with self._metrics.match_seconds.time():
            found = self._find(events)
        return _StepResult(results, found, self._keep(found, events))

    def _find(self, events: Sequence[StoredEvent]) -> Found:
        found: Found = {}
        for stored, numbers in zip(events, self._numbers(events), strict=True):
            for number in numbers:
                subscription = self._index.get(number)
                if subscription is not None and subscription.stored.start <= stored.sequence:
                    found.setdefault(number, []).append(stored.sequence)
        return found

    def _numbers(self, events: Sequence[StoredEvent]) -> Iterable[list[int]]:
        if len(events) < MIN_BATCH_EVENTS:
            return [self._engine.match(stored.payload.event) for stored in events]  # type: ignore[misc]
        return self._engine.match_batch([stored.payload.event for stored in events])  # type: ignore[return-value]

    def _keep(self, found: Found, events: Sequence[StoredEvent]) -> list[tuple[int, int]]:
        """Write what is to wait on disk, and return what could not be.

        Without such rows the position can be written later.
        """
        self.position = events[-1].sequence
        self._publishers.update(
            {one.publisher: one.publisher_sequence for one in events if one.publisher_sequence}
        )
        rows = [(n, s) for n, sequences in found.items() if self._is_on_disk(n) for s in sequences]
        if not rows:
            return []
        try:
            self._commit(rows)
        except StorageError:
            return rows
        return []

    def _commit(self, rows: Sequence[tuple[int, int]]) -> None:
        self._state.commit_matches(self.position, rows, self._publishers)
        self._publishers = {}

    async def checkpoint(self) -> None:
        """Write how far matching has come, so that the log need not be kept for it."""
        await self.updater.do(self._write_position)

    def _write_position(self) -> None:
        if self.position > self._state.matched_up_to:
            self._commit(())

    async def _write(self, rows: Sequence[tuple[int, int]]) -> None:
        """Write rows, as often as it takes: a full disk stops matching, and so publishing."""
        while True:
            try:
                await asyncio.to_thread(self._commit, rows)
            except StorageError as error:
                self._health.report(PROBLEM, str(error))
                await asyncio.sleep(AGAIN)
            else:
                self._health.clear(PROBLEM)
                return

    def _is_on_disk(self, number: int) -> bool:
        subscription = self._index.get(number)
        return subscription is not None and isinstance(subscription.queue, DiskQueue)

    def _hand_out(self, found: Mapping[int, list[int]]) -> None:
        for number, sequences in found.items():
            self._metrics.matched.inc(len(sequences))
            subscription = self._index.get(number)
            if subscription is not None:
                subscription.queue.offer(sequences)
                if subscription.queue.dropped and subscription.stored.policy == "disconnect":
                    self._on_full(subscription)
