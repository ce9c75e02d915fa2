"""The subscription manager: adds, resumes, changes and deletes subscriptions."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from tamis.access import FilterInMode, Principal, Rights
from tamis.broker.deliver.notifier import Notifier
from tamis.broker.deliver.queues import DiskQueue, MemoryQueue, UnwrittenQueues
from tamis.broker.deliver.subscriptions import (
    ActiveSubscription,
    Extra,
    SubscriptionIndex,
    mark_of,
    new_name,
    owner_of,
)
from tamis.broker.match.matcher import ChangeResult, Matcher
from tamis.broker.operations.executors import Executors
from tamis.broker.operations.health import refusal
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.subscribe.current_rights import SUBSCRIPTIONS_PER_STEP, CurrentRights
from tamis.broker.subscribe.expiries import ExpiryCalendar
from tamis.broker.subscribe.history import LoneFilter, place_of, require_past
from tamis.broker.subscribe.replay import Replayer
from tamis.broker.subscribe.suspensions import Suspensions
from tamis.errors import BrokerFailedError, FilterError, RefusedError, StorageError, TamisError
from tamis.filters import Filter, FilterLimits, Mode
from tamis.filters.limits import steps_within
from tamis.filters.modes import as_mode
from tamis.languages import parse
from tamis.matching import Engine
from tamis.ports import HeldClock, RandomBytes
from tamis.protocol import Code, Subscribe
from tamis.storage import NEVER, Storage, StoredSubscription

# Events wait until these are compiled, some 5 ms.
MAX_MADE_AT_ONCE: Final = 50
LOG: Final = get_logger("tamis.broker")

WAIT: Final = "wait"
EXPIRED: Final = "expired"


class SubscriptionRequest(NamedTuple):
    """A subscription to add."""

    wanted: Subscribe
    filter: Filter
    mode: Mode
    principal: Principal
    rights: Rights
    effective: FilterInMode
    """What is to be matched by these rights."""
    most: float
    """The quota of subscriptions of the principal."""
    since: int | None
    """The first event of the past that it gets; None: it gets new events only."""


Done = asyncio.Future[ActiveSubscription]


class SubscriptionManager:
    """Adds subscriptions, resumes them, changes them and deletes them."""

    def __init__(
        self,
        *,
        store: Storage,
        engine: Engine,
        subscription_index: SubscriptionIndex,
        matcher: Matcher,
        notifier: Notifier,
        replayer: Replayer,
        rights_of: Callable[[Principal], Rights],
        settings: BrokerSettings,
        clock: Callable[[], float],
        matching_clock: HeldClock,
        executors: Executors,
        random: RandomBytes,
        supervisor: Supervisor,
        suspensions: Suspensions,
        unwritten: UnwrittenQueues,
    ) -> None:
        self._unwritten = unwritten
        self.suspensions = suspensions
        self._executors = executors
        self._random = random
        self._supervisor = supervisor
        self._store = store
        self._engine = engine
        self._index = subscription_index
        self._matcher = matcher
        self._notifier = notifier
        self._replayer = replayer
        self._rights_of = rights_of
        self._expiries = ExpiryCalendar()
        self._settings = settings
        self._filter_limits = FilterLimits(
            steps=steps_within(settings.pattern_seconds, settings.largest_event)
        )
        self._clock = clock
        self._matching_clock = matching_clock
        # Pauses are on disk by the clock of an earlier run, which may have been wrong by days.
        self._latest_due = clock() + settings.backoff_most
        self.current_rights = CurrentRights(
            engine=engine,
            subscription_index=subscription_index,
            updater=matcher.updater,
            notifier=notifier,
            rights_of=rights_of,
        )
        suspensions.manage(
            updater=matcher.updater,
            compile_=self.current_rights.compile_again,
            delete=self.delete,
            replay=self.replay,
            flush=matcher.deferred_writer.flush,
        )
        self._asking = Lock()
        self._asked: list[tuple[SubscriptionRequest, Done]] = []

    # --- asking ----------------------------------------------------------------------------------

    async def subscribe(
        self, wanted: Subscribe, principal: Principal, rights: Rights
    ) -> tuple[ActiveSubscription, bool]:
        """Add or resume a subscription; return it and whether it was resumed."""
        filter_, mode, effective = self._parse(wanted.filter, wanted.language, wanted.mode, rights)
        known = self._index.find(principal.name, wanted.durable or "")
        if known is not None and self.has_expired(known):
            # It has missed what came since; a new one says so.
            await self.delete_all([known], EXPIRED)
            known = self._index.find(principal.name, wanted.durable or "")
        if known is not None:
            is_shown = known.shows_filter_to(principal, rights)
            shown = f", {known.stored.filter!r}" if is_shown else ""
            await self._resume(known, wanted, filter_, mode, shown)
            await self.adopt(known, principal, rights)
            if known.suspended_from:
                await self.suspensions.end(known)
            self.require_in_force(known)
            return known, True
        most = min(rights.limits.subscriptions, self._settings.subscriptions_per_principal)
        since = self._since(wanted)
        asked = SubscriptionRequest(
            wanted, filter_, mode, principal, rights, effective, most, since
        )
        made = await self._make(asked)
        self.watch(made)
        self.replay(made)
        return made, False

    def parse_allowed(
        self, text: str, language: str, mode: str | None, rights: Rights
    ) -> tuple[Filter, Mode]:
        """Parse a filter and check it against the rights, or refuse it with a sentence."""
        filter_, chosen, _ = self._parse(text, language, mode, rights)
        return filter_, chosen

    def _parse(
        self, text: str, language: str, mode: str | None, rights: Rights
    ) -> tuple[Filter, Mode, FilterInMode]:
        """Return a filter, its mode, and what is to be matched by the rights."""
        try:
            chosen = self._settings.mode if mode is None else as_mode(mode)
            if chosen is Mode.TOTAL and self._engine.mode is not Mode.TOTAL:
                raise FilterError(
                    "mode 'total' is a promise about all events: set it in the broker's settings"
                )
            filter_ = parse(text, language, limits=self._filter_limits)
            effective = rights.effective(filter_, chosen)
        except RefusedError:
            raise
        except TamisError as error:
            raise RefusedError(Code.BAD_FILTER, str(error)) from None
        return filter_, chosen, effective

    def require_allowed(
        self, subscription: ActiveSubscription, principal: Principal, rights: Rights
    ) -> None:
        """Refuse to change a subscription with a credential that may not subscribe so.

        One that has all roles that have used it may always: a suspended one can be deleted.
        """
        if not subscription.has_only_roles_of(principal):
            stored = subscription.stored
            self.parse_allowed(stored.filter, stored.language, stored.mode, rights)

    def _since(self, wanted: Subscribe) -> int | None:
        """Return the first event of the past that is wanted; None: new events only."""
        start, log = wanted.start, self._store.log
        if wanted.durable is not None and wanted.policy != WAIT:
            raise RefusedError(
                Code.BAD_REQUEST,
                f"a durable subscription keeps its events on disk; policy {wanted.policy!r} cannot",
            )
        if start == "latest":
            return None
        if wanted.policy != WAIT:
            raise RefusedError(
                Code.BAD_REQUEST,
                f"policy {wanted.policy!r} keeps nothing on disk, so it cannot start in the past",
            )
        require_past(log, start, self._clock())
        return place_of(log, start)

    def has_expired(self, subscription: ActiveSubscription) -> bool:
        """Return whether the time of a subscription is over; it may not be purged yet."""
        return subscription.stored.expires_at <= self._clock()

    def require_in_force(self, subscription: ActiveSubscription) -> None:
        """Refuse to use a subscription that was deleted or has expired meanwhile."""
        if self._index.get(subscription.number) is not subscription or self.has_expired(
            subscription
        ):
            raise _ended(subscription)

    async def _resume(
        self, known: ActiveSubscription, asked: Subscribe, filter_: Filter, mode: Mode, shown: str
    ) -> None:
        if (known.filter, known.stored.mode) != (filter_, mode.value):
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {asked.durable!r} has another filter{shown}; delete it first, "
                "or use another name",
            )
        if asked.lifetime is not None:
            await self.renew(known, asked.lifetime)

    async def adopt(
        self, subscription: ActiveSubscription, principal: Principal, rights: Rights
    ) -> None:
        """Match a subscription by the roles of a credential that uses it, beside those before.

        So no reader loses what another may not see. A credential that may not subscribe to the
        filter is refused and changes nothing.
        """
        if {*subscription.owner.roles} == {*principal.roles} and not subscription.is_suspended:
            return
        stored = subscription.stored
        self.parse_allowed(stored.filter, stored.language, stored.mode, rights)
        # Roles that the policy does not define grant nothing.
        roles = {*principal.roles} & {*rights.roles}
        if roles <= {*subscription.owner.roles} and not subscription.is_suspended:
            return
        await self._matcher.updater.do(partial(self._adopt, subscription, roles))
        subscription.queue.wake()

    def _adopt(self, subscription: ActiveSubscription, roles: set[str]) -> None:
        owner = subscription.owner
        together = (*owner.roles, *sorted(roles - {*owner.roles}))
        rights = self._rights_of(Principal(owner.name, together))
        try:
            rights.effective(subscription.filter, subscription.stored.mode)
        except TamisError:
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {subscription.stored.name!r} was used with other roles, and its "
                "filter cannot be matched by all of them together; use another name",
            ) from None
        if together != owner.roles:
            write = partial(self._store.state.change_extra, subscription.number)
            subscription.change_extra(write, roles=together)
        self.current_rights.compile_again([subscription])

    # --- changes, made between two batches -------------------------------------------------------

    async def _make(self, asked: SubscriptionRequest) -> ActiveSubscription:
        """Add a subscription; requests that arrive together share one sync."""
        done: Done = asyncio.get_running_loop().create_future()
        with self._asking:
            self._asked.append((asked, done))
            is_first = len(self._asked) == 1
        if is_first:
            self._supervisor.start("subscription manager", self._make_asked())
        return await self._supervisor.unless_failed(done)

    async def _make_asked(self) -> None:
        with contextlib.suppress(BrokerFailedError):
            while self._asked:
                for result in await self._matcher.updater.do(self._make_all):
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
            if key in together or self._index.find(*key) is not None:
                results.append(ChangeResult(done, None, _made_twice(row.name)))
            elif self._index.count_of(row.owner) + more[row.owner] >= one.most:
                results.append(ChangeResult(done, None, _too_many(one)))
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
            return [ChangeResult(done, None, refusal(error)) for _, _, done in together]
        return [
            self._in_force(asked, done, msgspec.structs.replace(row, number=number))
            for (asked, row, done), number in zip(together, numbers, strict=True)
        ]

    def _in_force(
        self, asked: SubscriptionRequest, done: Done, stored: StoredSubscription
    ) -> ChangeResult:
        is_new = not Extra.of(stored).replay_from
        try:
            made = self._subscription(stored, asked.filter, is_new=is_new)
            # The rights may have changed since the filter was checked.
            self.current_rights.put_in_engine(
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
        wanted, now, start = asked.wanted, self._clock(), self._store.log.next_sequence
        since = start if asked.since is None else asked.since
        is_past = since < start
        extra = Extra(asked.principal.roles, *((since, since) if is_past else ()))
        return StoredSubscription(
            owner=asked.principal.name,
            name=wanted.durable or new_name(self._random),
            filter=wanted.filter,
            language=wanted.language,
            mode=asked.mode.value,
            created_at=now,
            expires_at=_expiry(now, wanted.lifetime),
            start=start,
            policy=wanted.policy,
            durable=wanted.durable is not None,
            max_attempts=wanted.max_attempts,
            extra=extra.text(),
        )

    def _subscription(
        self, stored: StoredSubscription, filter_: Filter | None, *, is_new: bool
    ) -> ActiveSubscription:
        # Rights are read between two changes of the subscriptions. When rights change, those of
        # every subscription in the index change, also between two changes.
        rights = self._rights_of(owner_of(stored))
        return ActiveSubscription(
            stored, filter_, rights, self._new_queue(stored, nothing_yet=is_new)
        )

    def _new_queue(
        self, stored: StoredSubscription, *, nothing_yet: bool
    ) -> DiskQueue | MemoryQueue:
        if stored.policy != WAIT:
            return MemoryQueue(self._settings.buffer)
        state, window = self._store.state, self._settings.window
        deliver = self._executors.deliver
        queue = DiskQueue(
            stored.number,
            state,
            window,
            deliver,
            self._unwritten,
            nothing_yet=nothing_yet,
            latest_due=self._latest_due,
        )
        extra = Extra.of(stored)
        if extra.suspended_from or extra.replay_from:
            # Readers may come before the replay begins.
            queue.hold_from(extra.replay_from or extra.suspended_from)
        return queue

    async def renew(self, subscription: ActiveSubscription, lifetime: float | None) -> None:
        """Set a subscription to expire in this many seconds; None: never."""
        expires_at = _expiry(self._clock(), lifetime)

        def change() -> None:
            if self._index.get(subscription.number) is not subscription:
                raise _ended(subscription)
            self._store.state.renew_subscription(subscription.number, expires_at)
            subscription.change(expires_at=expires_at)
            self.current_rights.compile_again([subscription])

        # It was renewed in time, but may expire while it waits for the matcher. Others that do are
        # matched a little longer, which nobody sees.
        with self._matching_clock.hold():
            await self._matcher.updater.do(change)
        self.watch(subscription)
        # Nothing is sent of one that has expired, and it may have while it waited.
        subscription.queue.wake()

    async def delete(self, subscription: ActiveSubscription, reason: str) -> None:
        """Delete a subscription and its queued events."""
        await self.delete_all([subscription], reason)

    async def delete_all(self, subscriptions: Iterable[ActiveSubscription], reason: str) -> None:
        """Delete subscriptions and their queued events, some at a time."""
        rest = [*subscriptions]
        while rest:
            some, rest = rest[:SUBSCRIPTIONS_PER_STEP], rest[SUBSCRIPTIONS_PER_STEP:]
            gone = await self._matcher.updater.do(partial(self._delete, some, reason))
            for subscription in gone:
                self._replayer.stop(subscription.number)
                self._expiries.discard(subscription.number)
            if self.suspensions.numbers:
                self.suspensions.report()
            await asyncio.gather(*(self._notifier.end(one, reason) for one in gone))

    def _delete(
        self, subscriptions: Sequence[ActiveSubscription], reason: str
    ) -> Sequence[ActiveSubscription]:
        """Delete subscriptions, except those that were renewed just before; return the others."""
        if reason == EXPIRED:
            now = self._clock()
            subscriptions = [one for one in subscriptions if one.stored.expires_at <= now]
        there = [one for one in subscriptions if self._index.get(one.number) is one]
        if not there:
            return subscriptions
        try:
            self._store.state.remove_subscriptions([one.number for one in there])
        except StorageError:
            # The next start removes those that are not durable.
            if any(one.stored.durable for one in there):
                raise
        for subscription in there:
            self._index.remove(subscription)
            if subscription.number in self._engine:
                self._engine.remove(subscription.number)
        return subscriptions

    def watch(self, subscription: ActiveSubscription) -> None:
        """Record when a subscription expires."""
        if self._index.get(subscription.number) is subscription:
            self._expiries.put(subscription.number, subscription.stored.expires_at)

    async def purge_expired(self) -> None:
        """Delete subscriptions that have expired."""
        expired = [
            subscription
            for number in self._expiries.take_expired(self._clock())
            if (subscription := self._index.get(number)) is not None
        ]
        try:
            await self.delete_all(expired, EXPIRED)
        finally:
            # Those that are still there: the disk is full, or the clock was set back.
            for subscription in expired:
                self.watch(subscription)

    def counts_of(self, subscription: ActiveSubscription) -> tuple[int, int]:
        """Return the numbers of pending events and dead letters of a subscription; for a thread."""
        if not isinstance(subscription.queue, DiskQueue):
            return subscription.queue.waiting, 0
        state, number = self._store.state, subscription.number
        return state.pending_count(number), state.dead_letter_count(number)

    async def requeue(self, subscription: ActiveSubscription, sequences: Sequence[int]) -> int:
        """Queue dead letters again; return how many."""
        queue = subscription.queue
        if not isinstance(queue, DiskQueue):
            return 0
        oldest, state = self._store.log.first_sequence, self._store.state
        coming = frozenset(sequences)
        queue.requeued |= coming
        try:
            found = await self._executors.client.run(
                state.requeue, subscription.number, sequences, oldest=oldest
            )
        finally:
            queue.requeued -= coming
        for sequence in found:
            queue.put_back(sequence, 0, 0.0)
        return len(found)

    # --- the past --------------------------------------------------------------------------------

    def restore(self, stored: StoredSubscription, marks: Mapping[int, bytes]) -> ActiveSubscription:
        """Restore a subscription after a restart.

        It is compiled only if it has changed since the engine was saved.
        """
        restored = self._subscription(stored, None, is_new=False)
        restored.mark = marks.get(stored.number, b"")
        if restored.suspended_from:
            self.suspensions.numbers.add(stored.number)
        if restored.suspended_from or restored.mark != mark_of(stored, restored.rights):
            self.current_rights.put_in_engine(restored)
        self._index.add(restored)
        self.watch(restored)
        return restored

    def replay(self, subscription: ActiveSubscription) -> None:
        """Search the part of the log before the subscription that it asked for."""
        if Extra.of(subscription.stored).replay_from:
            self._replayer.begin(subscription, self._alone)

    def _alone(self, subscription: ActiveSubscription) -> LoneFilter:
        """Return what is matched for a subscription by its current rights."""
        reading = subscription.rights.effective(subscription.filter, subscription.stored.mode)
        return LoneFilter(reading, self._engine.schema, self._engine.mode)


def _ended(subscription: ActiveSubscription) -> RefusedError:
    name = subscription.stored.name
    return RefusedError(Code.CONFLICT, f"the subscription {name!r} has just ended")


def _made_twice(name: str) -> RefusedError:
    return RefusedError(
        Code.CONFLICT, f"the subscription {name!r} is being added by another request; try again"
    )


def _too_many(asked: SubscriptionRequest) -> RefusedError:
    return RefusedError(
        Code.TOO_MANY,
        f"{asked.principal.name} has {asked.most:,.0f} subscriptions, which is the limit; "
        "delete some",
    )


def _expiry(now: float, lifetime: float | None) -> float:
    return NEVER if lifetime is None else now + lifetime
