"""Comparing with all: what a covering index is by definition, in quadratic time."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, Unpack

from tamis.covering.order import RootChange, known_already, require_id, still_held, unknown_id
from tamis.diagrams import Answer, Space
from tamis.diagrams.relations import RelationOptions
from tamis.filters import Filter, Id
from tamis.filters.boolean import require_filter


class ExhaustiveCoveringIndex:
    """A covering index that compares every filter with every other.

    >>> from tamis.filters import attr
    >>> index = ExhaustiveCoveringIndex()
    >>> index.add("narrow", attr("price") < 5)
    RootChange(became=('narrow',), ceased=())
    >>> index.add("wide", attr("price") < 10)
    RootChange(became=('wide',), ceased=('narrow',))
    >>> index.covering(attr("price") < 7), index.covered_by(attr("price") < 7)
    (['wide'], ['narrow'])
    """

    def __init__(self, **options: Unpack[RelationOptions]) -> None:
        self._space: Final = Space(**options)
        self._schema: Final = options.get("schema")
        self._filters: Final[dict[Id, Filter]] = {}
        self._subsets: Final[list[ExhaustiveForest]] = []
        self._answers: Final[dict[tuple[Filter, Filter], Answer]] = {}
        self._all: Final = ExhaustiveForest(self)

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._filters

    def __repr__(self) -> str:
        return f"<ExhaustiveCoveringIndex: {len(self):,} filters, {len(self.roots()):,} roots>"

    def ids(self) -> list[Id]:
        """Return all ids, in order of adding."""
        return list(self._filters)

    def filter(self, id_: Id) -> Filter:
        """Return a filter, bound to the schema."""
        if id_ not in self._filters:
            raise unknown_id(id_)
        return self._filters[id_]

    def add(self, id_: Id, filter_: Filter) -> RootChange:
        """Add a filter; return what changed among the roots."""
        require_id(id_)
        if id_ in self._filters:
            raise known_already(id_)
        self._filters[id_] = self._bound(filter_)
        return self._all.add(id_)

    def add_many(self, filters: Iterable[tuple[Id, Filter]]) -> RootChange:
        """Add filters; return what changed among the roots by all of them together."""
        return RootChange.joined([self.add(id_, filter_) for id_, filter_ in filters])

    def remove(self, id_: Id) -> RootChange:
        """Remove a filter; return what changed among the roots."""
        if any(id_ in subset for subset in self._subsets):
            raise still_held(id_)
        change = self._all.remove(id_)
        del self._filters[id_]
        return change

    def roots(self) -> list[Id]:
        """Return the roots, in order of adding."""
        return self._all.roots()

    def parent(self, id_: Id) -> Id | None:
        """Return a filter that supersedes this one; None for a root."""
        return self._all.parent(id_)

    def covering(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that cover this one, in order of adding."""
        asked = self._bound(filter_)
        return [id_ for id_, other in self._filters.items() if self._covers(other, asked)]

    def covered_by(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that this one covers, in order of adding."""
        asked = self._bound(filter_)
        return [id_ for id_, other in self._filters.items() if self._covers(asked, other)]

    def intersecting(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that may match an event that this one matches."""
        asked = self._bound(filter_)
        return [id_ for id_, one in self._filters.items() if self._space.intersects(one, asked)]

    def subset(self) -> ExhaustiveForest:
        """Return a forest of some of the filters, at first of none."""
        self._subsets.append(ExhaustiveForest(self))
        return self._subsets[-1]

    def superseding(self, id_: Id, among: Container[Id]) -> Id | None:
        """Return the first of some filters that supersedes one; None if there is none."""
        narrow, is_earlier = self._filters[id_], True
        for other, wide in self._filters.items():
            if other == id_:
                is_earlier = False
            elif (
                other in among
                and self._covers(wide, narrow)
                and (is_earlier or not self._covers(narrow, wide))
            ):
                return other
        return None

    def _bound(self, filter_: Filter) -> Filter:
        checked = require_filter(filter_)
        return checked if self._schema is None else checked.bind(self._schema)

    def _covers(self, wide: Filter, narrow: Filter) -> Answer:
        pair = wide, narrow
        if pair not in self._answers:
            self._answers[pair] = self._space.covers(wide, narrow)
        return self._answers[pair]


class ExhaustiveForest:
    """Some filters of an index, whose roots are found by comparing all of them."""

    def __init__(self, index: ExhaustiveCoveringIndex) -> None:
        self._index = index
        self._ids: dict[Id, None] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._ids

    def add(self, id_: Id) -> RootChange:
        """Add a filter of the index; return what changed among the roots."""
        if id_ in self._ids:
            raise known_already(id_)
        if id_ not in self._index:
            raise unknown_id(id_)
        before = self.roots()
        self._ids[id_] = None
        return self._change(before)

    def remove(self, id_: Id) -> RootChange:
        """Remove a filter; those that it alone superseded become roots."""
        if id_ not in self._ids:
            raise unknown_id(id_)
        before = self.roots()
        del self._ids[id_]
        return self._change(before)

    def roots(self) -> list[Id]:
        """Return the roots, in the order in which they were added to the index."""
        ids = [id_ for id_ in self._index.ids() if id_ in self._ids]
        return [id_ for id_ in ids if self.parent(id_) is None]

    def parent(self, id_: Id) -> Id | None:
        """Return a filter of the forest that supersedes this one; None for a root."""
        if id_ not in self._ids:
            raise unknown_id(id_)
        return self._index.superseding(id_, self._ids)

    def _change(self, before: list[Id]) -> RootChange:
        after = self.roots()
        return RootChange(
            tuple(id_ for id_ in after if id_ not in before),
            tuple(id_ for id_ in before if id_ not in after),
        )
