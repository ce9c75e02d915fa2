"""What has to be seen to now and then: expiry, late acknowledgements, rights, retention."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from tamis.broker.logs import get_logger
from tamis.errors import PolicyError, TamisError

if TYPE_CHECKING:
    from tamis.broker.broker import Broker
    from tamis.broker.subscriptions import Subscription

LOG: Final = get_logger("tamis.broker")

OFTEN: Final = 0.25
RETENTION_EVERY: Final = 5.0
POLICY: Final = "the policy file cannot be used, the last one holds"


class Housekeeping:
    """The chores of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._expiries: list[tuple[float, int]] = []

    def watch(self, subscription: Subscription) -> None:
        """Remember when a subscription expires."""
        expires_at = subscription.stored.expires_at
        if expires_at != float("inf"):
            heapq.heappush(self._expiries, (expires_at, subscription.number))

    async def do_all(self) -> None:
        """Do all chores once."""
        await self._purge_expired()
        await self._broker.notifier.reject_late()
        await self._see_to_rights()
        await self._broker.matcher.checkpoint()
        await self._retain()

    async def run(self) -> None:
        """Do all chores, for ever."""
        await asyncio.gather(
            self._every(OFTEN, self._purge_expired),
            self._every(OFTEN, self._broker.notifier.reject_late),
            self._every(OFTEN, self._see_to_rights),
            self._every(1.0, self._broker.matcher.checkpoint),
            self._every(RETENTION_EVERY, self._retain),
        )

    async def _every(self, seconds: float, chore: Callable[[], Awaitable[object]]) -> None:
        problem = f"a chore fails, {chore.__name__.strip('_')}"
        while True:
            await asyncio.sleep(seconds)
            try:
                await chore()
            except TamisError as error:
                LOG.warning("chore failed", chore=chore.__name__, reason=str(error))
            except Exception as error:
                # A mistake of ours; but nobody may keep rights because of it.
                LOG.exception("chore failed", chore=chore.__name__)
                self._broker.health.warn(problem, repr(error))
            else:
                self._broker.health.clear(problem)

    async def _purge_expired(self) -> None:
        now, delete, going = self._broker.clock(), self._broker.registrar.delete, []
        while self._expiries and self._expiries[0][0] <= now:
            _, number = heapq.heappop(self._expiries)
            subscription = self._broker.catalogue.get(number)
            # It may have been renewed since; then there is a later entry.
            if subscription is not None and subscription.stored.expires_at <= now:
                going.append(delete(subscription, "expired"))
        await asyncio.gather(*going)

    async def _see_to_rights(self) -> None:
        doorman, health = self._broker.doorman, self._broker.health
        has_changed = False
        try:
            has_changed = doorman.reload()
        except PolicyError as error:
            health.warn(POLICY, str(error))
            LOG.warning("policy refused", reason=str(error))
        # Whoever has to go goes first: to apply a policy to many subscriptions takes a while.
        self._broker.turn_out_unwelcome()
        if has_changed:
            health.clear(POLICY)
            LOG.info("policy read again")
            await self._broker.apply_policy()

    async def _retain(self) -> None:
        settings, store = self._broker.settings, self._broker.store
        kept = await asyncio.to_thread(
            store.retain, max_age=settings.retention_age, max_bytes=settings.retention_bytes
        )
        for number, count in kept.dropped.items():
            subscription = self._broker.catalogue.get(number)
            if subscription is not None:
                await self._broker.notifier.tell_dropped(subscription, count, "retention")
