"""Catching up: what was stored, but perhaps not matched, when the broker last ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tamis.broker.deliver.notifier import DAMAGE
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.health import Health
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import EventCache
from tamis.ports import Executor
from tamis.storage import Storage

EVENTS_PER_READ: Final = 1_000
PROBLEM: Final = "stored events are still to be matched"


class CatchUp:
    """Matches the end of the log, and says what of it is lost."""

    def __init__(
        self,
        *,
        store: Storage,
        event_cache: EventCache,
        matcher: Matcher,
        subscription_index: SubscriptionIndex,
        executor: Executor,
        health: Health,
        supervisor: Supervisor,
        count_lost: Callable[[ActiveSubscription, int, str], None],
    ) -> None:
        self._store = store
        self._event_cache = event_cache
        self._matcher = matcher
        self._index = subscription_index
        self._executor = executor
        self._health = health
        self._supervisor = supervisor
        self._count_lost = count_lost

    async def begin(self) -> None:
        """Match what is not matched; if the disk is full, that goes on after the broker is open."""
        self._health.report(PROBLEM, "publications are accepted afterwards")
        whole = self._supervisor.depend_on("recovery", self._match)
        stuck = asyncio.ensure_future(self._matcher.stuck.wait())
        try:
            await asyncio.wait([whole, stuck], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stuck.cancel()

    async def _match(self) -> None:
        log = self._store.log
        position = first = self._store.state.matched_up_to + 1
        while position < log.next_sequence:
            records = await self._executor.run(log.read, position, EVENTS_PER_READ)
            if not records:
                break
            events = self._event_cache.decode_records(records)
            if len(events) < len(records):
                decoded = {event.sequence for event in events}
                await self._matcher.skip([one for one in records if one.sequence not in decoded])
            if events:
                await self._event_cache.put(events)
            position = records[-1].sequence + 1
        await self._matcher.drained()
        await self._tell_losses(first)
        self._health.clear(PROBLEM)

    async def _tell_losses(self, first: int) -> None:
        """Tell all subscribers how many events could not be matched: any might have been theirs."""
        log, state, stop = self._store.log, self._store.state, self._store.log.next_sequence
        if not log.damage.lost_in(first, stop):
            return
        lost = {
            one: count
            for one in self._index
            if (count := log.damage.lost_in(max(first, one.stored.start), stop))
        }
        counts = {one.number: count for one, count in lost.items()}
        await self._executor.run(state.skip_unmatched, stop - 1, counts, DAMAGE)
        for subscription, count in lost.items():
            self._count_lost(subscription, count, DAMAGE)
