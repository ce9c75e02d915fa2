"""The subscription manager: adds, resumes, changes and deletes subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from tamis.access import Principal, Rights
from tamis.broker.deliver.notifier import Notifier
from tamis.broker.deliver.queues import DiskQueue, UnwrittenQueues
from tamis.broker.deliver.subscriptions import (
    ActiveSubscription,
    Extra,
    SubscriptionIndex,
    mark_of,
)
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.executors import Executors
from tamis.broker.operations.fair_executor import FairExecutor
from tamis.broker.operations.health import storage_refusal
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import EventCache
from tamis.broker.subscribe.batches import SubscriptionBatches
from tamis.broker.subscribe.current_rights import SUBSCRIPTIONS_PER_STEP, CurrentRights
from tamis.broker.subscribe.expiries import ExpiryCalendar
from tamis.broker.subscribe.filter_reader import FilterReader
from tamis.broker.subscribe.groups import require_same_group
from tamis.broker.subscribe.history import LoneFilter, require_past, sequence_at
from tamis.broker.subscribe.making import (
    TASK,
    WAIT,
    SubscriptionMaker,
    SubscriptionRequest,
    expiry,
    no_longer_valid,
    used_by_others,
)
from tamis.broker.subscribe.replay import Replayer
from tamis.broker.subscribe.suspensions import Suspensions
from tamis.broker.subscribe.updates import FilterUpdates, WantedFilter
from tamis.errors import AccessError, RefusedError, StorageError, TamisError
from tamis.events import Event
from tamis.events.gathering import HoldsAttributes
from tamis.filters import Filter, Mode
from tamis.matching import Engine
from tamis.ports import HeldClock, RandomBytes
from tamis.protocol import Code, Subscribe
from tamis.storage import Storage, StoredSubscription

EXPIRED: Final = "expired"
DISCONNECTED: Final = "disconnected"

SubscribeResult = tuple[ActiveSubscription, bool] | RefusedError
"""A subscription and whether it was resumed, or why it was refused."""


class SubscriptionManager:
    """Adds subscriptions, resumes them, changes them and deletes them."""

    def __init__(
        self,
        *,
        store: Storage,
        event_cache: EventCache,
        engine: Engine,
        subscription_index: SubscriptionIndex,
        matcher: Matcher,
        notifier: Notifier,
        replayer: Replayer,
        rights_of: Callable[[Principal], Rights],
        is_welcome: Callable[[Principal], bool],
        settings: BrokerSettings,
        clock: Callable[[], float],
        matching_clock: HeldClock,
        executors: Executors,
        random: RandomBytes,
        supervisor: Supervisor,
        suspensions: Suspensions,
        unwritten: UnwrittenQueues,
        batch_executor: FairExecutor,
    ) -> None:
        self.suspensions = suspensions
        self._executors = executors
        self._store = store
        self._engine = engine
        self._index = subscription_index
        self._matcher = matcher
        self._notifier = notifier
        self._replayer = replayer
        self._rights_of = rights_of
        self._is_welcome = is_welcome
        self._supervisor = supervisor
        self._expiries = ExpiryCalendar()
        self._settings = settings
        self._reader = FilterReader(settings, engine.mode)
        self._clock = clock
        self._matching_clock = matching_clock
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
        self._updates = FilterUpdates(
            store=store,
            engine=engine,
            subscription_index=subscription_index,
            matcher=matcher,
            current_rights=self.current_rights,
            suspensions=suspensions,
            rights_of=rights_of,
            require_welcome=self._require_welcome,
            require_in_force=self.require_in_force,
        )
        self.maker = SubscriptionMaker(
            store=store,
            event_cache=event_cache,
            subscription_index=subscription_index,
            updater=matcher.updater,
            current_rights=self.current_rights,
            rights_of=rights_of,
            is_welcome=is_welcome,
            settings=settings,
            clock=clock,
            executors=executors,
            random=random,
            supervisor=supervisor,
            unwritten=unwritten,
        )
        self._batches = SubscriptionBatches(
            store=store,
            engine=engine,
            subscription_index=subscription_index,
            updater=matcher.updater,
            maker=self.maker,
            reader=self._reader,
            rights_of=rights_of,
            is_welcome=is_welcome,
            since_of=self._since,
            clock=clock,
            executor=batch_executor,
            supervisor=supervisor,
            on_made=self._begin,
        )

    # --- asking ----------------------------------------------------------------------------------

    async def subscribe(
        self,
        wanted: Subscribe,
        principal: Principal,
        rights: Rights,
        keep: Callable[[ActiveSubscription], bool],
    ) -> tuple[ActiveSubscription, bool]:
        """Add or resume a subscription; return it and whether it was resumed.

        `keep` gets a new one that is not durable, and returns whether anybody still wants it.
        """
        self._require_welcome(principal)
        filter_, mode, effective = self._reader.read(
            wanted.filter, wanted.language, wanted.mode, rights
        )
        known = self._index.find(principal.name, wanted.durable or "")
        if known is not None and self.has_expired(known):
            # It has missed what came since; a new one says so.
            await self.delete_all([known], EXPIRED)
            known = self._index.find(principal.name, wanted.durable or "")
        if known is not None:
            require_settled(known)
            require_same_group(known, wanted, rights)
            is_shown = known.shows_filter_to(principal, rights)
            shown = f", {known.stored.filter!r}" if is_shown else ""
            # One that was connected before need not know that its filter was replaced.
            if not wanted.resumes:
                self._require_same(known, filter_, mode, shown)
            if wanted.lifetime is not None:
                await self.renew(known, wanted.lifetime, principal)
            await self.adopt(known, principal, rights)
            if known.suspended_from:
                await self.suspensions.end(known)
            self.require_in_force(known)
            return known, True
        since = self._since(wanted)
        asked = SubscriptionRequest(wanted, filter_, mode, principal, rights, effective, since)
        try:
            return await self._supervisor.finish(TASK, self._make(asked, keep)), False
        except RefusedError:
            # The members of a group start together: one makes it, and the others join it.
            if not wanted.group or self._index.find(principal.name, wanted.durable or "") is None:
                raise
        return await self.subscribe(wanted, principal, rights, keep)

    async def _make(
        self, asked: SubscriptionRequest, keep: Callable[[ActiveSubscription], bool]
    ) -> ActiveSubscription:
        made = await self.maker.make(asked)
        self._begin(made)
        if not made.stored.durable and not keep(made):
            await self.delete(made, DISCONNECTED)
        return made

    def _begin(self, made: ActiveSubscription) -> None:
        """Do what a subscription needs once it is in force."""
        self.watch(made)
        self.replay(made)

    async def subscribe_all(
        self, wanted: Sequence[Subscribe], principal: Principal, rights: Rights
    ) -> list[SubscribeResult]:
        """Add or resume many durable subscriptions, or refuse some, each for itself.

        All new ones are stored with one sync, and begin with the same event.
        """
        new, rest = self._batches.divide(wanted, principal)
        results: dict[int, SubscribeResult] = {}
        for place, made in (await self._batches.make(new, principal)).items():
            results[place] = made if isinstance(made, RefusedError) else (made, False)
        resuming: dict[int, asyncio.Task[SubscribeResult]] = {}
        async with asyncio.TaskGroup() as group:
            for place, one in rest.items():
                resuming[place] = group.create_task(self._try_subscribe(one, principal, rights))
                # Parsing many filters in one turn of the event loop would delay others.
                await asyncio.sleep(0)
        results |= {place: task.result() for place, task in resuming.items()}
        return [results[place] for place in range(len(wanted))]

    async def _try_subscribe(
        self, wanted: Subscribe, principal: Principal, rights: Rights
    ) -> SubscribeResult:
        try:
            # All of them are durable.
            return await self.subscribe(wanted, principal, rights, lambda _: True)
        except RefusedError as error:
            return error
        except StorageError as error:
            return storage_refusal(error)

    def parse_allowed(
        self, text: str, language: str, mode: str | None, rights: Rights
    ) -> tuple[Filter, Mode]:
        """Parse a filter and check it against the rights, or refuse it with a sentence."""
        filter_, chosen, _ = self._reader.read(text, language, mode, rights)
        return filter_, chosen

    def parse_stored(
        self, name: str, text: str, language: str, mode: str, rights: Rights
    ) -> tuple[Filter, Mode]:
        """Parse a filter that another credential may have written, as `parse_allowed` does.

        What the reader may not see is not named: nobody has told it that the filter is about that.
        """
        try:
            return self.parse_allowed(text, language, mode, rights)
        except TamisError:
            if not rights.hides_anything or not rights.may_subscribe:
                raise
            raise AccessError(
                Code.FORBIDDEN,
                f"the filter of {name!r:.80} tests attributes that you may not see: use a "
                "credential that may, or another name",
            ) from None

    def read_filter(
        self, text: str, language: str, mode: str | None, rights: Rights
    ) -> WantedFilter:
        """Return a filter that is to replace another, or refuse it with a sentence."""
        return WantedFilter(text, language, *self.parse_allowed(text, language, mode, rights))

    def require_allowed(
        self, subscription: ActiveSubscription, principal: Principal, rights: Rights
    ) -> None:
        """Refuse to change a subscription with a credential that may not subscribe so.

        One that has all roles that have used it may always: a suspended one can be deleted.
        """
        if not subscription.has_only_roles_of(principal):
            stored = subscription.stored
            self.parse_stored(stored.name, stored.filter, stored.language, stored.mode, rights)

    def _since(self, wanted: Subscribe) -> int | None:
        """Return the first event of the past that is wanted; None: new events only."""
        start, log = wanted.start, self._store.log
        if wanted.durable is not None and wanted.overflow != WAIT:
            raise RefusedError(
                Code.BAD_REQUEST,
                "a durable subscription keeps its events on disk; "
                f"overflow {wanted.overflow!r} cannot",
            )
        if start == "latest":
            return None
        if wanted.overflow != WAIT:
            raise RefusedError(
                Code.BAD_REQUEST,
                f"overflow {wanted.overflow!r} keeps nothing on disk, "
                "so it cannot start in the past",
            )
        require_past(log, start, self._clock())
        return sequence_at(log, start)

    def _require_welcome(self, principal: Principal) -> None:
        """Refuse a change whose credential has ended, perhaps while it waited for its turn."""
        if not self._is_welcome(principal):
            raise no_longer_valid()

    def has_expired(self, subscription: ActiveSubscription) -> bool:
        """Return whether the time of a subscription is over; it may not be purged yet.

        Whoever asked to renew it in time is not too late, however long that takes.
        """
        return not subscription.renewals and subscription.stored.expires_at <= self._clock()

    def require_in_force(self, subscription: ActiveSubscription) -> None:
        """Refuse to use a subscription that was deleted or has expired meanwhile."""
        if self._index.get(subscription.number) is not subscription or self.has_expired(
            subscription
        ):
            raise _ended(subscription)

    @staticmethod
    def _require_same(known: ActiveSubscription, filter_: Filter, mode: Mode, shown: str) -> None:
        """Refuse to resume a subscription with another filter."""
        if (known.filter, known.stored.mode) != (filter_, mode.value):
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {known.stored.name!r} has another filter{shown}; update it, "
                "delete it first, or use another name",
            )

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
        self.parse_stored(stored.name, stored.filter, stored.language, stored.mode, rights)
        # Roles that the policy does not define grant nothing.
        roles = {*principal.roles} & {*rights.roles}
        if roles <= {*subscription.owner.roles} and not subscription.is_suspended:
            return
        adopt = partial(self._adopt, subscription, roles, principal)
        await self._matcher.updater.do(adopt, [principal.name])
        subscription.queue.wake()

    def _adopt(
        self, subscription: ActiveSubscription, roles: set[str], principal: Principal
    ) -> None:
        self._require_welcome(principal)
        owner = subscription.owner
        together = (*owner.roles, *sorted(roles - {*owner.roles}))
        rights = self._rights_of(Principal(owner.name, together))
        try:
            rights.effective(subscription.filter, subscription.stored.mode)
        except TamisError:
            raise used_by_others(subscription.stored.name) from None
        if together != owner.roles:
            write = partial(self._store.state.change_extra, subscription.number)
            subscription.change_extra(write, roles=together)
        self.current_rights.compile_again([subscription])

    # --- changes, made between two batches -------------------------------------------------------

    async def renew(
        self, subscription: ActiveSubscription, lifetime: float | None, principal: Principal
    ) -> None:
        """Set a subscription to expire in this many seconds; None: never."""
        expires_at = expiry(self._clock(), lifetime)
        subscription.renewals += 1
        await self._supervisor.finish(TASK, self._renew(subscription, expires_at, principal))

    async def _renew(
        self, subscription: ActiveSubscription, expires_at: float, principal: Principal
    ) -> None:
        def change() -> None:
            self._require_welcome(principal)
            if self._index.get(subscription.number) is not subscription:
                raise _ended(subscription)
            self._store.state.renew_subscription(subscription.number, expires_at)
            subscription.change(expires_at=expires_at)
            self.current_rights.compile_again([subscription])

        # It was renewed in time, but may expire while it waits for the matcher. Others that do are
        # matched a little longer, which nobody sees.
        try:
            with self._matching_clock.hold():
                await self._matcher.updater.do(change, [principal.name])
        finally:
            subscription.renewals -= 1
            self.watch(subscription)
        # Nothing is sent of one that has expired, and it may have while it waited.
        subscription.queue.wake()

    async def update(
        self,
        subscription: ActiveSubscription,
        wanted: WantedFilter,
        principal: Principal,
        rights: Rights,
    ) -> None:
        """Replace the filter of a durable subscription; one that it has stays as it is."""
        self._require_welcome(principal)
        same = (wanted.filter, wanted.mode.value) == (subscription.filter, subscription.stored.mode)
        if same and not subscription.suspended_from:
            await self.adopt(subscription, principal, rights)
            self.require_in_force(subscription)
            return
        replacing = self._updates.replace(subscription, wanted, principal, rights)
        await self._supervisor.finish(TASK, replacing)

    async def delete(
        self, subscription: ActiveSubscription, reason: str, principal: Principal | None = None
    ) -> None:
        """Delete a subscription and its queued events; None: the broker itself wants that."""
        await self.delete_all([subscription], reason, principal)

    async def delete_all(
        self,
        subscriptions: Iterable[ActiveSubscription],
        reason: str,
        principal: Principal | None = None,
    ) -> None:
        """Delete subscriptions and their queued events, some at a time."""
        if rest := [*subscriptions]:
            deleting = self._delete_slowly(rest, reason, principal)
            await self._supervisor.finish(TASK, deleting)

    async def _delete_slowly(
        self, rest: Sequence[ActiveSubscription], reason: str, principal: Principal | None
    ) -> None:
        while rest:
            some, rest = rest[:SUBSCRIPTIONS_PER_STEP], rest[SUBSCRIPTIONS_PER_STEP:]
            delete = partial(self._delete, some, reason, principal)
            gone = await self._matcher.updater.do(
                delete, [] if principal is None else [principal.name]
            )
            for subscription in gone:
                subscription.has_ended = True
                # Whoever waits for its events need not wait any longer.
                subscription.queue.wake()
                self._replayer.stop(subscription.number)
                self._expiries.discard(subscription.number)
            if self.suspensions.numbers:
                self.suspensions.report()
            await asyncio.gather(*(self._notifier.end(one, reason) for one in gone))

    def _delete(
        self,
        subscriptions: Sequence[ActiveSubscription],
        reason: str,
        principal: Principal | None,
    ) -> Sequence[ActiveSubscription]:
        """Delete subscriptions, except those that were renewed just before; return the others."""
        if principal is not None:
            self._require_welcome(principal)
        if reason == EXPIRED:
            subscriptions = [one for one in subscriptions if self.has_expired(one)]
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

    async def is_wanted(self, event: Event | HoldsAttributes) -> bool:
        """Return whether a subscription, or a peer, would get an event that were stored now.

        A subscription that is suspended is matched later, so it counts.
        """
        if self.suspensions.numbers:
            return True
        # The engine is asked between two batches: nobody else may use it meanwhile.
        return bool(await self._matcher.updater.do(partial(self._engine.match, event)))

    # --- the past --------------------------------------------------------------------------------

    def new_queue(self, stored: StoredSubscription, *, nothing_yet: bool) -> DiskQueue:
        """Return the queue of a link."""
        queue = self.maker.new_queue(stored, nothing_yet=nothing_yet)
        assert isinstance(queue, DiskQueue)  # noqa: S101 - its overflow is `wait`
        return queue

    def restore(self, stored: StoredSubscription, marks: Mapping[int, bytes]) -> ActiveSubscription:
        """Restore a subscription after a restart.

        It is compiled only if it has changed since the engine was saved.
        """
        restored = self.maker.build(stored, None, is_new=False)
        restored.mark = marks.get(stored.number, b"")
        if restored.suspended_from:
            self.suspensions.numbers.add(stored.number)
        is_held = restored.suspended_from or restored.is_moving
        if is_held or restored.mark != mark_of(stored, restored.rights):
            self.current_rights.put_in_engine(restored)
        self._index.add(restored)
        self.watch(restored)
        return restored

    def replay(self, subscription: ActiveSubscription) -> None:
        """Search the part of the log before the subscription that it asked for."""
        if Extra.of(subscription.stored).replay_from:
            self._replayer.begin(subscription, self._alone)

    def _alone(self, subscription: ActiveSubscription, sequence: int) -> LoneFilter:
        """Return what is matched for a subscription, at an event, by its current rights."""
        former, stored = subscription.former_at(sequence), subscription.stored
        mode = stored.mode if former is None else former.mode
        reading = subscription.rights.effective(subscription.filter_at(sequence), mode)
        return LoneFilter(reading, self._engine.schema, self._engine.mode)


def require_settled(subscription: ActiveSubscription) -> None:
    """Refuse to use a subscription that is on its way here or elsewhere."""
    name, departure = subscription.stored.name, subscription.departure
    if departure is not None:
        raise RefusedError(
            Code.CONFLICT,
            f"the subscription {name!r} moves to the broker {departure.target[:8]}: connect there, "
            "or bring it back with roaming=True when it has arrived",
        )
    if subscription.is_arriving:
        raise RefusedError(
            Code.UNAVAILABLE,
            f"the subscription {name!r} is on its way here from its former home; try again",
        )


def has_moved(name: str, target: str) -> str:
    """Return where a subscription is that was here."""
    return (
        f"the subscription {name!r:.80} has moved to the broker {target[:8]}: connect there, or "
        "bring it back with roaming=True"
    )


def _ended(subscription: ActiveSubscription) -> RefusedError:
    name = subscription.stored.name
    return RefusedError(Code.CONFLICT, f"the subscription {name!r} has just ended")
