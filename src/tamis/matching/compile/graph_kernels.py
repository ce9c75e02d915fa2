"""Regions, and the graph of filters without a small diagram: and, or and parity over regions.

Each step of a program has two sides, where it is true and where it is false, and a node stands for
one of them. So the graph has no negation: making more children true never makes a node false. A
batch goes through all nodes, children first; a single event starts from the regions it lies in and
goes up.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import kernel, mixed_in
from tamis.matching.compile.hash_kernels import (
    find_run,
    first_spot,
    is_same_run,
    mixed_run,
    next_spot,
)
from tamis.matching.compile.program_kernels import (
    FALSE_SIDE,
    LEAF,
    OP_AND,
    OP_NOT,
    OP_XOR,
    TRUE_SIDE,
    Scratch,
    mark_sides,
    read_step,
)


class Regions(NamedTuple):
    """What diagrams and graph test: cells of an attribute, or a predicate; attribute by attribute.

    Variables are counted from the first of their attribute.
    """

    of_block: NDArray[np.int32]
    """Attribute b has the regions of_block[b] to of_block[b + 1]; constants come last."""
    starts: NDArray[np.int64]
    """Region r changes at the variables breakpoints[starts[r] : starts[r + 1]]."""
    begins: NDArray[np.bool_]
    breakpoints: NDArray[np.int32]
    guard: NDArray[np.int32]
    """A predicate that must not hold as well, or NONE."""


class VariableCounts(NamedTuple):
    """How many variables each attribute has."""

    breakpoints: NDArray[np.int32]
    """For each attribute the number of breakpoints."""
    predicates: NDArray[np.int32]
    """Attribute b has the predicates predicates[b] to predicates[b + 1]."""


@kernel
def number_regions(
    starts: NDArray[np.int64],
    begins: NDArray[np.bool_],
    breakpoints: NDArray[np.int32],
    guard: NDArray[np.int32],
    table: NDArray[np.int32],
    firsts: NDArray[np.int32],
    numbers: NDArray[np.int32],
) -> int:
    """Number regions so that equal ones have one number; write the first region of each.

    `table` is open hashing of numbers plus one, 0 where free, a power of two long.
    """
    count = 0
    for region in range(len(begins)):
        first, last = starts[region], starts[region + 1]
        mixed = mixed_in(1 if begins[region] else 0, guard[region])
        spot = first_spot(mixed_run(mixed, breakpoints, first, last), table)
        number = NONE
        while table[spot] != 0 and number == NONE:
            other = firsts[table[spot] - 1]
            start = starts[other]
            same = begins[other] == begins[region] and guard[other] == guard[region]
            same = same and starts[other + 1] - start == last - first
            if same and is_same_run(breakpoints, start, first, last - first):
                number = table[spot] - 1
            spot = next_spot(spot, table)
        if number == NONE:
            number = count
            table[spot] = number + 1
            firsts[number] = region
            count += 1
        numbers[region] = number
    return count


# --- the graph ------------------------------------------------------------------------------------


# How a node depends on its children. The children of a parity come in pairs, the true and the
# false side of a term: all terms must be known, and an odd or even number of them true.
ALL, ANY, ODD, EVEN = range(4)
NO_SIDE: Final = -2


class Graph(NamedTuple):
    """Nodes over rows: the rows of the regions come first, those of the inner nodes after them."""

    kinds: NDArray[np.int8]
    starts: NDArray[np.int64]
    """Node n has the children children[starts[n] : starts[n + 1]], which are rows."""
    children: NDArray[np.int32]
    members: NDArray[np.int32]
    """The last nodes are the tops: for each, the subscription it belongs to."""


class Growing(NamedTuple):
    """A graph that is being built."""

    kinds: NDArray[np.int8]
    starts: NDArray[np.int64]
    children: NDArray[np.int32]
    table: NDArray[np.int32]
    """Open hashing of the nodes, their number plus one, 0 where free; a power of two long."""
    counter: NDArray[np.int64]
    """The number of nodes."""


@kernel
def _sort_children(growing: Growing, first: int, last: int) -> int:
    """Sort children and drop repeated ones; return where they end."""
    children = growing.children
    children[first:last].sort()
    end = first
    for place in range(first, last):
        if place == first or children[place] != children[end - 1]:
            children[end] = children[place]
            end += 1
    return end


@kernel
def enter_all(growing: Growing) -> None:
    """Enter all nodes in an empty table."""
    for node in range(growing.counter[0]):
        first, last = growing.starts[node], growing.starts[node + 1]
        mixed = mixed_run(int(growing.kinds[node]), growing.children, first, last)
        spot = first_spot(mixed, growing.table)
        while growing.table[spot] != 0:
            spot = next_spot(spot, growing.table)
        growing.table[spot] = node + 1


@kernel
def _node(growing: Growing, kind: int, last: int, regions: int) -> int:
    """Return the row of the node whose children start at the first free place."""
    number, children = growing.counter[0], growing.children
    first = growing.starts[number]
    if kind == ALL or kind == ANY:
        last = _sort_children(growing, first, last)
        if last - first == 1:
            return int(children[first])
    spot, other = find_run(
        growing.table, growing.kinds, growing.starts, children, kind, first, last
    )
    if other != NONE:
        return int(regions + other)
    growing.table[spot] = number + 1
    growing.kinds[number] = kind
    growing.starts[number + 1] = last
    growing.counter[0] = number + 1
    return int(regions + number)


@kernel
def _joined(
    growing: Growing, kind: int, rows: NDArray[np.int32], first: int, last: int, regions: int
) -> int:
    place = growing.starts[growing.counter[0]]
    for term in range(first, last):
        growing.children[place] = rows[term]
        place += 1
    return _node(growing, kind, place, regions)


@kernel
def _parity(growing: Growing, kind: int, scratch: Scratch, first: int, last: int, rows: int) -> int:
    place = growing.starts[growing.counter[0]]
    for term in range(first, last):
        growing.children[place] = scratch.when_true[term]
        growing.children[place + 1] = scratch.when_false[term]
        place += 2
    return _node(growing, kind, place, rows)


@kernel
def grow_graph(
    growing: Growing,
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    row_of_side: NDArray[np.int32],
    regions: int,
    scratch: Scratch,
    roots: NDArray[np.int32],
    first_program: int,
) -> int:
    """Add one program after the other; return the first for which there may be no space."""
    true, false = scratch.when_true, scratch.when_false
    for number in range(first_program, len(roots)):
        program = codes[starts[number] : starts[number + 1]]
        nodes = growing.counter[0] + 2 * len(program)
        if nodes > len(growing.kinds) or 2 * nodes > len(growing.table):
            return number
        if growing.starts[growing.counter[0]] + 4 * len(program) > len(growing.children):
            return number
        mark_sides(program, scratch)
        depth = 0
        for place in range(len(program)):
            code, sides = program[place], scratch.sides[place]
            op, first = read_step(code, depth)
            holds = fails = NO_SIDE
            if op == LEAF:
                holds = row_of_side[2 * code] if sides & TRUE_SIDE else NO_SIDE
                fails = row_of_side[2 * code + 1] if sides & FALSE_SIDE else NO_SIDE
            elif op == OP_NOT:
                holds, fails = false[first], true[first]
            elif op == OP_XOR:
                if sides & TRUE_SIDE:
                    holds = _parity(growing, ODD, scratch, first, depth, regions)
                if sides & FALSE_SIDE:
                    fails = _parity(growing, EVEN, scratch, first, depth, regions)
            else:
                if sides & TRUE_SIDE:
                    kind = ALL if op == OP_AND else ANY
                    holds = _joined(growing, kind, true, first, depth, regions)
                if sides & FALSE_SIDE:
                    kind = ANY if op == OP_AND else ALL
                    fails = _joined(growing, kind, false, first, depth, regions)
            true[first], false[first] = holds, fails
            depth = first + 1
        roots[number] = true[0]
    return len(roots)


@kernel
def find_inner(
    growing: Growing, regions: int, roots: NDArray[np.int32], is_inner: NDArray[np.bool_]
) -> None:
    """Find the nodes that another node, or more than one subscription, depends on."""
    is_root = np.zeros(len(is_inner), np.bool_)
    for number in range(len(roots)):
        root = roots[number] - regions
        if root >= 0:
            is_inner[root] = is_root[root]
            is_root[root] = True
    for place in range(growing.starts[growing.counter[0]]):
        if growing.children[place] >= regions:
            is_inner[growing.children[place] - regions] = True


@kernel
def arrange(
    growing: Growing,
    regions: int,
    roots: NDArray[np.int32],
    row: NDArray[np.int32],
    graph: Graph,
) -> None:
    """Write the inner nodes and then the tops; `row` has for each node its inner row, or NONE."""
    count, place = 0, 0
    for node in range(growing.counter[0]):
        if row[node] != NONE:
            place = _copy_node(growing, regions, node, row, graph, count, place)
            count += 1
    for number in range(len(roots)):
        root = roots[number] - regions
        if root >= 0 and row[root] == NONE:
            place = _copy_node(growing, regions, root, row, graph, count, place)
        else:
            graph.kinds[count] = ANY
            graph.children[place] = roots[number] if root < 0 else regions + row[root]
            place += 1
            graph.starts[count + 1] = place
        count += 1


@kernel
def _copy_node(
    growing: Growing,
    regions: int,
    node: int,
    row: NDArray[np.int32],
    graph: Graph,
    number: int,
    place: int,
) -> int:
    graph.kinds[number] = growing.kinds[node]
    for child in growing.children[growing.starts[node] : growing.starts[node + 1]]:
        graph.children[place] = child if child < regions else regions + row[child - regions]
        place += 1
    graph.starts[number + 1] = place
    return place
