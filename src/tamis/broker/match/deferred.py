"""Deferred matches: an event for very many absent subscribers becomes pending little by little.

A pending event is a row in the state for each subscription. Thousands of rows take tens of
milliseconds, for which all events behind that one would wait. Nobody waits for the rows of
subscribers that are not connected. If one principal has so many of them, a single row lists their
subscriptions, and is written with the other matches. Pending rows are made of it later, a few at a
time, in turns with those of other principals. Until they are, the later events of these
subscriptions are deferred, too: each gets its events in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import ClassVar, Final

from tamis.broker.deliver.queues import DiskQueue, MemoryQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.operations.health import Health, code_of
from tamis.errors import StorageError
from tamis.ports import Executor
from tamis.storage import DeferredMatches, StateStore

RETRY_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 1.0
SECONDS_PER_MATCH: Final = 4e-6
"""What a deferred match takes, of which its owner pays."""
PROBLEM: Final = "deferred matches cannot be made pending"


class DeferredWriter:
    """Selects the matches to defer, and makes them pending."""

    # Of one principal.
    max_rows_per_event: ClassVar[int] = 300
    rows_per_slice: ClassVar[int] = 100

    def __init__(
        self,
        *,
        state: StateStore,
        subscription_index: SubscriptionIndex,
        executor: Executor,
        clock: Callable[[], float],
        pause_after: Callable[[float], float],
        charge: Callable[[str, float], None],
        health: Health,
    ) -> None:
        """Resume what was deferred when the broker last ended.

        `pause_after` says how long to pause after some work, and `charge` makes a principal pay.
        """
        self._state = state
        self._index = subscription_index
        self._executor = executor
        self._clock = clock
        self._pause_after = pause_after
        self._charge = charge
        self._health = health
        self.latest: dict[int, int] = {}
        """The latest deferred event of each subscription; other threads may look it up."""
        self._owners: dict[str, None] = {}
        """Who has deferred matches; the next one comes first."""
        self._work = asyncio.Event()
        self.add(state.deferred())

    def select(
        self, found: Sequence[tuple[int, list[ActiveSubscription]]]
    ) -> list[DeferredMatches]:
        """Remove what must be deferred from what was found for events; for any thread.

        That is nothing if there is no `latest` and no event has more than `max_rows_per_event`.
        """
        result: list[DeferredMatches] = []
        latest: Collection[int] = self.latest
        for sequence, subscriptions in found:
            if len(subscriptions) <= self.max_rows_per_event and not latest:
                continue
            deferred = self._deferred(subscriptions, latest)
            if deferred:
                numbers = {number for some in deferred.values() for number in some}
                latest = numbers.union(latest)
                subscriptions[:] = [one for one in subscriptions if one.number not in numbers]
                result += [
                    DeferredMatches.of(owner, sequence, some) for owner, some in deferred.items()
                ]
        return result

    def _deferred(
        self, subscriptions: Sequence[ActiveSubscription], latest: Collection[int]
    ) -> dict[str, list[int]]:
        """Return the numbers of the subscriptions whose event must be deferred, by owner."""
        deferred: dict[str, list[int]] = {}
        absent = [one for one in subscriptions if _is_absent(one.queue)]
        counts = Counter([one.stored.owner for one in absent])
        excessive = {owner for owner, count in counts.items() if count > self.max_rows_per_event}
        for owner in excessive:
            deferred[owner] = [one.stored.number for one in absent if one.stored.owner == owner]
        if latest:
            for one in subscriptions:
                if one.number in latest and not (
                    one.stored.owner in excessive and _is_absent(one.queue)
                ):
                    deferred.setdefault(one.stored.owner, []).append(one.number)
        return deferred

    def add(self, deferred: Iterable[DeferredMatches]) -> None:
        """Make matches pending later; they are stored."""
        for matches in deferred:
            self._owners.setdefault(matches.owner)
            numbers = matches.subscriptions()
            self.latest.update(dict.fromkeys(numbers, matches.sequence))
            self._charge(matches.owner, len(numbers) * SECONDS_PER_MATCH)
            self._work.set()

    def forget_below(self, sequence: int) -> None:
        """Forget events that retention has dropped."""
        self.latest = {number: one for number, one in self.latest.items() if one >= sequence}

    async def run(self) -> None:
        """Make matches pending until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._owners:
                begun = self._clock()
                try:
                    await self._write_next()
                except StorageError as error:
                    self._health.report(PROBLEM, str(error), code_of(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._health.clear(PROBLEM)
                pause = self._pause_after(self._clock() - begun)
                await asyncio.sleep(min(pause, MAX_PAUSE_SECONDS))

    async def _write_next(self) -> None:
        """Make some matches of the next principal pending; if there are more, it gets a turn."""
        owner = next(iter(self._owners))
        # More may be added while this is done, and must not be forgotten.
        del self._owners[owner]
        try:
            has_more = await self._write_some(owner)
        except BaseException:
            self._owners[owner] = None
            self._work.set()
            raise
        if has_more:
            self._owners[owner] = None

    async def _write_some(self, owner: str) -> bool:
        matches = await self._executor.run(self._state.next_deferred, owner)
        if matches is None:
            return False
        numbers = await self._executor.run(self._state.write_deferred, matches, self.rows_per_slice)
        for number in numbers:
            subscription = self._index.get(number)
            if subscription is not None:
                subscription.queue.offer([matches.sequence])
            if self.latest.get(number) == matches.sequence:
                del self.latest[number]
        return True


def _is_absent(queue: DiskQueue | MemoryQueue) -> bool:
    return isinstance(queue, DiskQueue) and not (queue.is_attended or queue.listeners)
