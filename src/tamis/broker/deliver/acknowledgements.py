"""The acknowledgement writer: the outcomes of deliveries, written to disk many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Final

from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.operations.metrics import Metrics
from tamis.errors import StorageError
from tamis.ports import Executor
from tamis.storage import DeadLetter, Retry, StateStore

# How long an outcome may wait for others before it is written.
BATCHING_SECONDS: Final = 0.01
RETRY_SECONDS: Final = 0.5


Outcomes = dict[tuple[int, int], Retry | DeadLetter | None]
"""The latest outcome of each event, by subscription number and sequence; None: acknowledged."""


class AcknowledgementWriter:
    """Gathers acknowledgements, retries and dead letters, and writes them.

    Outcomes that a crash loses lead to another delivery: an event is settled at least once.
    """

    def __init__(self, state: StateStore, metrics: Metrics, executor: Executor) -> None:
        self._state = state
        self._executor = executor
        self._metrics = metrics
        self._waiting: asyncio.Queue[Outcomes] = asyncio.Queue()
        self._batch: list[Outcomes] = []
        """What is being written; it is written again after a failure."""

    def acknowledge(
        self, subscription: ActiveSubscription, sequences: Iterable[int], up_to: int = 0
    ) -> None:
        """Acknowledge events, by sequence or all up to one, so that they are not sent again."""
        known = subscription.queue.settle(sequences, up_to)
        self._metrics.acknowledged.inc(len(known))
        if known and isinstance(subscription.queue, DiskQueue):
            number = subscription.stored.number
            self._waiting.put_nowait({(number, sequence): None for sequence in known})

    def discard(self, subscription: ActiveSubscription, sequences: Iterable[int]) -> None:
        """Settle events that were never sent and must not be."""
        sequences = [*sequences]
        subscription.queue.settle(sequences, 0)
        if isinstance(subscription.queue, DiskQueue):
            number = subscription.stored.number
            self._waiting.put_nowait({(number, sequence): None for sequence in sequences})

    def retry(self, number: int, sequence: int, attempts: int, due: float) -> None:
        """Schedule an event for redelivery."""
        self._waiting.put_nowait({(number, sequence): Retry(number, sequence, attempts, due)})

    def bury(self, letter: DeadLetter) -> None:
        """Turn an event into a dead letter."""
        self._waiting.put_nowait({(letter.number, letter.sequence): letter})

    async def settled(self) -> None:
        """Return when every outcome is on disk."""
        await self._waiting.join()

    async def run(self) -> None:
        """Write outcomes until cancelled."""
        batch = self._batch
        while True:
            if not batch:
                batch.append(await self._waiting.get())
            await asyncio.sleep(BATCHING_SECONDS)
            while not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            # Of two outcomes of one event, the later holds.
            outcomes: Outcomes = dict(chain.from_iterable(one.items() for one in batch))
            settle = partial(
                self._state.settle,
                acknowledged=[key for key, outcome in outcomes.items() if outcome is None],
                retries=[one for one in outcomes.values() if isinstance(one, Retry)],
                dead=[one for one in outcomes.values() if isinstance(one, DeadLetter)],
            )
            is_written = False
            while not is_written:
                try:
                    await self._executor.run(settle)
                    is_written = True
                except StorageError:
                    # A full disk empties again; until then memory keeps the outcomes.
                    await asyncio.sleep(RETRY_SECONDS)
            for _ in batch:
                self._waiting.task_done()
            batch.clear()
