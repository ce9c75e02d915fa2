"""What one principal does with the broker, within its rights and quotas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from math import isinf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tamis.access import Principal, Rights, TokenRecord
from tamis.analysis.explain import explain
from tamis.broker.deliver.notifier import Attachment, DeliverySink
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.publish.payloads import Payload, PayloadDecoder
from tamis.broker.subscribe.history import HistoryQuery, place_of
from tamis.errors import EventError, LimitError, RefusedError, TamisError
from tamis.events import Event, EventLimits, decode_json
from tamis.filters import Mode
from tamis.protocol import Code, Delivery, Subscribe
from tamis.protocol.frames import LONGEST_NAME
from tamis.protocol.management import (
    MAX_PAGE_ITEMS,
    OPERATIONS,
    ManagementCall,
    parse_position,
)
from tamis.protocol.views import (
    AuditEntryView,
    DeadLetterView,
    HistoryView,
    IssuedTokenView,
    Receipt,
    SubscriptionList,
    SubscriptionView,
    TokenView,
    Trial,
)

if TYPE_CHECKING:
    from tamis.broker.broker import Broker

T = TypeVar("T")

LONGEST_WAIT: Final = 60.0


class Session:
    """One principal's connection to the broker, or one request of it."""

    def __init__(self, broker: Broker, principal: Principal, rights: Rights) -> None:
        self.principal = principal
        self.rights = rights
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set to the reason when the principal may no longer be here."""
        self._broker = broker
        self._attachments: set[Attachment] = set()
        self._passing: set[ActiveSubscription] = set()
        """Subscriptions that go with the session."""

    async def perform(self, call: ManagementCall[T]) -> T:
        """Do what a management call asks, by the method that the table names for it."""
        method = getattr(self, OPERATIONS[type(call)].does)
        arguments = msgspec.structs.asdict(call)
        if asyncio.iscoroutinefunction(method):
            result: T = await method(**arguments)
            return result
        # Trying and explaining filters is work for a thread.
        return await asyncio.to_thread(method, **arguments)

    # --- publishing ------------------------------------------------------------------------------

    async def publish(
        self,
        events: Sequence[bytes | msgspec.Raw],
        *,
        format: str = "json",  # noqa: A002 - as it is called in frames and headers
        publisher: str = "",
        sequence: int = 0,
    ) -> Receipt:
        """Store events, all or none, and return once they are on disk."""
        self._require_open()
        self._check_publication(events, publisher, sequence)
        payloads = [self._readable(bytes(event), format) for event in events]
        for payload in payloads:
            self.rights.check_publish(payload.source)
        self._take_rates(payloads)
        self._broker.require_room()
        name = publisher_name(self.principal.name, publisher)
        return await self._broker.committer.publish(name, sequence, payloads)

    def _check_publication(
        self, events: Sequence[bytes | msgspec.Raw], publisher: str, sequence: int
    ) -> None:
        most = self._broker.settings.largest_batch
        if not events:
            raise RefusedError(Code.BAD_REQUEST, "a publication has at least one event")
        if len(events) > most:
            raise RefusedError(
                Code.TOO_LARGE,
                f"{len(events):,} events in one publication exceed the limit of {most:,}",
            )
        if len(publisher) > LONGEST_NAME or not (publisher.isprintable()):
            raise RefusedError(
                Code.BAD_REQUEST,
                f"a publisher's name has up to {LONGEST_NAME} printable characters",
            )
        if not 0 <= sequence < 2**63 - len(events):
            raise RefusedError(Code.BAD_REQUEST, f"{sequence} is no sequence; they begin at 1")

    def _readable(self, text: bytes, format_: str) -> Payload:
        most = min(self.rights.limits.event_size, self._broker.settings.largest_event)
        if len(text) > most:
            raise RefusedError(
                Code.TOO_LARGE, f"an event of {len(text):,} bytes exceeds the limit of {most:,.0f}"
            )
        try:
            return self._broker.reader.read(text, format_)
        except RefusedError as error:
            if error.code == Code.BAD_EVENT and not self._may_know_why(text, format_):
                raise self.rights.unpublishable("attributes that the schema knows") from None
            raise

    def _may_know_why(self, text: bytes, format_: str) -> bool:
        """Tell whether what is wrong with an event is about nothing that must not be published.

        What the schema says of other attributes is as little known here as their values.
        """
        limits = EventLimits(size=self._broker.settings.largest_event)
        schema, is_total = self._broker.engine.schema, self._broker.engine.mode is Mode.TOTAL
        try:
            names = [*PayloadDecoder(None, limits, is_total=False).read(text, format_).event]
        except RefusedError:
            return True
        return self.rights.may_publish_with([*names, *(schema or ())] if is_total else names)

    def _take_rates(self, payloads: Sequence[Payload]) -> None:
        limits, name = self.rights.limits, self.principal.name
        costs = (
            ("events", limits.publications, len(payloads)),
            ("bytes", limits.bytes, sum(len(payload.text) for payload in payloads)),
        )
        for what, rate, cost in costs:
            wait = self._broker.rates.take((name, what), rate=rate, cost=cost)
            if wait > 0:
                raise RefusedError(
                    Code.TOO_MANY,
                    f"{name} publishes more than {rate:,.0f} {what} a second; try again in "
                    f"{wait:.1f} s",
                    retry_after=wait,
                )

    # --- subscriptions ---------------------------------------------------------------------------

    async def subscribe(self, wanted: Subscribe) -> SubscriptionView:
        """Make a subscription, or take up the durable one of that name."""
        self._require_open()
        if wanted.durable is not None and not _is_name(wanted.durable):
            raise RefusedError(
                Code.BAD_REQUEST,
                f"a durable name has 1 to {LONGEST_NAME} printable characters and no slash",
            )
        if wanted.lifetime is not None and not 0 < wanted.lifetime < 1e10:
            raise RefusedError(Code.BAD_REQUEST, "a lifetime is a positive number of seconds")
        if wanted.max_attempts < 0:
            raise RefusedError(Code.BAD_REQUEST, "max_attempts is a number from 0 on; 0: as set")
        subscription_manager = self._broker.subscription_manager
        subscription, _ = await subscription_manager.subscribe(wanted, self.principal, self.rights)
        if not subscription.stored.durable:
            self._passing.add(subscription)
        return await self._view(subscription)

    async def subscriptions(self) -> list[SubscriptionView]:
        """Return the principal's subscriptions."""
        self._require_open()
        owned = self._broker.subscription_index.owned_by(self.principal.name)
        return [await self._view(subscription) for subscription in owned]

    async def list_subscriptions(self, after: str = "", limit: int = 100) -> SubscriptionList:
        """Return a page of the principal's subscriptions, by id."""
        owned = sorted(await self.subscriptions(), key=lambda one: one.id)
        rest = [one for one in owned if one.id > after]
        page = rest[:limit]
        return SubscriptionList(page, page[-1].id if len(rest) > len(page) else None)

    async def subscription(self, id_: str) -> SubscriptionView:
        """Return one of the principal's subscriptions."""
        return await self._view(self._find(id_))

    async def renew(self, id_: str, lifetime: float | None) -> SubscriptionView:
        """Let a subscription live for so many seconds from now on; None: for ever."""
        subscription = self._find(id_)
        await self._broker.subscription_manager.renew(subscription, lifetime)
        return await self._view(subscription)

    async def delete(self, id_: str) -> None:
        """Delete a subscription with all that waits for it."""
        subscription = self._find(id_)
        self._passing.discard(subscription)
        await self._broker.subscription_manager.delete(subscription, "deleted")

    def _require_open(self) -> None:
        if self.closed.done():
            code = Code.UNAUTHENTICATED if self._broker.health.is_open else Code.UNAVAILABLE
            raise RefusedError(code, self.closed.result())

    def _find(self, id_: str) -> ActiveSubscription:
        self._require_open()
        found = self._broker.subscription_index.find(self.principal.name, id_)
        if found is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no subscription {id_!r:.80}")
        return found

    async def _view(self, subscription: ActiveSubscription) -> SubscriptionView:
        counts = await asyncio.to_thread(self._broker.counts_of, subscription)
        view = subscription.view(*counts)
        if not self.rights.hides_anything or {*subscription.rights.roles} <= {*self.rights.roles}:
            return view
        # It is matched by roles that this credential does not give; so its counts are not for it.
        return msgspec.structs.replace(view, pending=0, in_flight=0, dropped=0, dead=0)

    # --- receiving -------------------------------------------------------------------------------

    async def attach(
        self, id_: str, sink: DeliverySink, *, credit: int, acknowledge: str = "auto"
    ) -> Attachment:
        """Begin to send a subscription's events to an sink."""
        subscription = self._find(id_)
        await self._broker.subscription_manager.adopt(subscription, self.principal, self.rights)
        attachment = await self._broker.notifier.attach(
            subscription, sink, credit, manual=acknowledge == "manual"
        )
        self._attachments.add(attachment)
        if self.closed.done():
            self._broker.notifier.stop(attachment)
            self._require_open()
        return attachment

    async def detach(self, attachment: Attachment) -> None:
        """Stop sending."""
        self._attachments.discard(attachment)
        await self._broker.notifier.detach(attachment)

    async def fetch(self, id_: str, *, limit: int = 100, wait: float = 0.0) -> list[Delivery]:
        """Return events that wait; they come again unless they are acknowledged in time."""
        subscription = self._find(id_)
        if subscription.attachment is not None:
            raise RefusedError(
                Code.CONFLICT, f"the events of {id_!r} go to a connection at the moment"
            )
        await self._broker.subscription_manager.adopt(subscription, self.principal, self.rights)
        fetching = asyncio.create_task(
            self._broker.notifier.fetch(subscription, limit, min(wait, LONGEST_WAIT))
        )
        either: list[asyncio.Future[Any]] = [fetching, self.closed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            self._require_open()
            return await fetching
        finally:
            fetching.cancel()

    async def acknowledge(self, id_: str, sequences: Sequence[int] = (), up_to: int = 0) -> None:
        """Let events not come again."""
        self._broker.notifier.acknowledge(self._find(id_), sequences, up_to)

    async def reject(
        self, id_: str, sequence: int, *, delay: float | None = None, reason: str = ""
    ) -> None:
        """Let an event come again later."""
        subscription = self._find(id_)
        await self._broker.notifier.reject(subscription, sequence, delay, reason[:500])

    async def dead_letters(
        self, id_: str, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetterView]:
        """Return events that were given up, as far as they may be seen today."""
        subscription, letters = self._with_letters(id_), self._broker.letters
        most = min(limit, MAX_PAGE_ITEMS)
        return await asyncio.to_thread(letters.listed, subscription, self.rights, after, most)

    async def requeue(self, id_: str, sequences: Sequence[int]) -> int:
        """Let dead letters come again, as if never sent; return how many."""
        subscription, letters = self._with_letters(id_), self._broker.letters
        seen = await asyncio.to_thread(letters.seen, subscription, self.rights, sequences)
        return await self._broker.requeue(subscription, seen)

    async def delete_dead_letters(self, id_: str, sequences: Sequence[int]) -> int:
        """Delete dead letters; return how many there were."""
        subscription, letters = self._with_letters(id_), self._broker.letters
        seen = await asyncio.to_thread(letters.seen, subscription, self.rights, sequences)
        delete = self._broker.store.state.delete_dead_letters
        return await asyncio.to_thread(delete, subscription.number, seen)

    def _with_letters(self, id_: str) -> ActiveSubscription:
        """Return a subscription whose letters may be read with these rights."""
        subscription = self._find(id_)
        stored = subscription.stored
        self._broker.subscription_manager.understood(
            stored.filter, stored.language, stored.mode, self.rights
        )
        return subscription

    async def history(
        self,
        filter_: str,
        *,
        language: str = "tamis",
        mode: str | None = None,
        start: int | str = "earliest",
        end: int | str = "latest",
        limit: int = 100,
    ) -> HistoryView:
        """Return events of the past that match a filter, and where to go on; nothing is kept."""
        self._require_open()
        parsed, chosen = self._broker.subscription_manager.understood(
            filter_, language, mode, self.rights
        )
        log, most = self._broker.store.log, min(limit, MAX_PAGE_ITEMS)
        first, end_ = (place_of(log, parse_position(one)) for one in (start, end))
        wanted = HistoryQuery(parsed, chosen, first, end_, most)
        return await asyncio.to_thread(self._broker.history.read, wanted, self.rights)

    # --- trying ----------------------------------------------------------------------------------

    def try_filter(
        self,
        filter_: str,
        *,
        language: str = "tamis",
        mode: str | None = None,
        events: Sequence[bytes | msgspec.Raw],
    ) -> list[Trial]:
        """Tell which sample events a filter matches; only what the user has sent is looked at."""
        self._require_open()
        subscription_manager = self._broker.subscription_manager
        parsed, chosen = subscription_manager.understood(filter_, language, mode, self.rights)
        own = self.rights.check_filter(parsed)
        trials = []
        for event in events:
            try:
                sample = self._sample(event)
                trials.append(Trial(own.matches(sample, chosen, self.rights.schema)))
            except TamisError as error:
                trials.append(Trial(None, str(error)))
        return trials

    def explain(
        self,
        *,
        id_: str | None = None,
        filter_: str | None = None,
        language: str = "tamis",
        mode: str | None = None,
        event: bytes | msgspec.Raw,
    ) -> str:
        """Say why a sample event matches or not; nothing of the roles' filters is in it."""
        self._require_open()
        subscription_manager = self._broker.subscription_manager
        if id_ is not None:
            stored = self._find(id_).stored
            filter_, language, mode = stored.filter, stored.language, stored.mode
        parsed, chosen = subscription_manager.understood(filter_ or "", language, mode, self.rights)
        own, schema = self.rights.check_filter(parsed), self.rights.schema
        is_total = self._broker.engine.mode == "total"
        try:
            sample = self._sample(event)
            return str(explain(id_ or "filter", own, chosen, sample, schema, total=is_total))
        except EventError as error:
            raise RefusedError(Code.BAD_EVENT, str(error)) from None
        except LimitError as error:
            raise RefusedError(Code.TOO_LARGE, str(error)) from None

    def _sample(self, text: bytes | msgspec.Raw) -> Event:
        """Return an event of the user's own; the schema shows no more than the user may see."""
        limits = EventLimits(size=self._broker.settings.largest_event)
        return decode_json(bytes(text), schema=self.rights.schema, limits=limits)

    # --- administration --------------------------------------------------------------------------

    async def issue_token(
        self,
        principal: str,
        roles: Sequence[str] = (),
        lifetime: float | None = None,
        note: str = "",
    ) -> IssuedTokenView:
        """Return a new token and what is kept of it; the text is shown once."""
        self._require_admin()
        text, record = await self._broker.access_control.issue(
            principal, tuple(roles), lifetime, note
        )
        await self._note("issue token", f"{record.id} for {principal}")
        return IssuedTokenView(text, _token_view(record))

    async def revoke_token(self, token_id: str) -> None:
        """Let a token be worth nothing from now on, on open connections too."""
        self._require_admin()
        revoked = await self._broker.access_control.revoke(token_id)
        if revoked is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no token {token_id!r:.40}")
        self._broker.turn_out_unwelcome()
        await self._note("revoke token", f"{token_id} of {revoked.principal}")

    async def tokens(self) -> list[TokenView]:
        """Return what is known of the tokens."""
        self._require_admin()
        return [_token_view(record) for record in self._broker.access_control.tokens()]

    async def audit(self, after: int = 0, limit: int = 100) -> list[AuditEntryView]:
        """Return administrative acts from after a number on."""
        self._require_admin()
        state = self._broker.store.state
        found = await asyncio.to_thread(state.audit, after, min(limit, MAX_PAGE_ITEMS))
        return [AuditEntryView(**entry._asdict()) for entry in found]

    async def status(self) -> dict[str, Any]:
        """Return the broker's state and its main counters."""
        self._require_admin()
        return self._broker.status()

    def _require_admin(self) -> None:
        self._require_open()
        if not self.rights.is_admin:
            raise RefusedError(Code.FORBIDDEN, "this is for administrators")

    async def _note(self, act: str, detail: str) -> None:
        state, now = self._broker.store.state, self._broker.clock()
        await asyncio.to_thread(state.add_audit, now, self.principal.name, act, detail)

    # --- the end ---------------------------------------------------------------------------------

    def revoke(self, reason: str) -> None:
        """Do no more for the principal, and tell the connection to end."""
        if not self.closed.done():
            self.closed.set_result(reason)
            for attachment in self._attachments:
                self._broker.notifier.stop(attachment)

    async def close(self) -> None:
        """Detach everything; subscriptions that are not durable are deleted."""
        self._broker.forget(self)
        for attachment in [*self._attachments]:
            await self.detach(attachment)
        for subscription in self._passing:
            with contextlib.suppress(TamisError):
                await self._broker.subscription_manager.delete(subscription, "disconnected")
        self._passing.clear()


def publisher_name(principal: str, publisher: str) -> str:
    """Return a name that is one principal's and nobody else's, whatever both are called.

    >>> publisher_name("ann", ""), publisher_name("ann", "a/b"), publisher_name("ann/a", "b")
    ('ann', 'ann/a/b', 'ann%2Fa/b')
    """
    owner = principal.replace("%", "%25").replace("/", "%2F")
    return f"{owner}/{publisher}" if publisher else owner


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and "/" not in text


def _token_view(record: TokenRecord) -> TokenView:
    return TokenView(
        id=record.id,
        principal=record.principal,
        roles=[*record.roles],
        created_at=record.created_at,
        expires_at=None if isinf(record.expires_at) else record.expires_at,
        note=record.note,
    )
