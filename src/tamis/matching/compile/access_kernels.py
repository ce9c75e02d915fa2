"""Access predicates, of which one is true whenever the filter is, and posting lists under them."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel, mixed_in
from tamis.matching.compile.hash_kernels import first_spot, next_spot
from tamis.matching.compile.program_kernels import (
    LEAF,
    OP_AND,
    OP_NOT,
    OP_OR,
    OP_XOR,
    Leaves,
    operator_of,
    read_step,
    terms_of,
)

# Flags in a record, above the number of checks: the subscription is listed under other keys as
# well; its program must be run.
HAS_OTHER_KEYS: Final = 1 << 16
NEEDS_PROGRAM: Final = 1 << 17
MAX_CHECKS: Final = HAS_OTHER_KEYS - 1


class Postings(NamedTuple):
    """Posting lists under keys: cells, attributes, or compounds of cells.

    A record also holds the tests of a conjunction of intervals: they are read with it, and most
    candidates fail the first one.
    """

    cell_offset: NDArray[np.int64]
    """Cell c of attribute b has the key cell_offset[b] + c; attributes come after all cells, and
    compounds after all attributes."""
    starts: NDArray[np.int64]
    """Key k has the records from starts[k] to starts[k + 1]."""
    records: NDArray[np.int32]
    """Each has a subscription, the number of its checks with the flags, and for each check an
    attribute, the first cell in which its value may lie, and the first after those."""
    compound: CompoundKeys


class CompoundKeys(NamedTuple):
    """Keys that are two or three cells at once, for conjunctions that need all of them."""

    kinds: Annotated[NDArray[np.int32], 2]
    """The two or three attributes of each kind of compound; NONE for no third."""
    table: NDArray[np.int32]
    """Open hashing of the compounds."""
    keys: Annotated[NDArray[np.int64], 2]
    """The cells of each compound."""
    first: NDArray[np.int64]
    """The key of the first compound."""
    has_threes: NDArray[np.bool_]
    """Whether any compound has three cells."""


@inlined
def is_conjunction(program: NDArray[np.int32]) -> bool:
    """Return whether a program is only leaves joined by `and`, as most indexed ones are."""
    last = program[-1]
    return bool(operator_of(last) == OP_AND and terms_of(last) == len(program) - 1)


@kernel
def find_rarest_keys(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    leaf_key: NDArray[np.int64],
    leaf_cost: NDArray[np.float64],
    leaf_block: NDArray[np.int32],
    keys: NDArray[np.int64],
    costs: NDArray[np.float64],
) -> None:
    """Find for every conjunction the rarest cells of different attributes, rarest first.

    `leaf_key` is the one cell that a leaf is true in, or NONE.
    """
    most = keys.shape[1]
    blocks = np.empty(most, np.int32)
    for number in range(len(keys)):
        program = codes[starts[number] : starts[number + 1]]
        if not is_conjunction(program):
            continue
        used = 0
        for leaf in program[:-1]:
            key, cost, block = leaf_key[leaf], leaf_cost[2 * leaf], leaf_block[leaf]
            known = key == NONE
            for place in range(used):
                known = known or blocks[place] == block
            if known:
                continue
            place = used if used < most else most - 1
            if used == most and cost >= costs[number, place]:
                continue
            while place > 0 and costs[number, place - 1] > cost:
                keys[number, place] = keys[number, place - 1]
                costs[number, place] = costs[number, place - 1]
                blocks[place] = blocks[place - 1]
                place -= 1
            keys[number, place], costs[number, place], blocks[place] = key, cost, block
            used = min(used + 1, most)


@inlined
def _spot(one: int, other: int, third: int, table: NDArray[np.int32]) -> int:
    return first_spot(mixed_in(mixed_in(mixed_in(1, one), other), third), table)


@kernel
def enter_compound_keys(keys: NDArray[np.int64], table: NDArray[np.int32]) -> None:
    """Enter distinct compounds in an empty table."""
    for number in range(len(keys)):
        spot = _spot(keys[number, 0], keys[number, 1], keys[number, 2], table)
        while table[spot] != 0:
            spot = next_spot(spot, table)
        table[spot] = number + 1


@inlined
def find_compound_key(
    keys: NDArray[np.int64], table: NDArray[np.int32], one: int, other: int, third: int
) -> int:
    """Return the number of a compound, or NONE."""
    spot = _spot(one, other, third, table)
    number = NONE
    while table[spot] != 0 and number == NONE:
        entered = table[spot] - 1
        if keys[entered, 0] == one and keys[entered, 1] == other and keys[entered, 2] == third:
            number = entered
        spot = next_spot(spot, table)
    return int(number)


# What a variable is: a breakpoint, a predicate on a value, or one that a default can satisfy.
BREAKPOINT, PREDICATE, PREDICATE_OR_DEFAULT = range(3)


class LeafKeys(NamedTuple):
    """The cost of each side of each leaf, the number of its keys, and the keys of all."""

    cost: NDArray[np.float64]
    counts: NDArray[np.int64]
    keys: NDArray[np.int64]


@kernel
def find_leaf_keys(
    leaves: Leaves,
    predicate: NDArray[np.int8],
    layout: CellLayout,
    usual: float,
    max_cells: int,
    found: LeafKeys,
) -> int:
    """Write for each side of each leaf its cost, the number of its keys, and the keys; count them.

    A side that an event without the attribute satisfies has no keys and an infinite cost. A side
    of few cells has a key for each of them, any other the key of its attribute.
    """
    first, offsets = layout.first, layout.offset
    cost, counts, keys = found
    used = 0
    for side in range(len(cost)):
        block = leaves.block[side // 2]
        start, end = leaves.starts[side], leaves.starts[side + 1]
        asks = start < end and predicate[leaves.variables[start]] != BREAKPOINT
        cost[side], counts[side] = np.inf, 0
        if block == NONE or (leaves.begins_inside[side] and not asks):
            continue
        cells = offsets[block + 1] - offsets[block]
        taken = 0
        if not asks:
            for place in range(start, end, 2):
                low = leaves.variables[place] - first[block] + 1
                high = leaves.variables[place + 1] - first[block] + 1 if place + 1 < end else cells
                for cell in range(low, min(high, low + max_cells + 1 - taken)):
                    if taken < max_cells:
                        keys[used + taken] = offsets[block] + cell
                    taken += 1
        if asks or taken > max_cells:
            if not asks or predicate[leaves.variables[start]] != PREDICATE_OR_DEFAULT:
                cost[side] = usual
            keys[used] = offsets[-1] + block
            taken = 1
        else:
            # Between two values that filters test there is a cell of all others, which is as narrow
            # where values are codes or names: a single value is twice as frequent as a cell.
            is_values = taken == (end - start + 1) // 2
            cost[side] = usual * min(1.0, taken * (2.0 if is_values else 1.0) / cells)
        counts[side] = taken
        used += taken
    return used


class AccessSearch(NamedTuple):
    """Memory to search the access predicates of one program at a time."""

    cost: NDArray[np.float64]
    """For step p and side s (0 true, 1 false): cost[2 * p + s]."""
    chosen: NDArray[np.int32]
    """The term that was chosen for the step, or NONE for all of them."""
    first_term: NDArray[np.int32]
    """The first term of an operator; `next_term` leads to the others."""
    next_term: NDArray[np.int32]
    stack: NDArray[np.int32]


def new_search(longest: int) -> AccessSearch:
    """Return memory for programs of up to `longest` codes."""
    return AccessSearch(
        cost=np.empty(2 * longest, np.float64),
        chosen=np.empty(2 * longest, np.int32),
        first_term=np.empty(longest, np.int32),
        next_term=np.empty(longest, np.int32),
        stack=np.empty(2 * longest + 2, np.int32),
    )


class Accesses(NamedTuple):
    """What is known of the access predicates of each program."""

    sizes: NDArray[np.int32]
    """How many it has, 0 if none."""
    share: NDArray[np.float64]
    """The share of events that meet one of them; infinite if it has none."""
    is_conjunction: NDArray[np.bool_]


def new_accesses(count: int) -> Accesses:
    """Return memory for so many programs."""
    return Accesses(np.empty(count, np.int32), np.empty(count), np.empty(count, np.bool_))


@kernel
def _side_of_terms(search: AccessSearch, place: int, side: int, every: bool) -> None:
    """Compute the cost of one side of an operator.

    It is the cheapest term's where `every` term must hold, and all terms' where one is enough.
    """
    best, chosen, total = np.inf, NONE, 0.0
    term = search.first_term[place]
    while term != NONE:
        cost = search.cost[2 * term + side]
        total += cost
        if cost < best:
            best, chosen = cost, term
        term = search.next_term[term]
    search.cost[2 * place + side] = best if every else total
    search.chosen[2 * place + side] = chosen if every else NONE


@kernel
def find_access_sides(
    program: NDArray[np.int32],
    leaf_cost: NDArray[np.float64],
    search: AccessSearch,
    found: NDArray[np.int32],
) -> int:
    """Write sides of leaves of which one is true whenever the program is; return how many.

    Returns NONE if there is no such set, or none that would save anything.
    """
    depth = 0
    for place in range(len(program)):
        code = program[place]
        op, first = read_step(code, depth)
        search.first_term[place] = NONE
        for at in range(depth - 1, first - 1, -1):
            term = search.stack[at]
            search.next_term[term] = search.first_term[place]
            search.first_term[place] = term
        if op == LEAF:
            search.cost[2 * place] = leaf_cost[2 * code]
            search.cost[2 * place + 1] = leaf_cost[2 * code + 1]
        elif op == OP_NOT:
            term = search.first_term[place]
            search.cost[2 * place] = search.cost[2 * term + 1]
            search.cost[2 * place + 1] = search.cost[2 * term]
        elif op == OP_XOR:
            # A parity says nothing about any one term.
            search.cost[2 * place] = search.cost[2 * place + 1] = np.inf
        else:
            _side_of_terms(search, place, 0, op == OP_AND)
            _side_of_terms(search, place, 1, op == OP_OR)
        search.stack[first] = place
        depth = first + 1
    last = len(program) - 1
    if not search.cost[2 * last] < np.inf:
        return NONE
    return _collect(program, 2 * last, search, found)


@kernel
def _collect(
    program: NDArray[np.int32], root: int, search: AccessSearch, found: NDArray[np.int32]
) -> int:
    count, depth = 0, 1
    search.stack[0] = root
    while depth > 0:
        depth -= 1
        place, side = search.stack[depth] // 2, search.stack[depth] % 2
        code = program[place]
        if code >= 0:
            found[count] = 2 * code + side
            count += 1
        elif operator_of(code) == OP_NOT:
            search.stack[depth] = 2 * search.first_term[place] + 1 - side
            depth += 1
        elif search.chosen[2 * place + side] != NONE:
            search.stack[depth] = 2 * search.chosen[2 * place + side] + side
            depth += 1
        else:
            term = search.first_term[place]
            while term != NONE:
                search.stack[depth] = 2 * term + side
                depth += 1
                term = search.next_term[term]
    return count


@kernel
def find_all_accesses(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    leaf_cost: NDArray[np.float64],
    search: AccessSearch,
    found: NDArray[np.int32],
    accesses: Accesses,
) -> int:
    """Write the access predicates of every program, and what there is to know of them."""
    used = 0
    for number in range(len(accesses.sizes)):
        program = codes[starts[number] : starts[number + 1]]
        size = find_access_sides(program, leaf_cost, search, found[used:])
        accesses.is_conjunction[number] = is_conjunction(program)
        accesses.sizes[number], accesses.share[number] = 0, np.inf
        if size != NONE:
            accesses.sizes[number] = size
            accesses.share[number] = search.cost[2 * (len(program) - 1)]
            used += size
    return used


@inlined
def _term_before(program: NDArray[np.int32], last: int) -> int:
    """Return the last place of the term before the one that ends at `last`."""
    needed = 1
    while needed > 0:
        needed += terms_of(program[last]) - 1
        last -= 1
    return last


class CellLayout(NamedTuple):
    """How variables and cells are numbered."""

    is_breakpoint: NDArray[np.bool_]
    """For each variable whether it is a breakpoint; else it is a predicate."""
    offset: NDArray[np.int64]
    """Attribute b has the cells from offset[b] to offset[b + 1]."""
    first: NDArray[np.int32]
    """For each attribute its first variable."""


class Placement(NamedTuple):
    """Which subscriptions are listed under which cells, in the order of their records."""

    members: NDArray[np.int32]
    cells: NDArray[np.int64]
    """Up to three for each, or NONE."""
    has_other_keys: NDArray[np.bool_]
    """Whether the same subscription is listed under another key as well."""


@kernel
def write_posting_records(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    leaves: Leaves,
    layout: CellLayout,
    placement: Placement,
    ends: NDArray[np.int64],
    records: NDArray[np.int32],
) -> None:
    """Write the record of every member, and where it ends.

    Intervals that must hold are checks; if there is more to it than those, the program must be run
    after them. An event that finds a member lies in the member's cells, so those need no check.
    """
    is_breakpoint, cell_offset, first = layout.is_breakpoint, layout.offset, layout.first
    members, keys, has_other_keys = placement.members, placement.cells, placement.has_other_keys
    used = 0
    for place in range(len(members)):
        program = codes[starts[members[place]] : starts[members[place] + 1]]
        start, task, last = used + 2, 0, len(program) - 1
        records[used], used = members[place], start
        terms = 1
        if operator_of(program[last]) == OP_AND:
            terms = terms_of(program[last])
            last -= 1
        for _ in range(terms):
            leaf, last = program[last], _term_before(program, last)
            side = 2 * leaf
            block = leaves.block[leaf] if leaf >= 0 else NONE
            if block == NONE or leaves.begins_inside[side] or leaves.guard[side] != NONE:
                task = NEEDS_PROGRAM
                continue
            point, end = leaves.starts[side], leaves.starts[side + 1]
            is_interval = 0 < end - point <= 2 and is_breakpoint[leaves.variables[point]]
            if not is_interval or used - start >= 3 * MAX_CHECKS:
                task = NEEDS_PROGRAM
                continue
            offset, cells = cell_offset[block], cell_offset[block + 1] - cell_offset[block]
            low = leaves.variables[point] - first[block] + 1
            high = leaves.variables[end - 1] - first[block] + 1 if end - point == 2 else cells
            implied = False
            for key in keys[place]:
                implied = implied or low <= key - offset < high
            if not implied:
                records[used], records[used + 1], records[used + 2] = block, low, high
                used += 3
        task |= (used - start) // 3
        records[start - 1] = task | HAS_OTHER_KEYS if has_other_keys[place] else task
        ends[place] = used
