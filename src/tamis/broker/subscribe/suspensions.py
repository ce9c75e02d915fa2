"""Suspensions: subscriptions whose filters take too long are not matched until somebody asks.

The matcher leaves out the tests that their owners have no time left for. Such a subscription keeps
what it has, and is matched no more from the event on for which it is undecided. Subscribing again
ends that: the events since then are searched beside, as for a start in the past.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from tamis.broker.deliver.notifier import Notifier
from tamis.broker.deliver.queues import DiskQueue
from tamis.broker.deliver.subscriptions import ActiveSubscription, Extra, SubscriptionIndex
from tamis.broker.match.changes import Updater
from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import RETENTION
from tamis.errors import RefusedError
from tamis.filters import Id
from tamis.matching import MatchingBudget
from tamis.protocol import Code
from tamis.storage import Storage

LOG: Final = get_logger("tamis.broker")

SUSPENDED: Final = "subscriptions are suspended because their filters take too long"


class EndedSuspension(NamedTuple):
    """What changes when a subscription is matched again."""

    since: int
    """The first event that was not matched."""
    start: int
    extra: Extra


Compile = Callable[[Sequence[ActiveSubscription]], None]
Delete = Callable[[ActiveSubscription, str], Coroutine[Any, Any, None]]
Replay = Callable[[ActiveSubscription], None]
Flush = Callable[[ActiveSubscription], Coroutine[Any, Any, None]]
Replace = Callable[[ActiveSubscription, EndedSuspension], object]


def matching_budget(
    settings: BrokerSettings, index: SubscriptionIndex, now: Callable[[], float]
) -> MatchingBudget:
    """Return the budget for slow tests: of each owner, or of each filter without tokens."""

    def payer_of(number: Id) -> str | int:
        subscription, route = index.get(int(number)), index.routes.get(int(number))
        if route is not None:
            return route.link.stored.owner
        if subscription is None or not settings.tokens_required:
            return int(number)
        return subscription.stored.owner

    burst, share = settings.pattern_burst, settings.pattern_share / 100
    return MatchingBudget(payer_of, burst=burst, share=share, now=now)


class Suspensions:
    """Reports filters that take too long to their subscribers, who may try again."""

    def __init__(
        self,
        *,
        store: Storage,
        subscription_index: SubscriptionIndex,
        notifier: Notifier,
        health: Health,
        metrics: Metrics,
        supervisor: Supervisor,
        budget: MatchingBudget,
    ) -> None:
        self._budget = budget
        self._store = store
        self._index = subscription_index
        self._notifier = notifier
        self._health = health
        self._supervisor = supervisor
        self.numbers: set[int] = set()
        """The suspended subscriptions."""
        self._counter = metrics.suspended
        metrics.watch(
            "suspended_subscriptions",
            "Subscriptions that are suspended now",
            lambda: len(self.numbers),
        )
        self._updater: Updater | None = None

    def manage(
        self, *, updater: Updater, compile_: Compile, delete: Delete, replay: Replay, flush: Flush
    ) -> None:
        """Set what the subscription manager does for it."""
        self._updater = updater
        self._compile = compile_
        self._delete = delete
        self._replay = replay
        self._flush = flush

    def begin(self, subscriptions: Sequence[ActiveSubscription]) -> None:
        """Notify subscribers and the operator of subscriptions that the matcher has suspended."""
        # Somebody may have ended it already, while it could not be written.
        subscriptions = [one for one in subscriptions if one.suspended_from]
        self._counter.inc(len(subscriptions))
        for one in subscriptions:
            LOG.warning(
                "subscription suspended: its filter takes too long",
                owner=one.stored.owner,
                subscription=one.stored.name,
                first=one.suspended_from,
            )
            if isinstance(one.queue, DiskQueue):
                one.queue.hold_from(one.suspended_from)
        self.numbers.update(one.number for one in subscriptions)
        self.report()
        self._supervisor.start("suspension", self._tell(subscriptions))

    async def _tell(self, subscriptions: Sequence[ActiveSubscription]) -> None:
        for one in subscriptions:
            if one.stored.durable:
                await self._notifier.end(one, one.suspension)
            else:
                # It would end with its connection anyway.
                await self._delete(one, one.suspension)

    def report(self) -> None:
        """Forget those that are no longer suspended, and show how many are."""
        found = [self._index.get(number) for number in self.numbers]
        left = [one for one in found if one is not None and one.suspended_from]
        self.numbers = {one.number for one in left}
        if not left:
            self._health.clear(SUSPENDED)
            return
        last = max(left, key=lambda one: one.suspended_from)
        self._health.warn(
            SUSPENDED,
            f"{len(left):,}; the latest, {last.stored.name!r} of {last.stored.owner}, from event "
            f"{last.suspended_from} on",
        )

    async def end(self, subscription: ActiveSubscription, replace: Replace | None = None) -> None:
        """Match a suspended subscription again; the events since then are searched beside.

        `replace` writes that with another filter.
        """
        if Extra.of(subscription.stored).replay_from:
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {subscription.stored.name!r} can be matched again only when its "
                f"replay is over; it is {subscription.suspension}",
            )
        assert self._updater is not None  # noqa: S101 - set when the broker is made
        # What was matched before comes before what a replay finds.
        await self._flush(subscription)
        lost = await self._updater.do(partial(self._end, subscription, replace))
        self.report()
        if lost:
            self._notifier.count_removed(subscription, lost)
        if not Extra.of(subscription.stored).replay_from and isinstance(
            subscription.queue, DiskQueue
        ):
            # Retention has removed everything since then: there is nothing to wait for.
            subscription.queue.release()
        self._replay(subscription)

    def _end(self, subscription: ActiveSubscription, replace: Replace | None) -> int:
        """Match a subscription from the next event on; return how many before were removed."""
        stored, log, state = subscription.stored, self._store.log, self._store.state
        since, start = subscription.suspended_from, log.next_sequence
        if self._index.get(subscription.number) is not subscription:
            return 0
        if not since:
            if replace is not None:
                raise _matched_meanwhile(subscription)
            return 0
        self._budget.fill()
        wait = self._budget.wait(subscription.number)
        if wait:
            raise RefusedError(
                Code.TOO_MANY,
                f"the filters of {stored.owner} have used all their time; try again in {wait:.0f} "
                f"s: {stored.name!r} is {subscription.suspension}",
                retry_after=wait,
            )
        extra = Extra.of(stored)
        there = max(since, log.first_sequence)
        changed = msgspec.structs.replace(
            extra,
            suspended_from=0,
            replay_from=there if there < start else 0,
            since=extra.since or stored.start,
        )
        if replace is None:
            columns = {"start": start, "extra": changed.text()}
            state.alter_subscription(subscription.number, **columns)
            subscription.change(**columns)
        else:
            replace(subscription, EndedSuspension(since, start, changed))
        lost = min(there, start) - since
        if lost > 0:
            state.add_dropped(RETENTION, {subscription.number: lost})
        subscription.suspended_from = 0
        subscription.queue.is_ending = False
        self._compile([subscription])
        return max(0, lost)


def _matched_meanwhile(subscription: ActiveSubscription) -> RefusedError:
    name = subscription.stored.name
    return RefusedError(
        Code.CONFLICT, f"the subscription {name!r} was suspended, and is matched again; try again"
    )
