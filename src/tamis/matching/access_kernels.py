"""Which of its leaves must be true for a filter to be true, and the events that make them so."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel
from tamis.matching.combination_kernels import Meeting, find_combination, is_conjunction
from tamis.matching.program_kernels import OP_AND, OP_NOT, OP_OR, OP_XOR, Leaves

# In a record, above the number of checks: the same subscription may be found again under another
# key; its program must be run.
AGAIN: Final = 1 << 16
PROGRAM: Final = 1 << 17
MOST_CHECKS: Final = AGAIN - 1

TRUE: Final = 1
FALSE: Final = 0
UNKNOWN: Final = 2


# What a variable is: a cut, a predicate on what an event holds, or one on a default as well.
CUT, HELD, STANDS_IN = range(3)


@kernel
def find_leaf_keys(
    leaves: Leaves,
    predicate: NDArray[np.int8],
    first: NDArray[np.int32],
    offsets: NDArray[np.int64],
    usual: float,
    most_cells: int,
    cost: NDArray[np.float64],
    counts: NDArray[np.int64],
    keys: NDArray[np.int64],
) -> int:
    """Write for each side of each leaf its cost, the number of its keys, and those; return all.

    A side that needs nothing of an event has no keys and an infinite cost. One that is in few cells
    waits under each of them, any other under its attribute.
    """
    used = 0
    for side in range(len(cost)):
        block = leaves.block[side // 2]
        start, end = leaves.starts[side], leaves.starts[side + 1]
        asks = start < end and predicate[leaves.variables[start]] != CUT
        cost[side], counts[side] = np.inf, 0
        if block == NONE or (leaves.begins_inside[side] and not asks):
            continue
        cells = offsets[block + 1] - offsets[block]
        taken = 0
        if not asks:
            for place in range(start, end, 2):
                low = leaves.variables[place] - first[block] + 1
                high = leaves.variables[place + 1] - first[block] + 1 if place + 1 < end else cells
                for cell in range(low, min(high, low + most_cells + 1 - taken)):
                    if taken < most_cells:
                        keys[used + taken] = offsets[block] + cell
                    taken += 1
        if asks or taken > most_cells:
            if not asks or predicate[leaves.variables[start]] != STANDS_IN:
                cost[side] = usual
            keys[used] = offsets[-1] + block
            taken = 1
        else:
            cost[side] = usual * taken / cells
        counts[side] = taken
        used += taken
    return used


class Search(NamedTuple):
    """Room to look for the access of one program at a time; costs for each step and side."""

    cost: NDArray[np.float64]
    """For step p and side s (0 true, 1 false): cost[2 * p + s]."""
    chosen: NDArray[np.int32]
    """The term that stands for the step, or NONE where all of them do."""
    first_term: NDArray[np.int32]
    """The step at which the terms of an operator begin, from the right; a chain by `next_term`."""
    next_term: NDArray[np.int32]
    stack: NDArray[np.int32]


def new_search(longest: int) -> Search:
    """Return room for programs of up to `longest` codes."""
    return Search(
        cost=np.empty(2 * longest, np.float64),
        chosen=np.empty(2 * longest, np.int32),
        first_term=np.empty(longest, np.int32),
        next_term=np.empty(longest, np.int32),
        stack=np.empty(2 * longest + 2, np.int32),
    )


@kernel
def _side_of_terms(search: Search, place: int, side: int, every: bool) -> None:
    """Find what one side of an operator costs.

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
def find_access(
    program: NDArray[np.int32],
    leaf_cost: NDArray[np.float64],
    search: Search,
    found: NDArray[np.int32],
) -> int:
    """Write the sides of leaves of which one is true whenever the program is; return how many.

    NONE means that there is no such set, or none that would save anything.
    """
    depth = 0
    for place in range(len(program)):
        code = program[place]
        search.first_term[place] = NONE
        if code >= 0:
            search.cost[2 * place] = leaf_cost[2 * code]
            search.cost[2 * place + 1] = leaf_cost[2 * code + 1]
        else:
            op, terms = (-code - 1) % 4, (-code - 1) // 4
            for _ in range(terms):
                depth -= 1
                term = search.stack[depth]
                search.next_term[term] = search.first_term[place]
                search.first_term[place] = term
            if op == OP_NOT:
                term = search.first_term[place]
                search.cost[2 * place] = search.cost[2 * term + 1]
                search.cost[2 * place + 1] = search.cost[2 * term]
            elif op == OP_XOR:
                # A parity says nothing about any one term.
                search.cost[2 * place] = search.cost[2 * place + 1] = np.inf
            else:
                _side_of_terms(search, place, 0, op == OP_AND)
                _side_of_terms(search, place, 1, op == OP_OR)
        search.stack[depth] = place
        depth += 1
    last = len(program) - 1
    if not search.cost[2 * last] < np.inf:
        return NONE
    return _collect(program, 2 * last, search, found)


