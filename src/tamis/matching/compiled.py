"""Some subscriptions, compiled: variables, diagrams in chunks, and programs for what is no diagram.

Nothing in it changes once it is made, so any number of threads may match with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE, Store, new_store
from tamis.events import Schema
from tamis.matching.access import find_access
from tamis.matching.access_kernels import Postings
from tamis.matching.building_kernels import build_chunk, keep_reachable
from tamis.matching.evaluation_kernels import Chunks, Graphs, Regions
from tamis.matching.program_kernels import Leaves, mark_needed_sides, new_scratch
from tamis.matching.region_kernels import Tests, new_tests, test_regions
from tamis.matching.variables import Variables
from tamis.matching.vocabulary import Vocabulary

# So few subscriptions that their values on a tile of events stay in the L2 cache.
CHUNK: Final = 1024
# Nodes of a chunk are numbered in 16 bits.
CHUNK_NODES: Final = 1 << 16


class Programs(NamedTuple):
    """Filters in postfix, one after the other, over the leaves of one vocabulary."""

    codes: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, programs: Sequence[NDArray[np.int32]]) -> Programs:
        """Put programs one after the other."""
        starts = np.zeros(len(programs) + 1, np.int64)
        np.cumsum([len(program) for program in programs], out=starts[1:])
        return cls(np.concatenate([np.empty(0, np.int32), *programs]), starts)

    def renumbered(self) -> tuple[NDArray[np.int32], Programs]:
        """Return the leaves in use, and the programs with the leaves numbered among those."""
        is_leaf = self.codes >= 0
        used, local = np.unique(self.codes[is_leaf], return_inverse=True)
        codes = self.codes.copy()
        codes[is_leaf] = local
        return used, Programs(codes, self.starts)

    def some(self, numbers: NDArray[np.int32]) -> Programs:
        """Return the programs of these numbers."""
        if len(numbers) == len(self.starts) - 1:
            return self
        return Programs.of([self.program(number) for number in numbers.tolist()])

    def part(self, first: int, last: int) -> Programs:
        """Return some of the programs."""
        starts = self.starts[first : last + 1]
        return Programs(self.codes[starts[0] : starts[-1]], starts - starts[0])

    def program(self, number: int) -> NDArray[np.int32]:
        """Return the codes of one filter."""
        return self.codes[self.starts[number] : self.starts[number + 1]]


class CompiledArrays(NamedTuple):
    """All of a compiled set that is not found again from its vocabulary."""

    leaves: NDArray[np.int32]
    """The leaves in use, by their numbers in the vocabulary."""
    programs: Programs
    everyday: NDArray[np.int32]
    """The subscriptions that do not wait: they are evaluated for every event."""
    postings: Postings
    chunks: Chunks
    regions: Regions
    graphs: Graphs
    """Those of the everyday ones that are evaluated as their programs."""


class Compiled:
    """Subscriptions ready to be matched."""

    def __init__(self, programs: Sequence[NDArray[np.int32]], vocabulary: Vocabulary) -> None:
        leaves, renumbered = Programs.of(programs).renumbered()
        variables = Variables([vocabulary.leaves[leaf] for leaf in leaves.tolist()])
        access = find_access(*renumbered, variables)
        everyday = np.flatnonzero(~access.waits).astype(np.int32)
        builder = _Builder(renumbered.some(everyday), variables)
        chunks = builder.build()
        regions = builder.regions.joined()
        graphs = _graphs(renumbered, everyday, np.array(builder.graphs, np.int32), variables)
        self._take(
            CompiledArrays(leaves, renumbered, everyday, access.postings, chunks, regions, graphs),
            variables,
            vocabulary.schema,
        )

    @classmethod
    def restored(cls, arrays: CompiledArrays, vocabulary: Vocabulary) -> Compiled:
        """Return what was compiled before, with the vocabulary of that time."""
        self = cls.__new__(cls)
        leaves = [vocabulary.leaves[leaf] for leaf in arrays.leaves.tolist()]
        self._take(arrays, Variables(leaves), vocabulary.schema)
        return self

    def _take(self, arrays: CompiledArrays, variables: Variables, schema: Schema | None) -> None:
        self.arrays = arrays
        self.variables = variables
        self.schema = schema
        self.count = len(arrays.programs.starts) - 1
        _, self.programs, self.everyday, self.postings, self.chunks, self.regions, self.graphs = (
            arrays
        )

    def original(self, number: int) -> NDArray[np.int32]:
        """Return a program in terms of the vocabulary's leaves."""
        codes = self.programs.program(number).copy()
        is_leaf = codes >= 0
        codes[is_leaf] = self.arrays.leaves[codes[is_leaf]]
        return codes

    @property
    def nodes(self) -> int:
        """Return the number of nodes in all diagrams."""
        return len(self.chunks.test)


