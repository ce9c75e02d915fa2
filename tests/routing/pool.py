"""Filters and events that meet often, and how they relate by trying all events.

The constants are even, and the events have every number from below the least to above the greatest,
so each of them stands for a cell: relations on these events are those on all events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from random import Random
from typing import Final

from tamis.covering import RootChange
from tamis.events import Event
from tamis.filters import Filter, Id
from tamis.filters.structure import digest
from tamis.languages import parse

VALUES: Final = range(-1, 10)

TEXTS: Final = (
    *("x < 2", "x < 4", "x <= 4", "x < 8", "x >= 4", "x > 6", "x = 2", "x = 4", "x = 8"),
    *("x in (2, 4)", "x in (4, 6, 8)", "x between 2 and 6", "x between 4 and 8", "x != 4"),
    *("y < 4", "y >= 4", "y = 2", "y is present", "x is present", "y between 0 and 4"),
    *("x < 4 and y < 4", "x < 8 and y < 8", "x = 4 and y >= 4", "x < 4 or y < 4"),
    *("x between 2 and 6 and y between 2 and 6", "x = 2 or x = 4", "not (x < 4)"),
    *("x < 4 and y is absent", "x = 8 xor y = 2", "true", "x > 6 or y > 6"),
)


class Pool:
    """Filters by digest, events by number, and what matches and covers what."""

    def __init__(self, texts: Sequence[str] = TEXTS) -> None:
        self.filters: Final[dict[str, Filter]] = {}
        for text in texts:
            filter_ = parse(text)
            self.filters[digest(filter_)] = filter_
        self.digests: Final = [*self.filters]
        self.events: Final = [
            Event({name: value for name, value in (("x", x), ("y", y)) if value is not None})
            for x in (None, *VALUES)
            for y in (None, *VALUES)
        ]
        self.matched: Final = {
            name: frozenset(n for n, event in enumerate(self.events) if one.matches(event))
            for name, one in self.filters.items()
        }
        """The numbers of the events that match a filter."""
        self.above: Final = {
            one: frozenset(n for n in self.digests if self.matched[n] >= self.matched[one])
            for one in self.digests
        }
        """The filters that cover one, itself among them."""
        self.below: Final = {
            one: frozenset(n for n in self.digests if self.matched[n] <= self.matched[one])
            for one in self.digests
        }
        self.meeting: Final = {
            one: frozenset(n for n in self.digests if self.matched[n] & self.matched[one])
            for one in self.digests
        }
        """The filters that intersect one."""

    def draw(self, rng: Random) -> str:
        """Return the digest of a filter."""
        return rng.choice(self.digests)

    def roots(self, digests: Iterable[str]) -> set[frozenset[str]]:
        """Return the classes of equal filters that no other filter of a set covers."""
        every = {*digests}
        return {
            self.above[one] & self.below[one]
            for one in every
            if all(one in self.above[other] for other in self.above[one] & every)
        }


@cache
def the_pool() -> Pool:
    """Return the pool of all tests, made once."""
    return Pool()


class PoolIndex:
    """A covering index that looks up the relations of a pool."""

    def __init__(self) -> None:
        self._pool = the_pool()
        self._order: dict[str, int] = {}
        self._added = 0
        self._all = PoolForest(self)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._order

    def ids(self) -> list[Id]:
        return [*self._order]

    def filter(self, id_: Id) -> Filter:
        return self._pool.filters[str(id_)]

    def add(self, id_: Id, filter_: Filter) -> RootChange:  # noqa: ARG002 - the id says it
        assert id_ not in self._order
        self._added += 1
        self._order[str(id_)] = self._added
        return self._all.add(id_)

    def add_many(self, filters: Iterable[tuple[Id, Filter]]) -> RootChange:
        return RootChange.joined([self.add(*one) for one in filters])

    def remove(self, id_: Id) -> RootChange:
        change = self._all.remove(id_)
        del self._order[str(id_)]
        return change

    def roots(self) -> list[Id]:
        return self._all.roots()

    def parent(self, id_: Id) -> Id | None:
        return self._all.parent(id_)

    def covering(self, filter_: Filter) -> list[Id]:
        return [one for one in self._order if one in self._pool.above[digest(filter_)]]

    def covered_by(self, filter_: Filter) -> list[Id]:
        return [one for one in self._order if one in self._pool.below[digest(filter_)]]

    def intersecting(self, filter_: Filter) -> list[Id]:
        return [one for one in self._order if one in self._pool.meeting[digest(filter_)]]

    def subset(self) -> PoolForest:
        return PoolForest(self)

    def supersedes(self, one: str, other: str) -> bool:
        """Return whether one of two filters, which covers the other, makes it superfluous."""
        is_wider = one not in self._pool.below[other]
        return is_wider or self._order[one] < self._order[other]

    def superseding(self, id_: str, members: Iterable[str]) -> list[str]:
        above = self._pool.above[id_]
        return [m for m in members if m in above and m != id_ and self.supersedes(m, id_)]

    def superseded(self, id_: str, members: Iterable[str]) -> list[str]:
        below = self._pool.below[id_]
        return [m for m in members if m in below and m != id_ and self.supersedes(id_, m)]


class PoolForest:
    """Some filters of a pool's index."""

    def __init__(self, index: PoolIndex) -> None:
        self._index = index
        self._members: dict[str, None] = {}
        self._roots: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._members

    def add(self, id_: Id) -> RootChange:
        name = str(id_)
        assert name not in self._members
        self._members[name] = None
        if self._index.superseding(name, self._roots):
            return RootChange()
        ceased = self._index.superseded(name, self._roots)
        self._roots[name] = None
        for one in ceased:
            del self._roots[one]
        return RootChange((name,), tuple(ceased))

    def remove(self, id_: Id) -> RootChange:
        name = str(id_)
        del self._members[name]
        if name not in self._roots:
            return RootChange()
        del self._roots[name]
        orphans = self._index.superseded(name, self._members)
        became = [one for one in orphans if not self._index.superseding(one, self._members)]
        self._roots.update(dict.fromkeys(became))
        return RootChange(tuple(became), (name,))

    def roots(self) -> list[Id]:
        return [*self._roots]

    def parent(self, id_: Id) -> Id | None:
        return next(iter(self._index.superseding(str(id_), self._members)), None)
