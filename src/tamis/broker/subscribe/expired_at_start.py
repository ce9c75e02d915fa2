"""Subscriptions that seem to have expired while the broker was stopped.

They have not if the clock is wrong, and a deleted subscription does not come back. If the broker
has been stopped for longer than seems likely, they stay in force until the clock has been watched
for long enough. So whoever comes meanwhile, and may renew them, finds them and misses nothing.

Events that are published meanwhile have the time of a clock in doubt, which proves nothing at the
next start. So the state keeps the latest time that is certain, until the log has one again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.match.changes import Updater
from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.broker.subscribe.current_rights import SUBSCRIPTIONS_PER_STEP
from tamis.broker.subscribe.manager import SubscriptionManager
from tamis.errors import StorageError
from tamis.ports import TRUST_SECONDS, CautiousClock, SteadyClock
from tamis.storage import Storage, StoredSubscription

LOG: Final = get_logger("tamis.broker")

LIKELY_STOP_SECONDS: Final = 24 * 3600.0
# Events may be so far ahead of the clock, and still prove when the broker was last there.
MAX_AHEAD_SECONDS: Final = 3600.0
PROBLEM: Final = "subscriptions seem to have expired while the broker was stopped"


class ExpiredAtStart:
    """What expired between two runs, as far as the clock can be believed."""

    def __init__(
        self,
        *,
        store: Storage,
        clock: CautiousClock,
        steady_clock: SteadyClock,
        health: Health,
        subscription_index: SubscriptionIndex,
        subscription_manager: SubscriptionManager,
        updater: Updater,
    ) -> None:
        self._store = store
        self._clock = clock
        self._steady_clock = steady_clock
        self._health = health
        self._index = subscription_index
        self._manager = subscription_manager
        self._updater = updater
        self._spared: dict[int, float] = {}
        """When subscriptions seem to have expired, by number."""
        # Whatever happens, they do not stay for longer.
        self._spared_until = steady_clock.time() + LIKELY_STOP_SECONDS
        self._seen_at = store.state.seen_at
        """When the broker was certainly there; 0: the times of the log tell."""

    def begin(self, stored: Sequence[StoredSubscription]) -> None:
        """Note when the broker was last there, unless the clock can be believed."""
        latest = self._store.log.last_time or max((one.created_at for one in stored), default=0.0)
        if not self._seen_at and latest and self._is_doubtful(latest):
            self._seen_at = latest
            # A broker whose disk is full opens, too; the chore tries again.
            with contextlib.suppress(StorageError):
                self._store.state.note_seen(latest)

    def _is_doubtful(self, last_seen: float) -> bool:
        return self._clock.time() - last_seen > LIKELY_STOP_SECONDS

    def spare(self, stored: StoredSubscription) -> StoredSubscription | None:
        """Return a subscription whose time seems to be over, as it stays in force for now.

        None: it has expired.
        """
        # The broker was there at these times; a clock that is right is later.
        last_seen = max(self._seen_at or self._store.log.last_time, stored.created_at)
        if not stored.durable or not self._is_doubtful(last_seen):
            return None
        self._spared[stored.number] = stored.expires_at
        return msgspec.structs.replace(stored, expires_at=self._spared_until)

    def report(self) -> None:
        """Report what is kept for now."""
        if self._spared:
            why = (
                f"{len(self._spared):,} of them, if the clock is right; they are deleted after "
                f"{TRUST_SECONDS / 60:.0f} minutes, unless they are renewed. If it is wrong, set it"
            )
            self._health.warn(PROBLEM, why)
            LOG.warning(PROBLEM, subscriptions=len(self._spared))

    async def decide(self) -> None:
        """Give them their expiry back once the clock can be trusted; a chore."""
        if self._clock.can_tell_age(TRUST_SECONDS):
            if self._spared:
                await self._decide()
            self._see()
        if self._seen_at != self._store.state.seen_at:
            await self._updater.do(partial(self._store.state.note_seen, self._seen_at))

    async def _decide(self) -> None:
        rest = [one for number in self._spared if (one := self._index.get(number)) is not None]
        while rest:
            some, rest = rest[:SUBSCRIPTIONS_PER_STEP], rest[SUBSCRIPTIONS_PER_STEP:]
            for one in await self._updater.do(partial(self._let_expire, some)):
                self._manager.watch(one)
        self._spared.clear()
        self._health.clear(PROBLEM)

    def _see(self) -> None:
        """Remember that the broker is there, if the log is ahead of a clock that is right."""
        now = self._clock.time()
        if self._store.log.last_time - now <= MAX_AHEAD_SECONDS:
            self._seen_at = 0.0
        elif now - self._seen_at > MAX_AHEAD_SECONDS:
            # The times of events never go back, so this may be so for long.
            self._seen_at = now

    def _let_expire(self, some: Sequence[ActiveSubscription]) -> list[ActiveSubscription]:
        """Set when they expire, except those that were renewed meanwhile; return them."""
        # What is on disk is by the machine's clock, and memory goes by the steady one.
        gap = self._steady_clock.time() - self._clock.time()
        due = [one for one in some if one.stored.expires_at == self._spared_until]
        for one in due:
            one.change(expires_at=self._spared[one.number] + gap)
        self._manager.current_rights.compile_again(due)
        return due
