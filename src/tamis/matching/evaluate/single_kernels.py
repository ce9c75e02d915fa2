"""One event at a time: truth goes up from the regions that the event lies in."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel
from tamis.matching.compile.chunk_kernels import Chunks
from tamis.matching.compile.graph_kernels import ALL, ANY, ODD, Graph
from tamis.matching.compile.region_kernels import Lines, Regions

# The state of a node: how many children are missing, and from this bit on how many terms are true.
ODD_UNIT: Final = 1 << 24
COUNT_MASK: Final = ODD_UNIT - 1


# Nothing; whether the number of true terms is right; what the other children are.
NO_QUESTION, PARITY, LOOK_UP = range(3)


class Upward(NamedTuple):
    """The graph from its rows up.

    A node that needs all its children, or all its terms, waits for the rarest of them, where they
    are all regions: then their truths are known, and can be looked up when that one is true.
    """

    starts: NDArray[np.int64]
    """Row r goes up to the nodes parents[starts[r] : starts[r + 1]] // 2."""
    parents: NDArray[np.int32]
    """Odd where the row is the true side of a term of a parity."""
    needed: NDArray[np.int32]
    """How many rows that go up to it make each node true, or known if it is a parity."""
    question: NDArray[np.int8]
    """What is still to be asked of a node that has all it waited for."""


class Usual(NamedTuple):
    """What is true of an event that lacks everything."""

    regions: NDArray[np.int32]
    blocks: NDArray[np.int32]
    """For each of those regions its attribute."""
    always: NDArray[np.int32]
    """The attributes with predicates: a default may satisfy those even where nothing is held."""


class SingleWorkspace(NamedTuple):
    """What one event needs while it is evaluated; between events all is as for one without any."""

    truth: NDArray[np.bool_]
    """Of every region."""
    is_present: NDArray[np.bool_]
    """Of every attribute, and of the constants, which are none."""
    nodes: NDArray[np.bool_]
    """For one chunk; the first is false, the second true."""
    queue: NDArray[np.int32]
    """Rows of the graph that are true: the regions, and then the nodes that follow from them."""
    states: NDArray[np.int32]
    """Of every node of the graph how many more children it needs; above that, in units of their
    own, how many terms of a parity are true."""
    touched: NDArray[np.int32]
    """The parents whose states must be put back."""
    found: NDArray[np.int32]
    """The matches: rows of diagrams, then tops of the graph; and room for one more."""


@kernel
def _width(regions: Regions, region: int) -> int:
    """Return about how many cells a region has."""
    first, last = regions.starts[region], regions.starts[region + 1]
    if regions.begins[region] or last - first != 2:
        return 1 << 30
    return int(regions.cuts[first + 1] - regions.cuts[first])


@kernel
def _rarest(children: NDArray[np.int32], step: int, regions: Regions) -> int:
    """Return the place of the narrowest child, every so many of them."""
    best, width = 0, 1 << 31
    for place in range(0, len(children), step):
        if _width(regions, children[place]) < width:
            best, width = place, _width(regions, children[place])
    return best


@kernel
def plan_upward(
    graph: Graph,
    regions: Regions,
    upward: Upward,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> None:
    """Find for each node which of its children go up to it, and how many it needs of those."""
    for node in range(len(graph.kinds)):
        kind, start, end = graph.kinds[node], graph.starts[node], graph.starts[node + 1]
        first[node], last[node] = start, end
        step = 1 if kind <= ANY else 2
        upward.needed[node] = 1 if kind == ANY else (end - start) // step
        upward.question[node] = NO_QUESTION if kind <= ANY else PARITY
        children = graph.children[start:end]
        if kind != ANY and children.max() < len(regions.begins):
            first[node] = start + _rarest(children, step, regions)
            last[node] = first[node] + step
            upward.needed[node] = 1
            upward.question[node] = LOOK_UP


@kernel
def turn_upward(
    graph: Graph, upward: Upward, first: NDArray[np.int64], last: NDArray[np.int64]
) -> None:
    """Fill the parents of every row; `starts` begins as zeros."""
    starts = upward.starts
    for node in range(len(graph.kinds)):
        for child in graph.children[first[node] : last[node]]:
            starts[child + 1] += 1
    for row in range(len(starts) - 1):
        starts[row + 1] += starts[row]
    for node in range(len(graph.kinds)):
        for place in range(first[node], last[node]):
            holds = graph.kinds[node] > ANY and (place - graph.starts[node]) % 2 == 0
            child = graph.children[place]
            upward.parents[starts[child]] = 2 * node + (1 if holds else 0)
            starts[child] += 1
    for row in range(len(starts) - 1, 0, -1):
        starts[row] = starts[row - 1]
    starts[0] = 0


@inlined
def _lies_in(
    changes: NDArray[np.int32],
    inside: bool,
    guard: int,
    cell: int,
    cuts: int,
    passing: NDArray[np.bool_],
) -> bool:
    """Tell whether a value in a cell lies in a region; `passing` is of the attribute alone."""
    if guard != NONE and passing[guard - cuts]:
        return False
    for variable in changes:
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
    room: SingleWorkspace,
) -> int:
    """Find the regions that an event lies in; write those to the queue and return their number."""
    # Arrays by names of their own: to take them out of their tuples in the loops costs much there.
    starts, begins, changes = regions.starts, regions.begins, regions.cuts
    guards, truth, queue = regions.guard, room.truth, room.queue
    tail = 0
    for number in range(len(blocks) + len(usual.always)):
        held = number < len(blocks)
        block = blocks[number] if held else usual.always[number - len(blocks)]
        if room.is_present[block]:
            continue
        room.is_present[block] = True
        cell, cuts = cells[number] if held else 0, lines.cuts[block]
        passes = passing[lines.predicates[block] : lines.predicates[block + 1]]
        for region in range(regions.of_block[block], regions.of_block[block + 1]):
            own = changes[starts[region] : starts[region + 1]]
            holds = _lies_in(own, bool(begins[region]), guards[region], cell, cuts, passes)
            truth[region] = holds
            if holds:
                queue[tail] = region
                tail += 1
    for number in range(len(usual.regions)):
        if not room.is_present[usual.blocks[number]]:
            queue[tail] = usual.regions[number]
            tail += 1
    return tail


