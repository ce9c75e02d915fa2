"""One probe of each filter, by its values: which filters have a probe that lies in a cube."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Final

from tamis.covering.access import Owner
from tamis.covering.columns import RangeColumn, high_number, is_numeric, low_number
from tamis.covering.cubes import Cube, Positions
from tamis.covering.probes import Probe
from tamis.diagrams.value_order import BEGIN, NUMBERS, Breakpoint, Interval

PointsOf = Callable[[str, Positions], list[Breakpoint]]
"""The values that make up some positions of an attribute, if they are few."""


class AttributePlaces:
    """The places of one attribute's values, and whose they are."""

    def __init__(self) -> None:
        self._owners: Final[dict[Breakpoint, set[Owner]]] = {}
        self._sorted: Final[list[Breakpoint]] = []
        """The places of what is no number, ascending."""
        self._numbers: Final[RangeColumn[tuple[Owner, int]]] = RangeColumn()
        """With the number of the value, of which an attribute may hold several."""
        self.open: Final[set[Owner]] = set()
        """Filters of whose probes nothing is known here."""

        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, owner: Owner, places: Iterable[Breakpoint]) -> None:
        """Add the values of a probe."""
        for number, at in enumerate(places):
            self._count += 1
            if at not in self._owners:
                self._owners[at] = set()
                if at[0] != NUMBERS:
                    insort(self._sorted, at)
            self._owners[at].add(owner)
            if at[0] == NUMBERS:
                self._numbers.add((owner, number), float(at[1]), float(at[1]))

    def remove(self, owner: Owner, places: Iterable[Breakpoint]) -> None:
        """Remove the values of a probe."""
        for number, at in enumerate(places):
            self._count -= 1
            if at[0] == NUMBERS:
                self._numbers.remove((owner, number))
            owners = self._owners.get(at)
            if owners is not None:
                owners.discard(owner)
                if not owners:
                    del self._owners[at]
                    if at[0] != NUMBERS:
                        # Bit sets have no total order, so this is no place for bisection.
                        self._sorted.remove(at)

    def size_at(self, points: list[Breakpoint]) -> int:
        """Return about how many are at some places, or anywhere."""
        if points:
            return sum(len(self._owners.get(at, ())) for at in points) + len(self.open)
        return len(self) + len(self.open)

    def within(self, positions: Positions, points: list[Breakpoint]) -> AbstractSet[Owner]:
        """Return whose values lie in some positions, and perhaps a few more."""
        if points and len(points) == 1 and not self.open:
            return self._owners.get(points[0], frozenset())
        found = set(self.open)
        if points:
            return found.union(*(self._owners.get(at, ()) for at in points))
        for interval in positions:
            self._add_within(interval, found)
        return found

    def _add_within(self, interval: Interval, found: set[Owner]) -> None:
        low, high = interval
        numbers = max(low, (NUMBERS,)), min(high, (NUMBERS + 1,))
        if numbers[0] < numbers[1] and is_numeric(numbers):
            ends = low_number(numbers[0]), high_number(numbers[1])
            found.update([owner for owner, _ in self._numbers.meeting(*ends)])
        first, last = bisect_left(self._sorted, low), bisect_left(self._sorted, high)
        for at in self._sorted[first:last]:
            found |= self._owners[at]


class StoredProbes:
    """One probe of each filter."""

    def __init__(self) -> None:
        self._attributes: Final[dict[str, AttributePlaces]] = {}
        self._all: Final[dict[Owner, Probe]] = {}
        self._blank: Final[set[Owner]] = set()

    def add(self, owner: Owner, probe: Probe) -> None:
        """Add the probe of a filter."""
        self._all[owner] = probe
        if probe.is_blank:
            self._blank.add(owner)
            return
        for name, places in probe.places.items():
            self._attribute(name).add(owner, places)
        for name in probe.open:
            self._attribute(name).open.add(owner)

    def remove(self, owner: Owner, probe: Probe) -> None:
        """Remove the probe of a filter."""
        self._all.pop(owner, None)
        self._blank.discard(owner)
        if probe.is_blank:
            return
        for name, places in probe.places.items():
            self._forget(name, owner, places)
        for name in probe.open:
            self._forget(name, owner, ())

    def _attribute(self, name: str) -> AttributePlaces:
        if name not in self._attributes:
            self._attributes[name] = AttributePlaces()
        return self._attributes[name]

    def _forget(self, name: str, owner: Owner, places: Iterable[Breakpoint]) -> None:
        held = self._attributes.get(name)
        if held is not None:
            held.remove(owner, places)
            held.open.discard(owner)
            if not held and not held.open:
                del self._attributes[name]

    def within(self, cubes: Iterable[Cube] | None, points_of: PointsOf) -> AbstractSet[Owner]:
        """Return the filters whose probe may lie in one of some cubes, where None is everything."""
        if cubes is None:
            return self._all.keys()
        found: AbstractSet[Owner] = self._blank
        for cube in cubes:
            inside = self._within(cube, points_of)
            found = found | inside if found else inside
        return found

    def _within(self, cube: Cube, points_of: PointsOf) -> AbstractSet[Owner]:
        best: tuple[AttributePlaces, Positions, list[Breakpoint]] | None = None
        fewest = len(self._all) + 1
        for name, positions in chain(cube.positions.items(), cube.some):
            if positions[0][0] == BEGIN:
                continue
            held = self._attributes.get(name)
            if held is None:
                # No probe has it.
                return frozenset()
            points = points_of(name, positions)
            size = held.size_at(points)
            if size < fewest:
                best, fewest = (held, positions, points), size
        if best is None:
            return self._all.keys()
        held, positions, points = best
        found = held.within(positions, points)
        if len(cube.positions) == 1:
            return found
        probes = self._all
        return {owner for owner in found if probes[owner].may_be_in(cube)}