@kernel
def _collect(
    program: NDArray[np.int32], root: int, search: Search, found: NDArray[np.int32]
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
        elif (-code - 1) % 4 == OP_NOT:
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
    most: float,
    most_as_program: float,
    search: Search,
    found: NDArray[np.int32],
    sizes: NDArray[np.int32],
) -> int:
    """Write the access of every program, one after the other; sizes of NONE are for those without.

    An access that costs more than `most` is as good as none; of what is no conjunction, and must
    be run as a program by everyone who finds it there, more than `most_as_program`.
    """
    used = 0
    for number in range(len(sizes)):
        program = codes[starts[number] : starts[number + 1]]
        sizes[number] = find_access(program, leaf_cost, search, found[used:])
        if sizes[number] != NONE:
            share = most if is_conjunction(program) else most_as_program
            if search.cost[2 * (len(program) - 1)] > share:
                sizes[number] = NONE
            else:
                used += sizes[number]
    return used


class Postings(NamedTuple):
    """Where subscriptions wait for events: under cells, attributes, or combinations of cells.

    Of a conjunction of intervals the whole test stands here too: what lies together in memory is
    read together, and most candidates fail their first check.
    """

    cell_offset: NDArray[np.int64]
    """Cell c of attribute b has the key cell_offset[b] + c; attributes come after all cells, and
    combinations after all attributes."""
    starts: NDArray[np.int64]
    """Under key k wait the records from starts[k] to starts[k + 1]."""
    records: NDArray[np.int32]
    """Each a subscription, the number of its checks with what else there is to do, and for each
    check an attribute and the cells from which and below which its value must lie."""
    meeting: Meeting
    """Where conjunctions wait under several cells at once."""


class Values(NamedTuple):
    """What the events hold, event after event, and what they pass."""

    starts: NDArray[np.int64]
    blocks: NDArray[np.int32]
    cells: NDArray[np.int32]
    passing: NDArray[np.bool_]
    """For each event and predicate."""
    predicate: NDArray[np.int32]
    """For each variable the predicate that it is, or NONE."""
    first: NDArray[np.int32]
    """For each attribute its first variable."""


@inlined
def _holds(
    cuts: NDArray[np.int32],
    inside: bool,
    guard: int,
    first: int,
    cell: int,
    predicate: NDArray[np.int32],
    passing: NDArray[np.bool_],
) -> bool:
    """Tell whether one side of a leaf holds for an event, whose predicates `passing` tells."""
    if guard != NONE and passing[predicate[guard]]:
        return False
    for variable in cuts:
        if predicate[variable] != NONE:
            return bool(passing[predicate[variable]])
        if variable - first < cell:
            inside = not inside
    return inside


@inlined
def _joined(op: int, one: int, other: int) -> int:
    """Return the truth of two joined by an operator."""
    if op == OP_XOR:
        return UNKNOWN if one == UNKNOWN or other == UNKNOWN else one ^ other
    decisive = FALSE if op == OP_AND else TRUE
    if one == decisive or other == decisive:
        return decisive
    return UNKNOWN if one == UNKNOWN or other == UNKNOWN else one


class Waiting(NamedTuple):
    """All that finding matches among waiting subscriptions needs."""

    postings: Postings
    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    leaves: Leaves
    seen: NDArray[np.int32]
    """For each subscription the stamp of the last event for which it was tried."""
    stamps: NDArray[np.int64]
    """How many stamps were used up before this batch; event e has that plus e + 1."""
    cell_of: NDArray[np.int32]
    keys: NDArray[np.int64]
    """Room for the keys of one event."""
    stack: NDArray[np.int8]


