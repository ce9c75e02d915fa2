"""Building an A-Tree: find what is shared, split into true and false, order by level."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.atree_kernels import ALL, ANY, EVEN, LEAF, ODD
from benchmarks.workloads.forms import AND, NOT, XOR, Programs
from tamis.jit import kernel

_P1, _P2 = 12_582_917, 741_457


class Shared(NamedTuple):
    """Expressions with every sub-expression once; the predicates have the first numbers."""

    op: NDArray[np.int8]
    """Of the nodes after the predicates."""
    start: NDArray[np.int64]
    children: NDArray[np.int32]
    roots: NDArray[np.int32]


class Demand(NamedTuple):
    """Whether it matters that a sub-expression is true, and that it is false."""

    true: NDArray[np.bool_]
    false: NDArray[np.bool_]
    level: NDArray[np.int8]


class Nodes(NamedTuple):
    """The nodes of the tree without their parents."""

    kind: NDArray[np.int8]
    child_start: NDArray[np.int64]
    children: NDArray[np.int32]


@kernel
def share(programs: Programs, predicates: int, most: int) -> Shared:
    """Return the graph of the programs, up to a number of nodes, ignoring operand order."""
    code = programs.code
    op = np.empty(most, np.int8)
    start = np.zeros(most + 1, np.int64)
    children = np.empty(len(code), np.int32)
    roots = np.empty(len(programs.start) - 1, np.int32)
    size = 1024
    while size < 2 * most:
        size *= 2
    table = np.full(size, -1, np.int32)
    stack = np.empty(1 << 12, np.int32)
    used = 0
    for program in range(len(roots)):
        depth = 0
        for token in code[programs.start[program] : programs.start[program + 1]]:
            if token >= 0:
                stack[depth] = token
                depth += 1
                continue
            depth -= (-1 - token) >> 2
            terms = stack[depth : depth + ((-1 - token) >> 2)]
            _sort(terms)
            # Written where a new node would be; kept if it is new.
            op[used] = (-1 - token) & 3
            start[used + 1] = start[used] + len(terms)
            for number in range(len(terms)):
                children[start[used] + number] = terms[number]
            place = _find(table, op, start, children, used)
            if table[place] < 0:
                table[place] = used
                used += 1
            stack[depth] = predicates + table[place]
            depth += 1
        roots[program] = stack[0]
    return Shared(op[:used].copy(), start[: used + 1].copy(), children[: start[used]].copy(), roots)


@kernel
def _sort(terms: NDArray[np.int32]) -> None:
    """Sort a few numbers in place."""
    for end in range(1, len(terms)):
        term, place = terms[end], end
        while place > 0 and terms[place - 1] > term:
            terms[place] = terms[place - 1]
            place -= 1
        terms[place] = term


@kernel
def _are_equal(one: NDArray[np.int32], other: NDArray[np.int32]) -> bool:
    if len(one) != len(other):
        return False
    for number in range(len(one)):  # noqa: SIM110 - a loop for a compiler
        if one[number] != other[number]:
            return False
    return True


@kernel
def _find(
    table: NDArray[np.int32],
    op: NDArray[np.int8],
    start: NDArray[np.int64],
    children: NDArray[np.int32],
    node: int,
) -> int:
    """Return the slot of an equal node, or the free slot where this one belongs."""
    mine = children[start[node] : start[node + 1]]
    mixed = int(op[node])
    for child in mine:
        mixed = (mixed * _P1 + int(child) * _P2) & 0xFFFFFFFFFFF
        mixed ^= mixed >> 21
    place = mixed & (len(table) - 1)
    while table[place] >= 0:
        other = table[place]
        theirs = children[start[other] : start[other + 1]]
        if op[other] == op[node] and _are_equal(mine, theirs):
            break
        place = (place + 1) & (len(table) - 1)
    return int(place)


@kernel
def find_demand(shared: Shared, predicates: int) -> Demand:
    """Propagate demand from the roots down; a negation swaps it, a parity needs both."""
    total = predicates + len(shared.op)
    demand = Demand(np.zeros(total, np.bool_), np.zeros(total, np.bool_), np.zeros(total, np.int8))
    true, false, level = demand
    for root in shared.roots:
        true[root] = True
    for node in range(total - 1, predicates - 1, -1):
        op = shared.op[node - predicates]
        for place in range(shared.start[node - predicates], shared.start[node - predicates + 1]):
            child = shared.children[place]
            if op == NOT:
                true[child] |= false[node]
                false[child] |= true[node]
            elif op == XOR:
                true[child] |= true[node] or false[node]
                false[child] |= true[node] or false[node]
            else:
                true[child] |= true[node]
                false[child] |= false[node]
    for node in range(predicates, total):
        highest = 0
        for place in range(shared.start[node - predicates], shared.start[node - predicates + 1]):
            highest = max(highest, level[shared.children[place]])
        # A negation is not a node but its operand negated.
        level[node] = highest + (shared.op[node - predicates] != NOT)
    return demand


@kernel
def find_roots(shared: Shared, predicates: int, number: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the node that stands for each expression being true."""
    roots = np.empty(len(shared.roots), np.int32)
    for subscription in range(len(roots)):
        node, true = _resolve(shared, predicates, int(shared.roots[subscription]), True)
        roots[subscription] = number[node, int(true)]
    return roots


