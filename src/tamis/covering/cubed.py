"""The filters of an index that have no program: by the cubes that contain them, and by probes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from tamis.covering.access import AccessTree, FiledCube
from tamis.covering.cubes import Outer
from tamis.covering.filter_sets import FilterNumber, FilterSet
from tamis.covering.indexed import IndexedFilter, IndexedRelations
from tamis.covering.probes import Probe
from tamis.covering.profiles import ComparedFilter
from tamis.covering.stored_probes import StoredProbes

# More candidates than these are reduced by another probe before all are compared.
FEW: Final = 24


class CubedFilters:
    """Filters by number, with what may cover another, be covered by it, or intersect it."""

    def __init__(self, relations: IndexedRelations) -> None:
        self._access: Final = AccessTree(relations.geometry)
        self._filed: Final[dict[FilterNumber, list[FiledCube]]] = {}
        self._first_probes: Final = StoredProbes()
        self._last_probes: Final = StoredProbes()

    def __len__(self) -> int:
        return len(self._filed)

    def add(self, number: FilterNumber, profile: ComparedFilter) -> None:
        """Add a filter; if that fails, nothing has changed."""
        first, last = profile.probes[0], profile.last
        self._filed[number] = self._access.add(number, profile.outer)
        self._first_probes.add(number, first)
        self._last_probes.add(number, last)

    def remove(self, number: FilterNumber, profile: ComparedFilter) -> None:
        """Remove a filter."""
        self._access.remove(self._filed.pop(number))
        self._first_probes.remove(number, profile.probes[0])
        self._last_probes.remove(number, profile.last)

    def wider(
        self, first: Probe, narrow: IndexedFilter, among: FilterSet
    ) -> Iterator[FilterNumber]:
        """Yield those of some filters that may cover one."""
        waiting = [n for n in self._access.containing(first) if n in among]
        # Who wants only one has often found it among the first few.
        yield from waiting[:FEW]
        if len(waiting) > FEW:
            yield from self._matching_all(narrow.profile.probes, waiting[FEW:])

    def _matching_all(
        self, probes: Sequence[Probe], numbers: Sequence[FilterNumber]
    ) -> Collection[FilterNumber]:
        """Return those of some filters that may match all probes of one."""
        found: Collection[FilterNumber] = numbers
        for probe in probes[1:]:
            if len(found) <= FEW:
                break
            found = self._access.containing(probe).intersection(found)
        return found

    def narrower(self, outer: Outer, among: FilterSet) -> Collection[FilterNumber]:
        """Return those of some filters that may lie in some cubes."""
        points_of = self._access.points_of
        found: AbstractSet[FilterNumber] = self._first_probes.within(outer, points_of)
        if len(found) > FEW:
            found = found & self._last_probes.within(outer, points_of)
        return [number for number in found if number in among]

    def meeting(self, outer: Outer, among: FilterSet) -> Collection[FilterNumber]:
        """Return those of some filters that may have something in common with some cubes."""
        return [number for number in self._access.meeting(outer) if number in among]

    def assert_consistent(self) -> None:
        """Check the invariants; for tests."""
        self._access.assert_consistent({n: len(filed) for n, filed in self._filed.items()})
