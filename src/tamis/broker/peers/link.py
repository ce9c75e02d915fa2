"""The link to one peer, which outlives its connections."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, cast

import msgspec

from tamis.access import Principal
from tamis.broker.deliver.attachments import Attachment
from tamis.broker.links import LinkEvent
from tamis.broker.operations.logs import get_logger
from tamis.broker.peers.connection import LinkConnection
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol.frames import EventFormat
from tamis.protocol.peering import ForwardedEvent, LinkFrame, TopologyReply, TopologyRequest

LOG: Final = get_logger("tamis.peers")


class LinkCounters(msgspec.Struct):
    """What has passed a link since the broker started."""

    sent: int = 0
    """Events that the peer had not been sent before."""
    received: int = 0
    duplicates: int = 0
    refused: int = 0


class LinkTerms(NamedTuple):
    """On what terms a connection is held: who is on the other side, and who dialled."""

    principal: Principal
    url: str = ""
    """The address that this broker dialled; empty: the peer did."""
    made_by: str = "peer"
    revoked: asyncio.Future[str] | None = None
    """Set to the reason once the peer is no longer admitted."""

    @property
    def is_dialled(self) -> bool:
        """Return whether this broker dialled."""
        return bool(self.url)


class LinkServices(Protocol):
    """What a link needs of the broker."""

    async def take_message(self, link: PeerLink, message: bytes) -> None:
        """Take a message of the peer's router."""

    async def take_query_message(self, link: PeerLink, message: bytes) -> None:
        """Take a message about queries and data."""

    async def store(self, link: PeerLink, events: Sequence[ForwardedEvent]) -> None:
        """Store events of the peer; return when they are on disk."""

    async def settle(self, link: PeerLink, up_to: int) -> None:
        """Forget the events that the peer has stored."""

    async def take_topology_request(self, link: PeerLink, request: TopologyRequest) -> None:
        """Begin to answer which brokers are on this side of the link."""

    def take_topology_reply(self, link: PeerLink, reply: TopologyReply) -> None:
        """Take the peer's answer."""


class PeerLink:
    """A link: its terms, its connection if there is one, and its counters."""

    def __init__(
        self, peer: str, services: LinkServices, *, is_known: bool, since: int = 1
    ) -> None:
        self.peer = peer
        """The id of the other broker."""
        self.is_known = is_known
        """Whether the routers have agreed on the link, now or in the past."""
        self.since = since
        """The first event of the log that the counters are about."""
        self.is_greeted = False
        """Whether they have on this connection; before, no events pass."""
        self.name = ""
        self.terms: LinkTerms | None = None
        """Those of the latest connection."""
        self.problem = "not connected since the broker started"
        """Why there is no connection."""
        self.counters = LinkCounters()
        self.connection: LinkConnection | None = None
        self.attachment: Attachment | None = None
        """Sends what waits for the peer."""
        self._services = services
        self._last_sent = since - 1
        self._unstored: deque[int] = deque()
        """The sequences of events that were sent on this connection and are not stored yet."""

    @property
    def title(self) -> str:
        """Return what to call the peer."""
        return self.name or self.peer[:8]

    def post(self, frame: LinkFrame) -> None:
        """Send a frame, if there is a connection; the next one begins with the difference."""
        if self.connection is not None:
            self.connection.post(frame)

    def end(self, reason: RefusedError) -> None:
        """End the connection, and tell the peer why."""
        if self.connection is not None:
            self.connection.end(reason)

    def forget_connection(self) -> None:
        """Forget what belongs to one connection."""
        self.connection = self.attachment = None
        self.is_greeted = False
        self._unstored.clear()

    # --- events for the peer ---------------------------------------------------------------------

    async def send(self, events: Sequence[LinkEvent]) -> None:
        """Send events in the order of the log; wait while the peer does not take them."""
        if self.connection is None:
            raise DisconnectedError("the connection was lost")
        self._unstored.extend(event.sequence for event in events)
        await self.connection.forward([_forwarded(event) for event in events])
        self.counters.sent += sum(event.sequence > self._last_sent for event in events)
        self._last_sent = max(self._last_sent, events[-1].sequence)

    @property
    def unstored(self) -> int:
        """Return how many events are on their way to the peer."""
        return len(self._unstored)

    def note_stored(self, up_to: int) -> int:
        """Note that the peer has stored events up to one; return how many."""
        count = 0
        while self._unstored and self._unstored[0] <= up_to:
            self._unstored.popleft()
            count += 1
        return count

    async def note_lost(self, count: int, reason: str) -> None:
        """Log that events for the peer are lost."""
        LOG.error("events for a peer are lost", peer=self.peer, count=count, reason=reason)

    async def note_ended(self, reason: str) -> None:
        """End the connection, since no more events will come over it."""
        self.end(DisconnectedError(reason))

    # --- what comes over the connection ----------------------------------------------------------

    async def take_message(self, message: bytes) -> None:
        """Take a message of the peer's router."""
        await self._services.take_message(self, message)

    async def take_query_message(self, message: bytes) -> None:
        """Take a message about queries and data."""
        await self._services.take_query_message(self, message)

    async def store(self, events: Sequence[ForwardedEvent]) -> None:
        """Store events; return when they are on disk."""
        await self._services.store(self, events)

    async def settle(self, up_to: int) -> None:
        """Forget the events that the peer has stored."""
        await self._services.settle(self, up_to)

    async def take_topology_request(self, request: TopologyRequest) -> None:
        """Begin to answer which brokers are on this side of the link."""
        await self._services.take_topology_request(self, request)

    def take_topology_reply(self, reply: TopologyReply) -> None:
        """Take the peer's answer."""
        self._services.take_topology_reply(self, reply)


def _forwarded(event: LinkEvent) -> ForwardedEvent:
    return ForwardedEvent(
        sequence=event.sequence,
        broker=event.origin.broker,
        origin_sequence=event.origin.sequence,
        time=event.origin.time,
        publisher=event.publisher,
        data=msgspec.Raw(event.data),
        number=event.publisher_sequence,
        format=cast("EventFormat", event.format),
    )