@inlined
def _keys_of_event(
    offset: NDArray[np.int64],
    meeting: Meeting,
    blocks: NDArray[np.int32],
    cells: NDArray[np.int32],
    cell_of: NDArray[np.int32],
    keys: NDArray[np.int64],
) -> int:
    """Write all keys under which an event has to look; return how many there are."""
    count = 0
    for place in range(len(blocks)):
        keys[count] = offset[blocks[place]] + cells[place]
        keys[count + 1] = offset[-1] + blocks[place]
        count += 2
    kinds, table, combinations = meeting.kinds, meeting.table, meeting.keys
    held = len(blocks)
    # An event has few combinations of its own where subscriptions have very many kinds of them.
    if held * (held - 1) * (held + 1) // 6 < len(kinds):
        for one in range(held):
            for other in range(one + 1, held):
                for third in range(other, held):
                    # The attribute itself stands for no third.
                    last = keys[2 * third] if third > other else NONE
                    number = find_combination(
                        combinations, table, keys[2 * one], keys[2 * other], last
                    )
                    if number != NONE:
                        keys[count] = meeting.first[0] + number
                        count += 1
        return count
    for kind in range(len(kinds)):
        one, other, third = kinds[kind, 0], kinds[kind, 1], kinds[kind, 2]
        if cell_of[one] == 0 or cell_of[other] == 0:
            continue
        last = offset[third] + cell_of[third] if third != NONE else NONE
        number = find_combination(
            combinations, table, offset[one] + cell_of[one], offset[other] + cell_of[other], last
        )
        if number != NONE:
            keys[count] = meeting.first[0] + number
            count += 1
    return count


@kernel
def _truth(
    program: NDArray[np.int32],
    starts: NDArray[np.int32],
    variables: NDArray[np.int32],
    begins_inside: NDArray[np.bool_],
    guard: NDArray[np.int32],
    block: NDArray[np.int32],
    first: NDArray[np.int32],
    cell_of: NDArray[np.int32],
    predicate: NDArray[np.int32],
    passing: NDArray[np.bool_],
    stack: NDArray[np.int8],
) -> int:
    """Return whether a program is true, false or unknown for an event."""
    # Without a negation, what is false is as good as what is unknown.
    sides = 1
    for code in program:
        if code < 0 and (-code - 1) % 4 >= OP_XOR:
            sides = 2
    depth = 0
    for code in program:
        if code >= 0:
            own, truth = block[code], UNKNOWN
            start, cell = (first[own], cell_of[own]) if own != NONE else (0, 0)
            for side in range(2 * code, 2 * code + sides):
                cuts = variables[starts[side] : starts[side + 1]]
                inside = bool(begins_inside[side])
                if truth == UNKNOWN and _holds(
                    cuts, inside, guard[side], start, cell, predicate, passing
                ):
                    truth = TRUE if side == 2 * code else FALSE
            stack[depth] = truth
            depth += 1
            continue
        op, terms = (-code - 1) % 4, (-code - 1) // 4
        depth -= terms
        result = stack[depth]
        if op == OP_NOT:
            result = UNKNOWN if result == UNKNOWN else 1 - result
        for term in range(depth + 1, depth + terms):
            result = _joined(op, result, stack[term])
        stack[depth] = result
        depth += 1
    return int(stack[0])


