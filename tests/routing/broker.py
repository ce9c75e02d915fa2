"""A model of a broker around the product's router: its log, its queues, what survives a crash."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from routing.pool import the_pool
from tamis.covering import CoveringOrder
from tamis.filters import Filter
from tamis.routing import (
    AdvertisementPolicy,
    AwaitDrained,
    ChangeAdvertisements,
    ChangeRoutes,
    ForgetLink,
    Instruction,
    Letter,
    LinkClosed,
    LinkDrained,
    LinkMessage,
    LinkOpened,
    LinkRemoved,
    LocalAdvertisementAdded,
    LocalAdvertisementRemoved,
    LocalFilterAdded,
    LocalFilterRemoved,
    MessageReceived,
    RefuseLink,
    Router,
    RouterInput,
    SendMessage,
    WantedChanged,
)
from tamis.routing.instructions import TakeLetter


class Publication(NamedTuple):
    """An event as it was published."""

    number: int
    """Among those of its publisher, which publishes at one broker."""
    publisher: str
    event: int
    """Which event of the pool."""


class Stored(NamedTuple):
    """An event in the log of a broker."""

    origin: str
    sequence: int
    """Its position in the log of the broker where it was published."""
    publication: Publication
    hop: str
    """The peer that it came from; empty where it was published."""


class Queued(NamedTuple):
    """An event that waits for a peer."""

    number: int
    position: int
    """In the log of the broker where it waits."""
    event: Stored


class Events(NamedTuple):
    """Events on their way to a peer, oldest first."""

    events: tuple[Queued, ...]


class Acknowledgement(NamedTuple):
    """A peer's word that it has stored all events up to a number."""

    number: int


class HangUp(NamedTuple):
    """The last frame: the other side has ended the connection."""


class QueryFrame(NamedTuple):
    """A message about queries, as it goes over a network."""

    message: bytes


Frame = LinkMessage | Events | Acknowledgement | HangUp | QueryFrame


class QueryPort(Protocol):
    """What a broker tells those who route queries."""

    def link_opened(self, peer: str) -> None:
        """A connection begins, perhaps before the end of the last one was noticed."""

    def link_closed(self, peer: str) -> None:
        """The end of a connection is noticed."""

    def link_removed(self, peer: str) -> None:
        """There is no such link any longer."""

    def receive(self, peer: str, message: bytes) -> None:
        """Take a message of a peer."""

    def crash(self) -> None:
        """Lose what is in memory."""

    def restart(self) -> None:
        """Begin again."""


class NoQueries:
    """Nobody asks anything."""

    def link_opened(self, peer: str) -> None:
        pass

    def link_closed(self, peer: str) -> None:
        pass

    def link_removed(self, peer: str) -> None:
        pass

    def receive(self, peer: str, message: bytes) -> None:
        pass

    def crash(self) -> None:
        pass

    def restart(self) -> None:
        pass


class Wire(Protocol):
    """One end of a connection."""

    def send(self, frame: Frame) -> None:
        """Send a frame, unless the connection is broken."""


class LinkEndpoint:
    """One end of a link: what is on disk, and the present connection, if any."""

    def __init__(self) -> None:
        self.routes: dict[str, Filter] = {}
        self.advertisements: dict[str, Filter] = {}
        self.queue: deque[Queued] = deque()
        self.queued = 0
        self.wire: Wire | None = None
        self.sent = 0
        """The number of the last event that went over the present connection."""


class Subscription:
    """A client's subscription, and what it has got."""

    def __init__(self, id_: str, filter_digest: str, *, is_durable: bool) -> None:
        self.id: Final = id_
        self.filter = filter_digest
        self.is_durable: Final = is_durable
        self.is_settled = False
        self.got: list[Publication] = []
        self.is_moving = False
        """Whether it is on its way to another broker."""
        self.moves = 0
        self.start = 0
        """The position of the first event of the log that is matched for it."""
        self.cut: dict[str, int] = {}
        """By origin, the last event that it got at its former home."""

    def asks_for(self, event: Stored, position: int) -> bool:
        """Return whether an event of the log is its own, and it has not got it elsewhere."""
        is_new = event.sequence > self.cut.get(event.origin, 0)
        matched = the_pool().matched[self.filter]
        return position >= self.start and is_new and event.publication.event in matched


