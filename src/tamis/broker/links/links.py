"""Links: one queue on disk for each neighbouring broker, fed by the routes that it has forwarded.

What is to go to a neighbour waits in this broker's log until the neighbour has stored it. What
comes from one is stored under its origin, once, however often it is sent. Whoever routes decides
which filters a link has; this part keeps them, across restarts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from tamis.access import Principal
from tamis.broker.deliver.attachments import Attachment
from tamis.broker.deliver.routes import LinkSubscription, Route, link_extra, link_row
from tamis.broker.deliver.subscriptions import Extra
from tamis.broker.links.arrivals import Arrivals, PeerReceipt
from tamis.broker.links.local_filters import Listener, LocalFilters
from tamis.broker.links.outlet import LinkEvent, LinkOutlet, LinkSink
from tamis.broker.links.route_codec import decode_route, encode_route
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import EventCache
from tamis.broker.sessions import SessionServices
from tamis.errors import RefusedError, TamisError
from tamis.filters import Filter
from tamis.protocol import Code
from tamis.storage import StoredRoute, StoredSubscription

LOG: Final = get_logger("tamis.broker")
TASK: Final = "links"
MAX_ROUTES: Final = 500_000
"""Of one link."""
# Events wait until these are compiled.
ROUTES_PER_STEP: Final = 50
_ID: Final = re.compile(r"[0-9a-f]{32}")

T = TypeVar("T")

__all__ = ["LinkEvent", "LinkSink", "Links", "PeerReceipt"]


class LinkView(NamedTuple):
    """A link as `tamis topology` shows it."""

    peer: str
    principal: Principal
    connected: bool
    routes: int
    pending: int
    """Events that wait until the peer has stored them."""
    dropped: int
    """Events for the peer that were lost, as by retention."""
    refused: int
    """Events of the peer that could not be stored here, since the broker started."""


class Links:
    """The links of a broker: their queues, routes and arrivals.

    All methods are called on the event loop. A peer is named by its broker id.
    """

    def __init__(
        self,
        services: SessionServices,
        matcher: Matcher,
        event_cache: EventCache,
        supervisor: Supervisor,
    ) -> None:
        self.broker_id: Final = services.store.state.broker_id
        """Names this broker in the overlay, for good."""
        self._store = services.store
        self._engine = services.engine
        self._index = services.subscription_index
        self._manager = services.subscription_manager
        self._notifier = services.notifier
        self._metrics = services.metrics
        self._rights_of = services.access_control.rights
        self._clock = services.clock
        self._executors = services.executors
        self._matcher = matcher
        self._event_cache = event_cache
        self._supervisor = supervisor
        self._arrivals = Arrivals(services)
        self._local_filters = LocalFilters(self._index, self._executors.background)
        matcher.on_changes = self._local_filters.wake
        self._turn = asyncio.Lock()
        """Held while routes change, so that they change in the order of the calls."""

    # --- at the start ----------------------------------------------------------------------------

    def restore(self, stored: StoredSubscription) -> LinkSubscription:
        """Restore a link after a restart, without its routes; in the matcher's thread."""
        link = self._link(stored, is_new=False)
        self._index.add(link)
        self._index.links[link.peer] = link
        return link

    def restore_routes(self, marks: Mapping[int, bytes]) -> None:
        """Restore the routes of all links; only those that have changed are compiled."""
        by_number = {link.number: link for link in self._index.links.values()}
        orphans: list[int] = []
        for stored in self._store.state.routes():
            link = by_number.get(stored.link)
            if link is None:
                orphans.append(stored.number)
                continue
            try:
                filter_ = decode_route(stored.structure)
            except TamisError as error:
                # The neighbour sends it again when it finds that it is missing.
                LOG.warning(
                    "route left out", peer=link.peer, digest=stored.digest, reason=str(error)
                )
                orphans.append(stored.number)
                continue
            route = Route(stored.number, stored.digest, filter_, link)
            if stored.number in self._engine:
                route.mark = marks.get(stored.number, b"")
            self._enter(route)
            self._manager.current_rights.put_route(route)
        if orphans:
            self._store.state.change_routes((), orphans)

    # --- links -----------------------------------------------------------------------------------

    async def open(self, peer: str, principal: Principal) -> LinkSubscription:
        """Return the link to a peer, a new one if there is none; it passes what its roles allow.

        From then on its routes fill its queue, whether it is attached or not. Call this for each
        connection: after a failure of `store`, nothing more is stored before.
        """
        if not _ID.fullmatch(peer):
            raise RefusedError(Code.BAD_REQUEST, f"{peer!r:.60} is not the id of a broker")
        if peer == self.broker_id:
            raise RefusedError(
                Code.CONFLICT,
                "a broker cannot be its own peer; if its folder was copied from another broker's, "
                "give it a folder of its own",
            )
        link = await self._change(partial(self._open, peer, principal))
        link.connections += 1
        return link

    def _open(self, peer: str, principal: Principal) -> LinkSubscription:
        known = self._index.links.get(peer)
        state = self._store.state
        if known is not None:
            extra = Extra.of(known.stored)
            if link_extra(extra, principal) != extra:
                write = partial(state.change_extra, known.number)
                known.change_extra(write, roles=principal.roles, principal=principal.name)
                self._manager.current_rights.compile_again([known])
            return known
        start = self._store.log.next_sequence
        row = link_row(peer, principal, created_at=self._clock(), start=start)
        number = state.add_subscription(row)
        link = self._link(row, is_new=True, number=number)
        self._index.add(link)
        self._index.links[peer] = link
        return link

    def _link(
        self, stored: StoredSubscription, *, is_new: bool, number: int = 0
    ) -> LinkSubscription:
        if number:
            stored = msgspec.structs.replace(stored, number=number)
        extra = Extra.of(stored)
        rights = self._rights_of(Principal(extra.principal, extra.roles))
        queue = self._manager.new_queue(stored, nothing_yet=is_new)
        link = LinkSubscription(stored, rights, queue)
        link.is_suspended = not rights.may_subscribe
        return link

    async def remove(self, peer: str) -> int:
        """Remove a link with its routes and what waits for it; return how many events waited."""
        link = self._index.links.get(peer)
        if link is None:
            return 0
        waiting = await self._change(partial(self._remove, link))
        if waiting:
            LOG.warning("link removed with events that waited", peer=peer, events=waiting)
        await self._notifier.end(link, "the link is removed")
        return waiting

    def _remove(self, link: LinkSubscription) -> int:
        if self._index.links.get(link.peer) is not link:
            return 0
        waiting = self._store.state.pending_count(link.number)
        self._store.state.remove_subscriptions([link.number])
        for route in [*link.routes.values()]:
            self._leave(route)
        del self._index.links[link.peer]
        self._index.remove(link)
        return waiting

    def all(self) -> list[LinkSubscription]:
        """Return all links."""
        return [*self._index.links.values()]

    async def views(self) -> list[LinkView]:
        """Return what `tamis topology` shows of the links."""
        links = self.all()
        count = self._store.state.pending_count
        pending = await self._executors.client.run(lambda: [count(one.number) for one in links])
        return [
            LinkView(
                link.peer,
                link.owner,
                bool(link.attachments),
                len(link.routes),
                waiting,
                link.dropped,
                link.refused,
            )
            for link, waiting in zip(links, pending, strict=True)
        ]

    def find(self, peer: str) -> LinkSubscription:
        """Return the link to a peer, or refuse."""
        link = self._index.links.get(peer)
        if link is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no link to {peer!r:.60}")
        return link

    async def _change(self, make: Callable[[], T]) -> T:
        """Make a change between two batches of events; whoever gives up does not undo it."""
        return await self._supervisor.finish(TASK, self._matcher.updater.do(make))

    # --- routes ----------------------------------------------------------------------------------

    def routes(self, peer: str) -> dict[str, Filter]:
        """Return the filters of a peer's routes, in mode `sql`, by digest."""
        return {digest: route.filter for digest, route in self.find(peer).routes.items()}

    async def set_routes(
        self, peer: str, add: Mapping[str, Filter], remove: Collection[str] = ()
    ) -> None:
        """Add routes and remove others; both are on disk, and in force, when this returns.

        Those that are added come first, and the last of them together with what is removed: no
        event between is missed that the routes before and after this call have in common. Routes
        that are there, or are not, stay so.
        """
        link = self.find(peer)
        most = min(MAX_ROUTES, link.rights.limits.subscriptions)
        more = sum(digest not in link.routes for digest in add)
        fewer = sum(digest in link.routes and digest not in add for digest in remove)
        if len(link.routes) + more - fewer > most:
            raise RefusedError(
                Code.TOO_MANY, f"the link to {peer} would have more than {most:,.0f} routes"
            )
        gone = [digest for digest in remove if digest not in add]
        async with self._turn:
            items = [*add.items()]
            while len(items) > ROUTES_PER_STEP:
                some, items = items[:ROUTES_PER_STEP], items[ROUTES_PER_STEP:]
                await self._change(partial(self._set_routes, link, dict(some), ()))
            await self._change(partial(self._set_routes, link, dict(items), gone))

    def _set_routes(
        self, link: LinkSubscription, add: Mapping[str, Filter], remove: Collection[str]
    ) -> None:
        if self._index.links.get(link.peer) is not link:
            raise RefusedError(Code.NOT_FOUND, f"the link to {link.peer} was removed")
        state = self._store.state
        wanted = {digest: one for digest, one in add.items() if digest not in link.routes}
        gone = [link.routes[digest] for digest in remove if digest in link.routes]
        if not wanted and not gone:
            return
        numbers = state.reserve_numbers(len(wanted))
        new = [
            Route(number, digest, filter_, link)
            for number, (digest, filter_) in zip(numbers, wanted.items(), strict=True)
        ]
        try:
            # What cannot be compiled must not be stored.
            for route in new:
                self._manager.current_rights.put_route(route)
            rows = [
                StoredRoute(one.number, link.number, one.digest, encode_route(one.filter))
                for one in new
            ]
            state.change_routes(rows, [one.number for one in gone])
        except Exception:
            for route in new:
                self._leave(route)
            raise
        for route in new:
            self._enter(route)
        for route in gone:
            self._leave(route)

    def _enter(self, route: Route) -> None:
        self._index.routes[route.number] = route
        route.link.routes[route.digest] = route

    def _leave(self, route: Route) -> None:
        self._index.routes.pop(route.number, None)
        if route.link.routes.get(route.digest) is route:
            del route.link.routes[route.digest]
        if route.number in self._engine:
            self._engine.remove(route.number)

    # --- events that leave -----------------------------------------------------------------------

    async def attach(self, peer: str, sink: LinkSink, credit: int) -> Attachment:
        """Send what waits for a peer to a sink, as many events as there is credit for.

        It begins with the oldest event that is not acknowledged, and ends the sink before it.
        `give_credit` of the result allows more; `detach` ends it.
        """
        link = self.find(peer)
        outlet = LinkOutlet(sink, self._event_cache, self.broker_id)
        return await self._notifier.attach(link, link, outlet, credit, manual=True)

    async def detach(self, attachment: Attachment) -> None:
        """Send no more to a sink; what is not acknowledged comes again on the next one."""
        await self._notifier.detach(attachment)

    async def acknowledge(self, peer: str, up_to: int) -> None:
        """Forget the events up to a sequence of this broker's log: the peer has stored them."""
        link = self.find(peer)
        known = link.queue.settle((), up_to)
        self._metrics.acknowledged.inc(len(known))
        # Before a restart, others may have been sent.
        await self._notifier.acknowledge_stored(link, link, (), up_to)

    # --- events that arrive ----------------------------------------------------------------------

    async def store(self, peer: str, events: Sequence[LinkEvent]) -> PeerReceipt:
        """Store events of a peer; return when they are on disk.

        An event whose origin's sequence is not above the last one stored of that origin is a
        duplicate, and nothing is stored of it. One that the link's roles may not publish, or that
        is not valid here, is refused alone, counted and logged. The peer has done its part for all
        of them. Whether a peer may send events of an origin at all is for the caller to know.

        If this raises an error, end the connection: the peer must send again all that is not
        acknowledged, and until then everything later is refused.
        """
        return await self._arrivals.store(self.find(peer), events)

    # --- what is wanted here ---------------------------------------------------------------------

    def watch_local(self, listener: Listener) -> None:
        """Report all local subscriptions to a listener, now and whenever they change.

        It gets lists of `LocalFilterChange` on the event loop, in order, after they are in force.
        """
        self._local_filters.watch(listener)

    async def told_local(self) -> None:
        """Return when the listener knows all local subscriptions that are in force now."""
        await self._local_filters.told()

    async def run(self) -> None:
        """Report changes to the listener until cancelled."""
        await self._local_filters.run()

    def __iter__(self) -> Iterator[LinkSubscription]:
        return iter(self.all())
