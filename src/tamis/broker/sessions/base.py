"""What every session has: a principal, its rights, and how its questions are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from tamis.access import Principal, Rights
from tamis.broker.advertising.service import AdvertisingService
from tamis.broker.deliver.acknowledgements import AcknowledgementWriter
from tamis.broker.deliver.dead_letter_bounds import DeadLetterBounds
from tamis.broker.deliver.dead_letters import DeadLetterReader
from tamis.broker.deliver.notifier import Notifier
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.operations.access_control import AccessControl
from tamis.broker.operations.executors import Executors
from tamis.broker.operations.fair_executor import FairExecutor, Slices
from tamis.broker.operations.health import Health
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.revocations import RevocationWriter
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.publish.committer import Committer
from tamis.broker.publish.payloads import PayloadDecoder
from tamis.broker.publish.publishers import FanOut, Numbering
from tamis.broker.publish.quotas import PublishingQuota
from tamis.broker.queries.service import QueryService
from tamis.broker.subscribe.history import History
from tamis.broker.subscribe.manager import SubscriptionManager, has_moved, require_settled
from tamis.errors import RefusedError
from tamis.matching import Engine
from tamis.protocol import Code, Subscribe
from tamis.protocol.management import (
    OPERATIONS,
    ManagementCall,
)
from tamis.protocol.views import PeerView, TopologyView
from tamis.storage import Storage

P = ParamSpec("P")
T = TypeVar("T")


class ManagedOverlay(Protocol):
    """The links to other brokers, as administrators see and change them."""

    async def views(self) -> list[PeerView]:
        """Return all links, and the addresses that were never reached."""

    async def add(self, url: str, token: str | None, role: str | None) -> PeerView:
        """Link to another broker, also after a restart."""

    async def remove(self, peer: str) -> None:
        """Remove a link by address, id or name, with all that waits for the peer."""

    async def topology(self) -> TopologyView:
        """Return all brokers that can be reached, as far as they answer in time."""


class RoamingClients(Protocol):
    """Brings the subscriptions of clients that were connected to other brokers before."""

    async def bring(self, wanted: Subscribe, principal: Principal, rights: Rights) -> None:
        """Return when the subscription is here, or nowhere; refuse if that takes too long."""


class SessionServices(NamedTuple):
    """The parts of a broker that sessions use."""

    settings: BrokerSettings
    clock: Callable[[], float]
    engine: Engine
    health: Health
    metrics: Metrics
    quota: PublishingQuota
    decoder: PayloadDecoder
    numbering: Numbering
    committer: Committer
    notifier: Notifier
    acknowledgement_writer: AcknowledgementWriter
    subscription_manager: SubscriptionManager
    subscription_index: SubscriptionIndex
    dead_letters: DeadLetterReader
    dead_letter_bounds: DeadLetterBounds
    history: History
    queries: QueryService
    advertising: AdvertisingService
    store: Storage
    access_control: AccessControl
    revocation_writer: RevocationWriter
    executors: Executors
    fan_out: FanOut
    charge: Callable[[str, float], None]
    client_executor: FairExecutor
    view_executor: FairExecutor
    decode_executor: FairExecutor
    overlay: Callable[[], ManagedOverlay]
    roaming: Callable[[], RoamingClients]
    status: Callable[[], dict[str, Any]]
    offered_up_to: Callable[[], int]
    end_invalid_sessions: Callable[[], None]
    forget: Callable[[Any], None]


class SessionBase:
    """A principal and its rights, as long as it is admitted."""

    def __init__(self, services: SessionServices, principal: Principal, rights: Rights) -> None:
        self.principal = principal
        self.rights = rights
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Set to the reason once the principal is no longer admitted."""
        self._services = services

    async def perform(self, call: ManagementCall[T]) -> T:
        """Run the method that the table names for a management call."""
        method = getattr(self, OPERATIONS[type(call)].does)
        result: T = await method(**msgspec.structs.asdict(call))
        return result

    def _require_open(self) -> None:
        if self.closed.done():
            code = Code.UNAUTHENTICATED if self._services.health.is_open else Code.UNAVAILABLE
            raise RefusedError(code, self.closed.result())

    def _find(self, id_: str, *, may_leave: bool = False) -> ActiveSubscription:
        """Return a subscription that is not about to move, or leaves if that may be."""
        self._require_open()
        found = self._services.subscription_index.find(self.principal.name, id_)
        if found is None or self._services.subscription_manager.has_expired(found):
            target = self._services.subscription_index.departed.get((self.principal.name, id_))
            if target is not None:
                raise RefusedError(Code.NOT_FOUND, has_moved(id_, target))
            raise RefusedError(Code.NOT_FOUND, f"there is no subscription {id_!r:.80}")
        if not (may_leave and found.departure is not None):
            require_settled(found)
        return found

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

    async def _while_open(
        self, work: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None
    ) -> T:
        """Return a result, unless the principal is no longer admitted before it is there.

        If both happen at the same moment, `undo` gets the result that nobody hears of.
        """
        working = asyncio.create_task(work)
        either: list[asyncio.Future[Any]] = [working, self.closed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            has_result = working.done() and not (working.cancelled() or working.exception())
            if undo is not None and has_result and self.closed.done():
                undo(working.result())
            self._require_open()
            return await working
        finally:
            working.cancel()
