"""The broker's part of the overlay: its links, and who keeps them connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from tamis.access import Principal, Rights
from tamis.broker.operations.access_control import AccessControl
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.settings import BrokerSettings, PeerSetting
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.peers.connection import LinkConnection, exchange_hellos, say_refused
from tamis.broker.peers.dialler import Dialler, PeerTarget
from tamis.broker.peers.link import LinkTerms, PeerLink
from tamis.broker.peers.link_traffic import LinkTraffic
from tamis.broker.peers.peer_identities import PeerIdentities
from tamis.broker.peers.peers_file import KnownPeer, PeersFile
from tamis.broker.peers.survey import TopologySurvey
from tamis.client.transport import BrokerAddress, Transport, parse_address
from tamis.errors import AddressError, ProtocolError, RefusedError, TamisError
from tamis.ports import Executor
from tamis.protocol import Code
from tamis.protocol.peering import LINK_VERSION, LinkHello
from tamis.protocol.views import BrokerView, PeerView, TopologyView

LOG: Final = get_logger("tamis.peers")

MAX_LINKS: Final = 1_000
"""Of one broker; the routers compare the filters of each link with those of all others."""
STOPS: Final = "the broker stops"
REPLACED: Final = "another connection to this peer has taken its place"


class Overlay:
    """All links of a broker."""

    def __init__(
        self,
        *,
        broker: str,
        settings: BrokerSettings,
        access_control: AccessControl,
        traffic: LinkTraffic,
        file: PeersFile,
        supervisor: Supervisor,
        executor: Executor,
        count_subscriptions: Callable[[], int],
        count_events: Callable[[], int],
    ) -> None:
        self.broker: Final = broker
        """The id of this broker."""
        self.traffic: Final = traffic
        self._settings = settings
        self._access_control = access_control
        self._file = file
        self._supervisor = supervisor
        self._executor = executor
        self._count_subscriptions = count_subscriptions
        self._count_events = count_events
        self._diallers: dict[str, Dialler] = {}
        self._admitting = asyncio.Lock()
        self._identities = PeerIdentities(
            file, executor, traffic.links.values, lambda url: url in self._diallers
        )
        if settings.tokens_required:
            traffic.on_greeted = self._identities.note
        self.survey: Final = TopologySurvey(
            self.broker_view, traffic.links.values, traffic.hides_nothing
        )
        traffic.survey = self.survey

    # --- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Dial the peers of the settings, and those that were added."""
        self.traffic.start()
        for setting in self._settings.peers:
            self._dial(_from_settings(setting))
        for known in self._file.peers.values():
            if known.url not in self._diallers:
                self._dial(_added(known))

    def stop(self) -> None:
        """Dial no more, and end all connections."""
        for dialler in self._diallers.values():
            dialler.stop()
        for link in self.traffic.links.values():
            link.end(RefusedError(Code.UNAVAILABLE, STOPS))

    def _dial(self, target: PeerTarget) -> Dialler:
        dialler = Dialler(target, self._hold_dialled, self._settings, self._supervisor)
        self._diallers[target.url] = dialler
        dialler.start()
        return dialler

    # --- connections -----------------------------------------------------------------------------

    def require_peer(self, principal: Principal, rights: Rights) -> None:
        """Refuse a client that may not link brokers."""
        if not self._settings.tokens_required and not self._settings.accept_peers:
            raise RefusedError(
                Code.FORBIDDEN,
                "this broker accepts no links: start it with --accept-peers true, or with a policy "
                "that has a role with peer = true",
            )
        if not rights.is_peer:
            raise RefusedError(
                Code.FORBIDDEN,
                f"{principal.name} may not link brokers: none of its roles has peer = true",
            )

    async def hold_accepted(
        self, transport: Transport, principal: Principal, revoked: asyncio.Future[str]
    ) -> TamisError:
        """Hold a connection that a peer has made; return why it has ended."""
        return await self._hold(transport, LinkTerms(principal, revoked=revoked))

    async def _hold_dialled(self, transport: Transport, dialler: Dialler) -> TamisError:
        """Hold a connection that was dialled; return why it has ended."""
        target = dialler.target
        roles = () if target.role is None else (target.role,)
        principal = Principal(target.url, roles)
        rights = self._access_control.rights(principal)
        if not rights.is_peer:
            return RefusedError(
                Code.FORBIDDEN,
                f"the link to {target.url} needs a role with peer = true: give it one with role=…",
            )
        terms = LinkTerms(principal, target.url, target.made_by)
        return await self._hold(transport, terms, dialler)

    async def _hold(
        self, transport: Transport, terms: LinkTerms, dialler: Dialler | None = None
    ) -> TamisError:
        try:
            theirs = await exchange_hellos(transport, self._hello(), self._settings.hello_timeout)
            link = await self._admit(theirs, terms)
        except (RefusedError, ProtocolError) as error:
            await say_refused(transport, error)
            return error
        if dialler is not None:
            dialler.note_connected(link)
        connection = LinkConnection(transport, theirs, link, self._settings)
        if terms.revoked is not None:
            terms.revoked.add_done_callback(lambda ended: _end_revoked(connection, ended))
        return await self.traffic.carry(link, connection)

    def _hello(self) -> LinkHello:
        settings = self._settings
        return LinkHello(
            version=LINK_VERSION,
            broker=self.broker,
            name=settings.name or "",
            window=settings.peer_window,
            largest_frame=settings.largest_frame,
        )

    async def _admit(self, theirs: LinkHello, terms: LinkTerms) -> PeerLink:
        """Return the link of a peer that may be connected now."""
        peer = theirs.broker
        if peer == self.broker:
            raise RefusedError(Code.CONFLICT, "a broker cannot be linked to itself")
        link = await self._find_or_make(peer, terms)
        while link.connection is not None:
            self._require_precedence(link, terms)
            link.end(RefusedError(Code.CONFLICT, REPLACED))
            await link.connection.ended.wait()
            # It may have been removed with that connection.
            link = await self.traffic.link_to(peer, terms)
        link.name, link.terms = theirs.name, terms
        return link

    async def _find_or_make(self, peer: str, terms: LinkTerms) -> PeerLink:
        # One after the other, so that many at once do not exceed the limits.
        async with self._admitting:
            links = self.traffic.links
            if peer not in links and len(links) >= MAX_LINKS:
                raise RefusedError(Code.TOO_MANY, f"this broker has {MAX_LINKS:,} links, the limit")
            if self._settings.tokens_required:
                self._identities.check(peer, terms)
            link = await self.traffic.link_to(peer, terms)
            link.terms = link.terms or terms
            return link

    def _require_precedence(self, link: PeerLink, terms: LinkTerms) -> None:
        """Refuse a second connection, if both sides have dialled and the other one counts.

        That is the one that the broker with the smaller id has dialled: both sides agree on it.
        """
        held = link.terms
        if held is None or held.is_dialled is terms.is_dialled:
            # The same side dials again, so it has lost the former connection.
            return
        ours_counts = self.broker < link.peer
        if terms.is_dialled is not ours_counts:
            raise RefusedError(
                Code.CONFLICT, f"{link.title} is linked already, by its own dialling"
            )

    # --- administration --------------------------------------------------------------------------

    async def add(self, url: str, token: str | None, role: str | None) -> PeerView:
        """Link to another broker, also after a restart."""
        try:
            address = parse_address(url)
        except AddressError as error:
            raise RefusedError(Code.BAD_REQUEST, str(error)) from None
        if self._is_own(address):
            raise RefusedError(
                Code.BAD_REQUEST, f"{url} is the address of this broker: give that of another"
            )
        if dialled := self._dialled(address):
            raise RefusedError(Code.CONFLICT, f"the broker dials {dialled} already")
        if role is not None and self._settings.tokens_required:
            self._access_control.policy.require_roles([role])
        known = self._file.peers[url] = KnownPeer(url, token, role)
        try:
            await self._executor.run(self._file.save)
        except TamisError:
            del self._file.peers[url]
            raise
        return _as_dialled(self._dial(_added(known)), None)

    def _dialled(self, address: BrokerAddress) -> str | None:
        """Return how a broker that is dialled already was written, such as with another slash."""
        place = address.connect.partition("//")[2].lower()
        known = ((url, parse_address(url).connect) for url in self._diallers)
        return next((url for url, one in known if one.partition("//")[2].lower() == place), None)

    def _is_own(self, address: BrokerAddress) -> bool:
        """Return whether this broker listens at an address, as far as its settings tell."""
        settings, (_, host, port) = self._settings, address.origin
        is_here = host == settings.host.lower() or (
            address.is_loopback and (settings.is_loopback or settings.host in ("0.0.0.0", "::"))  # noqa: S104
        )
        return is_here and port == settings.port

    async def remove(self, peer: str) -> None:
        """Remove a link by address, id or name, with all that waits for the peer."""
        dialler = self._diallers.get(peer)
        link = self._find(peer) if dialler is None else self.traffic.links.get(dialler.peer)
        if link is not None and dialler is None and link.terms is not None:
            dialler = self._diallers.get(link.terms.url)
        if link is None and dialler is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no peer {peer!r:.80}")
        if dialler is not None and dialler.target.made_by == "settings":
            raise RefusedError(
                Code.CONFLICT,
                f"the settings name {dialler.target.url}: remove it there, and restart the broker",
            )
        if dialler is not None:
            dialler.retire()
            self._file.peers.pop(dialler.target.url, None)
        if link is not None:
            self._file.forget(link.peer)
        await self._executor.run(self._file.save)
        if link is not None:
            await self.traffic.remove(link)
        if dialler is not None:
            dialler.stop()
            del self._diallers[dialler.target.url]

    def _find(self, name: str) -> PeerLink | None:
        """Return the link to a peer by its id, the beginning of it that is shown, or its name."""
        links = self.traffic.links
        found = [one for one in links.values() if name in (one.peer, one.peer[:8], one.name)]
        if len(found) > 1:
            raise RefusedError(
                Code.CONFLICT, f"several peers are called {name!r:.80}: give the id of one"
            )
        return found[0] if found else None

    async def views(self) -> list[PeerView]:
        """Return all links, and the addresses that were never reached."""
        views, targets = await self.traffic.views(), [*self._diallers.values()]
        dialled = [_as_dialled(one, views.pop(one.peer, None)) for one in targets]
        return [*dialled, *views.values()]

    def count_connected(self) -> int:
        """Return how many links have a connection."""
        return sum(link.is_greeted for link in [*self.traffic.links.values()])

    def watch(self, metrics: Metrics) -> None:
        """Show what passes each link among the metrics, by the id of the peer."""

        def look(read: Callable[[PeerLink], float]) -> Callable[[], dict[str, float]]:
            return lambda: {one.peer: read(one) for one in [*self.traffic.links.values()]}

        def watch(name: str, text: str, read: Callable[[PeerLink], float]) -> None:
            metrics.watch_each(f"link_{name}", text, "peer", look(read))

        watch("connected", "Whether the link has a connection", lambda one: one.is_greeted)
        watch("sent_events", "Events sent to the peer", lambda one: one.counters.sent)
        watch("received_events", "Events of the peer stored", lambda one: one.counters.received)
        watch(
            "duplicate_events",
            "Events that the peer sent again",
            lambda one: one.counters.duplicates,
        )
        watch("refused_events", "Events of the peer refused", lambda one: one.counters.refused)

    async def broker_view(self) -> BrokerView:
        """Return what is shown of this broker."""
        return BrokerView(
            self.broker,
            self._settings.name or "",
            self._count_subscriptions(),
            self._count_events(),
            await self.views(),
        )

    async def topology(self) -> TopologyView:
        """Return all brokers that can be reached, as far as they answer in time."""
        found = await self.survey.take()
        return TopologyView(self.broker, found.brokers, found.missing)


def _as_dialled(dialler: Dialler, view: PeerView | None) -> PeerView:
    """Return the view of a link that this broker dials."""
    target = dialler.target
    if view is None:
        return PeerView("", url=target.url, made_by=target.made_by, problem=dialler.problem)
    problem = "" if view.connected else dialler.problem or view.problem
    return msgspec.structs.replace(view, url=target.url, made_by=target.made_by, problem=problem)


def _end_revoked(connection: LinkConnection, ended: asyncio.Future[str]) -> None:
    if not ended.cancelled():
        code = Code.UNAVAILABLE if ended.result() == STOPS else Code.UNAUTHENTICATED
        connection.end(RefusedError(code, ended.result()))


def _from_settings(setting: PeerSetting) -> PeerTarget:
    return PeerTarget(
        setting.url,
        "settings",
        token_file=setting.token_file,
        role=setting.role,
        ca=setting.ca,
    )


def _added(known: KnownPeer) -> PeerTarget:
    return PeerTarget(known.url, "command", token=known.token, role=known.role)