@kernel
def reset_truths(
    regions: Regions, blocks: NDArray[np.int32], usual: Usual, room: SingleWorkspace
) -> None:
    """Make the regions again what they are for an event without anything."""
    for number in range(len(blocks) + len(usual.always)):
        held = number < len(blocks)
        block = blocks[number] if held else usual.always[number - len(blocks)]
        room.is_present[block] = False
        for region in range(regions.of_block[block], regions.of_block[block + 1]):
            room.truth[region] = regions.begins[region]


@kernel
def evaluate_chunks_once(chunks: Chunks, room: SingleWorkspace) -> int:
    """Write the rows whose diagram is true; return how many there are."""
    count = 0
    values, truth = room.nodes, room.truth
    for chunk in range(len(chunks.node_starts) - 1):
        nodes = slice(chunks.node_starts[chunk], chunks.node_starts[chunk + 1])
        tests, lows, highs = chunks.test[nodes], chunks.low[nodes], chunks.high[nodes]
        regions = chunks.regions[chunks.region_starts[chunk] : chunks.region_starts[chunk + 1]]
        for node in range(len(tests)):
            # Both are read: which to choose is no branch then, and nothing to guess wrong.
            low, high = values[lows[node]], values[highs[node]]
            values[node + 2] = high if truth[regions[tests[node]]] else low
        for root in range(chunks.root_starts[chunk], chunks.root_starts[chunk + 1]):
            if values[chunks.roots[root]]:
                room.found[count] = chunks.members[root]
                count += 1
    return count


@kernel
def evaluate_graph_once(
    graph: Graph,
    upward: Upward,
    room: SingleWorkspace,
    tail: int,
    count: int,
) -> int:
    """Write the tops that are true, given the true regions; return where they end.

    A node goes up when the last row it needs has: whether it does is added, not asked, because
    memory answers late and a guess would be wrong every second time. First come, first served: what
    stands ahead in the queue is known, and can be fetched while the last still counts.
    """
    # Arrays by names of their own: to take them out of their tuples in the loops costs much there.
    starts, parents, states = upward.starts, upward.parents, room.states
    queue, touched, found, truth = room.queue, room.touched, room.found, room.truth
    kinds, children, first_child = graph.kinds, graph.children, graph.starts
    question = upward.question
    inner, rows, last, first, head = len(kinds) - len(graph.members), len(truth), 0, count, 0
    while head < tail:
        row = queue[head]
        head += 1
        node = row - rows
        if node >= 0 and question[node] != NO_QUESTION:
            own = children[first_child[node] : first_child[node + 1]]
            if not _answer(question[node], kinds[node], states[node], own, truth):
                continue
        for place in range(starts[row], starts[row + 1]):
            parent = parents[place]
            node = parent >> 1
            state = states[node] - 1 + (parent & 1) * ODD_UNIT
            states[node] = state
            touched[last] = parent
            last += 1
            is_ready = state & COUNT_MASK == 0
            queue[tail] = rows + node
            tail += is_ready & (node < inner)
            found[count] = node - inner
            count += is_ready & (node >= inner)
    kept = first
    for number in range(first, count):
        node = found[number] + inner
        if question[node] != NO_QUESTION:
            own = children[first_child[node] : first_child[node + 1]]
            if not _answer(question[node], kinds[node], states[node], own, truth):
                continue
        found[kept] = found[number]
        kept += 1
    for parent in touched[:last]:
        states[parent >> 1] += 1 - (parent & 1) * ODD_UNIT
    return kept


@inlined
def _answer(
    question: int,
    kind: int,
    state: int,
    children: NDArray[np.int32],
    truth: NDArray[np.bool_],
) -> bool:
    """Tell whether a node that has all it waited for is true."""
    is_odd, known = state & ODD_UNIT != 0, True
    if question == LOOK_UP:
        is_odd, known = _look_up(kind, children, truth)
    return bool(known and (kind == ALL or is_odd == (kind == ODD)))


@inlined
def _look_up(kind: int, children: NDArray[np.int32], truth: NDArray[np.bool_]) -> tuple[bool, bool]:
    """Tell whether an odd number of terms is true, and whether all terms are known."""
    is_odd = False
    if kind == ALL:
        for child in children:
            if not truth[child]:
                return is_odd, False
        return is_odd, True
    for term in range(0, len(children), 2):
        if truth[children[term]]:
            is_odd = not is_odd
        elif not truth[children[term + 1]]:
            return is_odd, False
    return is_odd, True
