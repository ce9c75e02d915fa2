"""Filters that a broker knows, from its clients and its peers, and which of them go to which peer.

A filter is *available* to a link if anybody else than the peer behind it asks for it. Of those that
are available and admitted, the roots of their covering forest are forwarded: they cover the others.
The same holds for advertisements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from tamis.covering import CoveringOrder, Forest, RootChange
from tamis.filters import Filter

LOCAL: Final = ""
"""The source of what the clients of this broker ask for; peers have ids that are not empty."""


class ForwardedChange(NamedTuple):
    """What is to be forwarded to a link in addition, and what no longer."""

    add: tuple[str, ...]
    remove: tuple[str, ...]


class ForwardingTable:
    """Filters by digest, the sources that ask for them, and those that go to each link."""

    def __init__(
        self, index: CoveringOrder, admits: Callable[[str, str], bool] = lambda _peer, _digest: True
    ) -> None:
        """Start empty; `admits` says whether a filter may go to a link."""
        self._index: Final = index
        self._admits: Final = admits
        self._filters: Final[dict[str, Filter]] = {}
        self._sources: Final[dict[str, set[str]]] = {}
        self._received: Final[dict[str, dict[str, None]]] = {LOCAL: {}}
        self._forests: Final[dict[str, Forest]] = {}
        self._changes: Final[dict[str, list[RootChange]]] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, digest: object) -> bool:
        return digest in self._filters

    def filter(self, digest: str) -> Filter:
        """Return a filter by its digest."""
        return self._filters[digest]

    def sources(self, digest: str) -> frozenset[str]:
        """Return who asks for a filter."""
        return frozenset(self._sources.get(digest, ()))

    def received(self, source: str) -> Mapping[str, None]:
        """Return the digests of what a source asks for, in the order of their arrival."""
        return self._received[source]

    def intersecting(self, filter_: Filter) -> list[str]:
        """Return the digests of the filters that may have an event in common with another."""
        return [str(digest) for digest in self._index.intersecting(filter_)]

    # --- links -------------------------------------------------------------------------------

    def add_link(self, peer: str) -> None:
        """Add a link; all that is known is available to it."""
        self._received[peer] = {}
        self._forests[peer] = self._index.subset()
        for digest in self._filters:
            self._enter(peer, digest)

    def remove_link(self, peer: str) -> None:
        """Remove a link, and what came from there."""
        for digest in [*self._received[peer]]:
            self.remove(peer, digest)
        forest = self._forests.pop(peer)
        for digest in self._filters:
            if digest in forest:
                forest.remove(digest)
        del self._received[peer]
        self._changes.pop(peer, None)

    def forwarded(self, peer: str) -> list[str]:
        """Return the digests of what goes to a link."""
        return [str(digest) for digest in self._forests[peer].roots()]

    def considered(self, peer: str) -> int:
        """Return how many filters are available to a link and admitted."""
        return len(self._forests[peer])

    def available(self, peer: str) -> int:
        """Return how many filters somebody else than the peer asks for."""
        return sum(1 for sources in self._sources.values() if sources != {peer})

    # --- filters -----------------------------------------------------------------------------

    def add(self, source: str, digest: str, filter_: Filter) -> bool:
        """Note that a source asks for a filter; return whether nobody did before."""
        sources = self._sources.get(digest)
        if sources is None:
            self._index.add(digest, filter_)
            self._filters[digest] = filter_
            sources = self._sources[digest] = set()
        if source in sources:
            return False
        newly_available = self._others(sources, source)
        sources.add(source)
        self._received[source][digest] = None
        for peer in newly_available:
            self._enter(peer, digest)
        return len(sources) == 1

    def remove(self, source: str, digest: str) -> bool:
        """Note that a source no longer asks for a filter; return whether nobody does now."""
        sources = self._sources.get(digest, set())
        if source not in sources:
            return False
        sources.remove(source)
        del self._received[source][digest]
        for peer in self._others(sources, source):
            self.leave(peer, digest)
        if sources:
            return False
        self._index.remove(digest)
        del self._filters[digest], self._sources[digest]
        return True

    def _others(self, sources: set[str], source: str) -> list[str]:
        """Return the links to which a source more or less makes the difference."""
        if not sources:
            return [peer for peer in self._forests if peer != source]
        if len(sources) == 1:
            return [peer for peer in sources if peer in self._forests]
        return []

    # --- what a link gets --------------------------------------------------------------------

    def enter(self, peer: str, digest: str) -> None:
        """Forward a filter that is admitted now to a link, if it is available there."""
        if self._sources[digest] != {peer}:
            self._enter(peer, digest)

    def _enter(self, peer: str, digest: str) -> None:
        forest = self._forests[peer]
        if digest not in forest and self._admits(peer, digest):
            self._note(peer, forest.add(digest))

    def leave(self, peer: str, digest: str) -> None:
        """Stop forwarding a filter to a link."""
        forest = self._forests[peer]
        if digest in forest:
            self._note(peer, forest.remove(digest))

    def _note(self, peer: str, change: RootChange) -> None:
        if change:
            self._changes.setdefault(peer, []).append(change)

    def take_changes(self) -> Iterator[tuple[str, ForwardedChange]]:
        """Yield what has changed for each link since the last call, as one change each."""
        for peer, changes in [*self._changes.items()]:
            del self._changes[peer]
            joined = RootChange.joined(changes)
            if joined:
                yield peer, ForwardedChange(*(tuple(map(str, ids)) for ids in joined))
