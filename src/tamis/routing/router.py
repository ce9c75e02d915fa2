"""The router of one broker: inputs in, instructions out; no I/O, no clock, no threads.

It keeps what the broker's clients ask for and will publish, and what each peer has forwarded. From
that follows what each peer is to have of this broker. Whatever happens, the router changes what it
knows, and then tells each connected peer the difference to what it was told before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Final, Literal

from tamis.covering import CoveringOrder
from tamis.errors import FilterError, LimitError, ProtocolError
from tamis.filters import Filter
from tamis.filters.structure import Structure, digest, from_structure, to_structure
from tamis.routing.forwarding import ForwardingTable
from tamis.routing.inputs import (
    LetterGiven,
    LinkClosed,
    LinkDrained,
    LinkOpened,
    LinkRemoved,
    LocalAdvertisementAdded,
    LocalAdvertisementRemoved,
    LocalFilterAdded,
    LocalFilterRemoved,
    MessageReceived,
    RouterInput,
    RoutesFound,
)
from tamis.routing.instructions import (
    AwaitDrained,
    ChangeAdvertisements,
    ChangeRoutes,
    ForgetLink,
    Instruction,
    RefuseLink,
    SendMessage,
    TakeLetter,
    WantedChanged,
)
from tamis.routing.interests import Interests
from tamis.routing.links import (
    Link,
    LinkSummary,
    RouterLimits,
    check_brokers,
    check_greeting,
    in_messages,
    in_parts,
)
from tamis.routing.messages import (
    AdvertisementChanges,
    BrokerChanges,
    FilterChanges,
    Greeting,
    Holdings,
    Letter,
    LinkEnd,
    LinkMessage,
)
from tamis.routing.overlay import OverlayMap

MAX_WAITING_LETTERS: Final = 100
"""For one link."""

AdvertisementPolicy = Literal["ignore", "require"]
"""Whether filters go everywhere, or only to where somebody advertises what they ask for."""


class Router:
    """Decides which filters and advertisements go to which peer.

    >>> from tamis.covering import CoveringIndex
    >>> from tamis.filters import attr
    >>> router = Router("us", make_index=CoveringIndex)
    >>> _ = router.handle(LocalFilterAdded("laptop", attr("price") < 5))
    >>> _ = router.handle(LinkOpened("them"))
    >>> _ = router.handle(MessageReceived("them", Greeting("", 1)))
    >>> router.handle(MessageReceived("them", Holdings()))[0].message.add
    ([1, ['<', 'price', 5]],)
    """

    def __init__(
        self,
        broker: str,
        *,
        make_index: Callable[[], CoveringOrder],
        name: str = "",
        advertisements: AdvertisementPolicy = "ignore",
        limits: RouterLimits | None = None,
    ) -> None:
        """Start without links; `broker` is this broker's id, `name` what people call it.

        `make_index` makes covering indexes for the events of the broker: with its schema, or else
        for attributes with several values (`many=True`).
        """
        self.broker: Final = broker
        self._name: Final = name or broker
        self._limits: Final = limits or RouterLimits()
        self._interests: Final = Interests(make_index, is_required=advertisements == "require")
        self._filters: Final = self._interests.filters
        self._advertisements: Final = self._interests.advertisements
        self._overlay: Final = OverlayMap(broker, name)
        self._links: Final[dict[str, Link]] = {}
        self._ticket = 0
        self._instructions: list[Instruction] = []

    def handle(self, happened: RouterInput) -> list[Instruction]:
        """Take in what happened; return what is to be done about it, one after the other.

        Raises:
            FilterError: A local filter contradicts the schema; nothing has changed.
        """
        self._instructions = []
        self._take_in(happened)
        self._tell_peers()
        for id_, is_wanted in self._interests.take_wanted_changes():
            self._do(WantedChanged(id_, is_wanted))
        return self._instructions

    def restore(
        self, peer: str, routes: Iterable[Filter], advertisements: Iterable[Filter]
    ) -> None:
        """Add a link as it was stored, before anything else happens; it is closed at first."""
        self._add_link(Link(peer))
        self._interests.add_filters(peer, {digest(one): one for one in routes})
        self._interests.add_advertisements(peer, {digest(one): one for one in advertisements})
        self._tell_peers()

    # --- views -------------------------------------------------------------------------------

    def links(self) -> list[LinkSummary]:
        """Return a view of each link."""
        return [self._view(link) for link in self._links.values()]

    def routes(self, peer: str) -> dict[str, Filter]:
        """Return the filters that a peer has forwarded, by digest."""
        return {one: self._filters.filter(one) for one in self._filters.received(peer)}

    def forwarded(self, peer: str) -> dict[str, Filter]:
        """Return the filters that are forwarded to a peer, by digest."""
        return {one: self._filters.filter(one) for one in self._filters.forwarded(peer)}

    def advertisements(self, peer: str) -> dict[str, Filter]:
        """Return what a peer has advertised, by digest."""
        table = self._advertisements
        return {one: table.filter(one) for one in table.received(peer)}

    def advertised(self, peer: str) -> dict[str, Filter]:
        """Return what is advertised to a peer, by digest."""
        table = self._advertisements
        return {one: table.filter(one) for one in table.forwarded(peer)}

    def path_to(self, broker: str) -> list[str] | None:
        """Return the names of the brokers from this one to another; None if it is not known."""
        return self._overlay.path_to(broker)

    def link_of(self) -> dict[str, str]:
        """Return behind which link each broker is, connected or not; a peer is behind its own."""
        return self._overlay.link_of() | {peer: peer for peer in self._links}

    def is_wanted(self, advertisement: str) -> bool:
        """Return whether anybody asks for what a local client advertised under an id."""
        return self._interests.is_wanted(advertisement)

    def _view(self, link: Link) -> LinkSummary:
        considered = self._filters.considered(link.peer)
        forwarded = len(self._filters.forwarded(link.peer))
        return LinkSummary(
            peer=link.peer,
            name=link.name,
            is_open=link.is_open,
            is_synchronised=link.is_synchronised,
            brokers=tuple(self._overlay.behind(link.peer)),
            routes=len(self._filters.received(link.peer)),
            forwarded=forwarded,
            covered=considered - forwarded,
            stopped=self._filters.available(link.peer) - considered,
            advertisements=len(self._advertisements.received(link.peer)),
            advertised=len(self._advertisements.forwarded(link.peer)),
        )

    # --- inputs ------------------------------------------------------------------------------

    def _take_in(self, happened: RouterInput) -> None:
        match happened:
            case LocalFilterAdded(id=id_, filter=filter_):
                self._interests.put_local_filter(id_, filter_)
            case LocalFilterRemoved(id=id_):
                self._interests.take_local_filter(id_)
            case LocalAdvertisementAdded(id=id_, filter=filter_):
                self._interests.put_local_advertisement(id_, filter_)
            case LocalAdvertisementRemoved(id=id_):
                self._interests.take_local_advertisement(id_)
            case LinkOpened(peer=peer, name=name):
                self._open(peer, name)
            case LinkClosed(peer=peer):
                self._close(peer)
            case LinkRemoved(peer=peer):
                self._end(peer, f"{self._name} has removed its link")
            case LinkDrained(peer=peer, ticket=ticket):
                self._withdraw(peer, ticket)
            case RoutesFound(peer=peer, routes=routes):
                self._correct_routes(peer, routes)
            case LetterGiven(letter=letter):
                self._pass_on(letter, self.broker)
            case MessageReceived(peer=peer, message=message):
                self._receive(peer, message)
            case _:
                raise TypeError(f"{happened!r:.60} is not an input of a router")

    def _open(self, peer: str, name: str) -> None:
        if peer not in self._links and not self._may_link(peer, name):
            return
        link = self._links.get(peer)
        if link is None:
            link = Link(peer, name=name, generation=self._overlay.generation + 1)
            self._add_link(link)
        link.open()
        brokers = self._overlay.start_announcing(peer)
        self._send(peer, Greeting(self._name, link.generation, brokers))
        filters = [*in_parts(self._filters.received(peer))]
        advertisements = [*in_parts(self._advertisements.received(peer))]
        parts = [*zip_longest(filters, advertisements, fillvalue=())]
        for number, part in enumerate(parts, start=1):
            self._send(peer, Holdings(*part, is_last=number == len(parts)))

    def _may_link(self, peer: str, name: str) -> bool:
        path = [self._name] if peer == self.broker else self._overlay.path_to(peer)
        if path is None:
            return True
        way = " – ".join(path)
        reason = (
            f"{way} cannot have a link to itself"
            if len(path) == 1
            else f"a link from {self._name} to {name or path[-1]} would close a cycle: {way} are "
            "linked already; remove one of these links first"
        )
        # So that the peer, which may not see the cycle, does not keep the link.
        self._send(peer, LinkEnd(reason))
        self._do(RefuseLink(peer, reason))
        return False

    def _add_link(self, link: Link) -> None:
        self._links[link.peer] = link
        self._interests.add_link(link.peer)

    def _close(self, peer: str) -> None:
        if link := self._links.get(peer):
            link.close()
            self._overlay.stop_announcing(peer)

    def _end(self, peer: str, reason: str) -> None:
        """End a link for good."""
        link = self._links.pop(peer, None)
        if link is None:
            return
        if link.is_open:
            self._send(peer, LinkEnd(reason))
        self._forget(peer, reason)

    def _forget(self, peer: str, reason: str) -> None:
        self._links.pop(peer, None)
        self._overlay.removed(peer)
        self._interests.remove_link(peer)
        self._do(ForgetLink(peer, reason))

    # --- messages ----------------------------------------------------------------------------

    def _receive(self, peer: str, message: LinkMessage) -> None:
        link = self._links.get(peer)
        if link is None or not link.is_open:
            return
        try:
            self._read(link, message)
        except (FilterError, LimitError, ProtocolError) as error:
            shown = link.name or peer
            self._do(RefuseLink(peer, f"{shown} sent what this broker cannot use: {error}"))
            self._close(peer)

    def _read(self, link: Link, message: LinkMessage) -> None:
        if not link.is_greeted and not isinstance(message, Greeting | LinkEnd):
            # Left over from the last connection; what it says is part of the difference.
            return
        match message:
            case Greeting() if link.is_greeted:
                raise ProtocolError("a connection has one greeting")
            case Greeting():
                self._greeted(link, message)
            case Holdings():
                self._learn_holdings(link, message)
            case FilterChanges(add=add, remove=remove):
                self._change_routes(link.peer, self._read_filters(add), remove)
            case AdvertisementChanges(add=add, remove=remove):
                self._change_advertisements(link.peer, self._read_filters(add), remove)
            case BrokerChanges(add=add, remove=remove):
                check_brokers(add, self._overlay.behind(link.peer), self._limits.brokers)
                self._overlay.change(link.peer, add, remove)
                self._break_cycles()
            case Letter():
                self._pass_on(message, link.peer)
            case LinkEnd(reason=reason):
                self._forget(link.peer, reason)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a message of a router")

    def _pass_on(self, letter: Letter, sender: str) -> None:
        """Pass a letter on towards its target, or drop it: its source asks again."""
        if letter.target == self.broker:
            self._do(TakeLetter(sender, letter))
            return
        peer = self._overlay.link_to(letter.target)
        link = None if peer is None or peer == sender else self._links.get(peer)
        if link is None or not link.is_synchronised:
            return
        if not letter.drains:
            self._send(link.peer, letter)
        elif letter not in link.letters.values() and len(link.letters) < MAX_WAITING_LETTERS:
            self._ticket += 1
            link.letters[self._ticket] = letter
            self._do(AwaitDrained(link.peer, self._ticket))

    def _greeted(self, link: Link, greeting: Greeting) -> None:
        check_greeting(greeting, self._limits.brokers)
        link.is_greeted = True
        link.name = greeting.name
        link.generation = max(link.generation, greeting.generation)
        self._overlay.greeted(link.peer, greeting.name, link.generation, greeting.brokers)
        self._break_cycles()

    def _break_cycles(self) -> None:
        for peer, cycle in self._overlay.cycles():
            # Of a cycle, the brokers at both ends of its youngest link find it.
            if cycle.youngest == {self.broker, peer}:
                path = self._overlay.show(cycle.path)
                reason = f"the link closes a cycle, {path}, and is the youngest of its links"
                self._end(peer, reason)

    def _learn_holdings(self, link: Link, holdings: Holdings) -> None:
        if link.is_synchronised:
            raise ProtocolError("what a peer holds is said once in a connection")
        link.held_filters.update(holdings.filters)
        link.held_advertisements.update(holdings.advertisements)
        self._check_count("filters", len(link.held_filters), self._limits.filters)
        held = len(link.held_advertisements)
        self._check_count("advertisements", held, self._limits.advertisements)
        if holdings.is_last:
            self._synchronise(link)

    def _synchronise(self, link: Link) -> None:
        """Send what the peer lacks of this broker, and withdraw what it has too much."""
        # What changed up to now is part of the difference.
        self._tell_peers()
        link.is_synchronised = True
        wanted = dict.fromkeys(self._filters.forwarded(link.peer))
        self._forward(
            link.peer,
            [one for one in wanted if one not in link.held_filters],
            sorted(link.held_filters - wanted.keys()),
        )
        wanted = dict.fromkeys(self._advertisements.forwarded(link.peer))
        self._advertise(
            link,
            [one for one in wanted if one not in link.held_advertisements],
            sorted(link.held_advertisements - wanted.keys()),
        )
        link.held_filters, link.held_advertisements = set(), set()

    def _read_filters(self, structures: Iterable[Structure]) -> dict[str, Filter]:
        filters = [from_structure(one, self._limits.filter) for one in structures]
        return {digest(one): one for one in filters}

    def _change_routes(self, peer: str, add: Mapping[str, Filter], remove: Iterable[str]) -> None:
        known = self._filters.received(peer)
        new = {name: one for name, one in add.items() if name not in known}
        self._check_count("filters", len(known) + len(new), self._limits.filters)
        gone = tuple(name for name in dict.fromkeys(remove) if name in known)
        self._interests.add_filters(peer, new)
        self._interests.remove_filters(peer, gone)
        if new or gone:
            self._do(ChangeRoutes(peer, new, gone))

    def _correct_routes(self, peer: str, routes: Mapping[str, Filter]) -> None:
        """Take for a peer's routes what is in force; the peer is told on its next connection."""
        if peer not in self._links:
            return
        known = self._filters.received(peer)
        gone = [name for name in known if name not in routes]
        missing = {name: one for name, one in routes.items() if name not in known}
        self._interests.add_filters(peer, missing)
        self._interests.remove_filters(peer, gone)
        self._close(peer)

    def _change_advertisements(
        self, peer: str, add: Mapping[str, Filter], remove: Iterable[str]
    ) -> None:
        known = self._advertisements.received(peer)
        new = {name: one for name, one in add.items() if name not in known}
        self._check_count("advertisements", len(known) + len(new), self._limits.advertisements)
        gone = tuple(name for name in dict.fromkeys(remove) if name in known)
        self._interests.add_advertisements(peer, new)
        self._interests.withdraw_advertisements(peer, gone)
        if new or gone:
            self._do(ChangeAdvertisements(peer, new, gone))

    @staticmethod
    def _check_count(what: str, actual: int, limit: int) -> None:
        if actual > limit:
            raise LimitError(f"{what} of one peer", actual=actual, limit=limit)

    # --- what peers are told -----------------------------------------------------------------

    def _tell_peers(self) -> None:
        for peer, announced in self._overlay.take_changes():
            self._send(peer, BrokerChanges(*announced))
        for peer, change in self._filters.take_changes():
            if self._links[peer].is_synchronised:
                self._forward(peer, change.add, change.remove)
        for peer, change in self._advertisements.take_changes():
            if self._links[peer].is_synchronised:
                self._advertise(self._links[peer], change.add, change.remove)

    def _forward(self, peer: str, add: Iterable[str], remove: Iterable[str]) -> None:
        # What takes the place of a filter comes before its removal, or with it.
        parts = [*in_messages(_structures(self._filters, add))]
        removals = [*in_parts(remove)]
        for part in parts[:-1]:
            self._send(peer, FilterChanges(part))
        self._send_unless_empty(peer, FilterChanges(parts[-1], removals[0]))
        for names in removals[1:]:
            self._send(peer, FilterChanges((), names))

    def _advertise(self, link: Link, add: Iterable[str], remove: Iterable[str]) -> None:
        # One whose withdrawal still waits need not be sent again.
        new = [name for name in add if link.withdrawals.pop(name, None) is None]
        for part in in_messages(_structures(self._advertisements, new)):
            self._send_unless_empty(link.peer, AdvertisementChanges(part))
        gone = [*remove]
        if gone:
            self._ticket += 1
            link.withdrawals.update(dict.fromkeys(gone, self._ticket))
            self._do(AwaitDrained(link.peer, self._ticket))

    def _withdraw(self, peer: str, ticket: int) -> None:
        """Withdraw advertisements, now that no event which they announced is on the way."""
        link = self._links.get(peer)
        if link is None or not link.is_synchronised:
            return
        for number in [one for one in link.letters if one <= ticket]:
            self._send(peer, link.letters.pop(number))
        due = [name for name, after in link.withdrawals.items() if after <= ticket]
        for name in due:
            del link.withdrawals[name]
        for part in in_parts(due):
            self._send_unless_empty(peer, AdvertisementChanges((), part))

    def _send_unless_empty(self, peer: str, message: FilterChanges | AdvertisementChanges) -> None:
        if message.add or message.remove:
            self._send(peer, message)

    def _send(self, peer: str, message: LinkMessage) -> None:
        self._do(SendMessage(peer, message))

    def _do(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)


def _structures(table: ForwardingTable, names: Iterable[str]) -> Iterable[Structure]:
    return (to_structure(table.filter(name)) for name in names)
