"""A forest of filters: the roots, and for each other filter one that supersedes it.

Which filter is the parent is left to chance; it is a certificate that its child is no root. An
addition looks for one filter that supersedes the new one and, if there is none, for the roots that
the new one supersedes. A removal looks for new parents of the children. So roots are right after
each step, and nothing is asked about pairs that decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from tamis.covering.filter_sets import FilterNumber, FilterSet
from tamis.covering.order import RootChange, known_already, unknown_id
from tamis.filters import Id


class Superseding(Protocol):
    """What a forest asks its index."""

    def number_of(self, id_: Id) -> FilterNumber | None:
        """Return the number of the filter with an id."""

    def sequence_of(self, id_: Id) -> int:
        """Return the place of an id in the order of adding."""

    def is_regular(self, number: FilterNumber) -> bool:
        """Return whether all answers about a filter are exact, as far as the other's are."""

    def wider(self, number: FilterNumber, among: FilterSet) -> Iterator[FilterNumber]:
        """Yield those of some filters that cover one."""

    def narrower(self, number: FilterNumber, among: FilterSet) -> Iterator[FilterNumber]:
        """Yield those of some filters that one covers."""

    def covers(self, wide: FilterNumber, narrow: FilterNumber) -> bool:
        """Return whether a filter covers another."""


