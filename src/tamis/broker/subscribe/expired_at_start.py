"""Subscriptions that seem to have expired while the broker was stopped.

They have not if the clock is wrong, and a deleted subscription does not come back. If the broker
has been stopped for longer than seems likely, they stay on disk, where they match nothing, until
the clock has been watched for long enough.
"""

from __future__ import annotations

from typing import Final

from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.ports import TRUST_SECONDS, CautiousClock, Executor
from tamis.storage import Storage, StoredSubscription

LOG: Final = get_logger("tamis.broker")

LIKELY_STOP_SECONDS: Final = 24 * 3600.0
PROBLEM: Final = "subscriptions seem to have expired while the broker was stopped"


class ExpiredAtStart:
    """What expired between two runs, as far as the clock can be believed."""

    def __init__(
        self, store: Storage, clock: CautiousClock, health: Health, executor: Executor
    ) -> None:
        self._store = store
        self._clock = clock
        self._health = health
        self._executor = executor
        self._kept: list[StoredSubscription] = []
        # The last event was stored at this time at the earliest; a clock that is right is later.
        self._was_stopped_long = clock.time() - store.log.last_time > LIKELY_STOP_SECONDS

    def remove(self, stored: StoredSubscription) -> None:
        """Remove a subscription whose time is over, at once or when that is certain."""
        if self._was_stopped_long and stored.durable:
            self._kept.append(stored)
        else:
            self._store.state.remove_subscription(stored.number)

    def report(self) -> None:
        """Report what is kept for now."""
        if self._kept:
            why = (
                f"{len(self._kept):,} of them, if the clock is right; they are deleted after "
                f"{TRUST_SECONDS / 60:.0f} minutes. If it is wrong, set it and start again"
            )
            self._health.warn(PROBLEM, why)
            LOG.warning(PROBLEM, subscriptions=len(self._kept))

    async def decide(self) -> None:
        """Delete them once the clock can be believed; a chore."""
        if not self._kept or not self._clock.can_tell_age(TRUST_SECONDS):
            return
        now = self._clock.time()
        expired = [stored.number for stored in self._kept if stored.expires_at <= now]
        await self._executor.run(self._store.state.remove_subscriptions, expired)
        # Those that have not expired after all come back with the next start.
        self._kept = []
        self._health.clear(PROBLEM)
