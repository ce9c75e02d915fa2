"""Making subscriptions: one by one as they are asked for, stored with one sync if they meet."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from tamis.access import FilterInMode, Principal, Rights
from tamis.broker.deliver.group_queues import GroupQueue, OrderingKeys
from tamis.broker.deliver.memory_queue import MemoryQueue
from tamis.broker.deliver.queues import DiskQueue, UnwrittenQueues
from tamis.broker.deliver.subscriptions import (
    ActiveSubscription,
    Extra,
    SubscriptionIndex,
    new_name,
    owner_of,
)
from tamis.broker.match.changes import ChangeResult, Updater
from tamis.broker.operations.access_control import NO_LONGER_VALID
from tamis.broker.operations.executors import Executors
from tamis.broker.operations.health import storage_refusal
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import EventCache
from tamis.broker.subscribe.current_rights import CurrentRights
from tamis.errors import BrokerFailedError, RefusedError, StorageError, TamisError
from tamis.filters import Filter, Mode
from tamis.ports import RandomBytes
from tamis.protocol import Code, Subscribe
from tamis.storage import NEVER, Storage, StoredSubscription

# Events wait until these are compiled, some 5 ms.
MAX_MADE_AT_ONCE: Final = 50
LOG: Final = get_logger("tamis.broker")

WAIT: Final = "wait"
TASK: Final = "subscription manager"
"""What the supervisor calls a change of subscriptions."""


class SubscriptionRequest(NamedTuple):
    """A subscription to add."""

    wanted: Subscribe
    filter: Filter
    mode: Mode
    principal: Principal
    rights: Rights
    effective: FilterInMode
    """What is to be matched by these rights."""
    since: int | None
    """The first event of the past that it gets; None: it gets new events only."""


Done = asyncio.Future[ActiveSubscription]


class SubscriptionMaker:
    """Makes subscriptions, between two batches of events."""

    def __init__(
        self,
        *,
        store: Storage,
        event_cache: EventCache,
        subscription_index: SubscriptionIndex,
        updater: Updater,
        current_rights: CurrentRights,
        rights_of: Callable[[Principal], Rights],
        is_welcome: Callable[[Principal], bool],
        settings: BrokerSettings,
        clock: Callable[[], float],
        executors: Executors,
        random: RandomBytes,
        supervisor: Supervisor,
        unwritten: UnwrittenQueues,
    ) -> None:
        self._store = store
        self._event_cache = event_cache
        self._index = subscription_index
        self._updater = updater
        self._current_rights = current_rights
        self._rights_of = rights_of
        self._is_welcome = is_welcome
        self._settings = settings
        self._clock = clock
        # Pauses are on disk by the clock of an earlier run, which may have been wrong by days.
        self._latest_due = clock() + settings.backoff_most
        self._executors = executors
        self._random = random
        self._supervisor = supervisor
        self._unwritten = unwritten
        self._asking = Lock()
        self._asked: list[tuple[SubscriptionRequest, Done]] = []

    async def make(self, asked: SubscriptionRequest) -> ActiveSubscription:
        """Add a subscription; requests that arrive together share one sync."""
        done: Done = asyncio.get_running_loop().create_future()
        with self._asking:
            self._asked.append((asked, done))
            is_first = len(self._asked) == 1
        if is_first:
            self._supervisor.start(TASK, self._make_asked())
        return await self._supervisor.unless_failed(done)

    async def _make_asked(self) -> None:
        with contextlib.suppress(BrokerFailedError):
            while self._asked:
                payers = [one.principal.name for one, _ in self._asked[:MAX_MADE_AT_ONCE]]
                for result in await self._updater.do(self._make_all, payers):
                    result.resolve()

    def _make_all(self) -> list[ChangeResult]:
        with self._asking:
            asked, self._asked = self._asked[:MAX_MADE_AT_ONCE], self._asked[MAX_MADE_AT_ONCE:]
        if not asked:
            return []
        try:
            return self._make_each(asked)
        except Exception as error:
            # A bug, but the requests must be answered.
            LOG.exception("subscriptions cannot be added")
            return [ChangeResult(done, None, error) for _, done in asked]

    def _make_each(self, asked: Sequence[tuple[SubscriptionRequest, Done]]) -> list[ChangeResult]:
        together: dict[tuple[str, str], tuple[SubscriptionRequest, StoredSubscription, Done]] = {}
        results, more = [], Counter[str]()
        for one, done in asked:
            row = self._row(one)
            key = row.owner, row.name
            if not self._is_welcome(one.principal):
                results.append(ChangeResult(done, None, no_longer_valid()))
            elif key in together or self._index.find(*key) is not None:
                results.append(ChangeResult(done, None, made_twice(row.name)))
            elif self._index.count_of(row.owner) + more[row.owner] >= self.quota(one.rights):
                error = too_many(row.owner, self.quota(one.rights))
                results.append(ChangeResult(done, None, error))
            else:
                together[key] = one, row, done
                more[row.owner] += 1
        return results + self._make_together([*together.values()])

    def _make_together(
        self, together: Sequence[tuple[SubscriptionRequest, StoredSubscription, Done]]
    ) -> list[ChangeResult]:
        try:
            numbers = self._store.state.add_subscriptions([row for _, row, _ in together])
        except StorageError as error:
            return [ChangeResult(done, None, storage_refusal(error)) for _, _, done in together]
        return [
            self._in_force(asked, done, msgspec.structs.replace(row, number=number))
            for (asked, row, done), number in zip(together, numbers, strict=True)
        ]

    def _in_force(
        self, asked: SubscriptionRequest, done: Done, stored: StoredSubscription
    ) -> ChangeResult:
        is_new = not Extra.of(stored).replay_from
        try:
            made = self.build(stored, asked.filter, is_new=is_new)
            # The rights may have changed since the filter was checked.
            self._current_rights.put_in_engine(
                made, asked.effective if made.rights is asked.rights else None
            )
            if made.is_suspended:
                made.rights.effective(asked.filter, stored.mode)
        except Exception as error:
            self._store.state.remove_subscription(stored.number)
            if isinstance(error, TamisError) and not isinstance(error, RefusedError):
                error = RefusedError(Code.BAD_FILTER, str(error))
            return ChangeResult(done, None, error)
        self._index.add(made)
        return ChangeResult(done, made, None)

    def _row(self, asked: SubscriptionRequest) -> StoredSubscription:
        now, start = self._clock(), self._store.log.next_sequence
        row = self.row(asked.wanted, asked.mode, asked.principal, now)
        return begun(row, start, asked.since)

    def row(
        self, wanted: Subscribe, mode: Mode, principal: Principal, now: float, number: int = 0
    ) -> StoredSubscription:
        """Return what is stored of a subscription; where it starts is open."""
        return StoredSubscription(
            number=number,
            owner=principal.name,
            name=wanted.durable or new_name(self._random),
            filter=wanted.filter,
            language=wanted.language,
            mode=mode.value,
            created_at=now,
            expires_at=expiry(now, wanted.lifetime),
            start=0,
            overflow=wanted.overflow,
            durable=wanted.durable is not None,
            max_attempts=wanted.max_attempts,
            extra=Extra(
                principal.roles, group=wanted.group, ordering_key=wanted.ordering_key
            ).text(),
        )

    def quota(self, rights: Rights) -> float:
        """Return how many subscriptions a principal may have."""
        return min(rights.limits.subscriptions, self._settings.subscriptions_per_principal)

    def build(
        self, stored: StoredSubscription, filter_: Filter | None, *, is_new: bool
    ) -> ActiveSubscription:
        """Return a subscription with its queue, and with the rights of its owner."""
        # Rights are read between two changes of the subscriptions. When rights change, those of
        # every subscription in the index change, also between two changes.
        rights = self._rights_of(owner_of(stored))
        return ActiveSubscription(
            stored, filter_, rights, self.new_queue(stored, nothing_yet=is_new)
        )

    def new_queue(
        self, stored: StoredSubscription, *, nothing_yet: bool
    ) -> DiskQueue | MemoryQueue:
        """Return the delivery queue of a subscription."""
        if stored.overflow != WAIT:
            return MemoryQueue(self._settings.buffer)
        state, window = self._store.state, self._settings.window
        deliver, extra = self._executors.deliver, Extra.of(stored)
        kind: type[DiskQueue] | partial[GroupQueue] = DiskQueue
        if extra.group:
            key = extra.ordering_key
            keys_of = OrderingKeys(self._event_cache, key) if key else None
            kind = partial(GroupQueue, keys_of=keys_of)
        queue = kind(
            stored.number,
            state,
            window,
            deliver,
            self._unwritten,
            nothing_yet=nothing_yet,
            latest_due=self._latest_due,
        )
        if extra.suspended_from or extra.replay_from:
            # Readers may come before the replay begins.
            queue.hold_from(extra.replay_from or extra.suspended_from)
        return queue


def begun(row: StoredSubscription, start: int, since: int | None) -> StoredSubscription:
    """Return a subscription that begins with an event to come, or with one of the past."""
    if since is None or since >= start:
        return msgspec.structs.replace(row, start=start)
    extra = msgspec.structs.replace(Extra.of(row), replay_from=since, since=since)
    return msgspec.structs.replace(row, start=start, extra=extra.text())


def no_longer_valid() -> RefusedError:
    """Return the refusal of a change whose credential has ended while it waited."""
    return RefusedError(Code.UNAUTHENTICATED, NO_LONGER_VALID)


def made_twice(name: str) -> RefusedError:
    """Return the refusal of a subscription that another request adds."""
    return RefusedError(
        Code.CONFLICT, f"the subscription {name!r} is being added by another request; try again"
    )


def used_by_others(name: str) -> RefusedError:
    """Return the refusal of a credential whose roles do not go with those of others."""
    return RefusedError(
        Code.CONFLICT,
        f"the subscription {name!r} was used with other roles, and its filter cannot be matched by "
        "all of them together; use another name",
    )


def too_many(principal: str, most: float) -> RefusedError:
    """Return the refusal of a subscription beyond the quota."""
    return RefusedError(
        Code.TOO_MANY,
        f"{principal} has {most:,.0f} subscriptions, which is the limit; delete some",
    )


def expiry(now: float, lifetime: float | None) -> float:
    """Return when something with a lifetime expires."""
    return NEVER if lifetime is None else now + lifetime
