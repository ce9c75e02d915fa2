"""Nodes that test whole regions of a line, instead of one cut after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import FALSE, FREE, NONE, TRUE, Store, node_place
from tamis.jit import kernel, mixed_in


class Tests(NamedTuple):
    """Nodes that ask at once whether a line lies in a region, of whatever cells it is made."""

    region: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    unique: NDArray[np.int32]
    """Open hashing of the nodes, 0 where free."""
    region_start: NDArray[np.int32]
    """Region r changes at the variables cuts[region_start[r] : region_start[r + 1]]."""
    region_begins: NDArray[np.bool_]
    cuts: NDArray[np.int32]
    region_table: NDArray[np.int32]
    """Open hashing of the regions, their number plus one, 0 where free."""
    children: NDArray[np.int32]
    """Room for the cells of one line: where each leads."""
    counters: NDArray[np.int64]
    """Nodes and regions in use."""


def new_tests(nodes: int, variables: int) -> Tests:
    """Return an empty set of tests, with room for what as many nodes can come to."""
    size = 1 << (4 * nodes).bit_length()
    return Tests(
        region=np.empty(2 * nodes, np.int32),
        low=np.empty(2 * nodes, np.int32),
        high=np.empty(2 * nodes, np.int32),
        unique=np.zeros(size, np.int32),
        region_start=np.zeros(2 * nodes + 1, np.int32),
        region_begins=np.empty(2 * nodes, np.bool_),
        cuts=np.empty(4 * nodes + variables, np.int32),
        region_table=np.zeros(size, np.int32),
        children=np.empty(variables + 1, np.int32),
        counters=np.array([2, 0], np.int64),
    )


@kernel
def _region(tests: Tests, begins: bool, last: int) -> int:
    """Return the number of the region whose cuts were written from the first free place on."""
    number = tests.counters[1]
    first = tests.region_start[number]
    mixed = 1 if begins else 0
    for place in range(first, last):
        mixed = mixed_in(mixed, tests.cuts[place])
    mask = len(tests.region_table) - 1
    spot = (mixed ^ (mixed >> 15)) & mask
    while tests.region_table[spot] != 0:
        other = tests.region_table[spot] - 1
        start, end = tests.region_start[other], tests.region_start[other + 1]
        same = tests.region_begins[other] == begins and end - start == last - first
        for offset in range(last - first):
            same = same and tests.cuts[start + offset] == tests.cuts[first + offset]
        if same:
            return int(other)
        spot = (spot + 1) & mask
    tests.region_table[spot] = number + 1
    tests.region_begins[number] = begins
    tests.region_start[number + 1] = last
    tests.counters[1] = number + 1
    return int(number)


@kernel
def _test(tests: Tests, region: int, low: int, high: int) -> int:
    """Return the node that is `high` in a region and `low` outside."""
    mask = len(tests.unique) - 1
    spot = node_place(region, low, high) & mask
    while tests.unique[spot] != 0:
        node = tests.unique[spot]
        if tests.region[node] == region and tests.low[node] == low and tests.high[node] == high:
            return int(node)
        spot = (spot + 1) & mask
    node = int(tests.counters[0])
    tests.region[node], tests.low[node], tests.high[node] = region, low, high
    tests.unique[spot] = node
    tests.counters[0] = node + 1
    return node


@kernel
def _test_line(
    store: Store, tests: Tests, head: int, longest: int, renumbered: NDArray[np.int32]
) -> int:
    """Return the tests that stand for the chain of cuts from `head` on, up to the longest.

    A chain that leads to m different places takes m - 1 tests, however many cuts it has.
    """
    line = store.line[store.variable[head]]
    if line == FREE:
        longest = 1
    first = tests.region_start[tests.counters[1]]
    count, node = 0, head
    while node > TRUE and store.line[store.variable[node]] == line and count < longest:
        tests.children[count] = renumbered[store.high[node]]
        count += 1
        node = store.low[node]
    # A free variable is a chain of its own, however free the next one is.
    result = int(renumbered[node])
    if tests.counters[0] + count > len(tests.region) or first + count * count > len(tests.cuts):
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
                tests.cuts[place] = store.variable[at]
                place += 1
                inside = into
            at = store.low[at]
        region = _region(tests, tests.children[0] == child, place)
        result = _test(tests, region, result, child)
        first = tests.region_start[tests.counters[1]]
    return result


@kernel
def test_regions(
    store: Store,
    count: int,
    longest: int,
    roots: NDArray[np.int32],
    tests: Tests,
    renumbered: NDArray[np.int32],
) -> bool:
    """Make tests of regions of the first `count` nodes, and renumber the roots.

    Chains that other chains join midway may come to more tests than they had cuts, and to more
    than there is room for; then the answer is false, and the caller asks for shorter ones.
    """
    is_head = np.zeros(count, np.bool_)
    for number in range(len(roots)):
        if roots[number] != NONE:
            is_head[roots[number]] = True
    for node in range(2, count):
        line = store.line[store.variable[node]]
        low = store.low[node]
        is_head[store.high[node]] = True
        if low > TRUE and (longest == 1 or line == FREE or store.line[store.variable[low]] != line):
            is_head[low] = True
    renumbered[FALSE], renumbered[TRUE] = FALSE, TRUE
    for node in range(2, count):
        if is_head[node]:
            renumbered[node] = _test_line(store, tests, node, longest, renumbered)
            if renumbered[node] == NONE:
                return False
    for number in range(len(roots)):
        if roots[number] != NONE:
            roots[number] = renumbered[roots[number]]
    return True
