"""The programs of an index: stored in arrays, found by scans, decided by searches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tamis.covering.breakpoints import BreakpointNumbers
from tamis.covering.cubes import Cube, Geometry, Outer
from tamis.covering.description_kernels import new_node_costs, rename, write_description
from tamis.covering.filter_sets import FilterNumber, FilterSet
from tamis.covering.list_kernels import (
    ADD,
    DONE,
    FREE,
    REMOVE,
    ROW_FIELDS,
    ProgramStore,
    file,
)
from tamis.covering.probes import Probe
from tamis.covering.program_kernels import (
    ATOM_WORDS,
    CAN_BE_TRUE,
    FIRST_PROBE,
    FOUND,
    GIVEN_UP,
    HEADER,
    LENGTH,
    LITERALS,
    LITERALS_AT,
    NO_EVENT,
    NODES,
    OP_AND,
    OP_ATOM,
    OP_CONSTANT,
    OP_NOT,
    OPERATOR_BITS,
    SEGMENT_BITS,
    UNFILED,
    Workspace,
    new_workspace,
)
from tamis.covering.programs import ProgramCompiler, ProgramWords
from tamis.covering.scan_kernels import MEETING, NARROWER, WIDER, Question, relate, scan
from tamis.diagrams.value_order import END, merged
from tamis.filters import Filter

T = TypeVar("T", bound=np.generic)

FIRST_CAPACITY: Final = 64
# Who looks for one filter has most often found it with the first.
FEW: Final = 1
# ProgramWords and breakpoints that may be left over before they are forgotten.
MIN_WASTE: Final = 1 << 18


class ComparedProgram(NamedTuple):
    """A filter that kernels compare, or what is known about another."""

    words: ProgramWords
    is_exact: bool = True
    """Whether the program is the filter, and says not just where it may be true."""

    @property
    def is_never(self) -> bool:
        """Return whether no event matches: such a program is empty."""
        return len(self.words) == 0


NEVER: Final = ComparedProgram(np.empty(0, np.int32))


class Candidate(NamedTuple):
    """A filter that a scan has found."""

    number: FilterNumber
    is_certain: bool
    """Whether nobody else need be asked."""


def _grown(array: NDArray[T], size: int) -> NDArray[T]:
    """Return an array with zeros behind it."""
    more = np.zeros((size, *array.shape[1:]), array.dtype)
    more[: len(array)] = array
    return more


def _required_atoms(words: ProgramWords) -> list[int]:
    """Return the atoms that a program cannot be true without: the terms of its conjunction."""
    *nodes, last = words[HEADER : HEADER + int(words[NODES])].tolist()
    if last & 7 != OP_AND:
        return []
    terms = list[int | None]()
    atoms = 0
    for node in nodes:
        op, count = node & 7, node >> OPERATOR_BITS
        if op == OP_ATOM:
            terms.append(atoms)
            atoms += 1
        else:
            taken = 1 if op == OP_NOT else 0 if op == OP_CONSTANT else count
            terms[len(terms) - taken :] = [None]
    return [atom for atom in terms if atom is not None]


class CompiledFilters:
    """Filters as programs, by number."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry: Final = geometry
        self._notes: Final = new_node_costs()
        self._begin(BreakpointNumbers(), FIRST_CAPACITY)

    def _begin(self, points: BreakpointNumbers, capacity: int) -> None:
        """Begin with no programs."""
        self._points = points
        self._points_kept = len(points)
        self._compiler = ProgramCompiler(self._geometry, points)
        self._store = ProgramStore(
            np.empty(FIRST_CAPACITY, np.int32),
            np.full(capacity, FREE, np.int64),
            points.labels,
            points.attribute_of,
            np.zeros((2 * len(points.labels), 3), np.int64),
            np.zeros((2 * points.attribute_count, 3), np.int64),
            np.empty((FIRST_CAPACITY, ROW_FIELDS), np.int32),
            np.zeros(1, np.int64),
        )
        self._work: Workspace = new_workspace(points.attribute_count)
        self._seen = np.zeros(capacity, np.int64)
        self._found = np.empty(capacity, np.int64)
        self._used = 0
        """How many words are in use, or were."""
        self._wasted = 0
        """How many of them are of programs that were removed."""
        self._questions = 0

    # --- making ------------------------------------------------------------------------------

    def program(self, filter_: Filter) -> ComparedProgram | None:
        """Return a filter as a program; None if it has none."""
        self._tidy()
        words = self._compiler.program(filter_)
        return None if words is None else self._described(words, is_exact=True)

    def outer_program(self, outer: Outer) -> ComparedProgram:
        """Return cubes that contain a filter as a program."""
        words = self._compiler.outer_program(outer)
        if words is None:
            words = self._compiler.outer_program(None)
        found = None if words is None else self._described(words, is_exact=False)
        return found or self.outer_program(None)

    def probing_program(self, probes: list[Probe]) -> ComparedProgram:
        """Return the probes of a filter, which those that cover it match."""
        words = self._compiler.probing_program(probes)
        self._make_room()
        return ComparedProgram(words, is_exact=False)

    def _described(self, words: ProgramWords, *, is_exact: bool) -> ComparedProgram | None:
        self._make_room()
        store = self._store
        heads = store.point_heads, store.range_heads
        found = write_description(words, store.labels, *heads, self._work, self._notes)
        if found == GIVEN_UP:
            return None
        return (
            NEVER if found == NO_EVENT else ComparedProgram(words[: words[LENGTH]].copy(), is_exact)
        )

    def _make_room(self) -> None:
        """Have room for all breakpoints and attributes that there are now."""
        store, points = self._store, self._points
        if store.labels is not points.labels:
            size = len(points.labels)
            self._store = store = store._replace(
                labels=points.labels,
                attribute_of=points.attribute_of,
                point_heads=_grown(store.point_heads, 2 * size),
            )
        if points.attribute_count > len(self._work.positions):
            size = 2 * points.attribute_count
            self._store = store._replace(range_heads=_grown(store.range_heads, 2 * size))
            self._work = new_workspace(size)

    # --- storing -----------------------------------------------------------------------------

    def add(self, number: FilterNumber, program: ComparedProgram) -> None:
        """Store a program."""
        words = program.words
        store = self._store
        if number >= len(store.starts):
            size = 2 * max(number, len(store.starts))
            starts = np.full(size, FREE, np.int64)
            starts[: len(store.starts)] = store.starts
            self._seen = np.zeros(size, np.int64)
            self._found = np.empty(size, np.int64)
            store = store._replace(starts=starts)
        if self._used + len(words) > len(store.words):
            size = max(2 * len(store.words), self._used + len(words))
            store = store._replace(words=_grown(store.words, size))
        self._store = store
        store.words[self._used : self._used + len(words)] = words
        store.starts[number] = self._used
        self._used += len(words)
        begin = file(store, number, 0, ADD)
        while begin != DONE:
            rows = _grown(self._store.rows, 2 * len(self._store.rows))
            self._store = self._store._replace(rows=rows)
            begin = file(self._store, number, begin, ADD)

    def remove(self, number: FilterNumber) -> None:
        """Remove a program."""
        file(self._store, number, 0, REMOVE)
        self._wasted += len(self.words_of(number))
        self._store.starts[number] = FREE

    def words_of(self, number: FilterNumber) -> ProgramWords:
        """Return the program of a stored filter, until the next change."""
        start = int(self._store.starts[number])
        return self._store.words[start : start + int(self._store.words[start + LENGTH])]

    def _tidy(self) -> None:
        """Forget what no filter has, if that is much."""
        live = self._used - self._wasted
        is_wasteful = self._wasted > max(MIN_WASTE, live)
        if is_wasteful or len(self._points) > max(MIN_WASTE, 2 * self._points_kept):
            self.compact()

    def compact(self) -> None:
        """Forget what was removed, and breakpoints that no filter has."""
        old, points = self._store, self._points
        numbers = np.flatnonzero(old.starts != FREE)
        programs = [self.words_of(number).copy() for number in numbers.tolist()]
        used_points = np.zeros(len(points), np.int32)
        used_attributes = np.zeros(points.attribute_count, np.int32)
        for words in programs:
            rename(words, used_points, used_attributes, False)
        kept = points.kept(used_points, used_attributes)
        self._begin(kept, len(old.starts))
        for number, words in zip(numbers.tolist(), programs, strict=True):
            rename(words, used_points, used_attributes, True)
            self.add(number, ComparedProgram(words))

    # --- questions ---------------------------------------------------------------------------

    def wider(
        self, program: ComparedProgram, among: FilterSet, itself: FilterNumber | None
    ) -> Iterator[Candidate]:
        """Yield the filters that cover one, apart from itself."""
        first = self._scan(WIDER, program, among, FEW, itself)
        yield from first
        if len(first) == FEW:
            yielded = {number for number, _ in first}
            for found in self._scan(WIDER, program, among, len(self._found), itself):
                if found.number not in yielded:
                    yield found

    def narrower(
        self, program: ComparedProgram, among: FilterSet, itself: FilterNumber | None
    ) -> list[Candidate]:
        """Return the filters that one covers, apart from itself."""
        return self._scan(NARROWER, program, among, len(self._found), itself)

    def meeting(self, program: ComparedProgram, among: FilterSet) -> list[Candidate]:
        """Return the filters that have an event in common with one."""
        return self._scan(MEETING, program, among, len(self._found), None)

    def _scan(
        self,
        task: int,
        program: ComparedProgram,
        among: FilterSet,
        limit: int,
        itself: FilterNumber | None,
    ) -> list[Candidate]:
        if program.is_never:
            return []
        self._questions += 1
        if itself is not None and itself < len(self._seen):
            self._seen[itself] = self._questions
        marks = among.marks(len(self._store.starts))
        question = Question(self._questions, marks, self._seen, self._found)
        count = scan(
            task, program.words, program.is_exact, self._store, self._work, question, limit
        )
        return [Candidate(one >> 1, not one & 1) for one in self._found[:count].tolist()]

    def covers(self, wide: ProgramWords, narrow: ProgramWords) -> bool | None:
        """Return whether a program covers another; None if that is open."""
        found = relate(WIDER, narrow, 0, wide, 0, self._store.labels, self._work)
        return None if found == GIVEN_UP else found == FOUND

    def intersects(self, one: ProgramWords, other: ProgramWords) -> bool | None:
        """Return whether an event matches both of two programs; None if that is open."""
        found = relate(MEETING, one, 0, other, 0, self._store.labels, self._work)
        return None if found == GIVEN_UP else found == FOUND

    # --- what others read --------------------------------------------------------------------

    def outer(self, program: ComparedProgram) -> Outer:
        """Return cubes that contain a filter: its access literals, and what it always requires."""
        words = program.words
        if words[LITERALS] == UNFILED:
            return None
        begin = int(words[LITERALS_AT])
        pairs = words[begin : begin + 2 * int(words[LITERALS])].tolist()
        found = map(partial(self._literal, words), pairs[::2], pairs[1::2])
        cubes: list[Cube] = [cube for cube in found if cube is not None]
        for atom in _required_atoms(words):
            required = self._literal(words, atom, CAN_BE_TRUE)
            if required is not None:
                both = map(required.intersected, cubes)
                cubes = [cube for cube in both if cube is not None]
        return cubes

    def _literal(self, words: ProgramWords, atom: int, mask: int) -> Cube | None:
        row = HEADER + int(words[NODES]) + ATOM_WORDS * atom
        segments = words[words[row + 1] : words[row + ATOM_WORDS + 1]].tolist()
        ends = [self._points.breakpoint(word >> SEGMENT_BITS) for word in segments] + [END]
        there = [(ends[n], ends[n + 1]) for n, word in enumerate(segments) if word & mask]
        return Cube({self._points.name(int(words[row])): merged(there)}) if there else None

    def corner(self, program: ComparedProgram) -> Cube:
        """Return a cube whose lowest corner is the first probe of a filter."""
        words = program.words
        begin = int(words[FIRST_PROBE])
        pairs = words[begin + 1 : begin + 1 + 2 * int(words[begin])].tolist()
        point, name = self._points.breakpoint, self._points.name
        return Cube(
            {name(a): ((point(b), END),) for a, b in zip(pairs[::2], pairs[1::2], strict=True)}
        )
