"""What passes the links: events and their acknowledgements, and the messages of the routers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final, Protocol

import msgspec

from tamis.access import Principal
from tamis.access.joining import in_sql_mode
from tamis.broker.links import LinkEvent, Links
from tamis.broker.links.links import LinkView
from tamis.broker.links.local_filters import LocalFilterChange
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.executors import Executors
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.peers.connection import LinkConnection
from tamis.broker.peers.link import LinkTerms, PeerLink
from tamis.broker.peers.link_router import LinkRouter
from tamis.broker.peers.peers_file import PeersFile
from tamis.broker.peers.survey import TopologySurvey
from tamis.errors import DisconnectedError, ProtocolError, RefusedError, TamisError
from tamis.events import Schema
from tamis.filters import Filter
from tamis.protocol import Code
from tamis.protocol.peering import (
    ForwardedEvent,
    LinkFrame,
    QueryFrame,
    TopologyReply,
    TopologyRequest,
)
from tamis.protocol.views import PeerView
from tamis.routing import LinkSummary, Router
from tamis.routing.inputs import (
    LinkClosed,
    LinkOpened,
    LinkRemoved,
    LocalFilterAdded,
    LocalFilterRemoved,
    RouterInput,
)
from tamis.routing.messages import Letter
from tamis.routing.running_query import LinkCounts
from tamis.storage import EventOrigin, Storage

LOG: Final = get_logger("tamis.peers")

DRAINED_POLL_SECONDS: Final = 0.05


class QueryTraffic(Protocol):
    """Whoever routes queries."""

    def link_opened(self, peer: str) -> None:
        """Note that messages can be sent to a peer."""

    def link_closed(self, peer: str) -> None:
        """Note that they cannot any more."""

    def link_removed(self, peer: str) -> None:
        """Note that a link was removed for good."""

    async def take(self, peer: str, message: bytes) -> None:
        """Take a message of a peer."""

    def counts(self, peer: str) -> LinkCounts:
        """Return what queries have passed a link, and what was pruned."""


class LinkTraffic:
    """The links by the peer's id, and what happens with what comes over them."""

    def __init__(
        self,
        *,
        router: Router,
        links: Links,
        store: Storage,
        matcher: Matcher,
        file: PeersFile,
        supervisor: Supervisor,
        executors: Executors,
        schema: Schema | None,
        keeps_advertisements: bool,
    ) -> None:
        self.links: Final[dict[str, PeerLink]] = {}
        self.router: Final = LinkRouter(router, executors.route, self)
        self.queries: QueryTraffic | None = None
        """Set once by whoever routes queries."""
        self.on_wanted: Callable[[str, bool], None] = lambda _advertisement, _is_wanted: None
        """Told whether anybody asks for what was advertised under an id; set once."""
        self.on_letter: Callable[[str, Letter], None] = lambda _peer, _letter: None
        """Told of letters for this broker, and who passed them on; set once."""
        self.on_greeted: Callable[[PeerLink], Awaitable[None]] | None = None
        """Told of a link over which events may pass from now on; set once, if at all."""
        self.survey: TopologySurvey | None = None
        """Set once by whoever knows what to show of this broker."""
        self._queues = links
        self._store = store
        self._matcher = matcher
        self._file = file
        self._supervisor = supervisor
        self._executors = executors
        self._schema = schema
        self._keeps_advertisements = keeps_advertisements
        self._hears_local = False
        self._draining: dict[str, asyncio.Task[None]] = {}
        self._undrained: dict[str, deque[tuple[int, Callable[[], None]]]] = {}
        """By peer: the last event that is to be stored there, and who is told then."""

    def restore(self) -> None:
        """Restore the links of earlier runs; in any thread, before the start."""
        for known in self._queues.all():
            peer = known.peer
            self.links[peer] = self._new_link(peer, is_known=True)
            kept = self._file.advertisements(peer) if self._keeps_advertisements else {}
            self.router.router.restore(peer, self._queues.routes(peer).values(), kept.values())

    def start(self) -> None:
        """Start the router; with links of earlier runs, report local subscriptions to it."""
        self._supervisor.restart("router", self.router.run)
        if self.links:
            self._hear_local()

    def _hear_local(self) -> None:
        """Have the router hear of local subscriptions from now on.

        To compare each with all others takes longer than to make it, and a broker without links
        and advertisements has no use for it.
        """
        if not self._hears_local:
            self._hears_local = True
            self._queues.watch_local(self._note_local)

    def _new_link(self, peer: str, *, is_known: bool) -> PeerLink:
        return PeerLink(peer, self, is_known=is_known, since=self._store.log.next_sequence)

    def _note_local(self, changes: Sequence[LocalFilterChange]) -> None:
        for change in changes:
            # Turning a filter into one of mode `sql` takes a while, so the router's thread does it.
            self.router.put(partial(_local_input, change, self._schema), f"/{change.owner}")

    async def told_local(self) -> None:
        """Return when the router knows all local subscriptions that are in force now."""
        self._hear_local()
        await self._queues.told_local()
        await self.router.settled()

    async def handle(self, given: RouterInput) -> None:
        """Return when the router has handled an input, and what it says is carried out."""
        await self.router.handle(given)

    def put(self, given: RouterInput) -> None:
        """Hand the router an input, after those before it."""
        self.router.put(given)

    # --- connections -----------------------------------------------------------------------------

    async def link_to(self, peer: str, terms: LinkTerms) -> PeerLink:
        """Return the link to a peer; what passes it is what the roles of the terms allow."""
        self._hear_local()
        await self._queues.open(peer, terms.principal)
        link = self.links.get(peer)
        if link is None:
            link = self.links[peer] = self._new_link(peer, is_known=False)
        return link

    async def carry(self, link: PeerLink, connection: LinkConnection) -> TamisError:
        """Run a link over a connection; return why that has ended."""
        link.connection, link.problem = connection, ""
        try:
            # Nothing that the peer says is handled before. Others may keep the router busy, and
            # meanwhile this side must give signs of life.
            self.router.put(LinkOpened(link.peer, link.name))
            reason = await connection.run()
            link.problem = str(reason)
        finally:
            await self._close(link, connection)
        return reason

    async def _close(self, link: PeerLink, connection: LinkConnection) -> None:
        try:
            if link.attachment is not None:
                await self._queues.detach(link.attachment)
            if self.queries is not None and link.is_greeted:
                self.queries.link_closed(link.peer)
            link.forget_connection()
            self.router.put(LinkClosed(link.peer))
            if not link.is_known:
                # Refused before it was one: nothing of it stays.
                self.links.pop(link.peer, None)
                self._file.forget(link.peer)
                await self._queues.remove(link.peer)
        finally:
            if link.connection is connection:
                # Something failed; whoever waits for the end must find none.
                link.forget_connection()
            connection.ended.set()

    async def remove(self, link: PeerLink) -> None:
        """Remove a link for good, and tell the peer."""
        connection = link.connection
        await self.router.handle(LinkRemoved(link.peer))
        if connection is not None:
            await connection.ended.wait()

    # --- what comes over a connection ------------------------------------------------------------

    async def take_message(self, link: PeerLink, message: bytes) -> None:
        """Hand the router a message; after its first, events can go over the link."""
        await self.router.receive(link.peer, message)
        if link.is_greeted or link.connection is None or link.connection.is_ending:
            return
        link.is_greeted = link.is_known = True
        if self.on_greeted is not None:
            await self.on_greeted(link)
        LOG.info("link open", peer=link.peer, called=link.name)
        credit = link.connection.theirs.window
        link.attachment = await self._queues.attach(link.peer, link, credit)
        if self.queries is not None:
            self.queries.link_opened(link.peer)

    async def take_query_message(self, link: PeerLink, message: bytes) -> None:
        """Hand a message about queries to whoever routes them."""
        if self.queries is not None:
            await self.queries.take(link.peer, message)

    async def store(self, link: PeerLink, events: Sequence[ForwardedEvent]) -> None:
        """Store events of a peer; return when they are on disk."""
        for event in events:
            self._check_origin(link, event.broker)
        receipt = await self._queues.store(link.peer, [_arrived(link.peer, one) for one in events])
        link.counters.received += receipt.stored
        link.counters.duplicates += receipt.duplicates
        link.counters.refused += receipt.refused

    def _check_origin(self, link: PeerLink, broker: str) -> None:
        """Refuse an event of a broker that is behind another link: nobody else speaks for it.

        One that has moved may have left events on its former way.
        """
        behind = self.router.link_of.get(broker, link.peer)
        if behind != link.peer and link.peer not in self.router.links_of.get(broker, ()):
            other = self.links.get(behind)
            raise ProtocolError(
                f"the peer claims the origin of another broker: {broker[:8]} is behind "
                f"{behind[:8] if other is None else other.title}"
            )

    async def settle(self, link: PeerLink, up_to: int) -> None:
        """Forget the events that a peer has stored, and send it as many more."""
        count = link.note_stored(up_to)
        await self._queues.acknowledge(link.peer, up_to)
        if link.attachment is not None:
            link.attachment.give_credit(count)

    async def take_topology_request(self, link: PeerLink, request: TopologyRequest) -> None:
        """Begin to answer which brokers are on this side of the link."""
        if self.survey is not None:
            self._supervisor.start("topology", self.survey.answer(link, request))

    def take_topology_reply(self, link: PeerLink, reply: TopologyReply) -> None:
        """Take the peer's answer."""
        if self.survey is not None:
            self.survey.note_reply(link, reply)

    # --- what the router says --------------------------------------------------------------------

    def post(self, peer: str, frame: LinkFrame) -> None:
        """Send a frame to a peer, if there is a connection."""
        link = self.links.get(peer)
        if link is not None:
            link.post(frame)

    def principal_of(self, peer: str) -> Principal:
        """Return as whom a peer that is connected was admitted."""
        terms = self.links[peer].terms
        if terms is None:
            raise DisconnectedError("the peer is not connected")
        return terms.principal

    def post_query(self, peer: str, message: bytes) -> None:
        """Send a message about queries to a peer, if there is a connection."""
        self.post(peer, QueryFrame(message=msgspec.Raw(message)))

    def routes(self, peer: str) -> Mapping[str, Filter]:
        """Return for which filters events go to a peer, by digest; none if there is no link."""
        known = any(one.peer == peer for one in self._queues.all())
        return self._queues.routes(peer) if known else {}

    async def change_routes(
        self, peer: str, add: Mapping[str, Filter], remove: Sequence[str]
    ) -> None:
        """Change for which filters events go to a peer, at one point of the log."""
        await self._queues.set_routes(peer, add, remove)

    async def change_advertisements(
        self, peer: str, add: Mapping[str, Filter], remove: Sequence[str]
    ) -> None:
        """Keep what a peer has advertised, durably, if filters go by it."""
        if self._keeps_advertisements:
            self._file.change_advertisements(peer, add, remove)
            await self._executors.administration.run(self._file.save)

    def await_drained(self, peer: str, drained: Callable[[], None]) -> None:
        """Call back once the peer has stored all events that are due to it now."""
        waiting = self._undrained.setdefault(peer, deque())
        waiting.append((self._store.log.next_sequence - 1, drained))
        running = self._draining.get(peer)
        if running is None or running.done():
            work = self._drain(peer, waiting)
            self._draining[peer] = self._supervisor.start("draining a link", work)

    async def _drain(self, peer: str, waiting: deque[tuple[int, Callable[[], None]]]) -> None:
        """Call back those who wait, one after the other; nobody is held up by those who follow."""
        number = self._queues.find(peer).number
        while waiting:
            last, drained = waiting[0]
            if await self._has_passed(number, last):
                waiting.popleft()
                drained()
            else:
                await asyncio.sleep(DRAINED_POLL_SECONDS)

    async def _has_passed(self, number: int, last: int) -> bool:
        """Return whether the peer with a queue has stored all events up to one."""
        if self._matcher.offered_up_to < last:
            return False
        link = next((one for one in self._queues.all() if one.number == number), None)
        if link is not None and link.queue.is_deferred:
            # What was matched for it is not pending yet.
            return False
        run, pending = self._executors.deliver.run, self._store.state.pending
        oldest = await run(pending, number, 0, inf, 1)
        return not oldest or oldest[0].sequence > last

    def refuse(self, peer: str, reason: str) -> None:
        """End the connection to a peer."""
        link = self.links.get(peer)
        if link is not None:
            LOG.warning("link refused", peer=peer, called=link.name, reason=reason)
            link.end(RefusedError(Code.CONFLICT, reason))

    async def forget(self, peer: str, reason: str) -> None:
        """Remove a link for good, with what waits for the peer."""
        LOG.warning("link removed", peer=peer, reason=reason)
        self._undrained.pop(peer, None)
        draining = self._draining.pop(peer, None)
        if draining is not None:
            draining.cancel()
        link = self.links.pop(peer, None)
        if link is not None:
            link.end(RefusedError(Code.CONFLICT, reason))
        if self.queries is not None:
            self.queries.link_removed(peer)
        self._file.forget(peer)
        await self._queues.remove(peer)

    # --- what is shown ---------------------------------------------------------------------------

    async def views(self) -> dict[str, PeerView]:
        """Return what is shown of each link, by the peer's id."""
        routed = {one.peer: one for one in await self.router.look(Router.links)}
        queued = {one.peer: one for one in await self._queues.views()}
        return {
            link.peer: self._view(link, routed.get(link.peer), queued.get(link.peer))
            for link in [*self.links.values()]
        }

    def _view(
        self, link: PeerLink, routed: LinkSummary | None, queued: LinkView | None
    ) -> PeerView:
        counters, waiting = link.counters, 0 if queued is None else queued.pending
        handled = self._store.log.next_sequence - link.since
        stayed = handled - counters.received - counters.sent - (waiting - link.unstored)
        queries = LinkCounts() if self.queries is None else self.queries.counts(link.peer)
        view = PeerView(
            link.peer,
            name=link.name,
            connected=link.is_greeted,
            url="" if link.terms is None else link.terms.url,
            made_by="peer" if link.terms is None else link.terms.made_by,
            problem="" if link.is_greeted else link.problem,
            waiting=waiting,
            sent=counters.sent,
            stopped=max(0, stayed),
            received=counters.received,
            duplicates=counters.duplicates,
            refused=counters.refused,
            queries_sent=queries.queries_passed,
            queries_pruned=queries.queries_pruned,
        )
        if routed is None:
            return view
        return msgspec.structs.replace(
            view,
            routes=routed.routes,
            forwarded=routed.forwarded,
            suppressed=routed.covered,
            unadvertised=routed.stopped,
            advertisements=routed.advertisements,
        )

    def take_letter(self, peer: str, letter: Letter) -> None:
        """Take a letter for this broker that a peer has passed on."""
        self.on_letter(peer, letter)

    def hides_nothing(self, peer: str) -> bool:
        """Return whether a peer may see everything: then letters pass, and it sees the topology."""
        known = next((one for one in self._queues.all() if one.peer == peer), None)
        return known is not None and not known.rights.hides_anything

    def note_wanted(self, advertisement: str, *, is_wanted: bool) -> None:
        """Notify a publisher whether anybody asks for what it advertised."""
        self.on_wanted(advertisement, is_wanted)


def _local_input(change: LocalFilterChange, schema: Schema | None) -> RouterInput:
    id_ = str(change.number)
    if change.filter is None:
        return LocalFilterRemoved(id_)
    return LocalFilterAdded(id_, in_sql_mode(change.filter, schema))


def _arrived(peer: str, event: ForwardedEvent) -> LinkEvent:
    origin = EventOrigin(event.broker, event.origin_sequence, event.time, peer)
    return LinkEvent(
        event.sequence, origin, event.publisher, event.number, event.format, bytes(event.data)
    )