def _graphs(
    programs: Programs,
    everyday: NDArray[np.int32],
    places: NDArray[np.int32],
    variables: Variables,
) -> Graphs:
    """Return the everyday programs at some places as what is evaluated as it is."""
    chosen, leaves = programs.some(everyday[places]), variables.leaves
    needed = np.zeros(2 * len(leaves.block), np.bool_)
    longest = int(np.diff(chosen.starts).max(initial=1))
    mark_needed_sides(*chosen, new_scratch(longest), needed)
    sides = np.flatnonzero(needed)
    row = np.full(len(needed), NONE, np.int32)
    row[sides] = np.arange(len(sides))
    starts, taken = _gathered(leaves.starts, sides)
    return Graphs(
        *chosen,
        members=places,
        sides=Regions(starts, leaves.begins_inside[sides], leaves.variables[taken]),
        guard=leaves.guard[sides],
        row=row,
    )


class _Builder:
    """Builds the diagrams, chunk after chunk."""

    def __init__(self, programs: Programs, variables: Variables) -> None:
        self._programs = programs
        self._variables = variables
        lengths = np.diff(programs.starts)
        self._scratch = new_scratch(int(lengths.max(initial=1)))
        self._numbers = np.empty(CHUNK_NODES, np.int32)
        self.graphs: list[int] = []
        self.regions = _RegionTable()
        self._parts: list[_Part] = []

    def build(self) -> Chunks:
        count = len(self._programs.starts) - 1
        first = 0
        while first < count:
            first += self._build_chunk(first, min(first + CHUNK, count))
        return _joined(self._parts)

    def _build_chunk(self, first: int, last: int) -> int:
        """Build a chunk from the programs `first` to `last`; return how many there was room for."""
        used, programs = self._programs.part(first, last).renumbered()
        leaves, variables = _localised(self._variables.leaves, used)
        store = new_store(self._variables.lines[variables], nodes=CHUNK_NODES, steps=0)
        roots = np.empty(last - first, np.int32)
        built = build_chunk(store, leaves, *programs, self._scratch, roots)
        if built == 0:
            # Too long for any chunk, so it stays a graph.
            built, roots[0] = 1, NONE
        self._keep(store, roots[:built], variables, first)
        return built

    def _keep(
        self, store: Store, roots: NDArray[np.int32], variables: NDArray[np.int32], first: int
    ) -> None:
        count = keep_reachable(store, roots, self._numbers)
        tests = self._tests(store, count, roots)
        nodes, regions = (int(counter) for counter in tests.counters)
        members = np.flatnonzero(roots != NONE)
        self.graphs += (np.flatnonzero(roots == NONE) + first).tolist()
        self._parts.append(
            _Part(
                tests.region[2:nodes].astype(np.uint16),
                tests.low[2:nodes].astype(np.uint16),
                tests.high[2:nodes].astype(np.uint16),
                self.regions.numbers(tests, regions, variables),
                roots[members].astype(np.uint16),
                (members + first).astype(np.int32),
            )
        )

    def _tests(self, store: Store, count: int, roots: NDArray[np.int32]) -> Tests:
        """Return the nodes as tests of whole lines, or of single cuts where those are fewer."""
        variables = len(store.line)
        tests = new_tests(count, variables)
        if not test_regions(store, count, variables, roots, tests, self._numbers):
            tests = new_tests(count, variables)
            test_regions(store, count, 1, roots, tests, self._numbers)
        return tests


