"""The covering index: which of many filters cover which, found without comparing with all."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Unpack

from tamis.covering.cubed import CubedFilters
from tamis.covering.filter_sets import FilterNumber, FilterSet
from tamis.covering.forests import CoveringForest
from tamis.covering.indexed import IndexedFilter, IndexedRelations
from tamis.covering.order import RootChange, known_already, require_id, still_held, unknown_id
from tamis.diagrams.relations import RelationOptions
from tamis.filters import Filter, Id
from tamis.units import count

# Fewer filters are compared without kernels: to compile these takes longer.
COMPILED_FROM: Final = 256


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
        self._relations: Final = IndexedRelations(**options)
        self._filters: Final[dict[FilterNumber, IndexedFilter]] = {}
        self._numbers: Final[dict[Hashable, FilterNumber]] = {}
        """By the keys of filters, which only equal ones share."""
        self._number_of: Final[dict[Id, FilterNumber]] = {}
        self._added = 0
        self._free: Final[list[FilterNumber]] = []
        """Numbers of filters that have gone."""
        self._everything: Final = FilterSet()
        self._cubes: Final = CubedFilters(self._relations)
        """The filters without programs."""
        self._never: Final = FilterSet()
        self._is_compiled = False
        self._held: Final[dict[Id, int]] = {}
        """How many subsets have each id."""
        self._forest: Final = CoveringForest(self)

    def __len__(self) -> int:
        return len(self._number_of)

    def __contains__(self, id_: object) -> bool:
        return self.number_of(id_) is not None

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
        if len(self._filters) >= COMPILED_FROM and not self._is_compiled:
            self._compile()
        given = self._relations.indexed(filter_)
        number = self._numbers.get(given.key)
        if number is None:
            number = self._store(given)
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
        stored = self._filters[number]
        del stored.ids[id_], self._number_of[id_]
        if not stored.ids:
            self._discard(number, stored)
        return change

    def _store(self, given: IndexedFilter) -> FilterNumber:
        number = self._free[-1] if self._free else len(self._filters)
        # First what may fail: nothing refers to the number yet.
        self._file(number, given)
        if self._free:
            self._free.pop()
        self._filters[number] = given
        self._numbers[given.key] = number
        self._everything.add(number)
        given.number = number
        return number

    def _file(self, number: FilterNumber, stored: IndexedFilter) -> None:
        if stored.is_never:
            self._never.add(number)
        elif stored.program is not None:
            self._relations.compiled.add(number, stored.program)
            stored.program = None
        else:
            self._cubes.add(number, stored.profile)

    def _compile(self) -> None:
        """Give programs to the filters, from now on and to those that are there."""
        self._relations.begin_to_compile()
        programs = {
            number: self._relations.indexed(stored.filter).program
            for number, stored in self._filters.items()
        }
        self._is_compiled = True
        for number, program in programs.items():
            stored = self._filters[number]
            if program is None or stored.is_never:
                continue
            self._cubes.remove(number, stored.profile)
            del self._numbers[stored.key]
            stored.compile(program)
            self._numbers[stored.key] = number
            self._file(number, stored)

    def _discard(self, number: FilterNumber, stored: IndexedFilter) -> None:
        del self._filters[number], self._numbers[stored.key]
        self._everything.discard(number)
        self._free.append(number)
        if stored.is_never:
            self._never.discard(number)
        elif stored.is_compiled:
            self._relations.compiled.remove(number)
        else:
            self._cubes.remove(number, stored.profile)

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
        return self._ids_of(self._wider(self._relations.indexed(filter_), self._everything))

    def covered_by(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that this one covers, in order of adding."""
        return self._ids_of(self._narrower(self._relations.indexed(filter_), self._everything))

    def intersecting(self, filter_: Filter) -> list[Id]:
        """Return the ids of the filters that may match an event that this one matches."""
        return self._ids_of(self._meeting(self._relations.indexed(filter_), self._everything))

    def _ids_of(self, numbers: Iterable[FilterNumber]) -> list[Id]:
        found = {id_: at for number in numbers for id_, at in self._filters[number].ids.items()}
        return sorted(found, key=found.__getitem__)

    def _wider(self, narrow: IndexedFilter, among: FilterSet) -> Iterator[FilterNumber]:
        relations, filters = self._relations, self._filters
        if narrow.is_never:
            yield from among
            return
        for number, is_certain in relations.wider(narrow, among):
            if is_certain or relations.covers(filters[number], narrow):
                yield number
        if len(self._cubes):
            for number in self._cubes.wider(relations.first_probe(narrow), narrow, among):
                if relations.covers(filters[number], narrow):
                    yield number

    def _narrower(self, wide: IndexedFilter, among: FilterSet) -> Iterator[FilterNumber]:
        relations, filters = self._relations, self._filters
        if not wide.is_never and len(among):
            for number, is_certain in relations.narrower(wide, among):
                if is_certain or relations.covers(wide, filters[number]):
                    yield number
            if len(self._cubes):
                for number in self._cubes.narrower(relations.outer_cubes(wide), among):
                    if relations.covers(wide, filters[number]):
                        yield number
        yield from self._never.common(among)

    def _meeting(self, one: IndexedFilter, among: FilterSet) -> Iterator[FilterNumber]:
        relations, filters = self._relations, self._filters
        if one.is_never:
            return
        for number, is_certain in relations.meeting(one, among):
            if is_certain or relations.intersects(filters[number], one):
                yield number
        if len(self._cubes):
            for number in self._cubes.meeting(relations.outer_cubes(one), among):
                if relations.intersects(filters[number], one):
                    yield number

    # --- what forests ask --------------------------------------------------------------------

    def number_of(self, id_: object) -> FilterNumber | None:
        """Return the number of the filter with an id."""
        # A boolean is no id, although it equals 0 or 1.
        if isinstance(id_, bool) or not isinstance(id_, str | int):
            return None
        return self._number_of.get(id_)

    def sequence_of(self, id_: Id) -> int:
        """Return the place of an id in the order of adding."""
        return self._filters[self._number_of[id_]].ids[id_]

    def is_regular(self, number: FilterNumber) -> bool:
        """Return whether all answers about a filter are exact, as far as the other's are."""
        return self._filters[number].is_regular

    def wider(self, number: FilterNumber, among: FilterSet) -> Iterator[FilterNumber]:
        """Yield those of some filters that cover one."""
        return self._wider(self._filters[number], among)

    def narrower(self, number: FilterNumber, among: FilterSet) -> Iterator[FilterNumber]:
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
        assert set(self._everything) == set(self._filters)  # noqa: S101
        for number, stored in self._filters.items():
            assert self._numbers[stored.key] == number, "keys lead to filters"  # noqa: S101
            assert stored.number == number  # noqa: S101
            assert stored.is_never == (number in self._never)  # noqa: S101
        self._cubes.assert_consistent()
