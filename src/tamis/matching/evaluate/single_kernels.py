"""One event at a time: truth spreads upward from the regions that the event lies in."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel
from tamis.matching.compile.chunk_kernels import Chunks
from tamis.matching.compile.graph_kernels import ALL, ANY, ODD, Graph, Regions, VariableCounts

# The state of a node: the number of missing children, and from this bit on that of true terms.
ODD_UNIT: Final = 1 << 24
COUNT_MASK: Final = ODD_UNIT - 1


# What remains to check: nothing; the parity of the true terms; the other children.
NO_QUESTION, PARITY, LOOK_UP = range(3)


class Upward(NamedTuple):
    """The graph from its rows upward.

    A node that needs all its children, or all its terms, depends on the rarest of them, where they
    are all regions: then their truths are known, and can be looked up when that one is true.
    """

    starts: NDArray[np.int64]
    """Row r goes up to the nodes parents[starts[r] : starts[r + 1]] // 2."""
    parents: NDArray[np.int32]
    """Odd where the row is the true side of a term of a parity."""
    needed: NDArray[np.int32]
    """How many rows that go up to it make each node true, or known if it is a parity."""
    question: NDArray[np.int8]
    """What remains to check for a node whose required rows are all true."""


class Usual(NamedTuple):
    """What is true of an event without attributes."""

    regions: NDArray[np.int32]
    blocks: NDArray[np.int32]
    """For each of those regions its attribute."""
    always: NDArray[np.int32]
    """The attributes with predicates, which a default may satisfy where the attribute is absent."""


class SingleWorkspace(NamedTuple):
    """Memory for one event; between events it describes an event without attributes."""

    truth: NDArray[np.bool_]
    """For every region."""
    is_present: NDArray[np.bool_]
    """For every attribute, and for the constants, which belong to none."""
    nodes: NDArray[np.bool_]
    """For one chunk; the first is false, the second true."""
    queue: NDArray[np.int32]
    """Rows of the graph that are true: the regions, and then the nodes that follow from them."""
    states: NDArray[np.int32]
    """For every node of the graph the number of children it still needs; above that, in units of
    their own, the number of true terms of a parity."""
    touched: NDArray[np.int32]
    """The parents whose states must be restored."""
    found: NDArray[np.int32]
    """The matches: rows of diagrams, then tops of the graph; one place more than needed."""


@kernel
def _width(regions: Regions, region: int) -> int:
    """Return about how many cells a region has."""
    first, last = regions.starts[region], regions.starts[region + 1]
    if regions.begins[region] or last - first != 2:
        return 1 << 30
    return int(regions.breakpoints[first + 1] - regions.breakpoints[first])


@kernel
def _rarest(children: NDArray[np.int32], step: int, regions: Regions) -> int:
    """Return the place of the narrowest child; with a step of 2, among every second one."""
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
    """Choose for each node the children that lead up to it, and how many of them it needs."""
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
    """Write the parents of every row; `starts` must be zeros."""
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
    breakpoints: int,
    passing: NDArray[np.bool_],
) -> bool:
    """Return whether a value in a cell lies in a region; `passing` covers this attribute only."""
    if guard != NONE and passing[guard - breakpoints]:
        return False
    for variable in changes:
        if variable < cell if variable < breakpoints else not passing[variable - breakpoints]:
            inside = not inside
    return inside


@kernel
def set_truths(
    regions: Regions,
    counts: VariableCounts,
    blocks: NDArray[np.int32],
    cells: NDArray[np.int32],
    passing: NDArray[np.bool_],
    usual: Usual,
    workspace: SingleWorkspace,
) -> int:
    """Write the regions that an event lies in to the queue; return their number."""
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    starts, begins, changes = regions.starts, regions.begins, regions.breakpoints
    guards, truth, queue = regions.guard, workspace.truth, workspace.queue
    tail = 0
    for number in range(len(blocks) + len(usual.always)):
        held = number < len(blocks)
        block = blocks[number] if held else usual.always[number - len(blocks)]
        if workspace.is_present[block]:
            continue
        workspace.is_present[block] = True
        cell, breakpoints = cells[number] if held else 0, counts.breakpoints[block]
        passes = passing[counts.predicates[block] : counts.predicates[block + 1]]
        for region in range(regions.of_block[block], regions.of_block[block + 1]):
            own = changes[starts[region] : starts[region + 1]]
            holds = _lies_in(own, bool(begins[region]), guards[region], cell, breakpoints, passes)
            truth[region] = holds
            if holds:
                queue[tail] = region
                tail += 1
    for number in range(len(usual.regions)):
        if not workspace.is_present[usual.blocks[number]]:
            queue[tail] = usual.regions[number]
            tail += 1
    return tail


@kernel
def reset_truths(
    regions: Regions, blocks: NDArray[np.int32], usual: Usual, workspace: SingleWorkspace
) -> None:
    """Restore the truth of the regions for an event without attributes."""
    for number in range(len(blocks) + len(usual.always)):
        held = number < len(blocks)
        block = blocks[number] if held else usual.always[number - len(blocks)]
        workspace.is_present[block] = False
        for region in range(regions.of_block[block], regions.of_block[block + 1]):
            workspace.truth[region] = regions.begins[region]


@kernel
def evaluate_chunks_once(chunks: Chunks, workspace: SingleWorkspace) -> int:
    """Write the rows whose diagram is true; return how many there are."""
    count = 0
    values, truth = workspace.nodes, workspace.truth
    for chunk in range(len(chunks.node_starts) - 1):
        nodes = slice(chunks.node_starts[chunk], chunks.node_starts[chunk + 1])
        tests, lows, highs = chunks.test[nodes], chunks.low[nodes], chunks.high[nodes]
        regions = chunks.regions[chunks.region_starts[chunk] : chunks.region_starts[chunk + 1]]
        for node in range(len(tests)):
            # Read both, so that the choice needs no branch that could be mispredicted.
            low, high = values[lows[node]], values[highs[node]]
            values[node + 2] = high if truth[regions[tests[node]]] else low
        for root in range(chunks.root_starts[chunk], chunks.root_starts[chunk + 1]):
            if values[chunks.roots[root]]:
                workspace.found[count] = chunks.members[root]
                count += 1
    return count


@kernel
def evaluate_graph_once(
    graph: Graph,
    upward: Upward,
    workspace: SingleWorkspace,
    tail: int,
    count: int,
) -> int:
    """Write the true tops, given the true regions; return where they end.

    A node is queued when the last row that it needs is true. Whether it is gets added to the tail,
    without a branch, which would be mispredicted every second time. The queue is first in, first
    out, so the next rows are known and can be fetched while the last one is still being counted.
    """
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    starts, parents, states = upward.starts, upward.parents, workspace.states
    queue, touched, found, truth = (
        workspace.queue,
        workspace.touched,
        workspace.found,
        workspace.truth,
    )
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
    """Return whether a node whose required rows are all true is true itself."""
    is_odd, known = state & ODD_UNIT != 0, True
    if question == LOOK_UP:
        is_odd, known = _look_up(kind, children, truth)
    return bool(known and (kind == ALL or is_odd == (kind == ODD)))


@inlined
def _look_up(kind: int, children: NDArray[np.int32], truth: NDArray[np.bool_]) -> tuple[bool, bool]:
    """Return whether an odd number of terms is true, and whether all terms are known."""
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
