"""Catching up: what was stored, but perhaps not matched, when the broker last ended."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.health import Health
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import DAMAGE, INVALID, EventCache
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
        invalid: list[int] = []
        while position < log.next_sequence:
            records = await self._executor.run(log.read, position, EVENTS_PER_READ)
            if not records:
                break
            decoded = self._event_cache.decode_records(records)
            if decoded.invalid:
                await self._matcher.skip(decoded.invalid)
                invalid += [record.sequence for record in decoded.invalid]
            if decoded.events:
                await self._event_cache.put(decoded.events)
            position = records[-1].sequence + 1
        await self._matcher.drained()
        await self._tell_losses(first, invalid)
        self._health.clear(PROBLEM)

    async def _tell_losses(self, first: int, invalid: Sequence[int]) -> None:
        """Report to all subscribers how many events could not be matched: any might be theirs."""
        register, stop = self._store.log.damage, self._store.log.next_sequence
        losses: dict[str, Callable[[int], int]] = {
            DAMAGE: lambda start: register.lost_in(start, stop),
            INVALID: lambda start: len(invalid) - bisect_left(invalid, start),
        }
        dropped = {
            reason: {
                one.number: count
                for one in self._index
                if (count := lost_from(max(first, one.stored.start)))
            }
            for reason, lost_from in losses.items()
            if lost_from(first)
        }
        if not dropped:
            return
        await self._matcher.pass_over(stop - 1, dropped)
        for reason, counts in dropped.items():
            for number, count in counts.items():
                subscription = self._index.get(number)
                if subscription is not None:
                    self._count_lost(subscription, count, reason)
