"""The acknowledgement writer: the outcomes of deliveries, written to disk many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from tamis.broker.deliver.dead_letter_bounds import DeadLetterBounds
from tamis.broker.deliver.queues import (
    DeliveryOutcome,
    DeliveryQueue,
    DiskQueue,
    InFlightEvent,
    LostEvent,
    UnwrittenQueues,
)
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.metrics import Metrics
from tamis.errors import StorageError
from tamis.ports import Executor
from tamis.storage import DeadLetter, DroppedEvents, Retry, StateStore

LOG: Final = get_logger("tamis.broker")

# How long an outcome may wait for others before it is written.
BATCHING_SECONDS: Final = 0.01
RETRY_SECONDS: Final = 0.5
PROBLEM: Final = "acknowledgements cannot be stored"


class AcknowledgementWriter:
    """Gathers acknowledgements, retries and dead letters, and writes them.

    Until an outcome is on disk, the queue of its subscription keeps it; of two outcomes of one
    event, the later holds. Outcomes that a crash loses lead to another delivery: an event is
    settled at least once.
    """

    def __init__(
        self,
        state: StateStore,
        metrics: Metrics,
        executor: Executor,
        bounds: DeadLetterBounds,
        subscription_index: SubscriptionIndex,
        *,
        health: Health,
    ) -> None:
        self._health = health
        self._is_stuck = False
        self._state = state
        self._bounds = bounds
        self._index = subscription_index
        self._executor = executor
        self._metrics = metrics
        self.unwritten: Final = UnwrittenQueues()
        """Queues with outcomes to write."""
        self._writing: dict[DeliveryQueue, None] = {}
        """Those whose outcomes are being written; after a failure they are written again."""
        self._flushes: list[asyncio.Future[None]] = []
        """Of those who wait until all outcomes before are on disk."""
        self._told: list[DroppedEvents] = []
        """What subscribers know of now; it is still to be written."""
        self._written = asyncio.Event()

    def acknowledge_stored(
        self, subscription: ActiveSubscription, queue: DiskQueue, sequences: Iterable[int]
    ) -> None:
        """Acknowledge events on disk, in memory or not."""
        found = queue.settle_stored(sequences)
        self._metrics.acknowledged.inc(len(found))
        self.write(subscription, dict.fromkeys(found))

    def discard(self, subscription: ActiveSubscription, sequences: Iterable[int]) -> None:
        """Settle events that were never sent and must not be."""
        sequences = [*sequences]
        subscription.queue.settle(sequences, 0)
        self.write(subscription, dict.fromkeys(sequences))

    def write(
        self, subscription: ActiveSubscription, outcomes: Mapping[int, DeliveryOutcome]
    ) -> None:
        """Write outcomes of events, by sequence; those in memory end with the memory."""
        queue = subscription.queue
        if isinstance(queue, DiskQueue):
            queue.unwritten.update(outcomes)
            self.unwritten.queues[queue] = None
            self.unwritten.work.set()

    def note_reported(self, subscription: ActiveSubscription, told: Mapping[str, int]) -> None:
        """Write that a subscriber knows of losses, by reason."""
        if isinstance(subscription.queue, DiskQueue):
            self._told += [
                DroppedEvents(subscription.number, reason, count, told=count)
                for reason, count in told.items()
            ]
        self.write(subscription, {})

    async def flush(self) -> None:
        """Return when all outcomes so far are on disk, safe from a power failure as well."""
        is_on_disk: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(is_on_disk)
        self.unwritten.work.set()
        await is_on_disk

    async def settled(self) -> None:
        """Return when every outcome is on disk."""
        while self.unwritten.queues or self._writing or self._flushes:
            await self._written.wait()

    async def run(  # noqa: PLR0912 - in one piece, as the way of every publication
        self,
    ) -> None:
        """Write outcomes until cancelled."""
        while True:
            if not (self._writing or self._flushes or self.unwritten.queues):
                await self.unwritten.work.wait()
            await asyncio.sleep(BATCHING_SECONDS)
            unwritten, ahead = self.unwritten.queues, self.unwritten.ahead
            # Those of a queue that is ahead wait: a row must not be written after it was removed.
            self.unwritten.work.clear()
            while unwritten and unwritten.keys() <= ahead:
                # There is work when they are no longer ahead, or others have outcomes.
                await self.unwritten.work.wait()
                self.unwritten.work.clear()
            unwritten.update(self._writing)
            self._writing = {queue: None for queue in unwritten if queue not in ahead}
            for queue in self._writing:
                del unwritten[queue]
            flushes, told = [] if unwritten else [*self._flushes], [*self._told]
            batch = [
                (queue, queue.unwritten.copy())
                for queue in self._writing
                if isinstance(queue, DiskQueue)
            ]
            outcomes = [
                (queue.number, *one) for queue, outcomes in batch for one in outcomes.items()
            ]
            # Most are acknowledged; of the others there are few, so looking again is cheap.
            others = [one for one in outcomes if one[2] is not None]
            dead = [one for *_, one in others if isinstance(one, DeadLetter)]
            settle = partial(
                self._state.settle,
                acknowledged=[one[:2] for one in outcomes if one[2] is None],
                retries=[
                    Retry(number, sequence, one.attempts, one.due)
                    for number, sequence, one in others
                    if isinstance(one, InFlightEvent | Retry)
                ],
                dead=dead,
                lost=[one for *_, one in others if isinstance(one, LostEvent)],
            )
            losses: list[DroppedEvents] | None = None
            while losses is None:
                try:
                    losses = await self._executor.run(settle) if outcomes else []
                except StorageError as error:
                    # A full disk empties again; until then memory keeps the outcomes.
                    self._report(error)
                    await asyncio.sleep(RETRY_SECONDS)
            for queue, written in batch:
                if queue.written_meanwhile is not None:
                    queue.written_meanwhile.update(written)
                for sequence, outcome in written.items():
                    if queue.unwritten[sequence] is outcome:
                        del queue.unwritten[sequence]
            if dead:
                losses += await self._bound_letters(batch)
            if losses:
                self._count_losses(losses)
            if told or flushes:
                await self._write_the_rest(told, flushes)
            self._writing.clear()
            if self._is_stuck:
                self._note_success()
            self._written.set()
            self._written = asyncio.Event()

    async def _write_the_rest(
        self, told: Sequence[DroppedEvents], flushes: Sequence[asyncio.Future[None]]
    ) -> None:
        """Write what subscribers were told, and let those go on who wait for the disk."""
        is_written = False
        while not is_written:
            try:
                if told:
                    await self._executor.run(self._state.note_reported, told)
                    del self._told[: len(told)]
                    told = ()
                if flushes:
                    await self._executor.run(self._state.make_lasting)
                is_written = True
            except StorageError as error:
                self._report(error)
                await asyncio.sleep(RETRY_SECONDS)
        del self._flushes[: len(flushes)]
        for flush in flushes:
            if not flush.done():
                flush.set_result(None)

    def _report(self, error: StorageError) -> None:
        """Report that outcomes wait in memory; after a crash, their events are delivered again."""
        self._health.warn(PROBLEM, str(error))
        if not self._is_stuck:
            LOG.error(PROBLEM, reason=str(error))
        self._is_stuck = True

    def _note_success(self) -> None:
        self._is_stuck = False
        self._health.clear(PROBLEM)
        LOG.info("acknowledgements are stored again")

    async def _bound_letters(
        self, batch: Iterable[tuple[DiskQueue, Mapping[int, DeliveryOutcome]]]
    ) -> list[DroppedEvents]:
        buried = [
            subscription
            for queue, written in batch
            if any(isinstance(one, DeadLetter) for one in written.values())
            and (subscription := self._index.get(queue.number)) is not None
        ]
        try:
            return await self._executor.run(self._bounds.enforce, buried)
        except StorageError:
            # The next letter tries again.
            return []

    def _count_losses(self, losses: Iterable[DroppedEvents]) -> None:
        for lost in losses:
            subscription = self._index.get(lost.number)
            if subscription is not None:
                self.count_lost(subscription, lost.events, lost.reason)

    def count_lost(self, subscription: ActiveSubscription, events: int, reason: str) -> None:
        """Count events that cannot be sent, and report them to the subscriber when possible."""
        subscription.lose(events, reason)
        self._metrics.dropped.labels(reason).inc(events)
        subscription.queue.wake()
