"""From programs to a chunk's diagram: node after node, within a budget for each program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import (
    AND,
    FALSE,
    NONE,
    OR,
    TRUE,
    Store,
    combine,
    make_node,
)
from tamis.jit import kernel
from tamis.matching.program_kernels import (
    FALSE_SIDE,
    OP_AND,
    OP_NOT,
    OP_XOR,
    TRUE_SIDE,
    Leaves,
    Scratch,
    mark_sides,
)


@kernel
def leaf_node(store: Store, leaves: Leaves, index: int) -> int:
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
    store: Store, leaves: Leaves, program: NDArray[np.int32], scratch: Scratch
) -> int:
    """Return the node on which a program is true, or NONE past the budget."""
    mark_sides(program, scratch)
    true, false = scratch.when_true, scratch.when_false
    depth = 0
    for place in range(len(program)):
        code, sides = program[place], scratch.sides[place]
        if code >= 0:
            true[depth] = leaf_node(store, leaves, 2 * code) if sides & TRUE_SIDE else FALSE
            false[depth] = leaf_node(store, leaves, 2 * code + 1) if sides & FALSE_SIDE else FALSE
            if true[depth] == NONE or false[depth] == NONE:
                return NONE
            depth += 1
            continue
        op, terms = (-code - 1) % 4, (-code - 1) // 4
        depth -= terms
        if op == OP_NOT:
            true[depth], false[depth] = false[depth], true[depth]
        elif op == OP_XOR:
            for term in range(depth + 1, depth + terms):
                odd_a = combine(store, AND, true[depth], false[term])
                odd_b = combine(store, AND, false[depth], true[term])
                even_a = combine(store, AND, true[depth], true[term])
                even_b = combine(store, AND, false[depth], false[term])
                if odd_a == NONE or odd_b == NONE or even_a == NONE or even_b == NONE:
                    return NONE
                true[depth] = combine(store, OR, odd_a, odd_b)
                false[depth] = combine(store, OR, even_a, even_b)
                if true[depth] == NONE or false[depth] == NONE:
                    return NONE
        else:
            # From the last, which the variables' order tends to put deepest.
            whole, part = (AND, OR) if op == OP_AND else (OR, AND)
            last = depth + terms - 1
            for term in range(last - 1, depth - 1, -1):
                if sides & TRUE_SIDE:
                    true[last] = combine(store, whole, true[term], true[last])
                if sides & FALSE_SIDE:
                    false[last] = combine(store, part, false[term], false[last])
                if true[last] == NONE or false[last] == NONE:
                    return NONE
            true[depth], false[depth] = true[last], false[last]
        depth += 1
    return int(true[0])


@kernel
def build_chunk(
    store: Store,
    leaves: Leaves,
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    scratch: Scratch,
    roots: NDArray[np.int32],
    nodes_per_code: int,
    steps_per_code: int,
) -> int:
    """Build program after program; return how many there was room for.

    A program whose diagram would grow past a small multiple of its own length gets no root: it
    stays the graph that its codes are.
    """
    for number in range(len(roots)):
        program = codes[starts[number] : starts[number + 1]]
        before = store.counters[0]
        most = nodes_per_code * len(program)
        if before + 4 * most + 64 > len(store.variable):
            return number
        # Long filters hardly ever have small diagrams, and need not try as long.
        store.counters[1] = min(steps_per_code * len(program), 4_096) + 64
        root = build_program(store, leaves, program, scratch)
        # The nodes of a failure stay in the way until the chunk is done: to take them back would
        # mean to forget all that was memorised.
        is_cheap = root != NONE and store.counters[0] - before <= most
        roots[number] = root if is_cheap else NONE
    return len(roots)


@kernel
def keep_reachable(store: Store, roots: NDArray[np.int32], kept: NDArray[np.int32]) -> int:
    """Move the nodes that the roots need together, and renumber; return how many there are."""
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
