"""A plain shared BDD: nodes made once, `apply`, and the `restrict` of Coudert and Madre.

The variables have no meaning here. Stacks are explicit: Numba cannot load a kernel that
calls itself from its cache (numba/numba#6061).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.forms import AND, NOT, OR, XOR, Programs
from tamis.jit import kernel

FALSE: Final = 0
TRUE: Final = 1
RESTRICT: Final = 3
BOTTOM: Final = 2**31 - 1

# The room that one filter may take; a round of building ends when less than this is left.
RESERVE: Final = 1 << 17

# The fields of a stack frame, and its states.
_F, _G, _VARIABLE, _F_HIGH, _G_HIGH, _LOW, _STATE = range(7)
FRAME: Final = 7
_ENTERED, _LOW_PENDING, _HIGH_PENDING = range(3)

_P1, _P2, _P3 = 12_582_917, 4_256_249, 741_457


class Store(NamedTuple):
    """Nodes in order of creation; 0 and 1 are the terminals."""

    variable: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    unique: NDArray[np.int32]
    """Open hashing of the nodes; a power of two long, 0 where free."""
    memo_key: NDArray[np.int64]
    memo: NDArray[np.int32]
    used: NDArray[np.int64]
    """How many nodes there are."""
    stack: NDArray[np.int32]
    """A frame per variable for `apply`, and for `restrict` another, as it calls `apply`."""
    restrict_stack: NDArray[np.int32]
    seen: NDArray[np.int64]
    """For counting the nodes of a function: the last count that met each node."""
    waiting: NDArray[np.int32]
    """For the same, nodes still to be met: one per variable."""


@kernel
def _place(store: Store, variable: int, low: int, high: int) -> int:
    """Return the slot of a node in the unique table, or the free slot for it."""
    mixed = int(variable) * _P1 + int(low) * _P2 + int(high) * _P3
    mask = len(store.unique) - 1
    place = (mixed ^ (mixed >> 17)) & mask
    while store.unique[place] != 0:
        node = store.unique[place]
        if store.variable[node] == variable and store.low[node] == low and store.high[node] == high:
            break
        place = (place + 1) & mask
    return int(place)


@kernel
def make(store: Store, variable: int, low: int, high: int) -> int:
    """Return the one node with this variable and these successors."""
    if low == high:
        return low
    place = _place(store, variable, low, high)
    if store.unique[place] != 0:
        return int(store.unique[place])
    node = int(store.used[0])
    if node == len(store.variable):
        raise MemoryError("one filter needs more nodes than are kept in reserve")
    store.variable[node] = variable
    store.low[node] = low
    store.high[node] = high
    store.unique[place] = node
    store.used[0] = node + 1
    return node


@kernel
def rehash(store: Store) -> None:
    """Fill the unique table of a store whose arrays have grown."""
    for node in range(2, store.used[0]):
        place = _place(store, store.variable[node], store.low[node], store.high[node])
        store.unique[place] = node


@kernel
def _at_end(op: int, f: int, g: int) -> int:
    """Return the result of a terminal case, or -1."""
    if op == AND:
        if f == FALSE or g == FALSE:
            return FALSE
        if f == TRUE or f == g:
            return g
        return f if g == TRUE else -1
    if op == OR:
        if f == TRUE or g == TRUE:
            return TRUE
        if f == FALSE or f == g:
            return g
        return f if g == FALSE else -1
    if f == g:
        return FALSE
    if f == FALSE:
        return g
    return f if g == FALSE else -1


@kernel
def apply(store: Store, op: int, f: int, g: int) -> int:
    """Return `f and g`, `f or g` or `f xor g`."""
    stack = store.stack
    depth = 0
    stack[0, _F], stack[0, _G], stack[0, _STATE] = f, g, _ENTERED
    result = -1
    while depth >= 0:
        frame = stack[depth]
        if frame[_STATE] == _LOW_PENDING:
            _go_high(stack, depth, result)
            depth += 1
            continue
        f, g = min(frame[_F], frame[_G]), max(frame[_F], frame[_G])
        key = (int(f) << 32 | int(g)) << 2 | op
        place = ((key >> 2) * 7 + (key >> 34) * _P3 + op) & (len(store.memo) - 1)
        if frame[_STATE] == _HIGH_PENDING:
            result = make(store, int(frame[_VARIABLE]), int(frame[_LOW]), result)
            store.memo_key[place], store.memo[place] = key, result
            depth -= 1
            continue
        result = _at_end(op, int(f), int(g))
        if result < 0 and store.memo_key[place] == key:
            result = int(store.memo[place])
        if result >= 0:
            depth -= 1
            continue
        variable = min(store.variable[f], store.variable[g])
        f_low = f_high = f
        g_low = g_high = g
        if store.variable[f] == variable:
            f_low, f_high = store.low[f], store.high[f]
        if store.variable[g] == variable:
            g_low, g_high = store.low[g], store.high[g]
        frame[_VARIABLE], frame[_F_HIGH], frame[_G_HIGH] = variable, f_high, g_high
        frame[_STATE] = _LOW_PENDING
        depth += 1
        stack[depth, _F], stack[depth, _G], stack[depth, _STATE] = f_low, g_low, _ENTERED
    return result


@kernel
def restrict(store: Store, f: int, care: int) -> int:
    """Return a function that agrees with `f` where `care` holds, often a smaller one."""
    stack = store.restrict_stack
    depth = 0
    stack[0, _F], stack[0, _G], stack[0, _STATE] = f, care, _ENTERED
    result = -1
    while depth >= 0:
        frame = stack[depth]
        if frame[_STATE] == _LOW_PENDING:
            _go_high(stack, depth, result)
            depth += 1
            continue
        if frame[_STATE] == _ENTERED:
            _cut_down(store, frame)
        f, care = int(frame[_F]), int(frame[_G])
        key = (f << 32 | care) << 2 | RESTRICT
        place = ((key >> 2) * 7 + (key >> 34) * _P3 + RESTRICT) & (len(store.memo) - 1)
        if frame[_STATE] == _HIGH_PENDING:
            result = make(store, int(frame[_VARIABLE]), int(frame[_LOW]), result)
            store.memo_key[place], store.memo[place] = key, result
            depth -= 1
            continue
        result = -1
        if care == TRUE or f <= TRUE:
            result = f
        elif f == care:
            result = TRUE
        elif store.memo_key[place] == key:
            result = int(store.memo[place])
        if result >= 0:
            depth -= 1
            continue
        care_low = care_high = care
        if store.variable[care] == store.variable[f]:
            care_low, care_high = int(store.low[care]), int(store.high[care])
        frame[_VARIABLE], frame[_STATE] = store.variable[f], _LOW_PENDING
        frame[_F_HIGH], frame[_G_HIGH] = store.high[f], care_high
        depth += 1
        stack[depth, _F], stack[depth, _G] = store.low[f], care_low
        stack[depth, _STATE] = _ENTERED
    return result


@kernel
def _cut_down(store: Store, frame: NDArray[np.int32]) -> None:
    """Descend to where both cofactors matter: the steps of `restrict` that make no node."""
    f, care = int(frame[_F]), int(frame[_G])
    while f > TRUE and care > TRUE and store.variable[care] <= store.variable[f]:
        low, high = int(store.low[care]), int(store.high[care])
        if store.variable[care] < store.variable[f]:
            care = apply(store, OR, low, high)
        elif low == FALSE:
            f, care = int(store.high[f]), high
        elif high == FALSE:
            f, care = int(store.low[f]), low
        else:
            break
    frame[_F], frame[_G] = f, care


@kernel
def _go_high(stack: NDArray[np.int32], depth: int, low: int) -> None:
    """Keep the result of the low side and enter the high one."""
    frame = stack[depth]
    frame[_LOW], frame[_STATE] = low, _HIGH_PENDING
    stack[depth + 1, _F], stack[depth + 1, _G] = frame[_F_HIGH], frame[_G_HIGH]
    stack[depth + 1, _STATE] = _ENTERED


@kernel
def add_programs(
    store: Store,
    programs: Programs,
    leaf: NDArray[np.int32],
    first: int,
    roots: NDArray[np.int32],
) -> int:
    """Build filters until the store is nearly full, and return the number of the next."""
    stack = np.empty(1024, np.int32)
    for program in range(first, len(roots)):
        if store.used[0] + RESERVE > len(store.variable):
            return program
        depth = 0
        for place in range(programs.start[program], programs.start[program + 1]):
            token = programs.code[place]
            if token >= 0:
                stack[depth] = leaf[token]
                depth += 1
                continue
            op, operands = (-1 - token) & 3, (-1 - token) >> 2
            if op == NOT:
                stack[depth - 1] = apply(store, XOR, int(stack[depth - 1]), TRUE)
                continue
            for _ in range(operands - 1):
                depth -= 1
                stack[depth - 1] = apply(store, op, int(stack[depth - 1]), int(stack[depth]))
        roots[program] = stack[0]
    return len(roots)


@kernel
def _size(store: Store, root: int, now: int) -> int:
    """Return how many nodes a function has, terminals not counted; `now` is never used again."""
    waiting = store.waiting
    waiting[0] = root
    depth, size = 1, 0
    while depth > 0:
        depth -= 1
        node = waiting[depth]
        if node > TRUE and store.seen[node] != now:
            store.seen[node] = now
            size += 1
            waiting[depth], waiting[depth + 1] = store.low[node], store.high[node]
            depth += 2
    return size


@kernel
def restrict_programs(
    store: Store,
    programs: Programs,
    variables_of: NDArray[np.int32],
    clause: NDArray[np.int32],
    first: int,
    roots: NDArray[np.int32],
) -> int:
    """Restrict filters by what their own variables imply of each other; else as `add_programs`."""
    mine = np.empty(1024, np.int32)
    for program in range(first, len(roots)):
        if store.used[0] + RESERVE > len(store.variable):
            return program
        count = 0
        for place in range(programs.start[program], programs.start[program + 1]):
            if programs.code[place] >= 0:
                for variable in variables_of[programs.code[place]]:
                    if variable >= 0 and variable not in mine[:count]:
                        mine[count] = variable
                        count += 1
        care = TRUE
        for one in range(count):
            for other in range(one):
                pair = int(clause[mine[one], mine[other]])
                if pair != TRUE:
                    care = apply(store, AND, care, pair)
        smaller = restrict(store, int(roots[program]), care)
        # As in CUDD: keep the original unless the result is smaller.
        now = 2 * program + 1
        if _size(store, smaller, now) < _size(store, int(roots[program]), now + 1):
            roots[program] = smaller
    return len(roots)


@kernel
def mark(store: Store, roots: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which nodes the roots reach; successors are older than what leads to them."""
    reached = np.zeros(store.used[0], np.bool_)
    for root in roots:
        reached[root] = True
    for node in range(len(reached) - 1, 1, -1):
        if reached[node]:
            reached[store.low[node]] = True
            reached[store.high[node]] = True
    return reached
