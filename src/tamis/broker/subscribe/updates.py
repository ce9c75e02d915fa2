"""Updates: the filter of a durable subscription is replaced at a point of the log.

Events before that point are matched by the old filter, even if nobody has matched them when the
update is asked for: it waits until the matcher has come so far. What waits for the subscriber
stays, and is shown by the filter that found it. The filter is stored with one change, after how far
matching has come; so a crash leaves the old filter or the new one, each with its events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from tamis.access import FilterInMode, Principal, Rights
from tamis.broker.deliver.subscriptions import (
    ActiveSubscription,
    Extra,
    FormerFilter,
    SubscriptionIndex,
    mark_of,
)
from tamis.broker.match.matcher import Matcher
from tamis.broker.subscribe.current_rights import CurrentRights
from tamis.broker.subscribe.suspensions import EndedSuspension, Suspensions
from tamis.errors import RefusedError, StorageError, TamisError
from tamis.filters import Filter, Mode
from tamis.matching import Engine
from tamis.protocol import Code
from tamis.storage import Storage, StoredSubscription

MAX_FORMER_FILTERS: Final = 16
"""Earlier filters of a subscription of which events still wait."""


class WantedFilter(NamedTuple):
    """A filter that is to replace another."""

    text: str
    language: str
    filter: Filter
    mode: Mode


class _FilterUpdate(NamedTuple):
    wanted: WantedFilter
    principal: Principal
    roles: set[str]
    """Those by which it is matched, beside the roles that have used the subscription before."""
    stop: int
    """Events below it have the old filter."""


class FilterUpdates:
    """Replaces the filters of durable subscriptions."""

    def __init__(
        self,
        *,
        store: Storage,
        engine: Engine,
        subscription_index: SubscriptionIndex,
        matcher: Matcher,
        current_rights: CurrentRights,
        suspensions: Suspensions,
        rights_of: Callable[[Principal], Rights],
        require_welcome: Callable[[Principal], None],
        require_in_force: Callable[[ActiveSubscription], None],
    ) -> None:
        self._store = store
        self._engine = engine
        self._index = subscription_index
        self._matcher = matcher
        self._current_rights = current_rights
        self._suspensions = suspensions
        self._rights_of = rights_of
        self._require_welcome = require_welcome
        self._require_in_force = require_in_force

    async def replace(
        self,
        subscription: ActiveSubscription,
        wanted: WantedFilter,
        principal: Principal,
        rights: Rights,
    ) -> None:
        """Replace a filter; events that were stored before this call have the old one."""
        if not subscription.stored.durable:
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {subscription.stored.name!r} is not durable, so its filter "
                "stays; end it and subscribe with the new one",
            )
        # Roles that the policy does not define grant nothing.
        roles = {*principal.roles} & {*rights.roles}
        stop = self._store.log.next_sequence
        change = partial(self._replace, _FilterUpdate(wanted, principal, roles, stop))
        if subscription.suspended_from:
            # What has not been matched is matched by the new filter, from the suspension on.
            await self._suspensions.end(subscription, change)
        else:
            while not await self._matcher.updater.do(
                partial(change, subscription), [principal.name]
            ):
                # The event loop passes on what was stored to the matcher.
                await asyncio.sleep(0)
        # Whoever reads it may do so by other roles now, or may not.
        await self._current_rights.tell_readers(
            subscription, "its filter was replaced by one that your roles do not allow"
        )

    def _replace(
        self,
        update: _FilterUpdate,
        subscription: ActiveSubscription,
        ended: EndedSuspension | None = None,
    ) -> bool:
        """Put a filter in force between two batches; False if earlier events are unmatched.

        With the end of a suspension, it holds from there on.
        """
        wanted, principal, roles, stop = update
        self._require_welcome(principal)
        self._require_in_force(subscription)
        if self._matcher.stuck.is_set():
            raise RefusedError(
                Code.UNAVAILABLE, "nothing was changed: the broker cannot store what it has matched"
            )
        if subscription.suspended_from and ended is None:
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {subscription.stored.name!r} was suspended meanwhile; try again",
            )
        since = self._matcher.position + 1 if ended is None else ended.since
        if since < stop and ended is None:
            return False
        owner = subscription.owner
        together = (*owner.roles, *sorted(roles - {*owner.roles}))
        rights = self._rights_of(Principal(owner.name, together))
        effective = self._effective(subscription, wanted, rights)
        # Otherwise a restart would match events before this point by the new filter.
        self._matcher.write_position()
        former = self._former(subscription, since)

        def columns_of(stored: StoredSubscription) -> dict[str, Any]:
            extra = msgspec.structs.replace(
                Extra.of(stored) if ended is None else ended.extra,
                roles=together,
                filter_from=since,
                former=former,
            )
            return {
                "filter": wanted.text,
                "language": wanted.language,
                "mode": wanted.mode.value,
                "start": stored.start if ended is None else ended.start,
                "extra": extra.text(),
            }

        self._match_and_store(subscription, effective, wanted.filter, columns_of)
        subscription.rights, subscription.is_suspended = rights, False
        subscription.mark = mark_of(subscription.stored, rights)
        self._index.note_change(subscription.number)
        return True

    def _effective(
        self, subscription: ActiveSubscription, wanted: WantedFilter, rights: Rights
    ) -> FilterInMode:
        try:
            return rights.effective(wanted.filter, wanted.mode)
        except TamisError:
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {subscription.stored.name!r} was used with other roles, and the "
                "new filter cannot be matched by all of them together; use another name",
            ) from None

    def _match_and_store(
        self,
        subscription: ActiveSubscription,
        effective: FilterInMode,
        filter_: Filter,
        columns_of: Callable[[StoredSubscription], dict[str, Any]],
    ) -> None:
        """Write a filter once the engine has it: one that cannot be compiled must not be stored."""
        number, engine = subscription.number, self._engine
        put = engine.replace if number in engine else engine.add
        expires_at = subscription.stored.expires_at
        try:
            put(number, effective.filter, mode=effective.mode, expires_at=expires_at)
        except TamisError as error:
            raise RefusedError(Code.BAD_FILTER, str(error)) from None
        try:
            write = self._store.state.alter_subscription
            subscription.replace_filter(filter_, columns_of, write)
        except StorageError:
            self._current_rights.compile_again([subscription])
            raise

    def _former(self, subscription: ActiveSubscription, since: int) -> tuple[FormerFilter, ...]:
        """Return the filters by which events may wait that come before a point."""
        stored, extra = subscription.stored, Extra.of(subscription.stored)
        oldest = min(since, self._store.state.oldest_event(subscription.number) or since)
        oldest = min(oldest, extra.replay_from or since)
        if subscription.queue.is_deferred:
            oldest = min(oldest, self._store.log.first_sequence)
        present = FormerFilter(since, stored.filter, stored.language, stored.mode)
        former = tuple(one for one in (*extra.former, present) if one.below > oldest)
        if len(former) > MAX_FORMER_FILTERS:
            raise RefusedError(
                Code.CONFLICT,
                f"the filter of {stored.name!r} was replaced {MAX_FORMER_FILTERS} times while "
                "events of all these filters wait; receive some of them first",
            )
        return former
