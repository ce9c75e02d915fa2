"""Filters as a covering index sees them, and how two of them relate.

Most pairs need no diagram: an event refutes that a filter covers another, or cubes prove it. Both
agree with `Space`, which decides what is left.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, Unpack

from tamis.covering.cubes import (
    EVERYWHERE,
    Cube,
    Geometry,
    InnerForms,
    NormalForm,
    Outer,
    OuterForms,
    common,
    meet,
)
from tamis.covering.probes import Probe, ProbeMaker, corner_values
from tamis.diagrams import Space
from tamis.diagrams.diagram import BudgetExceededError
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.relations import BUDGET_STEPS, RelationOptions
from tamis.diagrams.value_order import outside
from tamis.diagrams.variable_order import ComparedPair, compared_pair
from tamis.diagrams.witness import cells_of_a_path
from tamis.events import Event
from tamis.filters import TRUE, Filter, Mode
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.boolean import And, Constant, Not, Or, Xor, require_filter
from tamis.filters.element_test import refuse_element_tests
from tamis.filters.modes import as_mode

# What an atom or filter may be somewhere in a cube.
CAN_BE_TRUE: Final = 1
CAN_BE_FALSE: Final = 2
CAN_BE_UNKNOWN: Final = 4
CAN_BE_ANYTHING: Final = CAN_BE_TRUE | CAN_BE_FALSE | CAN_BE_UNKNOWN

# Cubes in which an event is sought that refutes a covering, and events to remember.
MAX_REFUTED_CUBES: Final = 16
MAX_PROBES: Final = 16

# With more cubes on both sides, diagrams are faster than comparing them.
MAX_CUBE_PAIRS: Final = 256


class ComparedFilter:
    """A filter with what an index needs to compare it."""

    __slots__ = (
        "cube",
        "filter",
        "form",
        "is_free",
        "is_never",
        "is_plain",
        "is_regular",
        "last",
        "outer",
        "pairs",
        "probes",
        "required_pairs",
    )

    def __init__(self, filter_: Filter, form: NormalForm, outer: Outer) -> None:
        self.filter: Final = filter_
        """Bound to the schema."""
        self.form: Final = form
        self.outer: Final = outer
        self.is_plain: Final = form.complete and all(cube.is_plain for cube in form.cubes)
        """Whether it is known as plain cubes."""
        self.is_free: Final = form.complete and all(cube.is_free for cube in form.cubes)
        """Whether it is known as cubes that a diagram says nothing else about."""
        self.pairs: frozenset[ComparedPair] = frozenset()
        """The sides that it compares."""
        self.required_pairs: frozenset[ComparedPair] = frozenset()
        """Those of them that it cannot be true without."""
        self.cube: Cube | None = None
        """What the filter is, if that is one plain cube."""
        self.is_regular = False
        """Whether it has only atoms that are intervals, of which all answers are exact."""
        self.is_never = False
        """Whether it is known that no event matches."""
        self.probes: list[Probe] = []
        """Events that match it; at first some, later also those that refuted a covering."""
        self.last: Probe
        """The last of the first ones, which tells the most beside the first."""

    @property
    def key(self) -> Hashable:
        """Return a key that only equal filters share."""
        if self.cube is None:
            return self.filter
        return frozenset(self.cube.positions.items())


class FilterRelations:
    """How filters relate, for the events of a mode and schema."""

    def __init__(self, **options: Unpack[RelationOptions]) -> None:
        self.space: Final = Space(**options)
        self._mode: Final = as_mode(options.get("mode", Mode.SQL))
        self._schema: Final = options.get("schema")
        self._many: Final = options.get("many", False)
        self._budget: Final = options.get("budget", BUDGET_STEPS)
        self.geometry: Final = Geometry(self._mode, self._schema, many=self._many)
        self._inner: Final = InnerForms(self.geometry)
        self._outer: Final = OuterForms(self.geometry)
        template = self.space.is_never(TRUE).event if self._mode is Mode.TOTAL else None
        self._maker: Final = ProbeMaker(self._mode, self._schema, template or Event({}))
        self._is_strict: Final = self._mode is Mode.STRICT

    # --- one filter --------------------------------------------------------------------------

    def profile(self, filter_: Filter) -> ComparedFilter:
        """Return what there is to know about a filter before it meets others."""
        checked = require_filter(filter_)
        refuse_element_tests(checked, "an index of covering")
        bound = checked if self._schema is None else checked.bind(self._schema)
        form = self._inner.where(bound, truth=True)
        outer = form.cubes if form.complete else self._outer.where(bound, truth=True)
        found = ComparedFilter(bound, form, outer)
        sides = self.geometry.sides
        found.is_regular = all(sides(atom).unknown is not None for atom in bound.atoms())
        if not found.is_regular:
            found.pairs = _pairs(bound.atoms())
            found.required_pairs = _required_pairs(form)
        if found.is_plain and len(form.cubes) == 1 and not self._is_strict:
            found.cube = form.cubes[0]
        self._find_probes(found)
        if found.probes:
            found.last = found.probes[-1]
        return found

    def _find_probes(self, profile: ComparedFilter) -> None:
        cubes = profile.form.cubes
        if not cubes and profile.form.complete:
            profile.is_never = True
            return
        plain = [cube for cube in cubes if cube.is_plain]
        self._keep_matching(profile, self._maker, plain)
        if profile.probes:
            return
        answer = self.space.is_never(profile.filter)
        profile.is_never = answer.yes
        if answer.event is not None:
            profile.probes.append(self._maker.probe(answer.event))
            around = ProbeMaker(self._mode, self._schema, answer.event)
            self._keep_matching(profile, around, [_untouched(cube) for cube in cubes[:2]])
        elif not answer.yes:
            profile.probes.append(self._partial_probe(profile.filter))

    def _keep_matching(
        self, profile: ComparedFilter, maker: ProbeMaker, cubes: Sequence[Cube]
    ) -> None:
        """Keep those corners of cubes that match: other parts of the filter may want more."""
        if not cubes:
            return
        for probe in maker.corners(cubes, self.geometry):
            if self._maker.matches(profile.filter, probe):
                profile.probes.append(probe)

    def _partial_probe(self, filter_: Filter) -> Probe:
        """Return what a path through the diagram of a filter says of every event on it."""
        encoding = Encoding(
            [filter_], self._mode, self._schema, many=self._many, budget=self._budget
        )
        any_text = any(isinstance(atom, AnyText) for atom in filter_.atoms())
        if any_text or self._mode is Mode.TOTAL:
            return self._maker.partial({}, None)
        try:
            cells = cells_of_a_path(encoding, encoding.matching_just([(filter_, True)]))
        except BudgetExceededError:
            return self._maker.partial({}, None)
        orders = self.geometry.value_order
        values = {
            name: corner_values(orders(name), cell)[0]
            for name, cell in cells.items()
            if cell is not None
        }
        return self._maker.partial(values, frozenset(n for n, cell in cells.items() if not cell))

    # --- two filters -------------------------------------------------------------------------

    def matches(self, filter_: Filter, probe: Probe) -> bool:
        """Return whether a filter that is bound to the schema matches an event."""
        return self._maker.matches(filter_, probe)

    def corner(self, cube: Cube) -> Probe:
        """Return the event with the lowest values of a cube."""
        return self._maker.corner(cube, self.geometry)

    def matches_probes(self, wide: ComparedFilter, narrow: ComparedFilter) -> bool:
        """Return whether a filter matches all events that another is known to match."""
        return all(
            self._maker.matches(wide.filter, probe) for probe in narrow.probes if probe.is_event
        )

    def covers(self, wide: ComparedFilter, narrow: ComparedFilter) -> bool:
        """Return whether a filter covers another, as `Space` would answer."""
        if narrow.is_never or wide is narrow:
            return True
        if wide.is_never:
            return False
        if wide.cube is not None and narrow.form.complete:
            inside = all(cube.is_within(wide.cube) for cube in narrow.form.cubes)
            if inside or (narrow.is_free and not self._is_strict):
                return inside
        if not self.matches_probes(wide, narrow):
            return False
        if self.is_proved(wide, narrow):
            return True
        if self._is_refuted(wide, narrow):
            return False
        if narrow.probes[0].is_event and not wide.required_pairs <= narrow.pairs:
            # A diagram concludes nothing about sides that only one of the filters compares.
            return False
        return self.space.surely_covers(wide.filter, narrow.filter)

    def is_proved(self, wide: ComparedFilter, narrow: ComparedFilter) -> bool:
        """Return whether a filter is true all over the cubes that contain another."""
        if narrow.outer is None or self._is_strict:
            return False
        return all(self._outcomes(wide.filter, cube) == CAN_BE_TRUE for cube in narrow.outer)

    def _is_refuted(self, wide: ComparedFilter, narrow: ComparedFilter) -> bool:
        """Look for an event in the cubes of a filter that another does not match."""
        is_open = narrow.is_free and wide.is_regular and not self._is_strict
        cubes = [cube for cube in narrow.form.cubes if is_open or cube.is_plain]
        for cube in cubes[:MAX_REFUTED_CUBES]:
            part = self._avoiding(wide.filter, cube, truth=True)
            if part is None:
                continue
            probe = self._maker.corner(part, self.geometry)
            if self._maker.matches(wide.filter, probe):
                continue
            if self._maker.matches(narrow.filter, probe):
                if len(narrow.probes) < MAX_PROBES:
                    # It will refute others too.
                    narrow.probes.append(probe)
                return True
            if is_open and not part.some and probe.may_be_in(part):
                # A diagram leaves open whether the narrow one is true there.
                return True
        return False

    def _avoiding(self, filter_: Filter, cube: Cube, *, truth: bool) -> Cube | None:
        """Return a part of a cube on which a filter may not be true, or not false.

        Parts are chosen greedily, so this is worth a try and proves nothing.
        """
        match filter_:
            case Not(term=term):
                return self._avoiding(term, cube, truth=not truth)
            case Constant(value=value):
                return None if value is truth else cube
            case And(terms=terms) | Or(terms=terms):
                if isinstance(filter_, And) is truth:
                    parts = (self._avoiding(term, cube, truth=truth) for term in terms)
                    return next((part for part in parts if part is not None), None)
                found: Cube | None = cube
                for term in terms:
                    found = found and self._avoiding(term, found, truth=truth)
                return found
            case Xor():
                return cube
            case _:
                return self._avoiding_atom(filter_, cube, truth=truth)

    def _avoiding_atom(self, atom: Filter, cube: Cube, *, truth: bool) -> Cube | None:
        sides = self.geometry.sides(atom)
        if sides.unknown is None:
            return cube
        side = sides.true if truth else sides.false
        if side is None:
            return cube
        name = next(iter(atom.attributes()))
        if name not in side.positions:
            return None
        held = cube.positions.get(name, EVERYWHERE)
        left = common(held, outside(side.positions[name]))
        return Cube({**cube.positions, name: left}) if left else None

    def _outcomes(self, filter_: Filter, cube: Cube) -> int:
        """Return what a filter may be on the events of a cube; rather too much than too little."""
        match filter_:
            case And(terms=terms):
                return self._joined(terms, cube, CAN_BE_TRUE, CAN_BE_FALSE)
            case Or(terms=terms):
                return self._joined(terms, cube, CAN_BE_FALSE, CAN_BE_TRUE)
            case Not(term=term):
                outcomes = self._outcomes(term, cube)
                turned = outcomes & CAN_BE_UNKNOWN
                turned |= CAN_BE_FALSE if outcomes & CAN_BE_TRUE else 0
                return turned | (CAN_BE_TRUE if outcomes & CAN_BE_FALSE else 0)
            case Constant(value=value):
                return CAN_BE_TRUE if value else CAN_BE_FALSE
            case Xor(terms=terms):
                return self._parity(terms, cube)
            case _:
                return self._outcomes_of_atom(filter_, cube)

    def _joined(self, terms: Sequence[Filter], cube: Cube, neutral: int, decisive: int) -> int:
        """Return the outcomes of `and`, which false decides, or of `or`, which true decides."""
        outcomes = neutral
        for term in terms:
            one = self._outcomes(term, cube)
            if one == decisive:
                return decisive
            if not one & neutral:
                outcomes &= ~neutral
            outcomes |= one & ~neutral
        return outcomes

    def _parity(self, terms: Sequence[Filter], cube: Cube) -> int:
        is_odd, is_open, unknown = False, False, 0
        for term in terms:
            one = self._outcomes(term, cube)
            unknown |= one & CAN_BE_UNKNOWN
            is_odd ^= bool(one & CAN_BE_TRUE)
            is_open |= one & ~CAN_BE_UNKNOWN not in (CAN_BE_TRUE, CAN_BE_FALSE)
        if is_open:
            return CAN_BE_TRUE | CAN_BE_FALSE | unknown
        return (CAN_BE_TRUE if is_odd else CAN_BE_FALSE) | unknown

    def _outcomes_of_atom(self, atom: Filter, cube: Cube) -> int:
        true, false, unknown = self.geometry.sides(atom)
        if unknown is None:
            if (atom, True) in cube.literals:
                return CAN_BE_TRUE
            return CAN_BE_FALSE if (atom, False) in cube.literals else CAN_BE_ANYTHING
        name = next(iter(atom.attributes()))
        held = cube.positions.get(name)
        outcomes = 0
        for outcome, side in ((CAN_BE_TRUE, true), (CAN_BE_FALSE, false)):
            if side is not None:
                there = side.positions.get(name)
                if held is None or there is None or meet(held, there):
                    outcomes |= outcome
        if unknown and (held is None or meet(held, unknown)):
            outcomes |= CAN_BE_UNKNOWN
        return outcomes

    def intersects(self, one: ComparedFilter, other: ComparedFilter) -> bool:
        """Return whether some event may match both, as `Space` would answer."""
        if one.is_never or other.is_never:
            return False
        ours, theirs = one.outer, other.outer
        if ours is not None and theirs is not None and len(ours) * len(theirs) <= MAX_CUBE_PAIRS:
            near = any(cube.meets(another) for cube in ours for another in theirs)
            if not near or (one.is_plain and other.is_plain and not self._is_strict):
                return near
        if self._share_probe(one, other) or self._share_probe(other, one):
            return True
        return not self.space.surely_disjoint(one.filter, other.filter)

    def _share_probe(self, one: ComparedFilter, other: ComparedFilter) -> bool:
        return any(self._maker.matches(other.filter, p) for p in one.probes if p.is_event)


def _untouched(cube: Cube) -> Cube:
    """Return a cube without the attributes that its literals test."""
    tested = {name for atom, _ in cube.literals for name in atom.attributes()}
    return Cube({n: held for n, held in cube.positions.items() if n not in tested})


def _pairs(atoms: Iterable[Filter]) -> frozenset[ComparedPair]:
    """Return the sides that comparisons compare, but not of one with itself."""
    pairs = (compared_pair(atom) for atom in atoms if isinstance(atom, Relation))
    return frozenset(pair for pair in pairs if pair.left != pair.right)


def _required_pairs(form: NormalForm) -> frozenset[ComparedPair]:
    if not form.complete or not form.cubes:
        return frozenset()
    required = [_pairs(atom for atom, truth in cube.literals if truth) for cube in form.cubes]
    return required[0].intersection(*required[1:])
