"""Current rights: what is matched follows the rights of subscriptions' owners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Final

from tamis.access import FilterInMode, Principal, Rights
from tamis.broker.deliver.notifier import Notifier
from tamis.broker.deliver.routes import LinkSubscription, Route
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex, mark_of
from tamis.broker.match.changes import Updater
from tamis.errors import AccessError, TamisError
from tamis.filters import TRUE, Mode
from tamis.matching import Engine

# Rights are applied to this many subscriptions between two batches of events.
SUBSCRIPTIONS_PER_STEP: Final = 100
GRANTS_PER_TURN: Final = 500


class CurrentRights:
    """Matches subscriptions by the rights of their owners, whenever these change."""

    def __init__(
        self,
        *,
        engine: Engine,
        subscription_index: SubscriptionIndex,
        updater: Updater,
        notifier: Notifier,
        rights_of: Callable[[Principal], Rights],
    ) -> None:
        self._engine = engine
        self._index = subscription_index
        self._updater = updater
        self._notifier = notifier
        self._rights_of = rights_of
        self._granted = self._compiled = 0
        """How often rights were granted, and the last of these times by which all are matched."""
        self._rights_changed, self._is_compiled = asyncio.Event(), asyncio.Event()

    async def apply(self) -> None:
        """Apply the current rights of their owners to all subscriptions.

        When this returns, nothing is sent that may not be seen. Matching follows (`run`): it waits
        for the matcher, which may be busy.
        """
        rights_of = cache(self._rights_of)
        # Those that are being sent come first; the others take their time.
        subscriptions = sorted(self._index, key=lambda one: not one.queue.is_attended)
        for place, subscription in enumerate(subscriptions):
            subscription.grant(rights_of(subscription.owner))
            if place % GRANTS_PER_TURN == GRANTS_PER_TURN - 1:
                await asyncio.sleep(0)
        self._granted += 1
        self._rights_changed.set()

    async def run(self) -> None:
        """Match by the current rights of the owners, until cancelled."""
        while True:
            while self._compiled != self._granted:
                granted = self._granted
                if await self._compile_all():
                    self._compiled = granted
            self._is_compiled.set()
            await self._rights_changed.wait()
            self._rights_changed.clear()

    async def applied(self) -> None:
        """Return when matching is by the current rights."""
        while self._compiled != self._granted:
            self._is_compiled.clear()
            await self._is_compiled.wait()

    async def _compile_all(self) -> bool:
        """Compile all subscriptions; return False if the rights have changed meanwhile."""
        granted = self._granted
        # Includes subscriptions that were being added; later ones get the new rights anyway.
        subscriptions = await self._updater.do(lambda: [*self._index])
        for first in range(0, len(subscriptions), SUBSCRIPTIONS_PER_STEP):
            some = subscriptions[first : first + SUBSCRIPTIONS_PER_STEP]
            await self._updater.do(partial(self.compile_again, some))
            await asyncio.gather(*map(self.tell_readers, some))
            if self._granted != granted:
                return False
        return True

    async def tell_readers(
        self,
        subscription: ActiveSubscription,
        why: str = "the policy no longer allows its filter",
    ) -> None:
        """End what is sent to those who may not read its filter; the others go on."""
        ended = [
            self._notifier.end_one(one, why)
            for one in subscription.attachments
            if subscription.is_suspended or not one.is_allowed
        ]
        await asyncio.gather(*ended)
        if not subscription.is_suspended:
            subscription.queue.wake()

    def compile_again(self, subscriptions: Iterable[ActiveSubscription]) -> None:
        """Match subscriptions by the current rights of their owners; between two batches."""
        rights_of = cache(self._rights_of)
        for subscription in subscriptions:
            if self._index.get(subscription.number) is subscription:
                subscription.rights = rights_of(subscription.owner)
                self.put_in_engine(subscription)

    def put_in_engine(
        self, subscription: ActiveSubscription, effective: FilterInMode | None = None
    ) -> None:
        """Match a subscription by its rights, unless they do not allow it; between two batches."""
        if isinstance(subscription, LinkSubscription):
            subscription.is_suspended = not subscription.rights.may_subscribe
            for route in subscription.routes.values():
                self.put_route(route)
            return
        self._index.note_change(subscription.number)
        stored, rights = subscription.stored, subscription.rights
        try:
            effective = effective or rights.effective(subscription.filter, stored.mode)
        except TamisError:
            subscription.is_suspended, subscription.mark = True, b""
            if stored.number in self._engine:
                self._engine.remove(stored.number)
            return
        if subscription.suspended_from or subscription.is_moving:
            subscription.is_suspended, subscription.mark = False, b""
            if stored.number in self._engine:
                self._engine.remove(stored.number)
            return
        put = self._engine.replace if stored.number in self._engine else self._engine.add
        put(stored.number, effective.filter, mode=effective.mode, expires_at=stored.expires_at)
        subscription.is_suspended, subscription.mark = False, mark_of(stored, rights)

    def put_route(self, route: Route) -> None:
        """Match a route by the rights of its link, unless they do not allow it."""
        rights = route.link.rights
        mark = route.mark_by(rights)
        if route.mark == mark:
            return
        try:
            effective = rights.effective(route.filter, Mode.SQL)
        except AccessError:
            route.mark = b""
            if route.number in self._engine:
                self._engine.remove(route.number)
            return
        except TamisError:
            # The neighbour has another schema. It filters again: too much loses nothing.
            effective = rights.effective(TRUE, Mode.SQL)
        put = self._engine.replace if route.number in self._engine else self._engine.add
        put(route.number, effective.filter, mode=effective.mode)
        route.mark = mark
