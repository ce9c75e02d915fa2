"""The inner loops of the diagram, over flat arrays.

Every kernel works on one `NodeTable`. Node numbers are positions in its arrays; 0 and 1 are false
and true. A kernel that runs out of steps or room leaves the table unchanged and returns NONE.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import kernel

FALSE: Final = 0
TRUE: Final = 1
NONE: Final = -1

# The chain of a variable that is not a breakpoint, and a terminal's position in the order.
FREE: Final = -1
BOTTOM: Final = 2**31 - 1

AND: Final = 0
OR: Final = 1
XOR: Final = 2

# The fields of a stack frame, and its states.
_F, _G, _VARIABLE, _F_HIGH, _G_HIGH, _LOW, _STATE = range(7)
FRAME_FIELDS: Final = 7
_ENTERED, _LOW_PENDING, _HIGH_PENDING = range(3)

# Primes far below 2**31, so that a product with a node number fits in 64 bits.
_P1, _P2, _P3 = 12_582_917, 4_256_249, 741_457


class NodeTable(NamedTuple):
    """The arrays of one diagram."""

    variable: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    unique: NDArray[np.int32]
    """The unique table: open addressing, a power of two long, 0 where free."""
    memo_key: NDArray[np.int64]
    """The computed table: a direct-mapped cache of results, a power of two long."""
    memo: NDArray[np.int32]
    chain: NDArray[np.int32]
    """For each variable its chain, or FREE; the variables of one chain are adjacent, ascending."""
    stack: NDArray[np.int32]
    """One frame per variable, and one more."""
    counters: NDArray[np.int64]
    """Nodes in use, and steps left."""


def new_node_table(chains: NDArray[np.int32], *, nodes: int, steps: int) -> NodeTable:
    """Return an empty table for this many nodes and steps; unused pages cost no memory."""
    size = 1 << (2 * nodes).bit_length()
    memo = max(1024, size >> 2)
    table = NodeTable(
        variable=np.empty(nodes, np.int32),
        low=np.empty(nodes, np.int32),
        high=np.empty(nodes, np.int32),
        unique=np.zeros(size, np.int32),
        memo_key=np.zeros(memo, np.int64),
        memo=np.empty(memo, np.int32),
        chain=chains,
        stack=np.empty((len(chains) + 2, FRAME_FIELDS), np.int32),
        counters=np.array([2, steps], np.int64),
    )
    table.variable[:2] = BOTTOM
    table.low[:2] = table.high[:2] = FALSE, TRUE
    return table


def grown(table: NodeTable, nodes: int) -> NodeTable:
    """Return a table with the same nodes and room for more."""
    used = int(table.counters[0])
    larger = new_node_table(table.chain, nodes=nodes, steps=int(table.counters[1]))
    for new, old in zip(larger[:3], table[:3], strict=True):
        new[:used] = old[:used]
    for node in range(2, used):
        larger.counters[0] = node
        make_node(larger, int(larger.variable[node]), int(larger.low[node]), int(larger.high[node]))
    return larger


@kernel
def under(table: NodeTable, variable: int, node: int) -> int:
    """Return the cofactor of a function below a variable, given that the variable is true."""
    following = table.variable[node]
    if following == BOTTOM or table.chain[variable] == FREE:
        return node
    if table.chain[following] == table.chain[variable]:
        node = int(table.high[node])
    return node


@kernel
def node_place(variable: int, low: int, high: int) -> int:
    """Return the hash of a node."""
    mixed = int(variable) * _P1 + int(low) * _P2 + int(high) * _P3
    return mixed ^ (mixed >> 17)


@kernel
def make_node(table: NodeTable, variable: int, low: int, high: int) -> int:
    """Return the node with these children, an existing one if there is one."""
    if under(table, variable, low) == high:
        return low
    mask = len(table.unique) - 1
    place = node_place(variable, low, high) & mask
    while table.unique[place] != 0:
        node = int(table.unique[place])
        if table.variable[node] == variable and table.low[node] == low and table.high[node] == high:
            return node
        place = (place + 1) & mask
    node = int(table.counters[0])
    if node == len(table.variable):
        return NONE
    table.variable[node] = variable
    table.low[node] = low
    table.high[node] = high
    table.unique[place] = node
    table.counters[0] = node + 1
    return node


@kernel
def _at_end(op: int, f: int, g: int) -> int:
    """Return the result for terminals and equal operands, otherwise NONE."""
    if op == AND:
        if f == FALSE or g == FALSE:
            return FALSE
        if f == TRUE or f == g:
            return g
        return f if g == TRUE else NONE
    if op == OR:
        if f == TRUE or g == TRUE:
            return TRUE
        if f == FALSE or f == g:
            return g
        return f if g == FALSE else NONE
    if f == g:
        return FALSE
    if f == FALSE:
        return g
    if g == FALSE:
        return f
    return TRUE if f <= TRUE and g <= TRUE else NONE


@kernel
def combine(table: NodeTable, op: int, f: int, g: int) -> int:
    """Return `f and g`, `f or g` or `f xor g`, with an explicit stack: diagrams are deep."""
    stack = table.stack
    mask = len(table.memo) - 1
    depth = 0
    stack[0, _F], stack[0, _G], stack[0, _STATE] = f, g, _ENTERED
    result = NONE
    while depth >= 0:
        frame = stack[depth]
        if frame[_STATE] == _LOW_PENDING:
            frame[_LOW], frame[_STATE] = result, _HIGH_PENDING
            depth += 1
            stack[depth, _F], stack[depth, _G] = frame[_F_HIGH], frame[_G_HIGH]
            stack[depth, _STATE] = _ENTERED
            continue
        first, second = min(frame[_F], frame[_G]), max(frame[_F], frame[_G])
        # Never 0, which marks an empty slot: terminals have been handled by `_at_end`.
        key = (int(first) << 31 | int(second)) << 2 | op
        place = (int(first) * _P3 + int(second) * 7 + op) & mask
        if frame[_STATE] == _HIGH_PENDING:
            result = make_node(table, frame[_VARIABLE], frame[_LOW], result)
            if result == NONE:
                return NONE
            table.memo_key[place], table.memo[place] = key, result
            depth -= 1
            continue
        result = _at_end(op, first, second)
        if result == NONE and table.memo_key[place] == key:
            result = table.memo[place]
        if result != NONE:
            depth -= 1
            continue
        table.counters[1] -= 1
        if table.counters[1] < 0:
            return NONE
        variable = min(table.variable[first], table.variable[second])
        depth += 1
        below = stack[depth]
        frame[_VARIABLE], frame[_STATE] = variable, _LOW_PENDING
        if table.variable[first] == variable:
            below[_F], frame[_F_HIGH] = table.low[first], table.high[first]
        else:
            below[_F], frame[_F_HIGH] = first, under(table, variable, first)
        if table.variable[second] == variable:
            below[_G], frame[_G_HIGH] = table.low[second], table.high[second]
        else:
            below[_G], frame[_G_HIGH] = second, under(table, variable, second)
        below[_STATE] = _ENTERED
    return result


@kernel
def cell_chain(table: NodeTable, variables: NDArray[np.int64], inside: NDArray[np.bool_]) -> int:
    """Return where a value lies in some cells; there is one more cell than breakpoints."""
    node = TRUE if inside[len(variables)] else FALSE
    for number in range(len(variables) - 1, -1, -1):
        node = make_node(table, variables[number], node, TRUE if inside[number] else FALSE)
        if node == NONE:
            return NONE
    return node