class ModelBroker:
    """A broker of the overlay; it lives in a world, which calls `step` from time to time."""

    def __init__(
        self,
        id_: str,
        make_index: Callable[[], CoveringOrder],
        advertisements: AdvertisementPolicy,
        wake: Callable[[ModelBroker], None],
    ) -> None:
        self.id: Final = id_
        self._make_index: Final = make_index
        self.policy: Final = advertisements
        self._wake: Final = wake
        self.pool: Final = the_pool()
        # On disk.
        self.log: list[Stored] = []
        self.matched = 0
        self.links: dict[str, LinkEndpoint] = {}
        self.highest: dict[str, int] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.moving: dict[str, str] = {}
        """Filters of subscriptions on their way to or from this broker, by id."""
        self.take_letter: Callable[[Letter], None] = lambda _letter: None
        self.queries: QueryPort = NoQueries()
        # In memory.
        self.is_up = True
        self.router = self._new_router()
        self.offered: dict[str, str] = {}
        """Local advertisements: id to digest."""
        self.wanted: dict[str, bool] = {}
        self.instructions: deque[tuple[Instruction, Wire | None]] = deque()
        self.waiting: list[tuple[str, int, int]] = []
        """Peer, ticket and position of the log, for links that are to be drained."""
        self.refusals: list[tuple[str, str]] = []

    def _new_router(self) -> Router:
        return Router(
            self.id, make_index=self._make_index, advertisements=self.policy, name=self.id
        )

    # --- clients -----------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Add or change a subscription."""
        self.subscriptions[subscription.id] = subscription
        self.handle(LocalFilterAdded(subscription.id, self.pool.filters[subscription.filter]))

    def unsubscribe(self, id_: str) -> None:
        """End a subscription."""
        del self.subscriptions[id_]
        self.handle(LocalFilterRemoved(id_))

    def advertise(self, id_: str, filter_digest: str) -> None:
        """Say what will be published."""
        self.offered[id_] = filter_digest
        self.wanted.setdefault(id_, False)
        self.handle(LocalAdvertisementAdded(id_, self.pool.filters[filter_digest]))

    def withdraw(self, id_: str) -> None:
        """Say that it will be published no longer."""
        del self.offered[id_]
        self.wanted.pop(id_)
        self.handle(LocalAdvertisementRemoved(id_))

    def publish(self, publication: Publication) -> None:
        """Store an event of a client."""
        self._store(Stored(self.id, len(self.log) + 1, publication, hop=""))

    # --- the router --------------------------------------------------------------------------

    def handle(self, happened: RouterInput) -> None:
        """Tell the router; its instructions are carried out one by one, later."""
        for one in self.router.handle(happened):
            peer = getattr(one, "peer", "")
            wire = self.links[peer].wire if peer in self.links else None
            self.instructions.append((one, wire))
        self._wake(self)

    def _carry_out(self, instruction: Instruction, wire: Wire | None) -> None:
        match instruction:
            case SendMessage(peer=peer, message=message):
                # Not over a later connection.
                if peer in self.links and wire is not None and self.links[peer].wire is wire:
                    wire.send(message)
            case ChangeRoutes(peer=peer, add=add, remove=remove):
                if peer in self.links:
                    _change(self.links[peer].routes, add, remove)
            case ChangeAdvertisements(peer=peer, add=add, remove=remove):
                if peer in self.links:
                    _change(self.links[peer].advertisements, add, remove)
            case AwaitDrained(peer=peer, ticket=ticket):
                self.waiting.append((peer, ticket, len(self.log)))
            case WantedChanged(advertisement=id_, is_wanted=is_wanted):
                if id_ in self.wanted:
                    self.wanted[id_] = is_wanted
            case ForgetLink(peer=peer):
                self._drop(peer, wire)
            case RefuseLink(peer=peer, reason=reason):
                self.refusals.append((peer, reason))
                if peer not in {one.peer for one in self.router.links()}:
                    self._drop(peer, wire)

    def _drop(self, peer: str, wire: Wire | None) -> None:
        """Forget a link with its connection, but not one that has begun since."""
        end = self.links.pop(peer, None)
        if end is None:
            return
        self.queries.link_removed(peer)
        if end.wire is not None and end.wire is not wire:
            self.links[peer] = LinkEndpoint()
            self.links[peer].wire = end.wire
            self.queries.link_opened(peer)
        elif end.wire is not None:
            end.wire.send(HangUp())

    # --- connections -------------------------------------------------------------------------

    def opened(self, peer: str, wire: Wire) -> None:
        """A connection begins, perhaps before the end of the last one was noticed."""
        end = self.links.setdefault(peer, LinkEndpoint())
        end.wire = wire
        end.sent = 0
        self.handle(LinkOpened(peer))
        self.queries.link_opened(peer)

    def closed(self, peer: str) -> None:
        """The end of a connection is noticed."""
        self.links[peer].wire = None
        self.handle(LinkClosed(peer))
        self.queries.link_closed(peer)

    def remove_link(self, peer: str) -> None:
        """Somebody removes a link."""
        self.handle(LinkRemoved(peer))

    def receive(self, peer: str, frame: Frame) -> None:
        """Take a frame of the present connection."""
        match frame:
            case Events(events=events):
                self._receive_events(peer, events)
            case HangUp():
                self.closed(peer)
            case QueryFrame(message=message):
                self.queries.receive(peer, message)
            case Acknowledgement(number=number):
                queue = self.links[peer].queue
                while queue and queue[0].number <= number:
                    queue.popleft()
                self._wake(self)
            case _:
                self.handle(MessageReceived(peer, frame))

    def _receive_events(self, peer: str, events: tuple[Queued, ...]) -> None:
        for queued in events:
            event = queued.event
            if event.sequence > self.highest.get(event.origin, 0):
                self.highest[event.origin] = event.sequence
                self._store(event._replace(hop=peer))
        wire = self.links[peer].wire
        if wire is not None:
            wire.send(Acknowledgement(events[-1].number))

    # --- events ------------------------------------------------------------------------------

    def _store(self, event: Stored) -> None:
        self.log.append(event)
        self._wake(self)

    def step(self) -> bool:
        """Carry out an instruction; return whether another one waits."""
        if self.instructions:
            instruction, wire = self.instructions.popleft()
            if isinstance(instruction, TakeLetter):
                self.take_letter(instruction.letter)
            else:
                self._carry_out(instruction, wire)
        self._send_and_report()
        return bool(self.instructions)

    def match(self) -> bool:
        """Match the next event of the log; return whether another one waits."""
        if self.matched < len(self.log):
            self._match(self.log[self.matched])
            self.matched += 1
        self._send_and_report()
        return self.matched < len(self.log)

    def _send_and_report(self) -> None:
        for end in self.links.values():
            if end.wire is not None and end.queue and end.queue[-1].number > end.sent:
                self._send_events(end)
        self._report_drained()

    def _match(self, event: Stored) -> None:
        number = event.publication.event
        for one in self.subscriptions.values():
            if one.asks_for(event, self.matched):
                one.got.append(event.publication)
        for peer, end in self.links.items():
            if peer != event.hop and any(number in self.pool.matched[name] for name in end.routes):
                end.queued += 1
                end.queue.append(Queued(end.queued, self.matched + 1, event))

    def _send_events(self, end: LinkEndpoint) -> None:
        assert end.wire is not None
        end.wire.send(Events(tuple(one for one in end.queue if one.number > end.sent)))
        end.sent = end.queue[-1].number

    def _report_drained(self) -> None:
        for one in [*self.waiting]:
            peer, ticket, position = one
            queue = self.links[peer].queue if peer in self.links else ()
            if self.matched >= position and not (queue and queue[0].position <= position):
                self.waiting.remove(one)
                self.handle(LinkDrained(peer, ticket))

    # --- crashes -----------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose what is in memory."""
        self.is_up = False
        self.instructions.clear()
        self.waiting.clear()
        self.offered.clear()
        self.wanted.clear()
        for id_, one in [*self.subscriptions.items()]:
            if not one.is_durable:
                del self.subscriptions[id_]
        for end in self.links.values():
            end.wire = None
        self.queries.crash()

    def restart(self) -> None:
        """Begin again with what is on disk."""
        self.is_up = True
        self.router = self._new_router()
        for peer, end in self.links.items():
            self.router.restore(peer, end.routes.values(), end.advertisements.values())
        held = {one.id: one.filter for one in self.subscriptions.values()}
        for id_, name in (held | self.moving).items():
            self.handle(LocalFilterAdded(id_, self.pool.filters[name]))
        self.queries.restart()
        self._wake(self)


def _change(table: dict[str, Filter], add: Mapping[str, Filter], remove: tuple[str, ...]) -> None:
    table.update(add)
    for name in remove:
        table.pop(name, None)
