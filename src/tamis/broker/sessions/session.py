"""Sessions: what one principal does with the broker, within its rights and quotas."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import Final

import msgspec

from tamis.access import Principal, Rights
from tamis.broker.deliver.attachments import Attachment, DeliverySink
from tamis.broker.deliver.notifier import FetchedEvents
from tamis.broker.deliver.queues import DiskQueue, InFlightEvent
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.operations.fair_executor import Slices
from tamis.broker.sessions.administration import Administration
from tamis.broker.sessions.advertising import Advertising
from tamis.broker.sessions.base import SessionServices
from tamis.broker.sessions.inspection import Inspection
from tamis.broker.sessions.publishing import Publishing
from tamis.broker.sessions.queries import Queries
from tamis.broker.subscribe.groups import group_mistake
from tamis.broker.subscribe.history import require_start
from tamis.broker.subscribe.manager import DISCONNECTED, SubscribeResult
from tamis.errors import RefusedError, TamisError
from tamis.events.values import brief
from tamis.languages.registry import ALL_LANGUAGES, unknown_language
from tamis.protocol import Code, Subscribe
from tamis.protocol.management import (
    SUBSCRIPTION_NAME_RULE,
    NewSubscription,
    RoamingSubscription,
    is_subscription_name,
)
from tamis.protocol.views import (
    Creation,
    SubscriptionList,
    SubscriptionView,
)

MAX_WAIT_SECONDS: Final = 60.0


class Session(Publishing, Inspection, Queries, Advertising, Administration):
    """One principal's connection to the broker, or one request of it."""

    def __init__(self, services: SessionServices, principal: Principal, rights: Rights) -> None:
        super().__init__(services, principal, rights)
        self._attachments: set[Attachment] = set()
        self._temporary: set[ActiveSubscription] = set()
        """Subscriptions that end with the session."""
        self._telling: tuple[ActiveSubscription, dict[str, int]] | None = None
        """Losses of a subscription, by reason, that an answer tells which is not sent yet."""

    # --- subscriptions ---------------------------------------------------------------------------

    async def subscribe(self, wanted: Subscribe) -> SubscriptionView:
        """Add a subscription, or resume the durable one of that name."""
        subscription, _ = await self.open_subscription(wanted)
        return await self._view(subscription)

    async def create_subscription(self, new: RoamingSubscription) -> tuple[SubscriptionView, bool]:
        """Add a durable subscription or resume it; return it, and whether it was resumed."""
        wanted = _frame(new)
        if new.roaming:
            # One without a name is nowhere.
            wanted = msgspec.structs.replace(wanted, roaming=True, durable=new.id)
        subscription, is_resumed = await self.open_subscription(wanted)
        return await self._view(subscription), is_resumed

    async def create_subscriptions(self, subscriptions: list[NewSubscription]) -> list[Creation]:
        """Add or resume many durable subscriptions, each with a result of its own."""
        self._require_open()
        wanted, rights = [_frame(new) for new in subscriptions], self.rights
        refused = {
            place: error
            for place, one in enumerate(wanted)
            if (error := _mistake(one) or group_mistake(one, rights))
        }
        valid = [one for place, one in enumerate(wanted) if place not in refused]
        manager = self._services.subscription_manager
        results = iter(await manager.subscribe_all(valid, self.principal, self.rights))
        return [
            _creation(new, refused.get(place) or next(results))
            for place, new in enumerate(subscriptions)
        ]

    async def open_subscription(self, wanted: Subscribe) -> tuple[ActiveSubscription, bool]:
        """Add a subscription or resume a durable one; return it and whether it was resumed."""
        self._require_open()
        mistake = _mistake(wanted) or group_mistake(wanted, self.rights)
        if mistake is not None:
            raise mistake
        if wanted.roaming:
            await self._services.roaming().bring(wanted, self.principal, self.rights)
            self._require_open()
        manager = self._services.subscription_manager
        opened = await manager.subscribe(wanted, self.principal, self.rights, self._keep)
        self._services.notifier.require_place(opened[0], self, wanted.member)
        return opened

    def _keep(self, subscription: ActiveSubscription) -> bool:
        """Tie a new subscription to the session; return False if the session has ended."""
        if not self.has_ended:
            self._temporary.add(subscription)
        return not self.has_ended

    async def subscriptions(self) -> list[SubscriptionView]:
        """Return the principal's subscriptions."""
        self._require_open()
        owned = self._services.subscription_index.owned_by(self.principal.name)
        return await self._views(owned)

    async def list_subscriptions(self, after: str = "", limit: int = 100) -> SubscriptionList:
        """Return a page of the principal's subscriptions, by id."""
        self._require_open()
        owned = self._services.subscription_index.owned_by(self.principal.name)
        rest = [one for one in owned if one.stored.name > after]
        page = nsmallest(limit, rest, key=lambda one: one.stored.name)
        views = await self._views(page)
        return SubscriptionList(views, views[-1].id if len(rest) > len(views) else None)

    async def subscription(self, id_: str) -> SubscriptionView:
        """Return one of the principal's subscriptions."""
        return await self._view(self._find(id_))

    async def renew(self, id_: str, lifetime: float | None) -> SubscriptionView:
        """Set a subscription to expire in this many seconds; None: never."""
        subscription, manager = self._find(id_), self._services.subscription_manager
        manager.require_allowed(subscription, self.principal, self.rights)
        await manager.renew(subscription, lifetime, self.principal)
        return await self._view(subscription)

    async def update(
        self, id_: str, filter_: str, *, language: str = "tamis", mode: str | None = None
    ) -> SubscriptionView:
        """Replace the filter of a durable subscription at a point of the log."""
        subscription, manager = self._find(id_), self._services.subscription_manager
        if language not in ALL_LANGUAGES:
            raise RefusedError(Code.BAD_FILTER, str(unknown_language(language)))
        manager.require_allowed(subscription, self.principal, self.rights)
        wanted = manager.read_filter(filter_, language, mode, self.rights)
        await manager.update(subscription, wanted, self.principal, self.rights)
        return await self._view(subscription)

    async def delete(self, id_: str) -> None:
        """Delete a subscription and its queued events, also one that is leaving for good."""
        subscription = self._find(id_, may_leave=True)
        manager = self._services.subscription_manager
        if not self.rights.is_admin:
            manager.require_allowed(subscription, self.principal, self.rights)
        await manager.delete(subscription, "deleted", self.principal)
        self._temporary.discard(subscription)

    async def _view(self, subscription: ActiveSubscription) -> SubscriptionView:
        [view] = await self._views([subscription])
        return view

    async def _views(self, subscriptions: Sequence[ActiveSubscription]) -> list[SubscriptionView]:
        """Return what is shown of subscriptions; that is never refused for being too much."""
        run = self._services.view_executor.run_slices
        # Before they are counted: what is matched meanwhile may be in the counts, or not.
        end = self._services.store.log.next_sequence
        matched = [self._matched_to(subscription) for subscription in subscriptions]
        counting = run(self.principal.name, self._count(subscriptions))
        counted = await self._while_open(counting)
        shown = [self._shown(*one) for one in zip(subscriptions, counted, strict=True)]
        return [
            msgspec.structs.replace(view, matched_to=place, log_end=end) if place < end else view
            for view, place in zip(shown, matched, strict=True)
        ]

    def _matched_to(self, subscription: ActiveSubscription) -> int:
        """Return the first event whose match may not be among those that are counted."""
        reached, queue = self._services.offered_up_to() + 1, subscription.queue
        if queue.is_deferred:
            reached = min(reached, subscription.stored.start)
        return int(min(reached, queue.below)) if isinstance(queue, DiskQueue) else reached

    def _count(self, subscriptions: Iterable[ActiveSubscription]) -> Slices[list[tuple[int, int]]]:
        counts = []
        for subscription in subscriptions:
            counts.append(self._services.subscription_manager.counts_of(subscription))
            if self.rights.hides_anything:
                # Parsing it here, if it was not yet, spares the event loop that.
                _ = subscription.filter
            yield
        return counts

    def _shown(self, subscription: ActiveSubscription, counts: tuple[int, int]) -> SubscriptionView:
        view = subscription.view(*counts)
        # 0 stands for the broker's setting.
        attempts = view.max_attempts or self._services.settings.max_attempts
        view = msgspec.structs.replace(view, max_attempts=attempts)
        if not subscription.shows_filter_to(self.principal, self.rights):
            view = msgspec.structs.replace(view, filter="")
        if view.ordering_key and not self.rights.may_mention([view.ordering_key]):
            view = msgspec.structs.replace(view, ordering_key="")
        if subscription.shows_all_to(self.rights):
            return view
        # It is matched by roles that this credential does not have, so its counts stay hidden.
        members = [msgspec.structs.replace(one, in_flight=0, credit=0) for one in view.members]
        return msgspec.structs.replace(
            view, pending=0, in_flight=0, dropped=0, dead=0, residue=0, members=members
        )

    # --- receiving -------------------------------------------------------------------------------

    async def attach(
        self,
        id_: str,
        sink: DeliverySink,
        *,
        credit: int,
        acknowledge: str = "auto",
        member: str = "",
    ) -> Attachment:
        """Start sending a subscription's events to a sink."""
        subscription = self._find(id_)
        await self._services.subscription_manager.adopt(subscription, self.principal, self.rights)
        attachment = await self._services.notifier.attach(
            subscription, self, sink, credit, manual=acknowledge == "manual", member=member
        )
        # Those that were taken over are not needed any more.
        before = {one for one in self._attachments if one.subscription is subscription}
        self._attachments -= before
        self._attachments.add(attachment)
        try:
            self._require_open()
            self._services.subscription_manager.require_in_force(subscription)
        except RefusedError:
            await self.detach(attachment)
            raise
        return attachment

    async def detach(self, attachment: Attachment) -> None:
        """Stop sending."""
        self._attachments.discard(attachment)
        await self._services.notifier.detach(attachment)

    async def fetch(
        self, id_: str, *, limit: int = 100, wait: float = 0.0, confirm: bool = True
    ) -> FetchedEvents:
        """Return queued events; they are delivered again unless they are acknowledged in time.

        Without `confirm`, losses are told again to others unless `note_answered` is called.
        """
        subscription = self._find(id_)
        if subscription.attachments and not subscription.queue.is_shared:
            raise RefusedError(
                Code.CONFLICT, f"the events of {id_!r} are being sent to a connection"
            )
        await self._services.subscription_manager.adopt(subscription, self.principal, self.rights)
        self._services.subscription_manager.require_in_force(subscription)
        most = min(wait, MAX_WAIT_SECONDS)
        notifier = self._services.notifier
        found = await self._while_open(
            notifier.fetch(subscription, self, limit, most),
            undo=partial(notifier.take_back, subscription),
        )
        if self._services.subscription_index.get(subscription.number) is not subscription:
            # It was deleted meanwhile, and whoever did that may know already.
            raise RefusedError(Code.NOT_FOUND, f"there is no subscription {id_!r:.80}")
        if subscription.untold and subscription.shows_all_to(self.rights):
            # Meanwhile, nobody else tells them.
            self._telling, subscription.untold = (subscription, subscription.untold), {}
            found.dropped = sum(self._telling[1].values())
            if confirm:
                self.note_answered()
        return found

    def note_answered(self) -> None:
        """Note that the last answer was sent, so that the losses which it tells are known."""
        if self._telling is not None:
            self._services.acknowledgement_writer.note_reported(*self._telling)
            self._telling = None

    def acknowledge_now(self, id_: str, sequences: Sequence[int]) -> bool:
        """Acknowledge events that are all in flight; return False if it is not that simple."""
        services = self._services
        subscription = services.subscription_index.by_key.get((self.principal.name, id_))
        if (
            subscription is None
            or subscription.departure is not None
            or subscription.arrival is not None
            or subscription.queue.is_shared
            or self.rights.hides_anything
            or self.closed.done()
            or not subscription.queue.in_flight.keys() >= {*sequences}
        ):
            return False
        known = subscription.queue.settle(sequences, 0)
        services.metrics.acknowledged.inc(len(known))
        return True

    async def acknowledge(self, id_: str, sequences: Sequence[int] = (), up_to: int = 0) -> None:
        """Acknowledge events, so that they are not delivered again."""
        # What is acknowledged after it began to leave, its next home would not hear of.
        services, subscription = self._services, self._find(id_)
        if subscription.queue.is_shared:
            sequences = self._own_among(subscription, sequences, up_to)
        if self.rights.hides_anything and not subscription.shows_all_to(self.rights):
            meant = subscription.queue.unsettled_among(sequences, up_to)
            visible = await self._visible_among(subscription, meant)
            known = subscription.queue.settle(visible, 0)
        else:
            known = subscription.queue.settle(sequences, up_to)
        services.metrics.acknowledged.inc(len(known))
        if up_to or len(known) < len(sequences):
            settled = {*known}
            others = [one for one in sequences if one not in settled]
            await services.notifier.acknowledge_stored(subscription, self, others, up_to)

    def _own_among(
        self, subscription: ActiveSubscription, sequences: Sequence[int], up_to: int
    ) -> Sequence[int]:
        """Return the events of a group that no other member has: only these can be settled."""
        if up_to:
            raise RefusedError(
                Code.BAD_REQUEST,
                f"the events of a group are acknowledged one by one, because others have some of "
                f"those up to {up_to}: give sequences",
            )
        in_flight = subscription.queue.in_flight
        own = {one for one in self._attachments if one.subscription is subscription}
        return [
            one
            for one in sequences
            if (sent := in_flight.get(one)) is None or sent.holder is None or sent.holder in own
        ]

    def acknowledge_arrived(self, attachment: Attachment, attempts: Mapping[int, int]) -> None:
        """Acknowledge what an attachment sent, by sequence, unless it was rejected since."""
        arrived = [one for one, attempt in attempts.items() if attachment.holds(one, attempt)]
        known = attachment.subscription.queue.settle(arrived, 0)
        self._services.metrics.acknowledged.inc(len(known))

    async def resume_after(self, id_: str, sequence: int) -> None:
        """Acknowledge what a connection was sent up to an event, and nobody has rejected.

        What somebody has fetched is theirs to settle.
        """
        subscription, services = self._find(id_), self._services
        queue = subscription.queue
        if queue.is_shared:
            # Others have been sent some of these.
            return
        visible = await self._visible_among(subscription, queue.received_up_to(sequence))
        received = {*visible}.intersection(queue.received_up_to(sequence))
        services.metrics.acknowledged.inc(len(queue.settle(received, 0)))
        await services.notifier.acknowledge_stored(subscription, self, (), sequence, received=True)

    async def flush(self) -> None:
        """Return when all acknowledgements and rejections so far are on disk."""
        self._require_open()
        await self._services.acknowledgement_writer.flush()

    async def reject(
        self, id_: str, sequence: int, *, delay: float | None = None, reason: str = ""
    ) -> None:
        """Reject an event; it is delivered again later or becomes a dead letter."""
        subscription = self._find(id_)
        queue = subscription.queue
        sent = queue.in_flight.get(sequence)
        if sent is None or self._has_lost(subscription, sent):
            return
        # Another may have been sent it meanwhile.
        if (
            await self._visible_among(subscription, [sequence])
            and queue.in_flight.get(sequence) is sent
        ):
            await self._services.notifier.reject(subscription, sequence, delay, reason[:500])

    def _has_lost(self, subscription: ActiveSubscription, sent: InFlightEvent) -> bool:
        """Return whether another connection has the event now: it took the subscription over.

        Or it is another member of the group. Then a rejection is of an earlier attempt.
        """
        own = [one for one in self._attachments if one.subscription is subscription]
        may_lose = bool(own) or subscription.queue.is_shared
        return may_lose and sent.holder is not None and sent.holder not in own

    async def _visible_among(
        self, subscription: ActiveSubscription, sequences: Sequence[int]
    ) -> Sequence[int]:
        """Return the events that this credential may see: only these it can settle."""
        if subscription.shows_all_to(self.rights):
            return sequences
        return await self._services.notifier.visible_among(subscription, self, sequences)

    # --- the end ---------------------------------------------------------------------------------

    def revoke(self, reason: str) -> None:
        """Refuse everything from now on, and end the connection."""
        if not self.closed.done():
            self.closed.set_result(reason)
            self.stop()

    def stop(self) -> None:
        """Send nothing more from this moment on."""
        self.end_queries()
        self.end_advertisements()
        for attachment in self._attachments:
            self._services.notifier.stop(attachment)

    async def close(self) -> None:
        """Stop all deliveries; delete subscriptions that are not durable."""
        self.has_ended = True
        self._services.forget(self)
        self.end_queries()
        self.end_advertisements()
        if self._telling is not None:
            subscription, untold = self._telling
            subscription.keep_unreported(untold)
            subscription.queue.wake()
        for attachment in [*self._attachments]:
            await self.detach(attachment)
        temporary, self._temporary = self._temporary, set()
        with contextlib.suppress(TamisError):
            await self._services.subscription_manager.delete_all(temporary, DISCONNECTED)


