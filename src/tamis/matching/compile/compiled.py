"""A compiled set of subscriptions: variables, diagrams in chunks, a graph and posting lists.

It never changes once it is built, so any number of threads may match with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.events import Schema
from tamis.matching.compile.access import find_access
from tamis.matching.compile.access_kernels import Postings
from tamis.matching.compile.chunk_kernels import Chunks
from tamis.matching.compile.chunks import ChunkBuilder
from tamis.matching.compile.graph_kernels import Graph
from tamis.matching.compile.graphs import build_graph, needed_sides, region_list
from tamis.matching.compile.programs import Programs
from tamis.matching.compile.region_kernels import Regions
from tamis.matching.compile.variables import RegionList, Variables
from tamis.matching.compile.vocabulary import Vocabulary


class CompiledArrays(NamedTuple):
    """All of a compiled set except its variables."""

    leaves: NDArray[np.int32]
    """The leaves in use, by their numbers in the vocabulary."""
    programs: Programs
    unindexed: NDArray[np.int32]
    """The unindexed subscriptions, which are evaluated for every event."""
    postings: Postings
    regions: Regions
    """The regions that chunks and graph test."""
    chunks: Chunks
    graph: Graph
    """The unindexed subscriptions that are not diagrams."""


class Compiled:
    """Subscriptions ready to be matched."""

    def __init__(self, programs: Sequence[NDArray[np.int32]], vocabulary: Vocabulary) -> None:
        leaves, renumbered = Programs.of(programs).renumbered()
        variables = Variables.of([vocabulary.leaf_of(leaf) for leaf in leaves.tolist()])
        access = find_access(renumbered, variables)
        unindexed = np.flatnonzero(~access.is_indexed).astype(np.int32)
        some = renumbered.some(unindexed)
        builder = ChunkBuilder(some, variables)
        places = builder.build()
        others, graph_leaves = some.some(places), variables.leaves
        sides = needed_sides(others, graph_leaves)
        tests = builder.regions()
        regions, numbers = RegionList.joined(
            [tests, region_list(graph_leaves, sides)]
        ).by_attribute(variables)
        row_of_side = np.full(2 * len(graph_leaves.block), NONE, np.int32)
        row_of_side[sides] = numbers[len(tests.begins) :]
        self._take(
            CompiledArrays(
                leaves,
                renumbered,
                unindexed,
                access.postings,
                regions,
                builder.chunks(numbers[: len(tests.begins)]),
                build_graph(others, places, row_of_side, len(regions.begins)),
            ),
            variables,
            vocabulary.schema,
        )

    @classmethod
    def restored(
        cls, arrays: CompiledArrays, variables: Variables, schema: Schema | None
    ) -> Compiled:
        """Return a compiled set that was saved."""
        self = cls.__new__(cls)
        self._take(arrays, variables, schema)
        return self

    def _take(self, arrays: CompiledArrays, variables: Variables, schema: Schema | None) -> None:
        self.arrays = arrays
        self.variables = variables
        self.schema = schema
        self.count = len(arrays.programs.starts) - 1
        self.programs = arrays.programs
        self.unindexed = arrays.unindexed

    def original(self, number: int) -> NDArray[np.int32]:
        """Return a program in terms of the vocabulary's leaves."""
        codes = self.programs.program(number).copy()
        is_leaf = codes >= 0
        codes[is_leaf] = self.arrays.leaves[codes[is_leaf]]
        return codes

    @property
    def nodes(self) -> int:
        """Return the number of nodes in all diagrams, and in the graph."""
        return len(self.arrays.chunks.test) + len(self.arrays.graph.kinds)
