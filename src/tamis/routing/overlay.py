"""The overlay as one broker sees it: which brokers are behind which link, and by what path.

Brokers tell each other who is behind them, each with its neighbour on the way, so that every path
is known. The overlay has no cycles: a link to a broker that can be reached already is refused. If
several links are made at the same time, before their brokers know of each other, the cycle shows
when its brokers hear of themselves. Then its youngest link goes, and of equally young ones
that whose pair of ids is the greatest. All brokers of the cycle know the same links, so they agree.
A link is younger, of a greater *generation*, than every link that its two brokers had heard of when
it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from tamis.routing.messages import BrokerEntry


class Cycle(NamedTuple):
    """Links that form a cycle, and which of them is to go."""

    path: tuple[str, ...]
    """From this broker back to itself."""
    youngest: frozenset[str]
    """The two brokers of the youngest link."""


class AnnouncedChange(NamedTuple):
    """Brokers to announce to a peer, and ids of those that are no longer there."""

    add: tuple[BrokerEntry, ...]
    remove: tuple[str, ...]


class OverlayMap:
    """The brokers behind each link of one broker."""

    def __init__(self, broker: str, name: str) -> None:
        self._broker: Final = broker
        self._name: Final = name
        self._links: Final[dict[str, BrokerEntry]] = {}
        # As peers have told it, without themselves.
        self._reported: Final[dict[str, dict[str, BrokerEntry]]] = {}
        # By broker and link: the brokers that can be reached without coming back here.
        self._reached: Final[dict[str, dict[str, BrokerEntry]]] = {}
        self._announced: Final[dict[str, dict[str, BrokerEntry]]] = {}
        self._changed: set[str] = set()

    @property
    def generation(self) -> int:
        """Return the generation of the youngest link that is known."""
        entries = (one for places in self._reached.values() for one in places.values())
        return max((entry.generation for entry in entries), default=0)

    def behind(self, peer: str) -> list[BrokerEntry]:
        """Return the brokers that a link leads to, the peer first."""
        if peer not in self._links:
            return []
        reported = self._reported[peer]
        return [
            self._links[peer],
            *(one for one in reported.values() if self._is_reached(peer, one)),
        ]

    def _is_reached(self, peer: str, entry: BrokerEntry) -> bool:
        return peer in self._reached.get(entry.id, ())

    def link_of(self) -> dict[str, str]:
        """Return behind which link each broker is; if several peers claim it, the first counts."""
        return {broker: next(iter(places)) for broker, places in self._reached.items()}

    def path_to(self, broker: str) -> list[str] | None:
        """Return the names of the brokers on the way to one; None if it cannot be reached."""
        places = self._reached.get(broker)
        if not places:
            return None
        return [self._name or self._broker, *map(self._shown, self._way(broker, min(places)))]

    def link_to(self, broker: str) -> str | None:
        """Return the link that leads to a broker: the first that told of it; None if none did."""
        if broker in self._links:
            return broker
        return next(iter(self._reached.get(broker, ())), None)

    def _way(self, broker: str, peer: str) -> list[str]:
        """Return the ids from a link's peer to a broker behind it."""
        reported, way = self._reported[peer], [broker]
        while way[-1] != peer and way[-1] in reported and len(way) <= len(reported):
            way.append(reported[way[-1]].parent)
        return way[::-1]

    def _shown(self, broker: str) -> str:
        if broker == self._broker:
            return self._name or broker
        entry = next(iter(self._reached.get(broker, {}).values()), None)
        return (entry.name if entry else "") or broker

    # --- what peers tell ---------------------------------------------------------------------

    def greeted(
        self, peer: str, name: str, generation: int, reported: Iterable[BrokerEntry]
    ) -> None:
        """Note a link and all the brokers behind it."""
        entry = BrokerEntry(peer, self._broker, generation, name)
        self._links[peer] = entry
        self._reach(peer, entry)
        former = self._reported.setdefault(peer, {})
        self.change(peer, reported, [*former])

    def change(self, peer: str, add: Iterable[BrokerEntry], remove: Iterable[str]) -> None:
        """Note brokers that have come, or changed, or gone behind a link."""
        reported, gone = self._reported[peer], {*remove}
        was_cyclic = self._broker in reported
        for broker in gone:
            reported.pop(broker, None)
        new = {entry.id: entry for entry in add if entry.id != peer}
        reported.update(new)
        if was_cyclic or self._broker in reported:
            new = self._outside(peer)
            gone = {broker for broker, places in self._reached.items() if peer in places}
        for broker in gone - new.keys() - {peer}:
            self._lose(peer, broker)
        for entry in new.values():
            self._reach(peer, entry)

    def _outside(self, peer: str) -> dict[str, BrokerEntry]:
        """Return the brokers that a link leads to, but not only through this broker."""
        reported = self._reported[peer]
        children: dict[str, list[BrokerEntry]] = {}
        for entry in reported.values():
            children.setdefault(entry.parent, []).append(entry)
        found, ways = {}, [peer]
        while ways:
            for entry in children.pop(ways.pop(), ()):
                if entry.id != self._broker:
                    found[entry.id] = entry
                    ways.append(entry.id)
        return found

    def removed(self, peer: str) -> None:
        """Forget a link and all that is behind it."""
        for broker in [*self._reported.pop(peer, ())]:
            self._lose(peer, broker)
        self._links.pop(peer, None)
        self._lose(peer, peer)
        self.stop_announcing(peer)

    def _reach(self, peer: str, entry: BrokerEntry) -> None:
        self._reached.setdefault(entry.id, {})[peer] = entry
        self._changed.add(entry.id)

    def _lose(self, peer: str, broker: str) -> None:
        places = self._reached.get(broker, {})
        if places.pop(peer, None) is not None:
            self._changed.add(broker)
            if not places:
                del self._reached[broker]

    # --- what peers are told -----------------------------------------------------------------

    def start_announcing(self, peer: str) -> tuple[BrokerEntry, ...]:
        """Return all brokers to announce in a new connection; later changes are to follow."""
        entries = ((broker, self._entry_for(peer, broker)) for broker in self._reached)
        announced = {broker: entry for broker, entry in entries if entry is not None}
        self._announced[peer] = announced
        return tuple(announced.values())

    def stop_announcing(self, peer: str) -> None:
        """Note that a connection has ended."""
        self._announced.pop(peer, None)

    def _entry_for(self, peer: str, broker: str) -> BrokerEntry | None:
        """Return a broker as it is announced to a link: as it is behind another."""
        places = self._reached.get(broker)
        if not places:
            return None
        others = places.keys() - {peer} if peer in places else places.keys()
        return places[min(others)] if others else None

    def take_changes(self) -> Iterator[tuple[str, AnnouncedChange]]:
        """Yield what to announce to each connected peer since the last call."""
        changed, self._changed = sorted(self._changed), set()
        for peer, announced in self._announced.items():
            add, remove = [], []
            for broker in changed:
                entry, former = self._entry_for(peer, broker), announced.get(broker)
                if entry is None and former is not None:
                    del announced[broker]
                    remove.append(broker)
                elif entry is not None and entry != former:
                    announced[broker] = entry
                    add.append(entry)
            if add or remove:
                yield peer, AnnouncedChange(tuple(add), tuple(remove))

    # --- cycles ------------------------------------------------------------------------------

    def cycles(self) -> Iterator[tuple[str, Cycle]]:
        """Yield the cycles that links of this broker are part of, each with the link's peer."""
        for peer in [*self._links]:
            if cycle := self._cycle_through(peer):
                yield peer, cycle

    def _cycle_through(self, peer: str) -> Cycle | None:
        """Return the cycle that a link is part of, if the peers at both of its ends tell of it."""
        reported = self._reported[peer]
        if self._broker not in reported:
            return None
        way = self._way(self._broker, peer)
        # A cycle comes back over another link of ours, and its peer is told of it as well. Without
        # that, a broker far away could claim one, and so end links of others.
        if way[0] != peer or len(way) < 3 or self._broker not in self._reported.get(way[-2], ()):
            return None
        links = [(self._links[peer].generation, sorted((self._broker, peer)))]
        links += [(reported[near].generation, sorted((far, near))) for far, near in pairwise(way)]
        _, youngest = max(links)
        return Cycle((self._broker, *way), frozenset(youngest))

    def show(self, path: Iterable[str]) -> str:
        """Return a path for a sentence."""
        return " – ".join(map(self._shown, path))
