"""A compiled set of subscriptions: variables, diagrams in chunks, a graph and posting lists.

It never changes once it is built, so any number of threads may match with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.events import Schema
from tamis.matching.compile.access import find_access
from tamis.matching.compile.access_kernels import Postings
from tamis.matching.compile.chunk_kernels import Chunks
from tamis.matching.compile.chunks import ChunkBuilder
from tamis.matching.compile.graph_kernels import Graph, Regions
from tamis.matching.compile.graphs import build_graph, needed_sides, region_list
from tamis.matching.compile.leaves import LeafSet
from tamis.matching.compile.programs import Programs
from tamis.matching.compile.variables import RegionList, Variables


class CompiledArrays(NamedTuple):
    """All of a compiled set except its variables."""

    programs: Programs
    unindexed: NDArray[np.int32]
    """The unindexed subscriptions, which are evaluated for every event."""
    postings: Postings
    regions: Regions
    """The regions that chunks and graph test."""
    chunks: Chunks
    graph: Graph
    """The unindexed subscriptions that are not diagrams."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """Subscriptions ready to be matched."""

    arrays: CompiledArrays
    variables: Variables
    schema: Schema | None

    @cached_property
    def count(self) -> int:
        """Return the number of subscriptions."""
        return len(self.arrays.programs.starts) - 1

    @cached_property
    def programs(self) -> Programs:
        """Return the programs, over the leaves in use."""
        return self.arrays.programs

    @cached_property
    def unindexed(self) -> NDArray[np.int32]:
        """Return the subscriptions that are evaluated for every event."""
        return self.arrays.unindexed

    @property
    def nodes(self) -> int:
        """Return the number of nodes in all diagrams and in the graph."""
        return len(self.arrays.chunks.test) + len(self.arrays.graph.kinds)


def compile_programs(
    programs: Programs, leaves: LeafSet, schema: Schema | None, *, plan: int | None = None
) -> Compiled:
    """Compile subscriptions together: some to posting lists, the others to diagrams or a graph.

    The cheapest plan is chosen, unless one is given.
    """
    variables = Variables.of(leaves)
    access = find_access(programs, variables, plan)
    unindexed = np.flatnonzero(~access.is_indexed).astype(np.int32)
    chosen = programs.some(unindexed)
    builder = ChunkBuilder(chosen, variables)
    too_large = builder.build()
    graph_programs = chosen.some(too_large)
    sides = needed_sides(graph_programs, variables.leaves)
    chunk_regions = builder.regions()
    asked = RegionList.joined([chunk_regions, region_list(variables.leaves, sides)])
    regions, numbers = asked.by_attribute(variables)
    count = len(chunk_regions.begins)
    row_of_side = np.full(2 * len(variables.leaves.block), NONE, np.int32)
    row_of_side[sides] = numbers[count:]
    arrays = CompiledArrays(
        programs,
        unindexed,
        access.postings,
        regions,
        builder.chunks(numbers[:count]),
        build_graph(graph_programs, too_large, row_of_side, len(regions.begins)),
    )
    return Compiled(arrays, variables, schema)