def _mistake(wanted: Subscribe) -> RefusedError | None:
    """Return why a subscription is not valid."""
    if wanted.durable is not None and not is_subscription_name(wanted.durable):
        return RefusedError(
            Code.BAD_REQUEST,
            f"the name is {brief(wanted.durable)}; it must be {SUBSCRIPTION_NAME_RULE}",
        )
    if wanted.language not in ALL_LANGUAGES:
        return RefusedError(Code.BAD_FILTER, str(unknown_language(wanted.language)))
    if wanted.roaming and wanted.durable is None:
        return RefusedError(
            Code.BAD_REQUEST, "only a durable subscription can be brought from another broker"
        )
    try:
        require_start(wanted.start)
    except RefusedError as error:
        return error
    if wanted.lifetime is not None and not 0 < wanted.lifetime < 1e10:
        return RefusedError(Code.BAD_REQUEST, "a lifetime is a positive number of seconds")
    if wanted.max_attempts < 0:
        return RefusedError(
            Code.BAD_REQUEST, "max_attempts must be 0 (the broker's setting) or more"
        )
    return None


def _creation(new: NewSubscription, result: SubscribeResult) -> Creation:
    if isinstance(result, RefusedError):
        return Creation(new.id or "", code=result.code, message=str(result))
    subscription, is_resumed = result
    return Creation(subscription.stored.name, is_resumed)


def _frame(new: NewSubscription) -> Subscribe:
    return Subscribe(
        ref=0,
        filter=new.filter,
        language=new.language,
        mode=new.mode,
        durable=f"http-{secrets.token_hex(8)}" if new.id is None else new.id,
        lifetime=new.lifetime,
        start=new.start,
        acknowledge="manual",
        max_attempts=new.max_attempts,
        group=new.group,
        ordering_key=new.ordering_key,
    )
