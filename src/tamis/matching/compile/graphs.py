"""The graph that programs share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.matching.compile.graph_kernels import (
    Graph,
    Growing,
    arrange,
    enter_all,
    find_inner,
    grow_graph,
)
from tamis.matching.compile.program_kernels import (
    Leaves,
    gather_parts,
    mark_needed_sides,
    new_scratch,
)
from tamis.matching.compile.programs import Programs
from tamis.matching.compile.variables import RegionList


def needed_sides(programs: Programs, leaves: Leaves) -> NDArray[np.int64]:
    """Return the sides of leaves that some programs need."""
    needed = np.zeros(2 * len(leaves.block), np.bool_)
    mark_needed_sides(*programs, new_scratch(programs.longest), needed)
    return np.flatnonzero(needed)


def region_list(leaves: Leaves, sides: NDArray[np.int64]) -> RegionList:
    """Return the regions of sides of leaves."""
    starts, taken = gather_parts(leaves.starts, sides)
    return RegionList(
        starts, leaves.begins_inside[sides], leaves.variables[taken], leaves.guard[sides]
    )


def build_graph(
    programs: Programs,
    members: NDArray[np.int32],
    row_of_side: NDArray[np.int32],
    regions: int,
) -> Graph:
    """Return the graph of some programs, whose leaves are rows of regions."""
    roots = np.empty(len(members), np.int32)
    growing = _growing(len(members), len(programs.codes))
    scratch, done = new_scratch(programs.longest), 0
    while True:
        done = grow_graph(growing, *programs, row_of_side, regions, scratch, roots, done)
        if done == len(roots):
            break
        growing = _grown(growing, len(programs.program(done)))
    return _arranged(growing, regions, roots, members)


def _growing(nodes: int, codes: int) -> Growing:
    nodes += 16
    return Growing(
        kinds=np.empty(nodes, np.int8),
        starts=np.zeros(nodes + 1, np.int64),
        children=np.empty(codes + 16, np.int32),
        table=np.zeros(1 << (2 * nodes).bit_length(), np.int32),
        counter=np.zeros(1, np.int64),
    )


def _grown(growing: Growing, longest: int) -> Growing:
    """Return the same graph with more space, enough for a program of this length."""
    count = int(growing.counter[0])
    nodes, children = 2 * len(growing.kinds) + 2 * longest, 2 * len(growing.children) + 4 * longest
    larger = _growing(nodes, children)
    larger.kinds[:count] = growing.kinds[:count]
    larger.starts[: count + 1] = growing.starts[: count + 1]
    larger.children[: len(growing.children)] = growing.children
    larger.counter[0] = count
    enter_all(larger)
    return larger


def _arranged(
    growing: Growing, regions: int, roots: NDArray[np.int32], members: NDArray[np.int32]
) -> Graph:
    count = int(growing.counter[0])
    is_inner = np.zeros(count, np.bool_)
    find_inner(growing, regions, roots, is_inner)
    row = np.where(is_inner, np.cumsum(is_inner) - 1, NONE).astype(np.int32)
    nodes = int(is_inner.sum()) + len(roots)
    graph = Graph(
        kinds=np.empty(nodes, np.int8),
        starts=np.zeros(nodes + 1, np.int64),
        children=np.empty(int(growing.starts[count]) + len(roots), np.int32),
        members=members,
    )
    arrange(growing, regions, roots, row, graph)
    return graph._replace(children=graph.children[: graph.starts[-1]].copy())
