"""Replay: finds the events in the log for a subscription that starts in the past."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription, Extra
from tamis.broker.operations.fair_executor import FairExecutor, Slices
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import DAMAGE, INVALID, EventCache
from tamis.broker.subscribe.history import LoneFilter, first_slice
from tamis.errors import TamisError
from tamis.storage import Storage

# What is found in these is written at once, and whoever else writes waits for that.
EVENTS_PER_STEP: Final = 60
EVENTS_PER_SLICE: Final = 20
RETRY_SECONDS: Final = 0.5


class ReplayRange(NamedTuple):
    """The part of the log that is still to be searched, up to but without `end`."""

    position: int
    end: int
    lost: Mapping[str, int] = MappingProxyType({})
    """How many events in the part searched last could not be matched, by reason."""


class Replayer:
    """Searches the log for subscriptions that start in the past, each in its own task."""

    def __init__(
        self,
        store: Storage,
        event_cache: EventCache,
        executor: FairExecutor,
        supervisor: Supervisor,
        count_lost: Callable[[ActiveSubscription, int, str], None],
    ) -> None:
        self._store = store
        self._count_lost = count_lost
        self._supervisor = supervisor
        self._executor = executor
        self._event_cache = event_cache
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def begin(
        self,
        subscription: ActiveSubscription,
        alone: Callable[[ActiveSubscription, int], LoneFilter],
    ) -> None:
        """Start a replay; `alone` returns what is matched for it from an event on."""
        queue = subscription.queue
        assert isinstance(queue, DiskQueue)  # noqa: S101 - others begin now
        queue.below = Extra.of(subscription.stored).replay_from
        task = self._supervisor.restart("replay", partial(self._replay, subscription, alone, queue))
        self._tasks[subscription.number] = task
        task.add_done_callback(lambda _: self._tasks.pop(subscription.number, None))

    def stop(self, number: int) -> None:
        """Stop the replay of a subscription that is deleted."""
        task = self._tasks.pop(number, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop every replay; a restart resumes them."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _replay(
        self,
        subscription: ActiveSubscription,
        alone: Callable[[ActiveSubscription, int], LoneFilter],
        queue: DiskQueue,
    ) -> None:
        rights, filter_, stored = None, None, subscription.stored
        owner = stored.owner
        # After a failure the search resumes where it was, as after a restart of the broker.
        range_ = ReplayRange(Extra.of(stored).replay_from or stored.start, stored.start)
        while range_.position < range_.end:
            try:
                if filter_ is None or rights is not subscription.rights:
                    rights = subscription.rights
                    # A filter that replaces it holds from the end of the replay on.
                    first = range_.position
                    filter_ = await self._executor.run(owner, alone, subscription, first)
                range_ = await self._executor.run_slices(
                    owner, self._search(subscription, filter_, range_)
                )
            except TamisError:
                # The disk may be full, or the policy may not allow the filter now.
                filter_ = None
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for reason, count in range_.lost.items():
                self._count_lost(subscription, count, reason)
            queue.below = range_.position if range_.position < range_.end else inf
            queue.wake()

    def _search(
        self, subscription: ActiveSubscription, alone: LoneFilter, range_: ReplayRange
    ) -> Slices[ReplayRange]:
        """Search some events, and return what is left to be searched."""
        found: list[int] = []
        invalid = 0
        after, stop = range_.position, min(range_.end, range_.position + EVENTS_PER_STEP)
        while after < stop:
            records = self._store.log.read(after, EVENTS_PER_SLICE)
            records = first_slice([record for record in records if record.sequence < stop])
            if not records:
                after = stop
                break
            decoded = self._event_cache.decode_records(records)
            invalid += len(decoded.invalid)
            for stored in decoded.events:
                is_due = subscription.is_due(stored, self._store.state.broker_id)
                if is_due and alone.matches(stored) and subscription.admits(stored):
                    found.append(stored.sequence)
                yield
            after = records[-1].sequence + 1
        damaged = self._store.log.damage.lost_in(range_.position, after)
        lost = {reason: n for reason, n in ((DAMAGE, damaged), (INVALID, invalid)) if n}
        subscription.change_extra(
            partial(self._store.state.commit_replay, subscription.number, found, lost),
            replay_from=after if after < range_.end else 0,
        )
        return ReplayRange(after, range_.end, lost)
