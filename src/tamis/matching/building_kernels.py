"""From programs to a chunk's diagram: node after node, within a budget for each program."""

from __future__ import annotations

from typing import Final

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
    node_place,
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

# A filter is a diagram while that is the cheaper form: up to this many new nodes for each code of
# its program, found within this many steps. Most take one or two.
NODES_PER_CODE: Final = 8
STEPS_PER_CODE: Final = 64


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
def _forget_from(store: Store, leaves: Leaves, first: int) -> None:
    """Take back the nodes from `first` on, in the reverse order of their making."""
    mask = len(store.unique) - 1
    for node in range(store.counters[0] - 1, first - 1, -1):
        place = node_place(store.variable[node], store.low[node], store.high[node]) & mask
        while store.unique[place] != node:
            place = (place + 1) & mask
        store.unique[place] = 0
    store.counters[0] = first
    store.memo_key[:] = 0
    for index in range(len(leaves.node)):
        if leaves.node[index] >= first:
            leaves.node[index] = NONE


@kernel
def build_chunk(
    store: Store,
    leaves: Leaves,
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    scratch: Scratch,
    roots: NDArray[np.int32],
) -> int:
    """Build program after program; return how many there was room for.

    A program whose diagram would grow past a small multiple of its own length gets no root: it
    stays the graph that its codes are.
    """
    for number in range(len(roots)):
        program = codes[starts[number] : starts[number + 1]]
        before = store.counters[0]
        most = NODES_PER_CODE * len(program) + 16
        if before + 4 * most > len(store.variable):
            return number
        store.counters[1] = STEPS_PER_CODE * len(program) + 64
        root = build_program(store, leaves, program, scratch)
        if root == NONE or store.counters[0] - before > most:
            _forget_from(store, leaves, before)
            root = NONE
        roots[number] = root
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
