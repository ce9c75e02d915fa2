"""The variables of a compiled set: numbered breakpoints and predicates, and leaves over them.

Each attribute has a block: its breakpoints ascending, then the predicates on it. Predicates on
several attributes come last. A batch of events gives each variable one row of bits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf, nextafter
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import FREE, NONE
from tamis.diagrams.value_order import BEGIN, END, NUMBERS, Breakpoint, Partition
from tamis.filters.any_text import AnyText
from tamis.matching.compile.graph_kernels import Regions, VariableCounts, number_regions
from tamis.matching.compile.leaf_kernels import (
    ABOVE,
    ABOVE_WHOLE,
    BELOW,
    NUMBER,
    OTHER,
    NumberPoints,
    ShapeEnds,
    find_ends,
    new_number_points,
)
from tamis.matching.compile.leaves import LeafSet, LeafShape, Predicate, sample_integers
from tamis.matching.compile.program_kernels import Leaves, gather_parts


class Block(NamedTuple):
    """The variables of one attribute: its breakpoints begin at `first`."""

    partition: Partition
    first: int


class Variables:
    """All variables of some leaves, in the order of the diagrams."""

    def __init__(
        self,
        blocks: Mapping[str, Block],
        predicates: Mapping[Predicate, int],
        chains: NDArray[np.int32],
        leaves: Leaves,
    ) -> None:
        self.blocks: Final = blocks
        self.predicates: Final = predicates
        self.chains: Final = chains
        """For each variable the first of its value order, or FREE for a predicate."""
        self.leaves: Final = leaves

    @classmethod
    def of(cls, leaves: LeafSet) -> Variables:
        """Number the variables of some leaves."""
        return _VariableNumbering(leaves).variables()

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Return all attributes that filters test."""
        asked = (predicate.atom.attributes() for predicate in self.predicates)
        return frozenset(self.blocks).union(*asked) - {""}

    @cached_property
    def tests_any(self) -> bool:
        """Return whether filters test any attribute, named or not."""
        return any(isinstance(predicate.atom, AnyText) for predicate in self.predicates)

    @cached_property
    def first(self) -> NDArray[np.int32]:
        """Return the first variable of each attribute."""
        return np.array([block.first for block in self.blocks.values()], np.int32)

    @cached_property
    def counts(self) -> VariableCounts:
        """Return the number of breakpoints and predicates of each attribute."""
        breakpoints = np.array(
            [len(block.partition.breakpoints) for block in self.blocks.values()], np.int32
        )
        all_ = np.diff(np.append(self.first, len(self)))
        predicates = np.cumsum(np.append(0, all_ - breakpoints)).astype(np.int32)
        return VariableCounts(breakpoints, predicates)

    def __len__(self) -> int:
        return len(self.chains)


class _VariableNumbering:
    """Numbers the variables of leaves: shape by shape in Python, leaf by leaf in a kernel."""

    def __init__(self, leaves: LeafSet) -> None:
        self._leaves = leaves
        # In the order in which leaves first have them.
        _, first = np.unique(leaves.shape, return_index=True)
        self._ends = _EndsOfShapes()
        rank = np.empty(len(leaves.shapes), np.int32)
        for place, number in enumerate(np.argsort(first).tolist()):
            rank[number] = place
            self._ends.add(leaves.shapes[number])
        self._shape = rank[leaves.shape]

    def variables(self) -> Variables:
        """Return all variables."""
        ends, shape = self._ends.arrays(), self._shape
        sides = np.stack((2 * shape, 2 * shape + 1), axis=1).ravel()
        starts = np.zeros(len(sides) + 1, np.int32)
        np.cumsum(np.diff(ends.starts)[sides], out=starts[1:])
        found = np.empty(starts[-1], np.int32)
        points = new_number_points(len(found))
        others = len(self._ends.others)
        find_ends(ends, shape, self._leaves.starts, self._leaves.integers, others, points, found)
        blocks, predicates, chains, numbers = self._ends.numbered(points)
        guard = np.array(self._ends.guards, np.int32)[sides]
        return Variables(
            blocks,
            predicates,
            chains,
            Leaves(
                starts=starts,
                variables=numbers[found],
                begins_inside=np.array(self._ends.begins, np.bool_)[sides],
                guard=_guards(guard, numbers),
                block=ends.block[shape],
                node=np.full(len(sides), NONE, np.int32),
            ),
        )


