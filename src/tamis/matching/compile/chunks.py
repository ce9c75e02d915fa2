"""Diagrams in chunks: each a small shared diagram over the variables of its filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE, NodeTable, new_node_table
from tamis.matching.compile.chunk_kernels import (
    Chunks,
    RegionNodes,
    build_chunk,
    keep_reachable,
    merge_chains,
    new_region_nodes,
    new_trials,
)
from tamis.matching.compile.program_kernels import new_scratch
from tamis.matching.compile.programs import Programs
from tamis.matching.compile.variables import RegionList, Variables

# Few enough subscriptions that their values on a tile of events stay in the L2 cache.
SUBSCRIPTIONS_PER_CHUNK: Final = 1024
# Nodes of a chunk are numbered in 16 bits.
NODES_PER_CHUNK: Final = 1 << 16
# A filter is a diagram while that is the cheaper form: up to this many new nodes for each code of
# its program, found within this many steps. Most need one or two.
NODES_PER_CODE: Final = 5
STEPS_PER_CODE: Final = 8


class ChunkBuilder:
    """Builds the diagrams of some programs, chunk by chunk."""

    def __init__(self, programs: Programs, variables: Variables) -> None:
        self._programs = programs
        self._variables = variables
        self._scratch = new_scratch(programs.longest)
        self._trials = new_trials(programs.longest)
        self._numbers = np.empty(NODES_PER_CHUNK, np.int32)
        self._too_large: list[int] = []
        self._parts: list[_BuiltChunk] = []

    def build(self) -> NDArray[np.int32]:
        """Build all chunks; return the positions of the programs that are cheaper as graphs."""
        count = len(self._programs.starts) - 1
        first = 0
        while first < count:
            first += self._build_chunk(first, min(first + SUBSCRIPTIONS_PER_CHUNK, count))
        return np.array(self._too_large, np.int32)

    def regions(self) -> RegionList:
        """Return the regions that the chunks test, chunk by chunk."""
        return RegionList.joined([part.regions for part in self._parts])

    def chunks(self, regions: NDArray[np.int32]) -> Chunks:
        """Return the chunks, given the number of each of their regions."""
        return _joined(self._parts, regions)

    def _build_chunk(self, first: int, last: int) -> int:
        """Build a chunk from the programs `first` to `last`; return how many fit."""
        store = new_node_table(self._variables.chains, nodes=NODES_PER_CHUNK, steps=0)
        roots = np.empty(last - first, np.int32)
        built = build_chunk(
            store,
            self._variables.leaves,
            *self._programs.part(first, last),
            self._scratch,
            self._trials,
            roots,
            NODES_PER_CODE,
            STEPS_PER_CODE,
        )
        if built == 0:
            # Too long for any chunk, so it stays a graph.
            built, roots[0] = 1, NONE
        self._keep(store, roots[:built], first)
        return built

    def _keep(self, store: NodeTable, roots: NDArray[np.int32], first: int) -> None:
        count = keep_reachable(store, roots, self._numbers)
        tests = self._region_nodes(store, count, roots)
        nodes, regions = (int(counter) for counter in tests.counters)
        members = np.flatnonzero(roots != NONE)
        self._too_large += (np.flatnonzero(roots == NONE) + first).tolist()
        self._parts.append(
            _BuiltChunk(
                tests.region[2:nodes].astype(np.uint16),
                tests.low[2:nodes].astype(np.uint16),
                tests.high[2:nodes].astype(np.uint16),
                _region_list(tests, regions),
                roots[members].astype(np.uint16),
                (members + first).astype(np.int32),
            )
        )

    def _region_nodes(self, store: NodeTable, count: int, roots: NDArray[np.int32]) -> RegionNodes:
        """Return the nodes as tests of regions, or of single breakpoints if those are fewer."""
        variables = len(store.chain)
        tests = new_region_nodes(count, variables)
        if not merge_chains(store, count, variables, roots, tests, self._numbers):
            tests = new_region_nodes(count, variables)
            merge_chains(store, count, 1, roots, tests, self._numbers)
        return tests


class _BuiltChunk(NamedTuple):
    test: NDArray[np.uint16]
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    regions: RegionList
    roots: NDArray[np.uint16]
    members: NDArray[np.int32]


def _region_list(tests: RegionNodes, count: int) -> RegionList:
    """Return a chunk's regions."""
    starts = tests.region_start[: count + 1].astype(np.int64)
    return RegionList(
        starts,
        tests.region_begins[:count].copy(),
        tests.breakpoints[: starts[-1]].copy(),
        np.full(count, NONE, np.int32),
    )


def _joined(parts: Sequence[_BuiltChunk], regions: NDArray[np.int32]) -> Chunks:
    def starts(lengths: list[int]) -> NDArray[np.int64]:
        return np.cumsum([0, *lengths], dtype=np.int64)

    def joined(arrays: list[NDArray[np.generic]], type_: type) -> NDArray[np.generic]:
        return np.concatenate([np.empty(0, type_), *arrays])

    return Chunks(
        node_starts=starts([len(part.test) for part in parts]),
        test=joined([part.test for part in parts], np.uint16),  # type: ignore[arg-type]
        low=joined([part.low for part in parts], np.uint16),  # type: ignore[arg-type]
        high=joined([part.high for part in parts], np.uint16),  # type: ignore[arg-type]
        region_starts=starts([len(part.regions.begins) for part in parts]),
        regions=regions,
        root_starts=starts([len(part.roots) for part in parts]),
        roots=joined([part.roots for part in parts], np.uint16),  # type: ignore[arg-type]
        members=joined([part.members for part in parts], np.int32),  # type: ignore[arg-type]
    )
