"""The acknowledgement writer: the outcomes of deliveries, written to disk many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from tamis.broker.deliver.queues import DeliveryOutcome, DiskQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.operations.metrics import Metrics
from tamis.errors import StorageError
from tamis.ports import Executor
from tamis.storage import DeadLetter, Retry, StateStore

# How long an outcome may wait for others before it is written.
BATCHING_SECONDS: Final = 0.01
RETRY_SECONDS: Final = 0.5


class AcknowledgementWriter:
    """Gathers acknowledgements, retries and dead letters, and writes them.

    Until an outcome is on disk, the queue of its subscription keeps it; of two outcomes of one
    event, the later holds. Outcomes that a crash loses lead to another delivery: an event is
    settled at least once.
    """

    def __init__(self, state: StateStore, metrics: Metrics, executor: Executor) -> None:
        self._state = state
        self._executor = executor
        self._metrics = metrics
        self._waiting: set[DiskQueue] = set()
        """The queues with outcomes to write."""
        self._writing: set[DiskQueue] = set()
        """Those whose outcomes are being written; after a failure they are written again."""
        self._flushes: list[asyncio.Future[None]] = []
        """Of those who wait until all outcomes before are on disk."""
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def acknowledge(
        self, subscription: ActiveSubscription, sequences: Iterable[int], up_to: int = 0
    ) -> list[int]:
        """Acknowledge events, by sequence or all up to one; return those that were in memory."""
        queue = subscription.queue
        known = queue.settle(sequences, up_to)
        self._metrics.acknowledged.inc(len(known))
        if known and isinstance(queue, DiskQueue):
            queue.unwritten.update(dict.fromkeys(known))
            self._waiting.add(queue)
            self._idle.clear()
            self._work.set()
        return known

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
            self._waiting.add(queue)
            self._idle.clear()
            self._work.set()

    async def flush(self) -> None:
        """Return when all outcomes so far are on disk, safe from a power failure as well."""
        is_on_disk: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(is_on_disk)
        self._idle.clear()
        self._work.set()
        await is_on_disk

    async def settled(self) -> None:
        """Return when every outcome is on disk."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write outcomes until cancelled."""
        while True:
            if not (self._writing or self._flushes):
                await self._work.wait()
            await asyncio.sleep(BATCHING_SECONDS)
            self._work.clear()
            self._writing |= self._waiting
            self._waiting.clear()
            flushes = [*self._flushes]
            batch = [(queue, queue.unwritten.copy()) for queue in self._writing]
            outcomes = [
                (queue.number, *one) for queue, outcomes in batch for one in outcomes.items()
            ]
            settle = partial(
                self._state.settle,
                acknowledged=[one[:2] for one in outcomes if one[2] is None],
                retries=[one for *_, one in outcomes if isinstance(one, Retry)],
                dead=[one for *_, one in outcomes if isinstance(one, DeadLetter)],
            )
            is_written = False
            while not is_written:
                try:
                    if outcomes:
                        await self._executor.run(settle)
                    if flushes:
                        await self._executor.run(self._state.make_lasting)
                    is_written = True
                except StorageError:
                    # A full disk empties again; until then memory keeps the outcomes.
                    await asyncio.sleep(RETRY_SECONDS)
            for queue, written in batch:
                for sequence, outcome in written.items():
                    if queue.unwritten[sequence] is outcome:
                        del queue.unwritten[sequence]
            self._writing.clear()
            if flushes:
                self._end_flushes(flushes)
            if not (self._waiting or self._flushes):
                self._idle.set()

    def _end_flushes(self, flushes: Sequence[asyncio.Future[None]]) -> None:
        del self._flushes[: len(flushes)]
        for flush in flushes:
            if not flush.done():
                flush.set_result(None)