class CoveringForest:
    """Some filters of a covering index, with their roots."""

    def __init__(self, index: Superseding, held: dict[Id, int] | None = None) -> None:
        """Create an empty forest; `held` counts the forests that have each id."""
        self._index: Final = index
        self._held: Final = {} if held is None else held
        self._ids: Final[dict[FilterNumber, dict[Id, int]]] = {}
        """The ids of each filter, with their places in the order of adding."""
        self._first: Final[dict[FilterNumber, int]] = {}
        self._parent: Final[dict[FilterNumber, FilterNumber]] = {}
        self._children: Final[dict[FilterNumber, set[FilterNumber]]] = {}
        self._roots: Final[dict[FilterNumber, Id]] = {}
        self._members: Final = FilterSet()
        self._root_set: Final = FilterSet()
        self._irregular_roots: Final = FilterSet()
        self._changes: Final[list[RootChange]] = []

    def __len__(self) -> int:
        return sum(map(len, self._ids.values()))

    def __contains__(self, id_: object) -> bool:
        if not isinstance(id_, str | int):
            return False
        number = self._index.number_of(id_)
        return number is not None and id_ in self._ids.get(number, ())

    def __repr__(self) -> str:
        return f"<CoveringForest: {len(self):,} filters, {len(self._roots):,} roots>"

    @property
    def root_count(self) -> int:
        """Return how many roots there are."""
        return len(self._roots)

    def roots(self) -> list[Id]:
        """Return the roots, in the order in which they were added to the index."""
        return [self._roots[number] for number in sorted(self._roots, key=self._first.__getitem__)]

    def parent(self, id_: Id) -> Id | None:
        """Return a filter of the forest that supersedes this one; None for a root."""
        number = self._require(id_)
        if self._roots.get(number) == id_:
            return None
        first = min(self._ids[number], key=self._ids[number].__getitem__)
        if first != id_:
            return first
        parents = self._ids[self._parent[number]]
        return min(parents, key=parents.__getitem__)

    def children(self, id_: Id) -> list[Id]:
        """Return the filters of which this one is the parent."""
        number = self._require(id_)
        own = self._ids[number]
        first = min(own, key=own.__getitem__)
        if first != id_:
            return []
        below = [
            min(self._ids[child], key=self._ids[child].__getitem__)
            for child in self._children.get(number, ())
        ]
        return sorted([*(one for one in own if one != id_), *below], key=self._index.sequence_of)

    # --- changing ----------------------------------------------------------------------------

    def add(self, id_: Id) -> RootChange:
        """Add a filter of the index; return what changed among the roots."""
        number = self._index.number_of(id_)
        if number is None:
            raise unknown_id(id_)
        own = self._ids.setdefault(number, {})
        if id_ in own:
            raise known_already(id_)
        own[id_] = sequence = self._index.sequence_of(id_)
        self._held[id_] = self._held.get(id_, 0) + 1
        if len(own) == 1:
            self._first[number] = sequence
            self._members.add(number)
            self._settle(number)
        elif sequence < self._first[number]:
            self._first[number] = sequence
            self._settle_again(number)
        return self._changed()

    def remove(self, id_: Id) -> RootChange:
        """Remove a filter; those that it alone superseded become roots."""
        number = self._require(id_)
        own = self._ids[number]
        sequence = own.pop(id_)
        self._held[id_] -= 1
        if not self._held[id_]:
            del self._held[id_]
        if not own:
            self._take_out(number)
        elif sequence == self._first[number]:
            self._first[number] = min(own.values())
            self._settle_again(number)
        return self._changed()

    def _require(self, id_: Id) -> FilterNumber:
        number = self._index.number_of(id_)
        if number is None or id_ not in self._ids.get(number, ()):
            raise unknown_id(id_)
        return number

    def _settle(self, number: FilterNumber) -> None:
        """Find a parent for a filter, or make it a root, and put under it what it supersedes."""
        is_transitive = False
        if self._adopt(number):
            # What its parent does not cover, it does not cover either, where answers are exact.
            is_regular = self._index.is_regular
            is_transitive = is_regular(number) and is_regular(self._parent[number])
        among = self._irregular_roots if is_transitive else self._root_set
        for root in list(self._index.narrower(number, among)):
            if (
                root != number
                and self._is_superseded(root, number)
                and not self._is_over(root, number)
            ):
                self._unroot(root)
                self._attach(root, number)

    def _adopt(self, number: FilterNumber) -> bool:
        """Give a filter a parent if some filter supersedes it; otherwise it is a root."""
        for wide in self._index.wider(number, self._members):
            if wide == number or not self._is_superseded(number, wide):
                continue
            if not self._is_over(number, wide):
                self._attach(number, wide)
                return True
        self._make_root(number)
        return False

    def _is_superseded(self, narrow: FilterNumber, wide: FilterNumber) -> bool:
        """Return whether a filter supersedes one that it covers."""
        if self._first[wide] < self._first[narrow]:
            return True
        return not self._index.covers(narrow, wide)

    def _is_over(self, number: FilterNumber, below: FilterNumber) -> bool:
        """Return whether a filter is above another, so that it cannot be put under it.

        Only where answers are not exact may filters that are equal cover each other in a circle.
        """
        at: FilterNumber | None = below
        while at is not None and at != number:
            at = self._parent.get(at)
        return at is not None

    def _settle_again(self, number: FilterNumber) -> None:
        """Find the place of a filter that is now earlier or later in the order of adding."""
        children = self._children.pop(number, set())
        for child in children:
            del self._parent[child]
        if number in self._roots:
            self._unroot(number)
        else:
            self._detach(number)
        self._settle(number)
        for child in sorted(children, key=self._first.__getitem__):
            if child not in self._parent:
                self._adopt(child)

    def _take_out(self, number: FilterNumber) -> None:
        """Remove a filter, and find other parents for its children."""
        parent = self._parent.get(number)
        if parent is None:
            self._unroot(number)
        else:
            self._detach(number)
        del self._ids[number], self._first[number]
        self._members.discard(number)
        children = self._children.pop(number, set())
        for child in children:
            del self._parent[child]
        is_regular = self._index.is_regular
        is_transitive = parent is not None and is_regular(parent) and is_regular(number)
        for child in sorted(children, key=self._first.__getitem__):
            if parent is not None and is_transitive and is_regular(child):
                self._attach(child, parent)
            else:
                self._adopt(child)

    def _attach(self, number: FilterNumber, parent: FilterNumber) -> None:
        self._parent[number] = parent
        self._children.setdefault(parent, set()).add(number)

    def _detach(self, number: FilterNumber) -> None:
        parent = self._parent.pop(number)
        self._children[parent].discard(number)
        if not self._children[parent]:
            del self._children[parent]

    def _make_root(self, number: FilterNumber) -> None:
        own = self._ids[number]
        self._roots[number] = id_ = min(own, key=own.__getitem__)
        self._root_set.add(number)
        if not self._index.is_regular(number):
            self._irregular_roots.add(number)
        self._changes.append(RootChange((id_,)))

    def _unroot(self, number: FilterNumber) -> None:
        id_ = self._roots.pop(number)
        self._root_set.discard(number)
        self._irregular_roots.discard(number)
        self._changes.append(RootChange((), (id_,)))

    def _changed(self) -> RootChange:
        if not self._changes:
            return RootChange()
        change = self._changes[0] if len(self._changes) == 1 else RootChange.joined(self._changes)
        self._changes.clear()
        return change

    # --- invariants --------------------------------------------------------------------------

    def assert_consistent(self) -> None:
        """Check the invariants; for tests."""
        for number, own in self._ids.items():
            assert own, "a filter without ids is gone"  # noqa: S101
            assert self._first[number] == min(own.values()), "the first id"  # noqa: S101
            assert (number in self._roots) != (number in self._parent), "root or child"  # noqa: S101
        for child, parent in self._parent.items():
            assert child in self._children[parent], "parents know their children"  # noqa: S101
            assert parent in self._ids, "parents are there"  # noqa: S101
            assert self._index.covers(parent, child), "parents cover"  # noqa: S101
            assert self._is_superseded(child, parent), "parents supersede"  # noqa: S101
            assert not self._is_over(child, parent), "no circles"  # noqa: S101
        assert set(self._members) == set(self._ids), "members"  # noqa: S101
        assert set(self._root_set) == set(self._roots), "roots"  # noqa: S101
        assert sum(map(len, self._children.values())) == len(self._parent)  # noqa: S101