def _guards(guard: NDArray[np.int32], numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the variables of guards, where there are any."""
    numbered = guard.copy()
    numbered[guard != NONE] = numbers[guard[guard != NONE]]
    return numbered


class _EndsOfShapes:
    """The breakpoints and predicates that decide leaves of some shapes."""

    def __init__(self) -> None:
        self._blocks: dict[str, int] = {}
        self.others: dict[tuple[int, Breakpoint | Predicate], int] = {}
        """What is not a number, by its attribute."""
        self.begins: list[bool] = []
        self.guards: list[int] = []
        self._starts = [0]
        self._kind: list[int] = []
        self._which: list[int] = []
        self._value: list[float] = []
        self._gap: list[int] = []
        self._block: list[int] = []

    def add(self, shape: LeafShape) -> None:
        """Add the sides of a shape."""
        leaf = shape.leaf
        block = (
            self._blocks.setdefault(leaf.attribute, len(self._blocks)) if leaf.attribute else NONE
        )
        self._gap.append(shape.gap)
        self._block.append(block)
        samples = _samples(shape)
        for side in (leaf.true, leaf.false):
            guard, ends = NONE, [point for interval in side.intervals for point in interval]
            begins = bool(ends) and ends[0] == BEGIN
            if side.predicate is not None and not side.negated:
                # A predicate is true only where it is known, so its own variable suffices.
                begins = True
                self._add_end(OTHER, self._other(block, side.predicate))
            elif leaf.attribute:
                for point in ends:
                    if point not in (BEGIN, END):
                        self._add_point(block, point, samples)
            if side.predicate is not None and side.negated:
                guard = self._other(block, side.predicate)
            self.begins.append(begins)
            self.guards.append(guard)
            self._starts.append(len(self._kind))

    def _other(self, block: int, what: Breakpoint | Predicate) -> int:
        return self.others.setdefault((block, what), len(self.others))

    def _add_point(
        self, block: int, point: Breakpoint, samples: Mapping[Breakpoint, tuple[int, int]]
    ) -> None:
        if point in samples:
            self._add_end(*samples[point])
        elif len(point) == 2 and point[0] == NUMBERS and _is_float(point[1]):
            self._add_end(NUMBER, NONE, float(point[1]))
        else:
            self._add_end(OTHER, self._other(block, point))

    def _add_end(self, kind: int, which: int, value: float = 0.0) -> None:
        self._kind.append(kind)
        self._which.append(which)
        self._value.append(value)

    def arrays(self) -> ShapeEnds:
        """Return the ends of all shapes."""
        return ShapeEnds(
            np.array(self._starts, np.int64),
            np.array(self._kind, np.int8),
            np.array(self._which, np.int32),
            np.array(self._value, np.float64),
            np.array(self._gap, np.int8),
            np.array(self._block, np.int32),
        )

    def numbered(
        self, points: NumberPoints
    ) -> tuple[dict[str, Block], dict[Predicate, int], NDArray[np.int32], NDArray[np.int32]]:
        """Return all blocks, predicates and chains, and the variable of every end."""
        size = int(points.size[0])
        order = np.lexsort((points.value[:size], points.block[:size]))
        counts = np.bincount(points.block[:size], minlength=len(self._blocks))
        parts = np.split(order, np.cumsum(counts)[:-1]) if len(counts) else []
        others: dict[int, list[tuple[Breakpoint | Predicate, int]]] = {}
        for (block, what), number in self.others.items():
            others.setdefault(block, []).append((what, number))
        numbers = np.empty(len(self.others) + size, np.int32)
        blocks: dict[str, Block] = {}
        predicates: dict[Predicate, int] = {}
        chains: list[int] = []
        for (name, block), part in zip(self._blocks.items(), parts, strict=True):
            first, own = len(chains), others.get(block, [])
            fixed = [(what, number) for what, number in own if type(what) is tuple]
            breakpoints, places = _in_order(fixed, points.value[part], part + len(self.others))
            numbers[places] = np.arange(first, first + len(places))
            blocks[name] = Block(Partition.of_ascending(breakpoints), first)
            chains += [first] * len(breakpoints)
            _number_predicates(own, predicates, numbers, chains)
        if NONE in others:
            blocks[""] = Block(Partition(()), len(chains))
            _number_predicates(others[NONE], predicates, numbers, chains)
        return blocks, predicates, np.array(chains, np.int32), numbers


def _number_predicates(
    others: Sequence[tuple[Breakpoint | Predicate, int]],
    predicates: dict[Predicate, int],
    numbers: NDArray[np.int32],
    chains: list[int],
) -> None:
    """Number the predicates among others, after all variables so far."""
    for what, number in others:
        if isinstance(what, Predicate):
            predicates[what] = numbers[number] = len(chains)
            chains.append(FREE)


def _in_order(
    fixed: list[tuple[Breakpoint, int]], values: NDArray[np.float64], places: NDArray[np.int64]
) -> tuple[list[Breakpoint], NDArray[np.int64]]:
    """Return the breakpoints of an attribute in order, numbers among them, and their places."""
    numbers: list[Breakpoint] = [(NUMBERS, value) for value in values.tolist()]
    if not fixed:
        return numbers, places
    fixed.sort()
    before = bisect_right(fixed, (NUMBERS,), key=itemgetter(0))
    after = bisect_left(fixed, (NUMBERS + 1,), key=itemgetter(0))
    if before < after:
        # Integers that are no floats lie between numbers.
        everything = sorted([*fixed, *zip(numbers, places.tolist(), strict=True)])
        return [point for point, _ in everything], np.array([n for _, n in everything], np.int64)
    points = [*(p for p, _ in fixed[:before]), *numbers, *(p for p, _ in fixed[before:])]
    own = np.array([number for _, number in fixed], np.int64)
    return points, np.concatenate((own[:before], places, own[before:]))


def _is_float(value: float) -> bool:
    """Return whether a number is a float, or an integer that is one as well."""
    try:
        return type(value) is float or int(float(value)) == value
    except OverflowError:
        return False


def _samples(shape: LeafShape) -> dict[Breakpoint, tuple[int, int]]:
    """Return what the breakpoints at the sample integers of a shape stand for."""
    samples: dict[Breakpoint, tuple[int, int]] = {}
    for number, sample in enumerate(sample_integers(shape.integers)):
        samples[NUMBERS, sample] = BELOW, number
        samples[NUMBERS, sample + 1] = ABOVE_WHOLE, number
        samples[NUMBERS, nextafter(sample, inf)] = ABOVE, number
    return samples


class RegionList(NamedTuple):
    """Regions in order of occurrence, in terms of the variables of all attributes."""

    starts: NDArray[np.int64]
    begins: NDArray[np.bool_]
    breakpoints: NDArray[np.int32]
    guard: NDArray[np.int32]

    @classmethod
    def joined(cls, parts: Sequence[RegionList]) -> RegionList:
        """Concatenate lists."""
        lengths = [np.diff(part.starts) for part in parts]
        return cls(
            np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])),
            np.concatenate([np.empty(0, np.bool_), *(part.begins for part in parts)]),
            np.concatenate([np.empty(0, np.int32), *(part.breakpoints for part in parts)]),
            np.concatenate([np.empty(0, np.int32), *(part.guard for part in parts)]),
        )

    def by_attribute(self, variables: Variables) -> tuple[Regions, NDArray[np.int32]]:
        """Return the distinct regions, attribute by attribute, and the number of each given one."""
        count = len(self.begins)
        firsts, numbers = np.empty(count, np.int32), np.empty(count, np.int32)
        table = np.zeros(1 << (2 * count + 1).bit_length(), np.int32)
        firsts = firsts[: number_regions(*self, table, firsts, numbers)]
        first = np.append(variables.first, len(variables)).astype(np.int32)
        block = self._blocks(firsts, first)
        order = np.argsort(block, kind="stable")
        firsts, block = firsts[order], block[order]
        starts, taken = gather_parts(self.starts, firsts)
        base = np.append(first[:-1], np.int32(0))[block]
        guard = self.guard[firsts]
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        regions = Regions(
            of_block=np.searchsorted(block, np.arange(len(first) + 1)).astype(np.int32),
            starts=starts,
            begins=self.begins[firsts],
            breakpoints=self.breakpoints[taken] - np.repeat(base, np.diff(starts)),
            guard=np.where(guard < 0, guard, guard - base),
        )
        return regions, place[numbers]

    def _blocks(self, chosen: NDArray[np.int32], first: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the attributes of some regions; one past the last for constants."""
        block = np.full(len(chosen), len(first) - 1, np.int64)
        varies = self.starts[chosen + 1] > self.starts[chosen]
        some = np.append(self.breakpoints, 0)[
            np.minimum(self.starts[chosen], len(self.breakpoints))
        ]
        some = np.where(varies, some, self.guard[chosen])
        varies |= self.guard[chosen] >= 0
        block[varies] = np.searchsorted(first, some[varies], side="right") - 1
        return block
