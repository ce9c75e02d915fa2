"""Cubes: for some attributes the positions that a value may take, without a diagram.

A filter is a union of cubes, as a disjunctive normal form is a union of conjunctions. Where an atom
is a union of intervals of an attribute's value order, a cube says all there is to say about it; any
other atom is kept as a *literal*, with the positions that it requires at least. Cubes without
literals are *plain*: they contain exactly the events whose values lie in their positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final, NamedTuple, TypeVar

from tamis.diagrams.atom_intervals import intervals_of
from tamis.diagrams.pairs import computes
from tamis.diagrams.value_order import (
    BEGIN,
    END,
    NUMBERS,
    Interval,
    ValueOrder,
    merged,
    outside,
)
from tamis.diagrams.variable_order import compared_pair
from tamis.events import Schema
from tamis.filters import Filter, Mode
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Atom
from tamis.filters.boolean import TruthSets

T = TypeVar("T")

Positions = tuple[Interval, ...]
"""Where a value may lie, as disjoint intervals of the value order, ascending."""

EVERYWHERE: Final[Positions] = ((BEGIN, END),)

# Atoms to remember; what they say of their attributes takes microseconds to find.
MAX_KNOWN_ATOMS: Final = 65_536


def common(one: Positions, other: Positions) -> Positions:
    """Return the positions that lie in both."""
    if len(one) == 1 and len(other) == 1:
        low = max(one[0][0], other[0][0])
        high = min(one[0][1], other[0][1])
        return ((low, high),) if low < high else ()
    found: list[Interval] = []
    first = second = 0
    while first < len(one) and second < len(other):
        low = max(one[first][0], other[second][0])
        high = min(one[first][1], other[second][1])
        if low < high:
            found.append((low, high))
        if one[first][1] < other[second][1]:
            first += 1
        else:
            second += 1
    return tuple(found)


def is_within(inner: Positions, outer: Positions) -> bool:
    """Return whether all positions lie in the others."""
    if len(outer) == 1:
        low, high = outer[0]
        return not inner or (low <= inner[0][0] and inner[-1][1] <= high)
    at = 0
    for low, high in inner:
        while at < len(outer) and outer[at][1] < high:
            at += 1
        if at == len(outer) or low < outer[at][0]:
            return False
    return True


def meet(one: Positions, other: Positions) -> bool:
    """Return whether some position lies in both."""
    first = second = 0
    while first < len(one) and second < len(other):
        low = max(one[first][0], other[second][0])
        if low < min(one[first][1], other[second][1]):
            return True
        if one[first][1] < other[second][1]:
            first += 1
        else:
            second += 1
    return False


SidedAtom = tuple[Filter, bool]
"""An atom, and whether it is true or false."""


class Cube(NamedTuple):
    """What some conjunction requires of single attributes."""

    positions: dict[str, Positions]
    """For attributes that hold one value each, where it may lie."""
    some: tuple[tuple[str, Positions], ...] = ()
    """For attributes that may hold several values, where some value lies."""
    literals: frozenset[SidedAtom] = frozenset()
    """The atoms of which this says less than they do."""

    @property
    def is_plain(self) -> bool:
        """Return whether the positions are all that the cube requires."""
        return not self.literals

    @property
    def is_free(self) -> bool:
        """Return whether a diagram, at each of the positions, leaves open what else is required.

        It does so for arithmetic of which each pair of sides is compared once.
        """
        if not self.literals:
            return True
        if self.some or not all(_is_computed(atom) for atom, _ in self.literals):
            return False
        pairs = {compared_pair(atom) for atom, _ in self.literals if isinstance(atom, Relation)}
        return len(pairs) == len(self.literals)

    def intersected(self, other: Cube) -> Cube | None:
        """Return what lies in both cubes; None if nothing does."""
        positions = dict(self.positions)
        for name, theirs in other.positions.items():
            ours = positions.get(name)
            if ours is None:
                positions[name] = theirs
            elif ours is not theirs:
                both = common(ours, theirs)
                if not both:
                    return None
                positions[name] = both
        if not (self.literals or other.literals or self.some or other.some):
            return Cube(positions)
        literals = self.literals | other.literals
        if any((atom, not truth) in literals for atom, truth in literals):
            return None
        return Cube(positions, self.some + other.some, literals)

    def is_within(self, wide: Cube) -> bool:
        """Return whether this cube lies in a plain one."""
        ours = self.positions
        for name, theirs in wide.positions.items():
            held = ours.get(name)
            if held is None or not (held is theirs or is_within(held, theirs)):
                return False
        return True

    def meets(self, other: Cube) -> bool:
        """Return whether the positions of two cubes have something in common."""
        small, large = self.positions, other.positions
        if len(small) > len(large):
            small, large = large, small
        for name, held in small.items():
            theirs = large.get(name)
            if theirs is not None and theirs is not held and not meet(held, theirs):
                return False
        return True


EVERYTHING: Final = Cube({})


def _is_computed(atom: Filter) -> bool:
    """Return whether an atom compares two different sides by arithmetic."""
    if not isinstance(atom, Relation):
        return False
    pair = compared_pair(atom)
    return computes(pair) and pair.left != pair.right


class AtomSides(NamedTuple):
    """Where an atom is true, and where it is false, each as a cube or as nothing."""

    true: Cube | None
    false: Cube | None
    unknown: Positions | None
    """Where it is neither; None for an atom that is not a union of intervals."""


class Geometry:
    """Atoms as cubes, for the events of a mode and schema."""

    def __init__(self, mode: Mode, schema: Schema | None, *, many: bool) -> None:
        self.mode: Final = mode
        self._schema: Final = schema
        self._many: Final = many
        self._undeclared: Final = ValueOrder(None, mode, many=many)
        self._orders: Final[dict[str, ValueOrder]] = {}
        self._sides: Final[dict[Filter, AtomSides]] = {}
        self._unknown: Final[dict[tuple[ValueOrder, type[Atom], object], Positions]] = {}
        """Where tests of a kind of value are neither true nor false."""

    def value_order(self, name: str) -> ValueOrder:
        """Return the value order of an attribute; undeclared ones share theirs."""
        if self._schema is None or name not in self._schema:
            return self._undeclared
        if name not in self._orders:
            self._orders[name] = ValueOrder(self._schema[name], self.mode, many=self._many)
        return self._orders[name]

    def sides(self, atom: Filter) -> AtomSides:
        """Return where an atom is true and where it is false."""
        found = self._sides.get(atom)
        if found is None:
            if len(self._sides) >= MAX_KNOWN_ATOMS:
                self._sides.clear()
            found = self._sides[atom] = self._find_sides(atom)
        return found

    def _find_sides(self, atom: Filter) -> AtomSides:
        if isinstance(atom, Relation):
            return self._relation(atom)
        if not isinstance(atom, Atom):
            return _literal(atom, EVERYTHING, EVERYTHING)
        regular = self.regular(atom)
        if regular is not None:
            true, unknown = regular
            false = _without(outside(unknown), true)
            return AtomSides(_cube(atom.attribute, true), _cube(atom.attribute, false), unknown)
        order = self.value_order(atom.attribute)
        intervals = intervals_of(atom, order)
        known = self._known(atom, order) if self.mode.is_three_valued else EVERYWHERE
        passing = self._known(atom, order) if intervals is None else merged(intervals)
        if atom.passes(order.default):
            passing = EVERYWHERE
        if atom.known() is None and order.many:
            # Not to be there is nothing that one value shows.
            known = EVERYWHERE
        return _literal(
            atom,
            _cube(atom.attribute, passing, many=order.many),
            _cube(atom.attribute, known, many=order.many),
        )

    def regular(self, atom: Filter) -> tuple[Positions, Positions] | None:
        """Return where an atom is true and where it is unknown; None if it is not intervals."""
        if not isinstance(atom, Atom):
            return None
        order = self.value_order(atom.attribute)
        intervals = None if order.many else intervals_of(atom, order)
        if intervals is None:
            return None
        if atom.passes(order.default):
            intervals = (*intervals, (BEGIN, order.present()[0]))
        true = merged(intervals)
        if not self.mode.is_three_valued:
            return true, ()
        test = order, type(atom), getattr(atom, "kind", None)
        if test not in self._unknown:
            self._unknown[test] = outside(self._known(atom, order))
        return true, self._unknown[test]

    def _known(self, atom: Atom, order: ValueOrder) -> Positions:
        """Return the positions of the values that an atom can judge."""
        known = atom.known()
        intervals = None if known is None else intervals_of(known, order)
        return EVERYWHERE if intervals is None else merged(intervals)

    def _relation(self, atom: Relation) -> AtomSides:
        cube: Cube | None = EVERYTHING
        for name in sorted(atom.attributes()):
            order = self.value_order(name)
            if cube is not None and order.default is None:
                needed = order.present()
                if computes(compared_pair(atom)):
                    needed = order.begin(NUMBERS), order.end(NUMBERS)
                there = _cube(name, merged((needed,)), many=order.many)
                cube = None if there is None else cube.intersected(there)
        return _literal(atom, cube, cube if self.mode.is_three_valued else EVERYTHING)


def _cube(name: str, positions: Positions, *, many: bool = False) -> Cube | None:
    if not positions:
        return None
    if positions == EVERYWHERE:
        return EVERYTHING
    return Cube({}, ((name, positions),)) if many else Cube({name: positions})


def _literal(atom: Filter, true: Cube | None, false: Cube | None) -> AtomSides:
    """Return the sides of an atom of which cubes say too little."""
    if true is not None:
        true = true._replace(literals=frozenset(((atom, True),)))
    if false is not None:
        false = false._replace(literals=frozenset(((atom, False),)))
    return AtomSides(true, false, None)


def _without(positions: Positions, removed: Positions) -> Positions:
    return common(positions, outside(removed))


class NormalForm(NamedTuple):
    """Cubes that lie in a filter, and whether they are all of it."""

    cubes: Sequence[Cube]
    complete: bool = True


# A form with more cubes keeps some of them, far from each other.
MAX_CUBES: Final = 16
# Pairs of cubes that a conjunction combines.
MAX_PAIRED_CUBES: Final = 32
_PRIME: Final = 7_919
# A filter is filed under at most so many cubes.
MAX_OUTER_CUBES: Final = 24


class InnerForms(TruthSets[NormalForm]):
    """Filters as the cubes that they consist of, or some of them."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry

    def _constant(self, value: bool) -> NormalForm:
        return NormalForm((EVERYTHING,) if value else ())

    def _all(self, parts: Sequence[NormalForm]) -> NormalForm:
        found: Sequence[Cube] = (EVERYTHING,)
        complete = True
        for cubes, is_complete in parts:
            complete = complete and is_complete
            if len(cubes) == 1 and len(found) == 1:
                both = found[0].intersected(cubes[0])
                found = () if both is None else (both,)
            else:
                pairs: Sequence[tuple[Cube, Cube]] = [*product(found, cubes)]
                if len(pairs) > MAX_PAIRED_CUBES:
                    pairs, complete = _some(pairs), False
                both_of = (one.intersected(other) for one, other in pairs)
                found = [both for both in both_of if both is not None]
            if len(found) > MAX_CUBES:
                found, complete = _some(found), False
            if not found and complete:
                break
        return NormalForm(found, complete)

    def _any(self, parts: Sequence[NormalForm]) -> NormalForm:
        found = _joined_by_attribute([cube for cubes, _ in parts for cube in cubes])
        complete = all(is_complete for _, is_complete in parts)
        if len(found) > MAX_CUBES:
            return NormalForm(_some(found), complete=False)
        return NormalForm(found, complete)

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> NormalForm:
        odds, evens = self._constant(False), self._constant(True)
        for term in terms:
            true, false = self.where(term, truth=True), self.where(term, truth=False)
            odds, evens = (
                self._any([self._all([odds, false]), self._all([evens, true])]),
                self._any([self._all([odds, true]), self._all([evens, false])]),
            )
        return odds if odd else evens

    def _atom(self, atom: Filter, *, truth: bool) -> NormalForm:
        sides = self._geometry.sides(atom)
        cube = sides.true if truth else sides.false
        return NormalForm(() if cube is None else (cube,))


