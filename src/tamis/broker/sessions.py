"""Sessions: what one principal does with the broker, within its rights and quotas."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from heapq import nsmallest
from math import isinf
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from tamis.access import Principal, Rights, TokenRecord
from tamis.analysis.explain import explain
from tamis.broker.deliver.acknowledgements import AcknowledgementWriter
from tamis.broker.deliver.dead_letters import DeadLetterReader
from tamis.broker.deliver.letter_bounds import DeadLetterBounds
from tamis.broker.deliver.notifier import Attachment, DeliverySink, FetchedEvents, Notifier
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.operations.access_control import AccessControl
from tamis.broker.operations.executors import Executors
from tamis.broker.operations.fair_executor import FairExecutor, Slices
from tamis.broker.operations.health import Health
from tamis.broker.operations.revocations import Revocation, RevocationWriter
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.publish.committer import MAX_MATCHES_WAITING, Committer, FanOut
from tamis.broker.publish.numbering import Numbering
from tamis.broker.publish.payloads import InvalidEventError, Payload, PayloadDecoder
from tamis.broker.publish.quotas import PublishingQuota
from tamis.broker.subscribe.history import History, HistoryQuery, place_of
from tamis.broker.subscribe.manager import SubscriptionManager
from tamis.errors import EventError, LimitError, RefusedError, TamisError
from tamis.events import Event, EventLimits, decode_json
from tamis.matching import Engine
from tamis.protocol import Code, Subscribe
from tamis.protocol.frames import MAX_NAME_CHARACTERS
from tamis.protocol.management import (
    MAX_PAGE_ITEMS,
    OPERATIONS,
    ExplanationView,
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
from tamis.storage import Storage

P = ParamSpec("P")
T = TypeVar("T")

MAX_WAIT_SECONDS: Final = 60.0
# Decoding more than this would keep other connections waiting, so a thread does it.
MAX_BYTES_DECODED_ON_LOOP: Final = 16 * 1024
MAX_PUBLISHER_NAMES: Final = 1_000


class SessionServices(NamedTuple):
    """The parts of a broker that sessions use."""

    settings: BrokerSettings
    clock: Callable[[], float]
    engine: Engine
    health: Health
    quota: PublishingQuota
    decoder: PayloadDecoder
    numbering: Numbering
    committer: Committer
    notifier: Notifier
    acknowledgement_writer: AcknowledgementWriter
    subscription_manager: SubscriptionManager
    subscription_index: SubscriptionIndex
    dead_letters: DeadLetterReader
    letter_bounds: DeadLetterBounds
    history: History
    store: Storage
    access_control: AccessControl
    revocation_writer: RevocationWriter
    executors: Executors
    fan_out: FanOut
    client_executor: FairExecutor
    view_executor: FairExecutor
    decode_executor: FairExecutor
    status: Callable[[], dict[str, Any]]
    end_invalid_sessions: Callable[[], None]
    forget: Callable[[Session], None]


class Session:
    """One principal's connection to the broker, or one request of it."""

    def __init__(self, services: SessionServices, principal: Principal, rights: Rights) -> None:
        self.principal = principal
        self.rights = rights
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set to the reason once the principal is no longer admitted."""
        self._services = services
        self._publishing = asyncio.Lock()
        self._publisher_names: dict[str, str] = {}
        self._attachments: set[Attachment] = set()
        self._temporary: set[ActiveSubscription] = set()
        """Subscriptions that end with the session."""

    async def perform(self, call: ManagementCall[T]) -> T:
        """Run the method that the table names for a management call."""
        method = getattr(self, OPERATIONS[type(call)].does)
        arguments = msgspec.structs.asdict(call)
        if inspect.iscoroutinefunction(method):
            result: T = await method(**arguments)
            return result
        # Explaining filters is work for a thread.
        return await self._answer_in_thread(method, **arguments)

    # --- publishing ------------------------------------------------------------------------------

    async def publish(  # noqa: PLR0912 - more functions would make the way longer
        self,
        events: Sequence[bytes | msgspec.Raw],
        *,
        format: str = "json",  # noqa: A002 - as it is called in frames and headers
        publisher: str = "",
        sequence: int = 0,
        skip: bool = False,
    ) -> Receipt:
        """Store events, all or none, and return once they are on disk.

        `sequence` is the publisher's number of the first one; `skip` allows it to leave out some.
        """
        services, limits = self._services, self.rights.limits
        if self.closed.done():
            self._require_open()
        if (
            not 0 < len(events) <= services.settings.largest_batch
            or len(publisher) > MAX_NAME_CHARACTERS
            or not publisher.isprintable()
            or not 0 <= sequence < 2**63 - len(events)
        ):
            raise self._bad_publication(events, publisher, sequence)
        name = self._publisher_names.get(publisher) or self._publisher_name(publisher)
        texts = [bytes(event) for event in events]
        size = sum(map(len, texts))
        # Publications are stored in the order of their frames, wherever they are decoded.
        async with self._publishing:
            try:
                if sequence and sequence != services.numbering.expected.get(name):
                    services.numbering.check(name, sequence, skip=skip)
                if max(map(len, texts)) > min(limits.event_size, services.settings.largest_event):
                    raise self._too_large(texts)
                # Before decoding: whoever has no quota left costs nobody time.
                if not (isinf(limits.publications) and isinf(limits.bytes)):
                    services.quota.take(self.principal.name, self.rights, len(texts), size)
                if size > MAX_BYTES_DECODED_ON_LOOP:
                    payloads = await services.decode_executor.run(
                        self.principal.name, services.decoder.decode_all, texts, format
                    )
                elif len(texts) == 1:
                    payloads = [services.decoder.decode(texts[0], format)]
                else:
                    payloads = services.decoder.decode_all(texts, format)
                if not self.rights.publishes_everything:
                    self._check_rights(payloads)
                fan_out, principal = services.fan_out, name.partition("/")[0]
                # The first events of a principal may reach all subscriptions.
                most = len(services.subscription_index.by_number)
                while (
                    fan_out.waiting.get(principal, 0) * fan_out.matches.get(principal, most)
                    > MAX_MATCHES_WAITING
                ):
                    await self._while_open(fan_out.relief())
                if self.closed.done() or not services.health.ready:
                    self._require_open()  # It may have closed while it waited or was decoded.
                    raise services.health.refusal()
            except RefusedError as error:
                services.numbering.note_refusal(name, sequence, len(texts))
                if isinstance(error, InvalidEventError):
                    raise self._hide_reason(error) from None
                raise
            stored = await services.committer.enqueue(name, sequence, payloads, skip=skip)
        return await stored

    def expect_publication(self, size: int) -> None:
        """Refuse a body of so many bytes before it is read, if it cannot be stored anyway."""
        self._require_open()
        if not self.rights.may_publish:
            raise self.rights.unpublishable("none of them allows publishing")
        self._services.quota.check(self.principal.name, self.rights, size)

    def _check_rights(self, payloads: Sequence[Payload]) -> None:
        for index, payload in enumerate(payloads):
            try:
                self.rights.check_publish(payload.source)
            except RefusedError as error:
                error.index = index
                raise

    def _publisher_name(self, publisher: str) -> str:
        name = publisher_name(self.principal.name, publisher)
        if len(self._publisher_names) < MAX_PUBLISHER_NAMES:
            self._publisher_names[publisher] = name
        return name

    def _bad_publication(
        self, events: Sequence[bytes | msgspec.Raw], publisher: str, sequence: int
    ) -> RefusedError:
        most = self._services.settings.largest_batch
        if not events:
            return RefusedError(Code.BAD_REQUEST, "a publication has at least one event")
        if len(events) > most:
            return RefusedError(
                Code.TOO_LARGE,
                f"{len(events):,} events in one publication exceed the limit of {most:,}",
            )
        if len(publisher) > MAX_NAME_CHARACTERS or not publisher.isprintable():
            return RefusedError(
                Code.BAD_REQUEST,
                f"a publisher's name has up to {MAX_NAME_CHARACTERS} printable characters",
            )
        return RefusedError(Code.BAD_REQUEST, f"{sequence} is not a sequence; sequences start at 1")

    def _too_large(self, texts: Sequence[bytes]) -> RefusedError:
        most = min(self.rights.limits.event_size, self._services.settings.largest_event)
        index, size = next((i, len(text)) for i, text in enumerate(texts) if len(text) > most)
        error = RefusedError(
            Code.TOO_LARGE, f"an event of {size:,} bytes exceeds the limit of {most:,.0f}"
        )
        error.index = index
        return error

    def _hide_reason(self, error: InvalidEventError) -> RefusedError:
        """Return the refusal of an event, without what the schema says about hidden attributes.

        That is as secret as their values.
        """
        names = error.attributes
        if names is None or self.rights.may_publish_with(names):
            return error
        hidden = self.rights.unpublishable("attributes that the schema knows")
        hidden.index = error.index
        return hidden

    # --- subscriptions ---------------------------------------------------------------------------

    async def subscribe(self, wanted: Subscribe) -> SubscriptionView:
        """Add a subscription, or resume the durable one of that name."""
        subscription, _ = await self.open_subscription(wanted)
        return await self._view(subscription)

    async def open_subscription(self, wanted: Subscribe) -> tuple[ActiveSubscription, bool]:
        """Add a subscription or resume a durable one; return it and whether it was resumed."""
        self._require_open()
        if wanted.durable is not None and not _is_name(wanted.durable):
            raise RefusedError(
                Code.BAD_REQUEST,
                f"a durable name has 1 to {MAX_NAME_CHARACTERS} printable characters and no slash",
            )
        if wanted.lifetime is not None and not 0 < wanted.lifetime < 1e10:
            raise RefusedError(Code.BAD_REQUEST, "a lifetime is a positive number of seconds")
        if wanted.max_attempts < 0:
            raise RefusedError(
                Code.BAD_REQUEST, "max_attempts must be 0 (the broker's setting) or more"
            )
        manager = self._services.subscription_manager
        subscription, is_resumed = await manager.subscribe(wanted, self.principal, self.rights)
        if not subscription.stored.durable:
            self._temporary.add(subscription)
        return subscription, is_resumed

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
        subscription = self._find(id_)
        await self._services.subscription_manager.renew(subscription, lifetime)
        return await self._view(subscription)

    async def delete(self, id_: str) -> None:
        """Delete a subscription and its queued events."""
        subscription = self._find(id_)
        self._temporary.discard(subscription)
        await self._services.subscription_manager.delete(subscription, "deleted")

    def _require_open(self) -> None:
        if self.closed.done():
            code = Code.UNAUTHENTICATED if self._services.health.is_open else Code.UNAVAILABLE
            raise RefusedError(code, self.closed.result())

    def _find(self, id_: str) -> ActiveSubscription:
        self._require_open()
        found = self._services.subscription_index.find(self.principal.name, id_)
        if found is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no subscription {id_!r:.80}")
        return found

    async def _view(self, subscription: ActiveSubscription) -> SubscriptionView:
        [view] = await self._views([subscription])
        return view

    async def _views(self, subscriptions: Sequence[ActiveSubscription]) -> list[SubscriptionView]:
        """Return what is shown of subscriptions; that is never refused for being too much."""
        run = self._services.view_executor.run_slices
        counting = run(self.principal.name, self._count(subscriptions))
        counted = await self._while_open(counting)
        return [self._shown(*one) for one in zip(subscriptions, counted, strict=True)]

    def _count(self, subscriptions: Iterable[ActiveSubscription]) -> Slices[list[tuple[int, int]]]:
        counts = []
        for subscription in subscriptions:
            counts.append(self._services.subscription_manager.counts_of(subscription))
            yield
        return counts

    def _shown(self, subscription: ActiveSubscription, counts: tuple[int, int]) -> SubscriptionView:
        view = subscription.view(*counts)
        # 0 stands for the broker's setting.
        attempts = view.max_attempts or self._services.settings.max_attempts
        view = msgspec.structs.replace(view, max_attempts=attempts)
        if subscription.shows_all_to(self.rights):
            return view
        # It is matched by roles that this credential does not have, so its counts stay hidden.
        return msgspec.structs.replace(view, pending=0, in_flight=0, dropped=0, dead=0)

    # --- receiving -------------------------------------------------------------------------------

    async def attach(
        self, id_: str, sink: DeliverySink, *, credit: int, acknowledge: str = "auto"
    ) -> Attachment:
        """Start sending a subscription's events to a sink."""
        subscription = self._find(id_)
        await self._services.subscription_manager.adopt(subscription, self.principal, self.rights)
        attachment = await self._services.notifier.attach(
            subscription, self, sink, credit, manual=acknowledge == "manual"
        )
        self._attachments.add(attachment)
        try:
            self._require_open()
            self._services.subscription_manager.require_in_force(subscription)
        except RefusedError:
            self._services.notifier.stop(attachment)
            raise
        return attachment

    async def detach(self, attachment: Attachment) -> None:
        """Stop sending."""
        self._attachments.discard(attachment)
        await self._services.notifier.detach(attachment)

    async def fetch(self, id_: str, *, limit: int = 100, wait: float = 0.0) -> FetchedEvents:
        """Return queued events; they are delivered again unless they are acknowledged in time."""
        subscription = self._find(id_)
        if subscription.attachment is not None:
            raise RefusedError(
                Code.CONFLICT, f"the events of {id_!r} are being sent to a connection"
            )
        await self._services.subscription_manager.adopt(subscription, self.principal, self.rights)
        most = min(wait, MAX_WAIT_SECONDS)
        return await self._while_open(
            self._services.notifier.fetch(subscription, self, limit, most)
        )

    async def acknowledge(self, id_: str, sequences: Sequence[int] = (), up_to: int = 0) -> None:
        """Acknowledge events, so that they are not delivered again."""
        index, writer = self._services.subscription_index, self._services.acknowledgement_writer
        subscription = index.by_key.get((self.principal.name, id_))
        if subscription is None or self.closed.done():
            subscription = self._find(id_)
        if self.rights.hides_anything and not subscription.shows_all_to(self.rights):
            meant = subscription.queue.unsettled_among(sequences, up_to)
            known = writer.acknowledge(subscription, await self._visible_among(subscription, meant))
        else:
            known = writer.acknowledge(subscription, sequences, up_to)
        if up_to or len(known) < len(sequences):
            others = [one for one in sequences if one not in {*known}]
            await self._services.notifier.acknowledge_stored(subscription, self, others, up_to)

    async def flush(self) -> None:
        """Return when all acknowledgements and rejections so far are on disk."""
        self._require_open()
        await self._services.acknowledgement_writer.flush()

    async def reject(
        self, id_: str, sequence: int, *, delay: float | None = None, reason: str = ""
    ) -> None:
        """Reject an event; it is delivered again later or becomes a dead letter."""
        subscription = self._find(id_)
        if await self._visible_among(subscription, [sequence]):
            await self._services.notifier.reject(subscription, sequence, delay, reason[:500])

    async def _visible_among(
        self, subscription: ActiveSubscription, sequences: Sequence[int]
    ) -> Sequence[int]:
        """Return the events that this credential may see: only these it can settle."""
        if subscription.shows_all_to(self.rights):
            return sequences
        return await self._services.notifier.visible_among(subscription, self, sequences)

    async def dead_letters(
        self, id_: str, *, after: int = 0, limit: int = 100
    ) -> list[DeadLetterView]:
        """Return the dead letters that the principal may see now."""
        read, most = self._services.dead_letters.read_page, min(limit, MAX_PAGE_ITEMS)
        return await self._answer_by_rights(
            lambda rights: read(self._with_letters(id_), rights, after, most)
        )

    async def requeue(self, id_: str, sequences: Sequence[int]) -> int:
        """Queue dead letters again as if they had never been sent; return how many."""
        seen = await self._visible_letters(id_, sequences)
        subscription = self._find(id_)
        count = await self._services.subscription_manager.requeue(subscription, seen)
        await self._answer_in_thread(self._services.letter_bounds.refresh, subscription)
        return count

    async def delete_dead_letters(self, id_: str, sequences: Sequence[int]) -> int:
        """Delete dead letters; return how many there were."""
        seen = await self._visible_letters(id_, sequences)
        subscription, delete = self._find(id_), self._services.store.state.delete_dead_letters
        count = await self._answer_in_thread(delete, subscription.number, seen)
        await self._answer_in_thread(self._services.letter_bounds.refresh, subscription)
        return count

    async def _visible_letters(self, id_: str, sequences: Sequence[int]) -> list[int]:
        find = self._services.dead_letters.find_visible
        return await self._answer_by_rights(
            lambda rights: find(self._with_letters(id_), rights, sequences)
        )

    def _with_letters(self, id_: str) -> ActiveSubscription:
        """Return a subscription whose dead letters may be read with these rights."""
        subscription = self._find(id_)
        stored = subscription.stored
        self._services.subscription_manager.parse_allowed(
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
        """Return past events that match a filter, and where to continue; keep no state."""
        self._require_open()
        log, most = self._services.store.log, min(limit, MAX_PAGE_ITEMS)
        first, end_ = (place_of(log, parse_position(one)) for one in (start, end))

        def search(rights: Rights) -> Slices[HistoryView]:
            manager = self._services.subscription_manager
            parsed, chosen = manager.parse_allowed(filter_, language, mode, rights)
            wanted = HistoryQuery(parsed, chosen, first, end_, most)
            return self._services.history.read(wanted, rights)

        return await self._answer_by_rights(search)

    # --- trying ----------------------------------------------------------------------------------

    async def try_filter(
        self,
        filter_: str,
        *,
        language: str = "tamis",
        mode: str | None = None,
        events: Sequence[bytes | msgspec.Raw],
    ) -> list[Trial]:
        """Return which sample events a filter matches; no stored event is read."""
        self._require_open()
        return await self._answer_in_slices(self._try(filter_, language, mode, events))

    def _try(
        self,
        filter_: str,
        language: str,
        mode: str | None,
        events: Sequence[bytes | msgspec.Raw],
    ) -> Slices[list[Trial]]:
        subscription_manager = self._services.subscription_manager
        parsed, chosen = subscription_manager.parse_allowed(filter_, language, mode, self.rights)
        own = self.rights.check_filter(parsed)
        trials = []
        for event in events:
            yield
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
    ) -> ExplanationView:
        """Explain why a sample event matches or not, without revealing the filters of roles."""
        self._require_open()
        subscription_manager = self._services.subscription_manager
        if id_ is not None:
            stored = self._find(id_).stored
            filter_, language, mode = stored.filter, stored.language, stored.mode
        parsed, chosen = subscription_manager.parse_allowed(
            filter_ or "", language, mode, self.rights
        )
        own, schema = self.rights.check_filter(parsed), self.rights.schema
        is_total = self._services.engine.mode == "total"
        try:
            sample = self._sample(event)
            found = explain(id_ or "", own, chosen, sample, schema, total=is_total)
            return ExplanationView(found.matched, str(found))
        except EventError as error:
            raise RefusedError(Code.BAD_EVENT, str(error)) from None
        except LimitError as error:
            raise RefusedError(Code.TOO_LARGE, str(error)) from None

    def _sample(self, text: bytes | msgspec.Raw) -> Event:
        """Parse an event of the user; errors show no more of the schema than the user may see."""
        limits = EventLimits(size=self._services.settings.largest_event)
        return decode_json(bytes(text), schema=self.rights.schema, limits=limits)

    # --- administration --------------------------------------------------------------------------

    async def issue_token(
        self,
        principal: str,
        roles: Sequence[str] = (),
        lifetime: float | None = None,
        note: str = "",
        undefined_roles: bool = False,
    ) -> IssuedTokenView:
        """Issue a token; return it with its description. Its text is shown once."""
        self._require_admin()
        if not undefined_roles and self._services.settings.tokens_required:
            self._services.access_control.policy.require_roles(roles)
        text, record = await self._services.access_control.issue(
            principal, tuple(roles), lifetime, note
        )
        await self._note("issue token", f"{record.id} for {principal}")
        return IssuedTokenView(text, _token_view(record))

    async def revoke_token(self, token_id: str) -> None:
        """Revoke a token, and end the sessions that use it."""
        self._require_admin()
        services = self._services
        refused = services.access_control.refuse(token_id)
        if refused is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no token {token_id!r:.40}")
        # Whatever the disk does now, the token is worth nothing.
        services.end_invalid_sessions()
        await services.revocation_writer.write(
            Revocation(
                refused.hash, token_id, refused.principal, services.clock(), self.principal.name
            )
        )

    async def tokens(self) -> list[TokenView]:
        """Return the descriptions of the tokens."""
        self._require_admin()
        return [_token_view(record) for record in self._services.access_control.tokens()]

    async def audit(self, after: int = 0, limit: int = 100) -> list[AuditEntryView]:
        """Return administrative acts after a number."""
        self._require_admin()
        state = self._services.store.state
        found = await self._services.executors.administration.run(
            state.audit, after, min(limit, MAX_PAGE_ITEMS)
        )
        return [AuditEntryView(**entry._asdict()) for entry in found]

    async def status(self) -> dict[str, Any]:
        """Return the broker's state and its main counters."""
        self._require_admin()
        return self._services.status()

    def _require_admin(self) -> None:
        self._require_open()
        if not self.rights.is_admin:
            raise RefusedError(Code.FORBIDDEN, "only administrators may do this")

    async def _note(self, act: str, detail: str) -> None:
        state, now = self._services.store.state, self._services.clock()
        await self._services.executors.administration.run(
            state.add_audit, now, self.principal.name, act, detail
        )

    async def _answer_by_rights(self, ask: Callable[[Rights], Slices[T]]) -> T:
        """Return an answer by the rights as they are when it is given."""
        while True:
            rights = self.rights
            answer = await self._answer_in_slices(ask(rights))
            if self.rights is rights:
                return answer

    async def _answer_in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        run = self._services.client_executor.run
        return await self._while_open(run(self.principal.name, work, *args, **kwargs))

    async def _answer_in_slices(self, slices: Slices[T]) -> T:
        run = self._services.client_executor.run_slices
        return await self._while_open(run(self.principal.name, slices))

    async def _while_open(self, work: Coroutine[Any, Any, T]) -> T:
        """Return a result, unless the principal is no longer admitted before it is there."""
        working = asyncio.create_task(work)
        either: list[asyncio.Future[Any]] = [working, self.closed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            self._require_open()
            return await working
        finally:
            working.cancel()

    # --- the end ---------------------------------------------------------------------------------

    def revoke(self, reason: str) -> None:
        """Refuse everything from now on, and end the connection."""
        if not self.closed.done():
            self.closed.set_result(reason)
            self.stop()

    def stop(self) -> None:
        """Send nothing more from this moment on."""
        for attachment in self._attachments:
            self._services.notifier.stop(attachment)

    async def close(self) -> None:
        """Stop all deliveries; delete subscriptions that are not durable."""
        self._services.forget(self)
        for attachment in [*self._attachments]:
            await self.detach(attachment)
        temporary, self._temporary = self._temporary, set()
        with contextlib.suppress(TamisError):
            await self._services.subscription_manager.delete_all(temporary, "disconnected")


def publisher_name(principal: str, publisher: str) -> str:
    """Return a name that no other principal's publisher can have.

    >>> publisher_name("ann", ""), publisher_name("ann", "a/b"), publisher_name("ann/a", "b")
    ('ann', 'ann/a/b', 'ann%2Fa/b')
    """
    owner = principal.replace("%", "%25").replace("/", "%2F")
    return f"{owner}/{publisher}" if publisher else owner


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME_CHARACTERS and text.isprintable() and "/" not in text


def _token_view(record: TokenRecord) -> TokenView:
    return TokenView(
        id=record.id,
        principal=record.principal,
        roles=[*record.roles],
        created_at=record.created_at,
        expires_at=None if isinf(record.expires_at) else record.expires_at,
        note=record.note,
    )
