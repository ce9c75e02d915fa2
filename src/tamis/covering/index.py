"""The covering index: which of many filters cover which, found without comparing with all."""

from __future__ import annotations

from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Unpack

from tamis.covering.access import AccessTree, FiledCube
from tamis.covering.forests import CoveringForest, FilterNumber
from tamis.covering.order import RootChange, known_already, require_id, still_held, unknown_id
from tamis.covering.profiles import ComparedFilter, FilterRelations
from tamis.covering.stored_probes import StoredProbes
from tamis.diagrams.relations import RelationOptions
from tamis.filters import Filter, Id
from tamis.units import count

# More candidates than these are reduced by another probe before all are compared.
FEW: Final = 24


class CoveringIndex:
    """Filters under ids, with the answers of `Space` about all of them, and their roots.

    >>> from tamis.languages import parse
    >>> index = CoveringIndex()
    >>> index.add("cheap", parse("price < 5"))
    RootChange(became=('cheap',), ceased=())
    >>> index.add("acme", parse('price < 10 and symbol = "ACME"'))
    RootChange(became=('acme',), ceased=())
    >>> index.add("moderate", parse("price < 20"))
    RootChange(became=('moderate',), ceased=('cheap', 'acme'))
    >>> index.covering(parse('price < 7 and symbol = "ACME"'))
    ['acme', 'moderate']
    >>> index.covered_by(parse("price is present"))
    ['cheap', 'acme', 'moderate']
    >>> index.intersecting(parse("price between 6 and 8"))
    ['acme', 'moderate']
    >>> index.remove("moderate")
    RootChange(became=('cheap', 'acme'), ceased=('moderate',))
    """

    def __init__(self, **options: Unpack[RelationOptions]) -> None:
        """Create an empty index; mode, schema and the other options are those of `Space`."""
        self._relations: Final = FilterRelations(**options)
        self._filters: Final[dict[FilterNumber, ComparedFilter]] = {}
        self._numbers: Final[dict[Hashable, FilterNumber]] = {}
        """By the keys of filters, which only equal ones share."""
        self._number_of: Final[dict[Id, FilterNumber]] = {}
        self._added = 0
        self._next = 0
        self._access: Final = AccessTree(self._relations.geometry)
        self._filed: Final[dict[FilterNumber, list[FiledCube]]] = {}
        self._first_probes: Final = StoredProbes()
        self._last_probes: Final = StoredProbes()
        self._never: Final[dict[FilterNumber, None]] = {}
        self._held: Final[dict[Id, int]] = {}
        """How many subsets have each id."""
        self._forest: Final = CoveringForest(self)

    def __len__(self) -> int:
        return len(self._number_of)

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, str | int) and id_ in self._number_of

    def __repr__(self) -> str:
        roots = self._forest.root_count
        return f"<CoveringIndex: {count(len(self), 'filter')}, {count(roots, 'root')}>"

    def ids(self) -> list[Id]:
        """Return all ids, in order of adding."""
        return list(self._number_of)

    def filter(self, id_: Id) -> Filter:
        """Return a filter, bound to the schema; of equal filters, the first that came."""
        number = self.number_of(id_)
        if number is None:
            raise unknown_id(id_)
        return self._filters[number].filter

    # --- changing ----------------------------------------------------------------------------

    def add(self, id_: Id, filter_: Filter) -> RootChange:
        """Add a filter; return what changed among the roots."""
        require_id(id_)
        if id_ in self._number_of:
            raise known_already(id_)
        profile = self._relations.profile(filter_)
        number = self._numbers.get(profile.key)
        if number is None:
            number = self._store(profile)
        self._added += 1
        self._filters[number].ids[id_] = self._added
        self._number_of[id_] = number
        return self._forest.add(id_)

    def add_many(self, filters: Iterable[tuple[Id, Filter]]) -> RootChange:
        """Add filters; return what changed among the roots by all of them together."""
        return RootChange.joined([self.add(id_, filter_) for id_, filter_ in filters])

    def remove(self, id_: Id) -> RootChange:
        """Remove a filter; return what changed among the roots."""
        number = self.number_of(id_)
        if number is None:
            raise unknown_id(id_)
        if self._held.get(id_):
            raise still_held(id_)
        change = self._forest.remove(id_)
        profile = self._filters[number]
        del profile.ids[id_], self._number_of[id_]
        if not profile.ids:
            self._discard(number, profile)
        return change

    def _store(self, profile: ComparedFilter) -> FilterNumber:
        number, self._next = self._next, self._next + 1
        self._filters[number] = profile
        self._numbers[profile.key] = number
        if profile.is_never:
            self._never[number] = None
            return number
        self._filed[number] = self._access.add(number, profile.outer)
        self._first_probes.add(number, profile.probes[0])
        self._last_probes.add(number, profile.last)
        return number

    def _discard(self, number: FilterNumber, profile: ComparedFilter) -> None:
        del self._filters[number], self._numbers[profile.key]
        if profile.is_never:
            del self._never[number]
            return
        self._access.remove(self._filed.pop(number))
        self._first_probes.remove(number, profile.probes[0])
        self._last_probes.remove(number, profile.last)

    # --- the forest --------------------------------------------------------------------------

    def roots(self) -> list[Id]:
        """Return the roots, in order of adding."""
        return self._forest.roots()

    def parent(self, id_: Id) -> Id | None:
        """Return a filter that supersedes this one; None for a root."""
        return self._forest.parent(id_)

    def children(self, id_: Id) -> list[Id]:
        """Return the filters of which this one is the parent, in order of adding."""
        return self._forest.children(id_)

    def subset(self) -> CoveringForest:
        """Return a forest of some of the filters, at first of none.

        >>> from tamis.languages import parse
        >>> index = CoveringIndex()
        >>> index.add_many([(1, parse("a < 9")), (2, parse("a < 5")), (3, parse("a < 2"))])
        RootChange(became=(1,), ceased=())
        >>> some = index.subset()
        >>> some.add(2), some.add(3), some.roots()
        (RootChange(became=(2,), ceased=()), RootChange(became=(), ceased=()), [2])
        """
        return CoveringForest(self, self._held)

    # --- questions ---------------------------------------------------------------------------

    def covering(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that cover this one, in order of adding."""
        return self._ids_of(self._wider(self._relations.profile(filter_), self._filters))

    def covered_by(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that this one covers, in order of adding."""
        return self._ids_of(self._narrower(self._relations.profile(filter_), self._filters))

    def intersecting(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that may match an event that this one matches."""
        asked = self._relations.profile(filter_)
        if asked.is_never:
            return []
        near = self._access.meeting(asked.outer)
        return self._ids_of(
            number for number in near if self._relations.intersects(self._filters[number], asked)
        )

    def _ids_of(self, numbers: Iterable[FilterNumber]) -> list[Id]:
        found = {id_: at for number in numbers for id_, at in self._filters[number].ids.items()}
        return sorted(found, key=found.__getitem__)

    def _wider(
        self, narrow: ComparedFilter, among: Container[FilterNumber]
    ) -> Iterator[FilterNumber]:
        covers, filters = self._relations.covers, self._filters
        if narrow.is_never:
            yield from (number for number in filters if number in among)
            return
        waiting = [n for n in self._access.containing(narrow.probes[0]) if n in among]
        # Who wants only one has often found it among the first few.
        for number in waiting[:FEW]:
            if covers(filters[number], narrow):
                yield number
        for number in self._matching_all(narrow, waiting[FEW:]):
            if covers(filters[number], narrow):
                yield number

    def _matching_all(
        self, narrow: ComparedFilter, numbers: Sequence[FilterNumber]
    ) -> Collection[FilterNumber]:
        """Return those of some filters that may match all probes of one."""
        found: Collection[FilterNumber] = numbers
        for probe in narrow.probes[1:]:
            if len(found) <= FEW:
                break
            found = self._access.containing(probe).intersection(found)
        return found

    def _narrower(
        self, wide: ComparedFilter, among: Collection[FilterNumber]
    ) -> Iterator[FilterNumber]:
        covers, filters = self._relations.covers, self._filters
        for number in self._candidates_to_be_covered(wide, among):
            if covers(wide, filters[number]):
                yield number
        for number in self._never:
            if number in among:
                yield number

    def _candidates_to_be_covered(
        self, wide: ComparedFilter, among: Collection[FilterNumber]
    ) -> Collection[FilterNumber]:
        if wide.is_never or not among:
            return ()
        points_of = self._access.points_of
        found: AbstractSet[FilterNumber] = self._first_probes.within(wide.outer, points_of)
        if len(found) > FEW and wide.cube is None:
            found = found & self._last_probes.within(wide.outer, points_of)
        return [number for number in found if number in among]

    # --- what forests ask --------------------------------------------------------------------

    def number_of(self, id_: Id) -> FilterNumber | None:
        """Return the number of the filter with an id."""
        return self._number_of.get(id_) if isinstance(id_, str | int) else None

    def sequence_of(self, id_: Id) -> int:
        """Return the place of an id in the order of adding."""
        return self._filters[self._number_of[id_]].ids[id_]

    def is_regular(self, number: FilterNumber) -> bool:
        """Return whether all answers about a filter are exact, as far as the other's are."""
        return self._filters[number].is_regular

    def wider(self, number: FilterNumber, among: Container[FilterNumber]) -> Iterator[FilterNumber]:
        """Yield those of some filters that cover one."""
        return self._wider(self._filters[number], among)

    def narrower(
        self, number: FilterNumber, among: Collection[FilterNumber]
    ) -> Iterator[FilterNumber]:
        """Yield those of some filters that one covers."""
        return self._narrower(self._filters[number], among)

    def covers(self, wide: FilterNumber, narrow: FilterNumber) -> bool:
        """Return whether a filter covers another."""
        return self._relations.covers(self._filters[wide], self._filters[narrow])

    # --- invariants --------------------------------------------------------------------------

    def assert_consistent(self) -> None:
        """Check the invariants; for tests."""
        self._forest.assert_consistent()
        assert sum(len(f.ids) for f in self._filters.values()) == len(self)  # noqa: S101
        assert set(self._number_of.values()) == set(self._filters)  # noqa: S101
        for number, profile in self._filters.items():
            assert self._numbers[profile.key] == number, "keys lead to filters"  # noqa: S101
            assert (number in self._filed) != (number in self._never), "filed"  # noqa: S101
        self._access.assert_consistent({n: len(filed) for n, filed in self._filed.items()})
