"""One event at a time: truth goes up from the regions that the event lies in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel
from tamis.matching.evaluation_kernels import Chunks
from tamis.matching.graph_kernels import ANY, EVEN, ODD, Graph
from tamis.matching.row_kernels import Lines, Regions


class Upward(NamedTuple):
    """The graph from its rows up."""

    starts: NDArray[np.int64]
    """Row r is a child of the nodes parents[starts[r] : starts[r + 1]] // 2."""
    parents: NDArray[np.int32]
    """Odd where the row is the true side of a term of a parity."""
    needed: NDArray[np.int32]
    """How many children of each node make it true, or known if it is a parity."""


class Usual(NamedTuple):
    """What is true of an event that lacks everything."""

    regions: NDArray[np.int32]
    blocks: NDArray[np.int32]
    """For each of those regions its attribute."""
    always: NDArray[np.int32]
    """The attributes with predicates: a default may satisfy those even where nothing is held."""


class SingleRoom(NamedTuple):
    """What one event needs while it is evaluated; between events all is as for one without any."""

    truth: NDArray[np.bool_]
    """Of every region."""
    is_present: NDArray[np.bool_]
    """Of every attribute, and of the constants, which are none."""
    nodes: NDArray[np.bool_]
    """For one chunk; the first is false, the second true."""
    stack: NDArray[np.int32]
    """Rows of the graph that are true, and whose parents do not know yet."""
    counts: NDArray[np.int32]
    """Of every node of the graph how many children are true."""
    is_odd: NDArray[np.bool_]
    touched: NDArray[np.int32]
    """The nodes whose counts must be put back."""
    found: NDArray[np.int32]
    """The matches: rows of the everyday subscriptions."""


@kernel
def turn_upward(graph: Graph, upward: Upward) -> None:
    """Fill the parents of every row; `starts` begins as zeros."""
    starts = upward.starts
    for child in graph.children:
        starts[child + 1] += 1
    for row in range(len(starts) - 1):
        starts[row + 1] += starts[row]
    for node in range(len(graph.kinds)):
        kind, first, last = graph.kinds[node], graph.starts[node], graph.starts[node + 1]
        upward.needed[node] = 1 if kind == ANY else last - first
        if kind == ODD or kind == EVEN:
            upward.needed[node] = (last - first) // 2
        for place in range(first, last):
            holds = kind >= ODD and (place - first) % 2 == 0
            child = graph.children[place]
            upward.parents[starts[child]] = 2 * node + (1 if holds else 0)
            starts[child] += 1
    for row in range(len(starts) - 1, 0, -1):
        starts[row] = starts[row - 1]
    starts[0] = 0


@inlined
def _lies_in(
    regions: Regions, region: int, cell: int, cuts: int, passing: NDArray[np.bool_]
) -> bool:
    """Tell whether a value in a cell lies in a region; `passing` is of the attribute alone."""
    guard = regions.guard[region]
    if guard != NONE and passing[guard - cuts]:
        return False
    inside = bool(regions.begins[region])
    for place in range(regions.starts[region], regions.starts[region + 1]):
        variable = regions.cuts[place]
        if variable < cell if variable < cuts else not passing[variable - cuts]:
            inside = not inside
    return inside


@kernel
def set_truths(
    regions: Regions,
    lines: Lines,
    blocks: NDArray[np.int32],
    cells: NDArray[np.int32],
    passing: NDArray[np.bool_],
    usual: Usual,
    room: SingleRoom,
) -> int:
    """Find the regions that an event lies in; write those to the stack and return their number."""
    depth = 0
    for number in range(len(blocks) + len(usual.always)):
        held = number < len(blocks)
        block = blocks[number] if held else usual.always[number - len(blocks)]
        if room.is_present[block]:
            continue
        room.is_present[block] = True
        cell, cuts = cells[number] if held else 0, lines.cuts[block]
        own = passing[lines.predicates[block] : lines.predicates[block + 1]]
        for region in range(regions.of_block[block], regions.of_block[block + 1]):
            holds = _lies_in(regions, region, cell, cuts, own)
            room.truth[region] = holds
            if holds:
                room.stack[depth] = region
                depth += 1
    for number in range(len(usual.regions)):
        if not room.is_present[usual.blocks[number]]:
            room.stack[depth] = usual.regions[number]
            depth += 1
    return depth


@kernel
def reset_truths(
    regions: Regions, blocks: NDArray[np.int32], usual: Usual, room: SingleRoom
) -> None:
    """Make the regions again what they are for an event without anything."""
    for number in range(len(blocks) + len(usual.always)):
        held = number < len(blocks)
        block = blocks[number] if held else usual.always[number - len(blocks)]
        room.is_present[block] = False
        for region in range(regions.of_block[block], regions.of_block[block + 1]):
            room.truth[region] = regions.begins[region]


@kernel
def evaluate_chunks_once(chunks: Chunks, room: SingleRoom) -> int:
    """Write the rows whose diagram is true; return how many there are."""
    count = 0
    for chunk in range(len(chunks.node_starts) - 1):
        nodes = slice(chunks.node_starts[chunk], chunks.node_starts[chunk + 1])
        tests, lows, highs = chunks.test[nodes], chunks.low[nodes], chunks.high[nodes]
        regions = chunks.regions[chunks.region_starts[chunk] : chunks.region_starts[chunk + 1]]
        for node in range(len(tests)):
            # Both are read: which to choose is no branch then, and nothing to guess wrong.
            low, high = room.nodes[lows[node]], room.nodes[highs[node]]
            room.nodes[node + 2] = high if room.truth[regions[tests[node]]] else low
        for root in range(chunks.root_starts[chunk], chunks.root_starts[chunk + 1]):
            if room.nodes[chunks.roots[root]]:
                room.found[count] = chunks.members[root]
                count += 1
    return count


@kernel
def evaluate_graph_once(
    graph: Graph,
    upward: Upward,
    room: SingleRoom,
    depth: int,
    count: int,
) -> int:
    """Write the rows whose graph is true, given the true regions; return where they end."""
    inner, rows, touched = len(graph.kinds) - len(graph.members), len(room.truth), 0
    while depth > 0:
        depth -= 1
        row = room.stack[depth]
        for place in range(upward.starts[row], upward.starts[row + 1]):
            node, holds = upward.parents[place] >> 1, upward.parents[place] & 1
            if room.counts[node] == 0:
                room.touched[touched] = node
                touched += 1
            room.counts[node] += 1
            if holds:
                room.is_odd[node] = not room.is_odd[node]
            if room.counts[node] != upward.needed[node]:
                continue
            kind = graph.kinds[node]
            if (kind == ODD and not room.is_odd[node]) or (kind == EVEN and room.is_odd[node]):
                continue
            if node >= inner:
                room.found[count] = graph.members[node - inner]
                count += 1
            else:
                room.stack[depth] = rows + node
                depth += 1
    for number in range(touched):
        room.counts[room.touched[number]] = 0
        room.is_odd[room.touched[number]] = False
    return count
