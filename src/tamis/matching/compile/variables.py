"""The variables of a compiled set: numbered breakpoints and predicates, and leaves over them.

Each attribute has a block: its breakpoints ascending, then the predicates on it. Predicates on
several attributes come last. A batch of events gives each variable one row of bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import FREE, NONE
from tamis.diagrams.value_order import Breakpoint, Partition
from tamis.matching.compile.graph_kernels import Regions, VariableCounts, number_regions
from tamis.matching.compile.program_kernels import Leaves
from tamis.matching.compile.programs import gather
from tamis.matching.compile.vocabulary import Leaf, Predicate, Side


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
    def of(cls, leaves: Sequence[Leaf]) -> Variables:
        """Number the variables of some leaves."""
        breakpoints, predicates = _take_stock(leaves)
        blocks: dict[str, Block] = {}
        numbers: dict[Predicate, int] = {}
        chains: list[int] = []
        for name in breakpoints:
            partition = Partition(breakpoints[name])
            blocks[name] = Block(partition, len(chains))
            chains += [len(chains)] * len(partition.breakpoints)
            for predicate in predicates.get(name, ()):
                numbers[predicate] = len(chains)
                chains.append(FREE)
        return cls(
            blocks,
            numbers,
            np.array(chains, np.int32),
            _LeafNumbering(blocks, numbers).leaves(leaves),
        )

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Return all attributes that filters test."""
        asked = (predicate.atom.attributes() for predicate in self.predicates)
        return frozenset(self.blocks).union(*asked) - {""}

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


class _LeafNumbering:
    """Leaves in terms of the numbers of variables."""

    def __init__(self, blocks: Mapping[str, Block], predicates: Mapping[Predicate, int]) -> None:
        self._blocks = blocks
        self._predicates = predicates

    def leaves(self, leaves: Sequence[Leaf]) -> Leaves:
        """Return the sides of all leaves."""
        starts, variables, begins, guards = [0], list[int](), list[bool](), list[int]()
        numbers = {name: number for number, name in enumerate(self._blocks)}
        for leaf in leaves:
            for side in (leaf.true, leaf.false):
                inside, breakpoints = self._toggles(leaf.attribute, side)
                variables += breakpoints
                starts.append(len(variables))
                begins.append(inside)
                guards.append(self._guard(side))
        return Leaves(
            starts=np.array(starts, np.int32),
            variables=np.array(variables, np.int32),
            begins_inside=np.array(begins, np.bool_),
            guard=np.array(guards, np.int32),
            block=np.array(
                [numbers[leaf.attribute] if leaf.attribute else NONE for leaf in leaves], np.int32
            ),
            node=np.full(len(begins), NONE, np.int32),
        )

    def _toggles(self, name: str, side: Side) -> tuple[bool, list[int]]:
        """Return whether a side holds at BEGIN, and the breakpoints that change it."""
        if side.predicate is not None and not side.negated:
            # A predicate is true only where it is known, so its own variable suffices.
            return True, [self._predicates[side.predicate]]
        if not name:
            return bool(side.intervals), []
        partition, first = self._blocks[name]
        ends = [partition.number(point) for interval in side.intervals for point in interval]
        inside = bool(ends) and ends[0] == 0
        return inside, [first + n - 1 for n in ends if 0 < n < partition.size]

    def _guard(self, side: Side) -> int:
        return self._predicates[side.predicate] if side.predicate and side.negated else NONE


def _take_stock(
    leaves: Iterable[Leaf],
) -> tuple[Mapping[str, set[Breakpoint]], Mapping[str, dict[Predicate, None]]]:
    breakpoints: dict[str, set[Breakpoint]] = {}
    predicates: dict[str, dict[Predicate, None]] = {}
    for leaf in leaves:
        for side in (leaf.true, leaf.false):
            if leaf.attribute:
                breakpoints.setdefault(leaf.attribute, set()).update(
                    point for interval in side.intervals for point in interval
                )
            if side.predicate is not None:
                predicates.setdefault(leaf.attribute, {})[side.predicate] = None
    if "" in predicates:
        breakpoints[""] = set()
    return breakpoints, predicates


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
        starts, taken = gather(self.starts, firsts)
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
