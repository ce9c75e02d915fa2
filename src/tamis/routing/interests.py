"""What is asked for and what is advertised: the tables of a router, and how they meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from tamis.covering import CoveringOrder
from tamis.errors import TamisError
from tamis.filters import Filter
from tamis.filters.structure import digest
from tamis.routing.forwarding import LOCAL, ForwardingTable
from tamis.routing.gate import AdvertisementGate


class LocalNames:
    """The ids under which clients have filters; several may have the same one."""

    def __init__(self) -> None:
        self._digests: Final[dict[str, str]] = {}
        self._ids: Final[dict[str, set[str]]] = {}

    def __getitem__(self, id_: str) -> str:
        return self._digests[id_]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._digests

    def ids(self, name: str) -> list[str]:
        """Return the ids that stand for a digest."""
        return sorted(self._ids.get(name, ()))

    def put(self, id_: str, name: str) -> str | None:
        """Map an id to a digest; return the digest to which no id maps any more."""
        gone = None if self._digests.get(id_) == name else self.take(id_)
        self._digests[id_] = name
        self._ids.setdefault(name, set()).add(id_)
        return gone

    def take(self, id_: str) -> str | None:
        """Remove an id; return the digest for which none stands any more."""
        name = self._digests.pop(id_, None)
        if name is None:
            return None
        self._ids[name].remove(id_)
        if self._ids[name]:
            return None
        del self._ids[name]
        return name


class Interests:
    """Filters and advertisements, of local clients and of peers."""

    def __init__(self, make_index: Callable[[], CoveringOrder], *, is_required: bool) -> None:
        """Start empty; `is_required` is about advertisements."""
        self._gate: Final = AdvertisementGate(is_required=is_required)
        self.filters: Final = ForwardingTable(make_index(), self._gate.admits)
        self.advertisements: Final = ForwardingTable(make_index())
        self._local_filters: Final = LocalNames()
        self._local_advertisements: Final = LocalNames()
        self._wanted: Final[dict[str, bool]] = {}

    def add_link(self, peer: str) -> None:
        """Add a link."""
        self.filters.add_link(peer)
        self.advertisements.add_link(peer)

    def remove_link(self, peer: str) -> None:
        """Remove a link, and what its peer asked for and advertised."""
        self.withdraw_advertisements(peer, [*self.advertisements.received(peer)])
        self.remove_filters(peer, [*self.filters.received(peer)])
        self.filters.remove_link(peer)
        self.advertisements.remove_link(peer)
        self._gate.forget_source(peer)

    # --- filters -----------------------------------------------------------------------------

    def put_local_filter(self, id_: str, filter_: Filter) -> None:
        """Add the filter of a client, or replace it."""
        name = digest(filter_)
        self.add_filters(LOCAL, {name: filter_})
        self._remove_local_filter(self._local_filters.put(id_, name))

    def take_local_filter(self, id_: str) -> None:
        """Remove the filter of a client."""
        self._remove_local_filter(self._local_filters.take(id_))

    def _remove_local_filter(self, name: str | None) -> None:
        if name is not None:
            self.remove_filters(LOCAL, [name])

    def add_filters(self, source: str, filters: Mapping[str, Filter]) -> None:
        """Add what a source asks for, all or nothing."""
        added: list[str] = []
        try:
            for name, filter_ in filters.items():
                if name not in self.filters:
                    self._meet_advertisements(name, filter_)
                self.filters.add(source, name, filter_)
                added.append(name)
        except TamisError:
            self.remove_filters(source, added)
            raise

    def _meet_advertisements(self, name: str, filter_: Filter) -> None:
        for advertisement in self.advertisements.intersecting(filter_):
            for source in self.advertisements.sources(advertisement):
                if self._gate.watches(source):
                    self._gate.meet(source, advertisement, [name])

    def remove_filters(self, source: str, names: Iterable[str]) -> None:
        """Remove what a source no longer asks for."""
        for name in names:
            if self.filters.remove(source, name):
                self._gate.forget_filter(name)

    # --- advertisements ----------------------------------------------------------------------

    def put_local_advertisement(self, id_: str, filter_: Filter) -> None:
        """Add the advertisement of a client, or replace it."""
        name = digest(filter_)
        self.add_advertisements(LOCAL, {name: filter_})
        self._withdraw_local(self._local_advertisements.put(id_, name))
        self._wanted.setdefault(id_, False)
        self._gate.touch(name)

    def take_local_advertisement(self, id_: str) -> None:
        """Remove the advertisement of a client."""
        self._withdraw_local(self._local_advertisements.take(id_))
        self._wanted.pop(id_, None)

    def _withdraw_local(self, name: str | None) -> None:
        if name is not None:
            self.withdraw_advertisements(LOCAL, [name])

    def add_advertisements(self, source: str, advertisements: Mapping[str, Filter]) -> None:
        """Add what a source will publish, all or nothing."""
        added: list[str] = []
        try:
            for name, filter_ in advertisements.items():
                if name not in self.advertisements.received(source):
                    self._add_advertisement(source, name, filter_)
                    added.append(name)
        except TamisError:
            self.withdraw_advertisements(source, added)
            raise

    def _add_advertisement(self, source: str, name: str, filter_: Filter) -> None:
        self.advertisements.add(source, name, filter_)
        if self._gate.watches(source):
            admitted = self._gate.meet(source, name, self.filters.intersecting(filter_))
            for one in admitted if source != LOCAL else ():
                self.filters.enter(source, one)

    def withdraw_advertisements(self, source: str, names: Iterable[str]) -> None:
        """Remove what a source will no longer publish."""
        for name in names:
            self.advertisements.remove(source, name)
            for one in self._gate.withdraw(source, name):
                if self._gate.is_required and source != LOCAL:
                    self.filters.leave(source, one)

    # --- what follows ------------------------------------------------------------------------

    def is_wanted(self, id_: str) -> bool:
        """Return whether anybody asks for what a client has advertised."""
        return id_ in self._local_advertisements and self._gate.is_wanted(
            self._local_advertisements[id_]
        )

    def take_wanted_changes(self) -> Iterator[tuple[str, bool]]:
        """Yield the ids of local advertisements that are wanted now, or no longer."""
        for name in sorted(self._gate.take_changed()):
            for id_ in self._local_advertisements.ids(name):
                is_wanted = self._gate.is_wanted(name)
                if self._wanted[id_] != is_wanted:
                    self._wanted[id_] = is_wanted
                    yield id_, is_wanted
