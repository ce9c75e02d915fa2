"""Replay: a subscription that starts in the past receives what the log still has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, NamedTuple

from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.publish.event_cache import EventCache
from tamis.errors import TamisError
from tamis.matching import Engine
from tamis.storage import Storage

TOGETHER: Final = 1_000
AGAIN: Final = 0.5


class ReplayRange(NamedTuple):
    """The part of the log still to be searched, up to but excluding `end`."""

    position: int
    end: int


class Replayer:
    """Searches the log for one subscription after another."""

    def __init__(self, store: Storage, event_cache: EventCache) -> None:
        self._store = store
        self._event_cache = event_cache
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def begin(
        self,
        subscription: ActiveSubscription,
        alone: Callable[[ActiveSubscription], Engine],
        stretch: ReplayRange,
    ) -> None:
        """Search for past events; `alone` returns an engine for this subscription only."""
        queue = subscription.queue
        assert isinstance(queue, DiskQueue)  # noqa: S101 - others begin now
        queue.below = stretch.position
        task = asyncio.create_task(self._replay(subscription, alone, stretch, queue))
        self._tasks[subscription.number] = task
        task.add_done_callback(lambda _: self._tasks.pop(subscription.number, None))

    def stop(self, number: int) -> None:
        """Stop searching, because the subscription is deleted."""
        task = self._tasks.pop(number, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop all searches; a restart resumes them."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _replay(
        self,
        subscription: ActiveSubscription,
        alone: Callable[[ActiveSubscription], Engine],
        stretch: ReplayRange,
        queue: DiskQueue,
    ) -> None:
        rights, engine = None, None
        while stretch.position < stretch.end:
            try:
                if engine is None or rights is not subscription.rights:
                    rights = subscription.rights
                    engine = await asyncio.to_thread(alone, subscription)
                stretch = await asyncio.to_thread(self._look, subscription, engine, stretch)
            except TamisError:
                # The disk may be full, or the filter may currently not be allowed.
                engine = None
                await asyncio.sleep(AGAIN)
                continue
            queue.below = stretch.position if stretch.position < stretch.end else inf
            queue.wake()

    def _look(
        self, subscription: ActiveSubscription, alone: Engine, stretch: ReplayRange
    ) -> ReplayRange:
        records = [
            record
            for record in self._store.log.read(stretch.position, TOGETHER)
            if record.sequence < stretch.end
        ]
        events = self._event_cache.decode_records(records)
        matches = alone.match_batch([stored.payload.event for stored in events])
        found = [event.sequence for event, ids in zip(events, matches, strict=True) if ids]
        after = records[-1].sequence + 1 if records else stretch.end
        subscription.change_extra(
            partial(self._store.state.commit_replay, subscription.number, found),
            replay_from=after if after < stretch.end else 0,
        )
        return ReplayRange(after, stretch.end)
