"""The acknowledgement writer: the outcomes of deliveries, written to disk many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.operations.metrics import Metrics
from tamis.errors import StorageError
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

    def __init__(self, state: StateStore, metrics: Metrics) -> None:
        self._state = state
        self._metrics = metrics
        self._outcomes: Outcomes = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def acknowledge(
        self, subscription: ActiveSubscription, sequences: Iterable[int], up_to: int = 0
    ) -> None:
        """Acknowledge events, by sequence or all up to one, so that they are not sent again."""
        known = subscription.queue.settle(sequences, up_to)
        self._metrics.acknowledged.inc(len(known))
        if known and isinstance(subscription.queue, DiskQueue):
            number = subscription.stored.number
            self._outcomes.update({(number, sequence): None for sequence in known})
            self._idle.clear()
            self._work.set()

    def discard(self, subscription: ActiveSubscription, sequences: Iterable[int]) -> None:
        """Settle events that were never sent and must not be."""
        sequences = [*sequences]
        subscription.queue.settle(sequences, 0)
        if isinstance(subscription.queue, DiskQueue):
            number = subscription.stored.number
            self._note({(number, sequence): None for sequence in sequences})

    def retry(self, number: int, sequence: int, attempts: int, due: float) -> None:
        """Schedule an event for redelivery."""
        self._note({(number, sequence): Retry(number, sequence, attempts, due)})

    def bury(self, letter: DeadLetter) -> None:
        """Turn an event into a dead letter."""
        self._note({(letter.number, letter.sequence): letter})

    def _note(self, outcomes: Outcomes) -> None:
        self._outcomes.update(outcomes)
        self._idle.clear()
        self._work.set()

    async def settled(self) -> None:
        """Return when every outcome is on disk."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write outcomes until cancelled."""
        while True:
            await self._work.wait()
            await asyncio.sleep(BATCHING_SECONDS)
            self._work.clear()
            outcomes, self._outcomes = self._outcomes, {}
            settle = partial(
                self._state.settle,
                acknowledged=[key for key, outcome in outcomes.items() if outcome is None],
                retries=[one for one in outcomes.values() if isinstance(one, Retry)],
                dead=[one for one in outcomes.values() if isinstance(one, DeadLetter)],
            )
            is_written = False
            while not is_written:
                try:
                    await asyncio.to_thread(settle)
                    is_written = True
                except StorageError:
                    # A full disk empties again; until then memory keeps the outcomes.
                    await asyncio.sleep(RETRY_SECONDS)
            if not self._work.is_set():
                self._idle.set()