class _RegionTable:
    """The regions of all chunks, each once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bool, bytes], int] = {}

    def numbers(self, tests: Tests, count: int, variables: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the numbers of a chunk's regions, in terms of the variables of all."""
        starts = tests.region_start[: count + 1].tolist()
        cuts = variables[tests.cuts[: starts[-1]]]
        found = self._numbers
        return np.array(
            [
                found.setdefault((begins, cuts[first:last].tobytes()), len(found))
                for begins, first, last in zip(
                    tests.region_begins[:count].tolist(), starts[:-1], starts[1:], strict=True
                )
            ],
            np.int32,
        )

    def joined(self) -> Regions:
        """Return all regions."""
        return Regions(
            starts=np.cumsum([0, *(len(cuts) // 4 for _, cuts in self._numbers)], dtype=np.int64),
            begins=np.array([begins for begins, _ in self._numbers], np.bool_),
            cuts=np.frombuffer(b"".join(cuts for _, cuts in self._numbers), np.int32),
        )


class _Part(NamedTuple):
    test: NDArray[np.uint16]
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    regions: NDArray[np.int32]
    roots: NDArray[np.uint16]
    members: NDArray[np.int32]


def _localised(leaves: Leaves, used: NDArray[np.int32]) -> tuple[Leaves, NDArray[np.int32]]:
    """Return the leaves in use with the variables numbered among themselves, and those."""
    sides = np.stack((2 * used, 2 * used + 1), axis=1).ravel()
    starts, taken = _gathered(leaves.starts, sides)
    variables, guard = leaves.variables[taken], leaves.guard[sides]
    rows = np.unique(np.concatenate((variables, guard[guard != NONE])))
    renumbered_guard = np.searchsorted(rows, guard).astype(np.int32)
    renumbered_guard[guard == NONE] = NONE
    local = Leaves(
        starts=starts.astype(np.int32),
        variables=np.searchsorted(rows, variables).astype(np.int32),
        begins_inside=leaves.begins_inside[sides],
        guard=renumbered_guard,
        block=leaves.block[used],
        node=np.full(len(sides), NONE, np.int32),
    )
    return local, rows.astype(np.int32)


def _gathered(
    starts: NDArray[np.int32], rows: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the parts of some rows begin once they stand together, and where they stood."""
    first, last = starts[rows], starts[rows + 1]
    together = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(last - first, out=together[1:])
    return together, np.repeat(first - together[:-1], last - first) + np.arange(together[-1])


def _joined(parts: Sequence[_Part]) -> Chunks:
    def starts(field: str) -> NDArray[np.int64]:
        return np.cumsum([0, *(len(getattr(part, field)) for part in parts)], dtype=np.int64)

    def joined(field: str, type_: type) -> NDArray[np.generic]:
        return np.concatenate([np.empty(0, type_), *(getattr(part, field) for part in parts)])

    return Chunks(
        node_starts=starts("test"),
        test=joined("test", np.uint16),  # type: ignore[arg-type]
        low=joined("low", np.uint16),  # type: ignore[arg-type]
        high=joined("high", np.uint16),  # type: ignore[arg-type]
        region_starts=starts("regions"),
        regions=joined("regions", np.int32),  # type: ignore[arg-type]
        root_starts=starts("roots"),
        roots=joined("roots", np.uint16),  # type: ignore[arg-type]
        members=joined("members", np.int32),  # type: ignore[arg-type]
    )
