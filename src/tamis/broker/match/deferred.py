"""Deferred matches: an event for very many absent subscribers becomes pending little by little.

A pending event is a row in the state for each subscription. Thousands of rows take tens of
milliseconds, for which all events behind that one would wait. Nobody waits for the rows of
subscribers that are not connected. If one principal has so many of them, a few rows list their
subscriptions, and are written with the other matches. Pending rows are made of them later, a slice
at a time, in turns with those of other principals. Until they are, the later events of these
subscriptions are deferred, too: each gets its events in order.

Who publishes for its own absent subscribers waits until its events are pending. Otherwise there is
a bound, beyond which matching waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.operations.health import Health, code_of
from tamis.broker.publish.event_cache import DAMAGE
from tamis.errors import StorageError
from tamis.ports import Executor
from tamis.storage import DeferredMatches, StateStore, WrittenMatches

RETRY_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 1.0
MAX_PAUSES: Final = 40
"""How many times as long as a slice takes the pause after it may be."""
MANY_WAITING: Final = 25_000
"""With this many matches there are no longer pauses."""
SECONDS_PER_MATCH: Final = 1e-5
"""What a deferred match costs who publishes for its own subscriptions."""
PROBLEM: Final = "deferred matches cannot be made pending"


class HeldEvent(NamedTuple):
    """An event whose publisher waits until its deferred matches are pending."""

    owner: str
    """As publishers have it."""
    matches: int
    """How many subscriptions it reaches."""


class DeferredWriter:
    """Selects the matches to defer, and makes them pending."""

    # Of one principal.
    max_rows_per_event: ClassVar[int] = 300
    rows_per_slice: ClassVar[int] = 100
    max_waiting: ClassVar[int] = 50_000

    def __init__(
        self,
        *,
        state: StateStore,
        subscription_index: SubscriptionIndex,
        executor: Executor,
        clock: Callable[[], float],
        is_shared: Callable[[], bool],
        charge: Callable[[str, float], None],
        on_written: Callable[[str, int, int], None],
        count_lost: Callable[[ActiveSubscription, int, str], None],
        health: Health,
    ) -> None:
        """Make a writer of matches in the state.

        `is_shared` says whether several principals are active, and `charge` makes one of them pay.
        `on_written` gets the owner of an event that was held, 1, and how many it reached.
        `count_lost` gets what a subscription has lost, and the reason.
        """
        self._state = state
        self._index = subscription_index
        self._executor = executor
        self._clock = clock
        self._is_shared = is_shared
        self._charge = charge
        self._on_written = on_written
        self._count_lost = count_lost
        self._health = health
        self.latest: dict[int, int] = {}
        """The latest deferred event of each subscription; other threads may look it up."""
        self._counts: Counter[tuple[str, int]] = Counter()
        """How many matches of each principal and event wait."""
        self._waiting = 0
        self._up_to = 0
        """The last event with matches that were added; others are on disk, and will be."""
        self._held: dict[tuple[str, int], HeldEvent] = {}
        self._owners: dict[str, None] = {}
        """Who has deferred matches; the next one comes first."""
        self._awaited: dict[int, str] = {}
        """Subscriptions that somebody reads, and their owners."""
        self._is_readers_turn = False
        self._work, self._is_awaited, self._progress = (asyncio.Event() for _ in range(3))

    def resume(self) -> None:
        """Go on with what was deferred when the broker last ended; subscriptions are restored."""
        self.add(self._state.deferred(), {})
        # Damaged rows are found, and told, when it is their owner's turn.
        self._up_to = self._state.matched_up_to
        self._owners.update(dict.fromkeys(self._state.deferred_owners()))
        self._work.set()

    # --- deferring -------------------------------------------------------------------------------

    def select(
        self, found: Sequence[tuple[int, list[ActiveSubscription]]]
    ) -> list[DeferredMatches]:
        """Remove what must be deferred from what was found for events; for any thread.

        That is nothing if there is no `latest` and no event has more than `max_rows_per_event`.
        """
        result: list[DeferredMatches] = []
        now: set[int] = set()
        for sequence, subscriptions in found:
            for owner, numbers in self._take_deferred(subscriptions, now).items():
                now.update(numbers)
                result += DeferredMatches.parts(owner, sequence, numbers)
        return result

    def _take_deferred(
        self, subscriptions: list[ActiveSubscription], now: Collection[int]
    ) -> dict[str, list[int]]:
        """Remove the subscriptions whose event must be deferred; return their numbers by owner."""
        latest, deferred, kept = self.latest, dict[str, list[int]](), list[ActiveSubscription]()
        absent: dict[str, list[ActiveSubscription]] = {}
        # There may be very many, and other events wait meanwhile.
        for one in subscriptions:
            stored, queue = one.stored, one.queue
            if stored.number in latest or stored.number in now:
                deferred.setdefault(stored.owner, []).append(stored.number)
            elif queue.is_attended or queue.listeners or not isinstance(queue, DiskQueue):
                kept.append(one)
            else:
                absent.setdefault(stored.owner, []).append(one)
        for owner, some in absent.items():
            if len(some) > self.max_rows_per_event:
                deferred.setdefault(owner, []).extend([one.stored.number for one in some])
            else:
                kept += some
        subscriptions[:] = kept
        return deferred

    def add(
        self, deferred: Iterable[DeferredMatches], held: Mapping[tuple[str, int], HeldEvent]
    ) -> None:
        """Make matches pending later; they are stored.

        Of events that are held, by principal and sequence, tell when that is done.
        """
        self._held.update(held)
        for matches in deferred:
            numbers = matches.subscriptions()
            self._up_to = matches.sequence
            for number in numbers:
                if number not in self.latest:
                    subscription = self._index.get(number)
                    if subscription is not None:
                        subscription.queue.is_deferred = True
            self.latest.update(dict.fromkeys(numbers, matches.sequence))
            self._counts[matches.owner, matches.sequence] += len(numbers)
            self._waiting += len(numbers)
            self._owners.setdefault(matches.owner)
            if (matches.owner, matches.sequence) in held:
                # Whoever gets what others publish need not pay for that.
                self._charge(matches.owner, len(numbers) * SECONDS_PER_MATCH)
            self._work.set()

    @property
    def is_full(self) -> bool:
        """Return whether matching must wait."""
        return self._waiting > self.max_waiting

    async def room(self) -> None:
        """Return when there is room for more."""
        while self.is_full:
            self._is_awaited.set()
            await self._next_progress()

    async def flush(self, subscription: ActiveSubscription) -> None:
        """Return when nothing of a subscription is deferred, or it is gone."""
        while (
            subscription.queue.is_deferred and self._index.get(subscription.number) is subscription
        ):
            self.hurry(subscription)
            await self._next_progress()

    def hurry(self, subscription: ActiveSubscription) -> None:
        """Note that somebody reads a subscription with deferred matches."""
        self._awaited[subscription.number] = subscription.stored.owner
        self._is_awaited.set()

    def forget_below(self, sequence: int) -> None:
        """Forget events that retention has dropped."""
        for number, latest in [*self.latest.items()]:
            if latest < sequence:
                self._forget(number)
        for key in [key for key in self._counts if key[1] < sequence]:
            self._count_down(key, self._counts[key])
        self._progress.set()

    # --- making pending --------------------------------------------------------------------------

    async def run(self) -> None:
        """Make matches pending until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._owners:
                try:
                    seconds = await self._write_next()
                except StorageError as error:
                    self._health.report(PROBLEM, str(error), code_of(error))
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                self._health.clear(PROBLEM)
                await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        """Pause after some work; for less long if somebody waits."""
        self._is_awaited.clear()
        await asyncio.sleep(seconds)
        # While few matches wait, events of others should rarely meet this work.
        share = max(0.0, 1 - self._waiting / MANY_WAITING) if self._is_shared() else 0.0
        more = min(MAX_PAUSES * share * seconds, MAX_PAUSE_SECONDS)
        if more > 0 and not self._awaited and not self.is_full:
            try:
                async with asyncio.timeout(more):
                    await self._is_awaited.wait()
            except TimeoutError:
                pass

    async def _write_next(self) -> float:
        """Write a slice of the next principal, and return how long it took."""
        owner = self._next_owner()
        # More may be added while this is done, and must not be forgotten.
        del self._owners[owner]
        try:
            seconds, (pairs, lost) = await self._executor.run(self._write_slice, owner)
        except BaseException:
            self._owners[owner] = None
            self._work.set()
            raise
        if pairs or lost:
            self._owners[owner] = None
        elif owner not in self._owners:
            self._give_up(owner)
        for number, sequence in pairs:
            subscription = self._index.get(number)
            if subscription is not None:
                subscription.queue.offer([sequence])
            if self.latest.get(number) == sequence:
                self._forget(number)
        for (_, sequence), count in Counter((owner, sequence) for _, sequence in pairs).items():
            self._count_down((owner, sequence), count)
        for number, count in lost.items():
            subscription = self._index.get(number)
            if subscription is not None:
                self._count_lost(subscription, count, DAMAGE)
        self._progress.set()
        return seconds

    def _next_owner(self) -> str:
        """Return whose turn it is: each second time that of somebody whose subscriptions are read.

        Whoever had one comes last.
        """
        self._is_readers_turn = not self._is_readers_turn
        if self._is_readers_turn and self._awaited:
            read = {*self._awaited.values()}
            return next((one for one in self._owners if one in read), next(iter(self._owners)))
        return next(iter(self._owners))

    def _give_up(self, owner: str) -> None:
        """Forget matches that are not there; if they were damaged, they have been told."""
        for number in [*self.latest]:
            subscription = self._index.get(number)
            if subscription is None or subscription.stored.owner == owner:
                self._forget(number)
        for key in [key for key in self._counts if key[0] == owner]:
            self._count_down(key, self._counts[key])

    def _write_slice(self, owner: str) -> tuple[float, WrittenMatches]:
        begun = self._clock()
        written = self._state.write_deferred(owner, self._up_to, self.rows_per_slice)
        return self._clock() - begun, written

    def _forget(self, number: int) -> None:
        del self.latest[number]
        self._awaited.pop(number, None)
        subscription = self._index.get(number)
        if subscription is not None:
            subscription.queue.is_deferred = False
            subscription.queue.wake()

    def _count_down(self, key: tuple[str, int], count: int) -> None:
        # Retention may have dropped them, or a failure has made the writer start again.
        count = min(count, self._counts[key])
        self._waiting -= count
        self._counts[key] -= count
        if not self._counts[key]:
            del self._counts[key]
            held = self._held.pop(key, None)
            if held is not None:
                self._on_written(held.owner, 1, held.matches)

    async def _next_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()
