"""A tree of cubes, to find those in which an event lies: each under something that it requires.

As with the engine's access predicates, a cube is filed under one attribute: under single values if
it names few, otherwise under a range. What is filed under one value and becomes many is filed again
by the next attribute. Cubes come and go in microseconds, which compiled posting lists do not allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain
from typing import Final

from tamis.covering.columns import RangeColumn, high_number, is_numeric, low_number
from tamis.covering.cubes import EVERYTHING, Cube, Geometry, Positions, meet
from tamis.covering.probes import Probe
from tamis.diagrams.value_order import (
    BEGIN,
    KIND_OF_BRACKET,
    NUMBERS,
    Breakpoint,
    Interval,
    ValueOrder,
)

# What is filed under one value is filed again by the next attribute if there is more of it.
MAX_UNSORTED: Final = 24
# A cube with more values of an attribute is filed under their range.
MAX_POINTS: Final = 32
# A range is worth less than a value under which as many are filed.
RANGE_PENALTY: Final = 16

Owner = int
"""The number of the filter that a cube belongs to."""


def _leave_nothing(filed: FiledCube) -> None:
    """Do nothing: the cube is in no place yet."""


class FiledCube:
    """A cube of a filter in one place of the tree."""

    __slots__ = ("copies", "cube", "leave", "owner", "trees")

    def __init__(self, owner: Owner, cube: Cube, copies: list[FiledCube]) -> None:
        self.owner: Final = owner
        self.cube: Final = cube
        self.copies: Final = copies
        """All places of the cubes of the filter."""
        self.trees: list[tuple[AccessTree, str]] = []
        """The trees that it is in, and the attribute under which it is filed there."""
        self.leave: Callable[[FiledCube], object] = _leave_nothing
        """Remove it from its place."""
        copies.append(self)


class AccessList:
    """Cubes filed under one value; a tree of its own if they are many."""

    __slots__ = ("_geometry", "drop", "tree", "unsorted")

    def __init__(self, geometry: Geometry, drop: Callable[[], object]) -> None:
        self._geometry = geometry
        self.drop = drop
        """Remove the list itself, once it is empty."""
        self.unsorted: dict[FiledCube, None] = {}
        self.tree: AccessTree | None = None

    def __len__(self) -> int:
        return len(self.unsorted) if self.tree is None else self.tree.count

    def add(self, filed: FiledCube) -> None:
        """Add a cube, and begin a tree if there are many now."""
        if self.tree is not None:
            self.tree.file(filed)
            return
        self.unsorted[filed] = None
        filed.leave = self._remove
        if len(self.unsorted) > MAX_UNSORTED:
            self.tree = AccessTree(self._geometry, self)
            for one in self.unsorted:
                self.tree.file(one)
            self.unsorted = {}

    def _remove(self, filed: FiledCube) -> None:
        del self.unsorted[filed]
        if not self.unsorted:
            self.drop()

    def collect(self, found: set[Owner], waiting: list[AccessTree]) -> None:
        """Add the filters of the cubes, or the tree that has them."""
        if self.tree is not None:
            waiting.append(self.tree)
        else:
            found.update([filed.owner for filed in self.unsorted])

    def owners(self) -> Iterator[Owner]:
        """Yield the filters of all cubes."""
        if self.tree is not None:
            yield from self.tree.owners()
        else:
            for filed in self.unsorted:
                yield filed.owner


class RangeLists:
    """The cubes that require a range of one attribute: a list for each range."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry: Final = geometry
        self._lists: Final[dict[Positions, AccessList]] = {}
        self._numbers: Final[RangeColumn[Positions]] = RangeColumn()
        self._others: Final[dict[Positions, AccessList]] = {}
        """Ranges of what is no number."""

    def __len__(self) -> int:
        return len(self._lists)

    def add(self, filed: FiledCube, positions: Positions) -> None:
        """Add a cube."""
        access = self._lists.get(positions)
        if access is None:
            access = AccessList(self._geometry, partial(self._drop, positions))
            self._lists[positions] = access
            around = positions[0][0], positions[-1][1]
            if is_numeric(around):
                self._numbers.add(positions, low_number(around[0]), high_number(around[1]))
            else:
                self._others[positions] = access
        access.add(filed)

    def _drop(self, positions: Positions) -> None:
        del self._lists[positions]
        if self._others.pop(positions, None) is None:
            self._numbers.remove(positions)

    def at(self, place: Breakpoint) -> Iterator[AccessList]:
        """Yield the lists of ranges that contain a position, and perhaps of a few more."""
        if self._others:
            for positions, access in self._others.items():
                if any(low <= place < high for low, high in positions):
                    yield access
        if place[0] == NUMBERS and len(self._numbers):
            value = float(place[1])
            yield from map(self._lists.__getitem__, self._numbers.meeting(value, value))

    def meeting(self, positions: Positions | None) -> Iterator[AccessList]:
        """Yield the lists of ranges that meet others; None is everywhere."""
        for held, access in self._lists.items():
            if positions is None or meet(held, positions):
                yield access


