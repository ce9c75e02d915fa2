"""From programs to the diagram of a chunk, and from its nodes to nodes that test regions."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import (
    AND,
    FALSE,
    FREE,
    NONE,
    OR,
    TRUE,
    NodeTable,
    combine,
    make_node,
    node_place,
)
from tamis.jit import inlined, kernel
from tamis.matching.compile.hash_kernels import find_run, next_spot
from tamis.matching.compile.program_kernels import (
    FALSE_SIDE,
    LEAF,
    OP_AND,
    OP_NOT,
    OP_XOR,
    TRUE_SIDE,
    Leaves,
    Scratch,
    mark_sides,
    read_step,
)

# So many programs of one length are tried as diagrams before the rest is judged by them.
MIN_TRIALS: Final = 32


class Chunks(NamedTuple):
    """The diagrams of all chunks, one after the other."""

    node_starts: NDArray[np.int64]
    test: NDArray[np.uint16]
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    region_starts: NDArray[np.int64]
    regions: NDArray[np.int32]
    """For each test of a chunk the region that it tests."""
    root_starts: NDArray[np.int64]
    roots: NDArray[np.uint16]
    members: NDArray[np.int32]
    """For each root the subscription it belongs to."""


@kernel
def leaf_node(store: NodeTable, leaves: Leaves, index: int) -> int:
    """Return the node of one side of a leaf."""
    if leaves.node[index] != NONE:
        return int(leaves.node[index])
    first, last = leaves.starts[index], leaves.starts[index + 1]
    inside = leaves.begins_inside[index] != ((last - first) % 2 == 1)
    node = TRUE if inside else FALSE
    for number in range(last - 1, first - 1, -1):
        inside = not inside
        node = make_node(store, leaves.variables[number], node, TRUE if inside else FALSE)
        if node == NONE:
            return NONE
    if leaves.guard[index] != NONE and node != FALSE:
        denied = make_node(store, leaves.guard[index], TRUE, FALSE)
        node = combine(store, AND, node, denied) if denied != NONE else NONE
    leaves.node[index] = node
    return node


@kernel
def build_program(
    store: NodeTable, leaves: Leaves, program: NDArray[np.int32], scratch: Scratch
) -> int:
    """Return the node on which a program is true, or NONE past the budget."""
    mark_sides(program, scratch)
    true, false = scratch.when_true, scratch.when_false
    depth = 0
    for place in range(len(program)):
        code, sides = program[place], scratch.sides[place]
        op, first = read_step(code, depth)
        last = depth - 1
        if op == LEAF:
            true[first] = leaf_node(store, leaves, 2 * code) if sides & TRUE_SIDE else FALSE
            false[first] = leaf_node(store, leaves, 2 * code + 1) if sides & FALSE_SIDE else FALSE
        elif op == OP_NOT:
            true[first], false[first] = false[first], true[first]
        elif op == OP_XOR:
            for term in range(first + 1, depth):
                odd_a = combine(store, AND, true[first], false[term])
                odd_b = combine(store, AND, false[first], true[term])
                even_a = combine(store, AND, true[first], true[term])
                even_b = combine(store, AND, false[first], false[term])
                if odd_a == NONE or odd_b == NONE or even_a == NONE or even_b == NONE:
                    return NONE
                true[first] = combine(store, OR, odd_a, odd_b)
                false[first] = combine(store, OR, even_a, even_b)
                if true[first] == NONE or false[first] == NONE:
                    return NONE
        else:
            # From the last, which the variables' order tends to put deepest.
            whole, part = (AND, OR) if op == OP_AND else (OR, AND)
            for term in range(last - 1, first - 1, -1):
                if sides & TRUE_SIDE:
                    true[last] = combine(store, whole, true[term], true[last])
                if sides & FALSE_SIDE:
                    false[last] = combine(store, part, false[term], false[last])
                if true[last] == NONE or false[last] == NONE:
                    return NONE
            true[first], false[first] = true[last], false[last]
        if true[first] == NONE or false[first] == NONE:
            return NONE
        depth = first + 1
    return int(true[0])


class Trials(NamedTuple):
    """How many programs of each length there were, were tried as diagrams, and were cheap ones."""

    asked: NDArray[np.int64]
    made: NDArray[np.int64]
    cheap: NDArray[np.int64]


def new_trials(longest: int) -> Trials:
    """Return the trials of no program of up to `longest` codes."""
    return Trials(*np.zeros((3, longest + 1), np.int64))


@kernel
def build_chunk(
    store: NodeTable,
    leaves: Leaves,
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    scratch: Scratch,
    trials: Trials,
    roots: NDArray[np.int32],
    nodes_per_code: int,
    steps_per_code: int,
) -> int:
    """Build one program after the other; return how many the chunk has space for.

    A program whose diagram would grow past a small multiple of its own length gets no root: it
    stays the graph that its codes are.
    """
    built = len(roots)
    for number in range(len(roots)):
        program = codes[starts[number] : starts[number + 1]]
        if not _is_promising(trials, len(program)):
            roots[number] = NONE
            continue
        before = store.counters[0]
        most = nodes_per_code * len(program)
        if before + 4 * most + 64 > len(store.variable):
            built = number
            break
        # Long filters hardly ever have small diagrams, so they get fewer steps per code.
        store.counters[1] = min(steps_per_code * len(program), 4_096) + 64
        root = build_program(store, leaves, program, scratch)
        # The nodes of a failure stay until the chunk is done: removing them would invalidate the
        # cache of results.
        is_cheap = root != NONE and store.counters[0] - before <= most
        roots[number] = root if is_cheap else NONE
        trials.made[len(program)] += 1
        trials.cheap[len(program)] += is_cheap
    # The next chunk has other nodes.
    for place in range(starts[built]):
        if codes[place] >= 0:
            leaves.node[2 * codes[place]] = leaves.node[2 * codes[place] + 1] = NONE
    return built


@inlined
def _is_promising(trials: Trials, length: int) -> bool:
    """Return whether to try a program: where nearly all before failed, only one of some."""
    trials.asked[length] += 1
    made, cheap = trials.made[length], trials.cheap[length]
    is_vain = made >= MIN_TRIALS and cheap * MIN_TRIALS < made
    return not is_vain or trials.asked[length] % MIN_TRIALS == 0


@kernel
def keep_reachable(store: NodeTable, roots: NDArray[np.int32], kept: NDArray[np.int32]) -> int:
    """Keep only the nodes that the roots need, renumbered; return how many there are."""
    count = store.counters[0]
    kept[:count] = 0
    for root in roots:
        if root != NONE:
            kept[root] = 1
    for node in range(count - 1, TRUE, -1):
        if kept[node]:
            kept[store.low[node]] = 1
            kept[store.high[node]] = 1
    kept[FALSE] = FALSE
    kept[TRUE] = TRUE
    used = 2
    for node in range(2, count):
        if kept[node]:
            kept[node] = used
            store.variable[used] = store.variable[node]
            store.low[used] = kept[store.low[node]]
            store.high[used] = kept[store.high[node]]
            used += 1
    for number in range(len(roots)):
        if roots[number] != NONE:
            roots[number] = kept[roots[number]]
    return used


class RegionNodes(NamedTuple):
    """Nodes that test whether a value lies in a region, a set of cells of its attribute."""

    region: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    unique: NDArray[np.int32]
    """Open hashing of the nodes, 0 where free."""
    region_start: NDArray[np.int32]
    """Region r changes at the variables breakpoints[region_start[r] : region_start[r + 1]]."""
    region_begins: NDArray[np.bool_]
    breakpoints: NDArray[np.int32]
    region_table: NDArray[np.int32]
    """Open hashing of the regions, their number plus one, 0 where free."""
    children: NDArray[np.int32]
    """For each cell of one attribute the node it leads to."""
    counters: NDArray[np.int64]
    """Nodes and regions in use."""


def new_region_nodes(nodes: int, variables: int) -> RegionNodes:
    """Return empty region nodes, with space for those that `nodes` nodes can become."""
    size = 1 << (4 * nodes).bit_length()
    return RegionNodes(
        region=np.empty(2 * nodes, np.int32),
        low=np.empty(2 * nodes, np.int32),
        high=np.empty(2 * nodes, np.int32),
        unique=np.zeros(size, np.int32),
        region_start=np.zeros(2 * nodes + 1, np.int32),
        region_begins=np.empty(2 * nodes, np.bool_),
        breakpoints=np.empty(4 * nodes + variables, np.int32),
        region_table=np.zeros(size, np.int32),
        children=np.empty(variables + 1, np.int32),
        counters=np.array([2, 0], np.int64),
    )


@kernel
def _region(tests: RegionNodes, begins: bool, last: int) -> int:
    """Return the number of the region whose breakpoints start at the first free place."""
    number = tests.counters[1]
    first = tests.region_start[number]
    spot, other = find_run(
        tests.region_table,
        tests.region_begins,
        tests.region_start,
        tests.breakpoints,
        1 if begins else 0,
        first,
        last,
    )
    if other != NONE:
        return int(other)
    tests.region_table[spot] = number + 1
    tests.region_begins[number] = begins
    tests.region_start[number + 1] = last
    tests.counters[1] = number + 1
    return int(number)


@kernel
def _region_node(tests: RegionNodes, region: int, low: int, high: int) -> int:
    """Return the node that is `high` in a region and `low` outside."""
    spot = node_place(region, low, high) & (len(tests.unique) - 1)
    while tests.unique[spot] != 0:
        node = tests.unique[spot]
        if tests.region[node] == region and tests.low[node] == low and tests.high[node] == high:
            return int(node)
        spot = next_spot(spot, tests.unique)
    node = int(tests.counters[0])
    tests.region[node], tests.low[node], tests.high[node] = region, low, high
    tests.unique[spot] = node
    tests.counters[0] = node + 1
    return node


@kernel
def _merge_chain(
    store: NodeTable, tests: RegionNodes, head: int, longest: int, renumbered: NDArray[np.int32]
) -> int:
    """Return the region nodes that replace the chain of breakpoints that starts at `head`.

    A chain that leads to m different nodes takes m - 1 region nodes, however long it is.
    """
    line = store.chain[store.variable[head]]
    if line == FREE:
        longest = 1
    first = tests.region_start[tests.counters[1]]
    count, node = 0, head
    while node > TRUE and store.chain[store.variable[node]] == line and count < longest:
        tests.children[count] = renumbered[store.high[node]]
        count += 1
        node = store.low[node]
    # A free variable is a chain of its own, even if the next one is free as well.
    result = int(renumbered[node])
    if tests.counters[0] + count > len(tests.region) or first + count * count > len(
        tests.breakpoints
    ):
        return NONE
    for cell in range(count - 1, -1, -1):
        child = tests.children[cell]
        done = child == renumbered[node]
        for later in range(cell + 1, count):
            done = done or tests.children[later] == child
        if done:
            continue
        place, inside, at = first, tests.children[0] == child, head
        for number in range(1, count + 1):
            into = number < count and tests.children[number] == child
            if into != inside:
                tests.breakpoints[place] = store.variable[at]
                place += 1
                inside = into
            at = store.low[at]
        region = _region(tests, tests.children[0] == child, place)
        result = _region_node(tests, region, result, child)
        first = tests.region_start[tests.counters[1]]
    return result


@kernel
def merge_chains(
    store: NodeTable,
    count: int,
    longest: int,
    roots: NDArray[np.int32],
    tests: RegionNodes,
    renumbered: NDArray[np.int32],
) -> bool:
    """Merge the chains of the first `count` nodes to region nodes, and renumber the roots.

    Chains that other chains join midway may need more region nodes than they had nodes, and more
    than there is space for. Then it returns false, and the caller asks for shorter chains.
    """
    is_head = np.zeros(count, np.bool_)
    for number in range(len(roots)):
        if roots[number] != NONE:
            is_head[roots[number]] = True
    for node in range(2, count):
        line = store.chain[store.variable[node]]
        low = store.low[node]
        is_head[store.high[node]] = True
        if low > TRUE and (
            longest == 1 or line == FREE or store.chain[store.variable[low]] != line
        ):
            is_head[low] = True
    renumbered[FALSE], renumbered[TRUE] = FALSE, TRUE
    for node in range(2, count):
        if is_head[node]:
            renumbered[node] = _merge_chain(store, tests, node, longest, renumbered)
            if renumbered[node] == NONE:
                return False
    for number in range(len(roots)):
        if roots[number] != NONE:
            roots[number] = renumbered[roots[number]]
    return True