@kernel
def match_waiting(
    waiting: Waiting,
    values: Values,
    first_event: int,
    ends: NDArray[np.int64],
    found: NDArray[np.int32],
) -> int:
    """Find for event after event the subscriptions that wait for it and that it satisfies.

    Writes the subscriptions, and for each event where its own end; returns the event at which
    there might be no more room.
    """
    # Arrays by names of their own: to take them out of their tuples in the loops costs much there.
    starts, records = waiting.postings.starts, waiting.postings.records
    codes, program_starts, leaves = waiting.codes, waiting.starts, waiting.leaves
    leaf_starts, variables, begins_inside = leaves.starts, leaves.variables, leaves.begins_inside
    guard, block, first = leaves.guard, leaves.block, values.first
    predicate, passing, stack = values.predicate, values.passing, waiting.stack
    offset, meeting = waiting.postings.cell_offset, waiting.postings.meeting
    seen, cell_of, keys = waiting.seen, waiting.cell_of, waiting.keys
    count = 0
    for event in range(first_event, len(ends)):
        if count + len(seen) > len(found) and count > 0:
            return event
        stamp = waiting.stamps[0] + event + 1
        held = slice(values.starts[event], values.starts[event + 1])
        blocks, cells = values.blocks[held], values.cells[held]
        for place in range(len(blocks)):
            cell_of[blocks[place]] = cells[place]
        count_of_keys = _keys_of_event(offset, meeting, blocks, cells, cell_of, keys)
        for number in range(count_of_keys):
            place, end = starts[keys[number]], starts[keys[number] + 1]
            while place < end:
                member, task = records[place], records[place + 1]
                check = place + 2
                place = check + 3 * (task & MOST_CHECKS)
                passes = True
                while check < place and passes:
                    cell = cell_of[records[check]]
                    passes = records[check + 1] <= cell < records[check + 2]
                    check += 3
                if not passes:
                    continue
                if task & AGAIN:
                    if seen[member] == stamp:
                        continue
                    seen[member] = stamp
                if task & PROGRAM:
                    passes = (
                        _truth(
                            codes[program_starts[member] : program_starts[member + 1]],
                            leaf_starts,
                            variables,
                            begins_inside,
                            guard,
                            block,
                            first,
                            cell_of,
                            predicate,
                            passing[event],
                            stack,
                        )
                        == TRUE
                    )
                if passes:
                    found[count] = member
                    count += 1
        for place in range(len(blocks)):
            cell_of[blocks[place]] = 0
        ends[event] = count
    return len(ends)


@inlined
def _term_before(program: NDArray[np.int32], last: int) -> int:
    """Return the last place of the term before the one that ends at `last`."""
    needed = 1
    while needed > 0:
        code = program[last]
        needed += (-code - 1) // 4 - 1 if code < 0 else -1
        last -= 1
    return last


@kernel
def write_records(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    leaves: Leaves,
    is_cut: NDArray[np.bool_],
    cell_offset: NDArray[np.int64],
    first: NDArray[np.int32],
    members: NDArray[np.int32],
    keys: NDArray[np.int64],
    comes_again: NDArray[np.bool_],
    ends: NDArray[np.int64],
    records: NDArray[np.int32],
) -> None:
    """Write the record of every member, and where it ends.

    Intervals that must hold are checks; if there is more to it than those, the program must be run
    after them. `keys` are the cells, up to three, under which each waits: whoever finds it there
    lies in them, and need not check that again.
    """
    used = 0
    for place in range(len(members)):
        program = codes[starts[members[place]] : starts[members[place] + 1]]
        start, task, last = used + 2, 0, len(program) - 1
        records[used], used = members[place], start
        terms = 1
        if program[last] < 0 and (-program[last] - 1) % 4 == OP_AND:
            terms = (-program[last] - 1) // 4
            last -= 1
        for _ in range(terms):
            leaf, last = program[last], _term_before(program, last)
            side = 2 * leaf
            block = leaves.block[leaf] if leaf >= 0 else NONE
            if block == NONE or leaves.begins_inside[side] or leaves.guard[side] != NONE:
                task = PROGRAM
                continue
            cut, end = leaves.starts[side], leaves.starts[side + 1]
            is_interval = 0 < end - cut <= 2 and is_cut[leaves.variables[cut]]
            if not is_interval or used - start >= 3 * MOST_CHECKS:
                task = PROGRAM
                continue
            offset, cells = cell_offset[block], cell_offset[block + 1] - cell_offset[block]
            low = leaves.variables[cut] - first[block] + 1
            high = leaves.variables[end - 1] - first[block] + 1 if end - cut == 2 else cells
            implied = False
            for key in keys[place]:
                implied = implied or low <= key - offset < high
            if not implied:
                records[used], records[used + 1], records[used + 2] = block, low, high
                used += 3
        task |= (used - start) // 3
        records[start - 1] = task | AGAIN if comes_again[place] else task
        ends[place] = used