class AccessTree:
    """Cubes by what they require."""

    def __init__(self, geometry: Geometry, home: AccessList | None = None) -> None:
        self._geometry: Final = geometry
        self.home: Final = home
        self.count = 0
        self._points: Final[dict[str, dict[Breakpoint, AccessList]]] = {}
        self._ranges: Final[dict[str, RangeLists]] = {}
        self._rest: Final[dict[FiledCube, None]] = {}
        """Cubes that require nothing else."""

    # --- changing ----------------------------------------------------------------------------

    def add(self, owner: Owner, cubes: Iterable[Cube] | None) -> list[FiledCube]:
        """File the cubes of a filter, where None is everything; return them for `remove`."""
        copies: list[FiledCube] = []
        try:
            for cube in (EVERYTHING,) if cubes is None else cubes:
                self.file(FiledCube(owner, cube, copies))
        except BaseException:
            self.remove(copies)
            raise
        return copies

    def remove(self, copies: Iterable[FiledCube]) -> None:
        """Remove the cubes of a filter."""
        for filed in copies:
            filed.leave(filed)
            for tree, _ in reversed(filed.trees):
                tree.count -= 1
                if not tree.count and tree.home is not None:
                    tree.home.drop()

    def file(self, filed: FiledCube) -> None:
        """File a cube under the attribute with the fewest others."""
        name, positions, points = self._choice(filed)
        if not name:
            self._file(filed, name)
            self._rest[filed] = None
            filed.leave = self._rest.pop
        elif points:
            by_point = self._points.setdefault(name, {})
            copies = [filed, *(self._copy(filed) for _ in points[1:])]
            for point, copy in zip(points, copies, strict=True):
                self._file(copy, name)
                if point not in by_point:
                    by_point[point] = AccessList(self._geometry, partial(by_point.pop, point))
                by_point[point].add(copy)
        else:
            self._file(filed, name)
            if name not in self._ranges:
                self._ranges[name] = RangeLists(self._geometry)
            self._ranges[name].add(filed, positions)

    def _file(self, filed: FiledCube, name: str) -> None:
        self.count += 1
        filed.trees.append((self, name))

    def _copy(self, filed: FiledCube) -> FiledCube:
        copy = FiledCube(filed.owner, filed.cube, filed.copies)
        copy.trees = list(filed.trees)
        for tree, _ in copy.trees:
            tree.count += 1
        return copy

    def _choice(self, filed: FiledCube) -> tuple[str, Positions, list[Breakpoint]]:
        """Return an attribute that a cube requires, where it lies, and its values if few."""
        used = {name for _, name in filed.trees}
        best: tuple[str, Positions, list[Breakpoint]] = "", (), []
        fewest = float("inf")
        for name, positions in chain(filed.cube.positions.items(), filed.cube.some):
            if name in used or positions[0][0] == BEGIN:
                # Absence would do.
                continue
            points = self.points_of(name, positions)
            if points:
                by_point = self._points.get(name, {})
                size = sum(len(by_point[point]) for point in points if point in by_point)
            else:
                size = RANGE_PENALTY + len(self._ranges.get(name, ()))
            if size < fewest:
                best, fewest = (name, positions, points), size
        return best

    def points_of(self, name: str, positions: Positions) -> list[Breakpoint]:
        """Return the values that make up some positions; none if they are many, or ranges."""
        if len(positions) > MAX_POINTS:
            return []
        order = self._geometry.value_order(name)
        if all(is_point(order, interval) for interval in positions):
            return [low for low, _ in positions]
        return []

    # --- searching ---------------------------------------------------------------------------

    def containing(self, probe: Probe) -> set[Owner]:
        """Return the filters that have a cube in which a probe may lie."""
        found: set[Owner] = set()
        waiting = [self]
        if probe.is_blank:
            return set(self.owners())
        while waiting:
            tree = waiting.pop()
            tree.collect_containing(probe, found, waiting)
        return found

    def collect_containing(
        self, probe: Probe, found: set[Owner], waiting: list[AccessTree]
    ) -> None:
        """Add the filters of the cubes in which a probe may lie, or the trees that have them."""
        found.update([filed.owner for filed in self._rest])
        for name, places in probe.places.items():
            if name not in probe.open:
                self._collect_at(name, places, found, waiting)
        for name in probe.open:
            found.update(self._owners_under(name))

    def _collect_at(
        self,
        name: str,
        places: tuple[Breakpoint, ...],
        found: set[Owner],
        waiting: list[AccessTree],
    ) -> None:
        by_point, ranges = self._points.get(name), self._ranges.get(name)
        for at in places:
            if by_point is not None and at in by_point:
                by_point[at].collect(found, waiting)
            if ranges is not None:
                for access in ranges.at(at):
                    access.collect(found, waiting)

    def meeting(self, cubes: Iterable[Cube] | None) -> set[Owner]:
        """Return the filters that have a cube which may have something in common with these."""
        if cubes is None:
            return set(self.owners())
        found: set[Owner] = set()
        for cube in cubes:
            waiting = [self]
            while waiting:
                waiting.pop().collect_meeting(cube, found, waiting)
        return found

    def collect_meeting(self, cube: Cube, found: set[Owner], waiting: list[AccessTree]) -> None:
        """Add the filters of the cubes that may meet one, or the trees that have them."""
        found.update([filed.owner for filed in self._rest])
        for name, by_point in self._points.items():
            positions = cube.positions.get(name)
            lists: Iterable[AccessList] = by_point.values()
            if positions is not None:
                points = self.points_of(name, positions)
                if points:
                    lists = [by_point[point] for point in points if point in by_point]
                else:
                    lists = [
                        access
                        for at, access in by_point.items()
                        if any(low <= at < high for low, high in positions)
                    ]
            for access in lists:
                access.collect(found, waiting)
        for name, ranges in self._ranges.items():
            for access in ranges.meeting(cube.positions.get(name)):
                access.collect(found, waiting)

    def _owners_under(self, name: str) -> Iterator[Owner]:
        """Yield the filters that are filed under an attribute, here or further down."""
        by_point, ranges = self._points.get(name, {}), self._ranges.get(name)
        for access in chain(by_point.values(), () if ranges is None else ranges.meeting(None)):
            yield from access.owners()

    def owners(self) -> Iterator[Owner]:
        """Yield the filters of all cubes."""
        for filed in self._rest:
            yield filed.owner
        for name in {*self._points, *self._ranges}:
            yield from self._owners_under(name)

    def assert_consistent(self, copies: Mapping[Owner, int]) -> None:
        """Check that the tree has so many cubes of each filter; for tests."""
        found = Counter(self.owners())
        assert found == Counter(copies), "every cube is filed"  # noqa: S101
        assert self.count == found.total(), "the tree counts its cubes"  # noqa: S101


@lru_cache(maxsize=65_536)
def is_point(order: ValueOrder, interval: Interval) -> bool:
    """Return whether an interval has a single value.

    >>> from tamis.filters.modes import Mode
    >>> from tamis.events import Kind
    >>> order = ValueOrder(None, Mode.SQL)
    >>> low, high = order.below(Kind.NUMBER, 5), order.above(Kind.NUMBER, 5)
    >>> is_point(order, (low, high)), is_point(order, (low, order.end(NUMBERS)))
    (True, False)
    """
    low, high = interval
    return len(low) == 2 and order.above(KIND_OF_BRACKET[low[0]], low[1]) == high
