"""Filters as programs: what kernels decide about pairs of filters without a diagram.

Only filters of atoms that are unions of intervals have one. Of two such filters, a search over the
attributes that several atoms test decides exactly, as `Space` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.covering.access import is_point
from tamis.covering.breakpoints import BreakpointNumbers
from tamis.covering.cubes import Cube, Geometry, Outer, Positions
from tamis.covering.probes import Probe
from tamis.covering.program_kernels import (
    ATOM_WORDS,
    CAN_BE_FALSE,
    CAN_BE_TRUE,
    CAN_BE_UNKNOWN,
    FIRST_PROBE,
    HEADER,
    IS_POINT,
    LITERALS_AT,
    MAX_ATOMS,
    MAX_NODES,
    MAX_PROBES,
    MAX_SEGMENTS,
    NEGATIVE,
    OP_AND,
    OP_ATOM,
    OP_CONSTANT,
    OP_NOT,
    OP_OR,
    OP_XOR,
    OPEN,
    OPERATOR_BITS,
    POSITIVE,
    PROBES,
    PROBES_AT,
    SEGMENT_BITS,
)
from tamis.diagrams.value_order import (
    BEGIN,
    BRACKET_OF_KIND,
    END,
    NUMBERS,
    Breakpoint,
    ValueOrder,
)
from tamis.events import Kind
from tamis.filters import Filter
from tamis.filters.atoms import Atom
from tamis.filters.boolean import And, Constant, Not, Or, Xor

# Atoms to remember.
MAX_KNOWN_ATOMS: Final = 131_072

_BITS: Final = BRACKET_OF_KIND[Kind.BITS]

ProgramWords = NDArray[np.int32]


class CompiledAtom(NamedTuple):
    """An atom as words."""

    attribute: int
    segments: tuple[int, ...]
    outcomes: int
    """What it may be anywhere."""


class _NotCompiledError(Exception):
    """The filter has an atom that is no union of intervals, or is too large."""


class ProgramCompiler:
    """Writes programs, for the events of a mode and schema."""

    def __init__(self, geometry: Geometry, points: BreakpointNumbers) -> None:
        self._geometry: Final = geometry
        self._points: Final = points
        self._atoms: Final[dict[Filter, CompiledAtom | None]] = {}

    def program(self, filter_: Filter) -> ProgramWords | None:
        """Return a filter as a program with room for its description; None if it has none."""
        nodes: list[int] = []
        atoms: list[CompiledAtom] = []
        polarities: list[int] = []
        try:
            self._write(filter_, POSITIVE, nodes, atoms, polarities)
        except _NotCompiledError:
            return None
        return _joined(nodes, atoms, polarities)

    def outer_program(self, outer: Outer) -> ProgramWords | None:
        """Return cubes that contain a filter as a program; None if they are many."""
        nodes: list[int] = []
        atoms: list[CompiledAtom] = []
        for cube in (Cube({}),) if outer is None else outer:
            held = [one for one in cube.positions.items() if not _has_bits(one[1])]
            for name, positions in held:
                attribute = self._points.attribute(name)
                order = self._geometry.value_order(name)
                atoms.append(self._compiled(attribute, order, positions, ()))
                nodes.append(OP_ATOM)
            nodes.append(_joining(OP_AND, len(held)))
        nodes.append(_joining(OP_OR, 1 if outer is None else len(outer)))
        return _joined(nodes, atoms, [POSITIVE] * len(atoms))

    def probing_program(self, probes: Sequence[Probe]) -> ProgramWords:
        """Return a program that has only the probes of a filter."""
        words = [0] * HEADER
        words[PROBES_AT] = words[FIRST_PROBE] = words[LITERALS_AT] = HEADER
        for probe in probes[:MAX_PROBES]:
            if probe.is_blank:
                continue
            words[PROBES] += 1
            begin = len(words)
            words.append(0)
            for name in probe.open:
                words += (self._points.attribute(name), OPEN)
            for name, places in probe.places.items():
                # Filters of an attribute with several values have no programs.
                if name not in probe.open and len(places) == 1:
                    attribute = self._points.attribute(name)
                    words += (attribute, self._points.number(attribute, _ordered(places[0])))
            words[begin] = (len(words) - begin - 1) // 2
        return np.array(words, np.int32)

    # --- parts -------------------------------------------------------------------------------

    def _write(
        self,
        filter_: Filter,
        polarity: int,
        nodes: list[int],
        atoms: list[CompiledAtom],
        polarities: list[int],
    ) -> None:
        match filter_:
            case And(terms=terms) | Or(terms=terms):
                for term in terms:
                    self._write(term, polarity, nodes, atoms, polarities)
                nodes.append(_joining(OP_AND if isinstance(filter_, And) else OP_OR, len(terms)))
            case Xor(terms=terms):
                for term in terms:
                    self._write(term, POSITIVE | NEGATIVE, nodes, atoms, polarities)
                nodes.append(_joining(OP_XOR, len(terms)))
            case Not(term=term):
                self._write(term, _TURNED[polarity], nodes, atoms, polarities)
                nodes.append(OP_NOT)
            case Constant(value=value):
                nodes.append(_joining(OP_CONSTANT, value))
            case _:
                atom = self._atom(filter_)
                if atom is None:
                    raise _NotCompiledError
                atoms.append(atom)
                polarities.append(polarity)
                nodes.append(OP_ATOM)
        if len(nodes) > MAX_NODES or len(atoms) > MAX_ATOMS:
            raise _NotCompiledError

    def _atom(self, atom: Filter) -> CompiledAtom | None:
        try:
            return self._atoms[atom]
        except KeyError:
            pass
        if len(self._atoms) >= MAX_KNOWN_ATOMS:
            self._atoms.clear()
        found = self._atoms[atom] = self._find_atom(atom)
        return found

    def _find_atom(self, atom: Filter) -> CompiledAtom | None:
        regular = self._geometry.regular(atom)
        if regular is None or not isinstance(atom, Atom) or _has_bits(regular[0]):
            return None
        order = self._geometry.value_order(atom.attribute)
        return self._compiled(self._points.attribute(atom.attribute), order, *regular)

    def _compiled(
        self, attribute: int, order: ValueOrder, true: Positions, unknown: Positions
    ) -> CompiledAtom:
        parts = [(low, high, CAN_BE_TRUE) for low, high in true]
        parts += [(low, high, CAN_BE_UNKNOWN) for low, high in unknown]
        parts.sort()
        number = self._points.number
        segments, every = list[int](), 0
        at = BEGIN
        for low, high, outcome in parts:
            if at < low:
                # What lies between them is false.
                single = IS_POINT if _is_point(order, at, low) else 0
                segments.append(number(attribute, at) << SEGMENT_BITS | single | CAN_BE_FALSE)
                every |= CAN_BE_FALSE
            single = IS_POINT if _is_point(order, low, high) else 0
            segments.append(number(attribute, low) << SEGMENT_BITS | single | outcome)
            every |= outcome
            at = high
        if at < END:
            single = IS_POINT if _is_point(order, at, END) else 0
            segments.append(number(attribute, at) << SEGMENT_BITS | single | CAN_BE_FALSE)
            every |= CAN_BE_FALSE
        return CompiledAtom(attribute, tuple(segments), every)


def _is_point(order: ValueOrder, low: Breakpoint, high: Breakpoint) -> bool:
    """Return whether there is a single value between two breakpoints; most often this is clear."""
    if len(low) < 2 or (low[0] == NUMBERS == high[0] and len(high) == 2 and high[1] - low[1] > 1):
        return False
    return is_point(order, (low, high))


_TURNED: Final = {
    POSITIVE: NEGATIVE,
    NEGATIVE: POSITIVE,
    POSITIVE | NEGATIVE: POSITIVE | NEGATIVE,
}


def _has_bits(positions: Positions) -> bool:
    """Return whether positions end at bit sets, which have no order among themselves."""
    return any(end[0] == _BITS and len(end) == 2 for interval in positions for end in interval)


def _joining(op: int, count: int) -> int:
    return op | count << OPERATOR_BITS


def _ordered(place: Breakpoint) -> Breakpoint:
    """Return a place that can be compared with others: all bit sets are in one."""
    return (_BITS,) if place[0] == _BITS else place


def _joined(
    nodes: Sequence[int], atoms: Sequence[CompiledAtom], polarities: Sequence[int]
) -> ProgramWords | None:
    """Return the words of a program, and room for what `describe` writes."""
    if len(nodes) > MAX_NODES or len(atoms) > MAX_ATOMS:
        return None
    place = HEADER + len(nodes) + ATOM_WORDS * (len(atoms) + 1)
    words = [len(nodes), len(atoms), 0, 0, 0, 0, 0, 0, *nodes]
    for atom, polarity in zip(atoms, polarities, strict=True):
        words += (atom.attribute, place, atom.outcomes, polarity)
        place += len(atom.segments)
    words += (0, place, 0, 0)
    if place - len(words) > MAX_SEGMENTS:
        return None
    for atom in atoms:
        words += atom.segments
    words[LITERALS_AT] = place
    room = 2 * len(atoms) + MAX_PROBES * (1 + 2 * len(atoms))
    return np.array(words + [0] * room, np.int32)