def _joined_by_attribute(cubes: Sequence[Cube]) -> Sequence[Cube]:
    """Return the same with one cube for all that restrict just the same attribute."""
    joined: dict[str, Cube] = {}
    others: list[Cube] = []
    for cube in cubes:
        if len(cube.positions) != 1 or not cube.is_plain:
            others.append(cube)
            continue
        [(name, positions)] = cube.positions.items()
        if name in joined:
            positions = merged((*joined[name].positions[name], *positions))
        joined[name] = Cube({name: positions})
    if any(cube.positions == {name: EVERYWHERE} for name, cube in joined.items()):
        return (EVERYTHING,)
    return [*joined.values(), *others] if len(joined) + len(others) < len(cubes) else cubes


def _some(given: Sequence[T]) -> Sequence[T]:
    """Return some, scattered: pairs at equal distances may share one side."""
    return [given[number * _PRIME % len(given)] for number in range(MAX_CUBES)]


Outer = Sequence[Cube] | None
"""Cubes that contain a filter; None if no few cubes do."""


class OuterForms(TruthSets[Outer]):
    """Filters as a few cubes that contain them: of a conjunction, the parts that require most."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry

    def _constant(self, value: bool) -> Outer:
        return None if value else ()

    def _all(self, parts: Sequence[Outer]) -> Outer:
        single: Cube | None = EVERYTHING
        several: Sequence[Cube] = ()
        for cubes in parts:
            if cubes is None:
                continue
            if not cubes:
                return ()
            if len(cubes) > 1:
                if not several or len(cubes) < len(several):
                    several = cubes
            elif single is not None:
                single = single.intersected(cubes[0])
        if single is None:
            return ()
        if several:
            pairs = map(single.intersected, several)
            return [cube for cube in pairs if cube is not None]
        return None if single is EVERYTHING else (single,)

    def _any(self, parts: Sequence[Outer]) -> Outer:
        found: list[Cube] = []
        for cubes in parts:
            if cubes is None:
                return None
            found += cubes
        return None if len(found) > MAX_OUTER_CUBES else found

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> Outer:  # noqa: ARG002 - both are
        known = [
            self._any([self.where(term, truth=True), self.where(term, truth=False)])
            for term in terms
        ]
        return self._all(known)

    def _atom(self, atom: Filter, *, truth: bool) -> Outer:
        sides = self._geometry.sides(atom)
        cube = sides.true if truth else sides.false
        if cube is None:
            return ()
        return None if not cube.positions and not cube.some else (cube,)


def hull(cubes: Iterable[Cube]) -> dict[str, Positions]:
    """Return for the attributes that all cubes restrict where their values lie."""
    found: dict[str, Positions] | None = None
    for cube in cubes:
        if found is None:
            found = dict(cube.positions)
            continue
        found = {
            name: merged((*held, *cube.positions[name]))
            for name, held in found.items()
            if name in cube.positions
        }
    return found or {}