@kernel
def _resolve(shared: Shared, predicates: int, node: int, true: bool) -> tuple[int, bool]:
    """Follow negations to their operand."""
    while node >= predicates and shared.op[node - predicates] == NOT:
        node = int(shared.children[shared.start[node - predicates]])
        true = not true
    return node, true


@kernel
def make_nodes(
    shared: Shared,
    predicates: int,
    origin: NDArray[np.int32],
    is_true: NDArray[np.bool_],
    number: NDArray[np.int32],
) -> Nodes:
    """Return the kind and children of each node; `number` is by origin, for false and for true."""
    kind = np.zeros(len(origin), np.int8)
    child_start = np.zeros(len(origin) + 1, np.int64)
    # A parity has two children for each operand, and a node may exist for true and for false.
    children = np.empty(4 * len(shared.children), np.int32)
    end = 0
    for node in range(len(origin)):
        if origin[node] < predicates:
            kind[node] = LEAF
            child_start[node + 1] = end
            continue
        source = origin[node] - predicates
        parity = shared.op[source] == XOR
        if parity:
            kind[node] = ODD if is_true[node] else EVEN
        else:
            kind[node] = ALL if (shared.op[source] == AND) == is_true[node] else ANY
        for place in range(shared.start[source], shared.start[source + 1]):
            child = int(shared.children[place])
            below, true = _resolve(shared, predicates, child, bool(parity or is_true[node]))
            children[end] = number[below, int(true)]
            end += 1
            if parity:
                children[end] = number[below, int(not true)]
                end += 1
        child_start[node + 1] = end
    return Nodes(kind, child_start, children[:end].copy())


@kernel
def choose_children(nodes: Nodes, chance: NDArray[np.float64]) -> None:
    """Estimate how often nodes are true, and put the rarest child first."""
    for node in range(len(nodes.kind)):
        kind = nodes.kind[node]
        first, last = nodes.child_start[node], nodes.child_start[node + 1]
        if kind == LEAF:
            continue
        step = 1 if kind <= ANY else 2
        best, lowest, product = first, 2.0, 1.0
        for place in range(first, last, step):
            mine = chance[nodes.children[place]]
            if step == 2:
                mine += chance[nodes.children[place + 1]]
            if mine < lowest:
                best, lowest = place, mine
            product *= 1.0 - mine if kind == ANY else mine
        chance[node] = 1.0 - product if kind == ANY else product / step
        for offset in range(step):
            here, there = nodes.children[first + offset], nodes.children[best + offset]
            nodes.children[first + offset], nodes.children[best + offset] = there, here


@kernel
def listen(nodes: Nodes) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the nodes that listen to each: `any` to all its children, the others to the first."""
    start = np.zeros(len(nodes.kind) + 1, np.int64)
    for node in range(len(nodes.kind)):
        for place in range(nodes.child_start[node], _heard_end(nodes, node)):
            start[nodes.children[place] + 1] += 1
    for node in range(len(nodes.kind)):
        start[node + 1] += start[node]
    parents = np.empty(start[-1], np.int32)
    filled = start[:-1].copy()
    for node in range(len(nodes.kind)):
        for place in range(nodes.child_start[node], _heard_end(nodes, node)):
            child = nodes.children[place]
            parents[filled[child]] = node
            filled[child] += 1
    return start, parents


@kernel
def _heard_end(nodes: Nodes, node: int) -> int:
    first, kind = nodes.child_start[node], nodes.kind[node]
    if kind == ALL:
        return int(first + 1)
    if kind == ANY:
        return int(nodes.child_start[node + 1])
    return int(first) if kind == LEAF else int(first + 2)
