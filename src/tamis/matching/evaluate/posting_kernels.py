"""Posting lists: look up the keys of each event, and test the subscriptions listed there."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import borrowing, inlined, prefetch
from tamis.matching.compile.access_kernels import (
    HAS_OTHER_KEYS,
    MAX_CHECKS,
    NEEDS_PROGRAM,
    CompoundKeys,
    Postings,
    find_compound_key,
)
from tamis.matching.compile.program_kernels import (
    LEAF,
    OP_AND,
    OP_NOT,
    OP_XOR,
    Leaves,
    operator_of,
    read_step,
)

TRUE: Final = 1
FALSE: Final = 0
UNKNOWN: Final = 2

# The lists of keys are all over the memory: those of a key to come are fetched in time.
_KEYS_AHEAD: Final = 4


class CellsByEvent(NamedTuple):
    """The cells of a batch event by event, and the predicates that hold."""

    starts: NDArray[np.int64]
    blocks: NDArray[np.int32]
    cells: NDArray[np.int32]
    passing: Annotated[NDArray[np.bool_], 2]
    """For each event and predicate."""
    predicate: NDArray[np.int32]
    """For each variable the predicate that it is, or NONE."""
    first: NDArray[np.int32]
    """For each attribute its first variable."""


@inlined
def _holds(
    breakpoints: NDArray[np.int32],
    inside: bool,
    guard: int,
    first: int,
    cell: int,
    predicate: NDArray[np.int32],
    passing: NDArray[np.bool_],
) -> bool:
    """Return whether one side of a leaf holds for an event; `passing` has its predicates."""
    if guard != NONE and passing[predicate[guard]]:
        return False
    for variable in breakpoints:
        if predicate[variable] != NONE:
            return bool(passing[predicate[variable]])
        if variable - first < cell:
            inside = not inside
    return inside


@inlined
def joined_truth(op: int, one: int, other: int) -> int:
    """Return the truth value of two terms joined by an operator."""
    if op == OP_XOR:
        return UNKNOWN if one == UNKNOWN or other == UNKNOWN else one ^ other
    decisive = FALSE if op == OP_AND else TRUE
    if one == decisive or other == decisive:
        return decisive
    return UNKNOWN if one == UNKNOWN or other == UNKNOWN else one


class PostingWorkspace(NamedTuple):
    """The compiled arrays that a search of the posting lists reads, and its own memory."""

    postings: Postings
    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    leaves: Leaves
    seen: NDArray[np.int32]
    """For each subscription the stamp of the last event that tested it."""
    stamps: NDArray[np.int64]
    """The number of stamps used before this batch; event e has that plus e + 1."""
    cell_of: NDArray[np.int32]
    keys: NDArray[np.int64]
    """Memory for the keys of one event."""
    stack: NDArray[np.int8]
    listed: NDArray[np.uint8]
    """A bit for each cell that has a list; most have none, and these bits stay in the cache."""


@inlined
def _keys_of_event(
    offset: NDArray[np.int64],
    compound: CompoundKeys,
    blocks: NDArray[np.int32],
    cells: NDArray[np.int32],
    cell_of: NDArray[np.int32],
    listed: NDArray[np.uint8],
    has_attributes: bool,
    keys: NDArray[np.int64],
) -> int:
    """Write the keys of an event that have lists after those of all its cells; return the end."""
    for place in range(len(blocks)):
        keys[place] = offset[blocks[place]] + cells[place]
    count = len(blocks)
    for place in range(len(blocks)):
        key = keys[place]
        keys[count] = key
        # Without a branch: the processor cannot guess which cells have lists.
        count += int((listed[key >> 3] >> (key & 7)) & 1)
    if has_attributes:
        for place in range(len(blocks)):
            keys[count] = offset[-1] + blocks[place]
            count += 1
    kinds, table, compounds = compound.kinds, compound.table, compound.keys
    held, has_threes = len(blocks), bool(compound.has_threes[0])
    own = held * (held - 1) // 2
    if has_threes:
        own = own * (held + 1) // 3
    # Where there are very many kinds of compound keys, an event has fewer pairs and triples.
    if own < len(kinds):
        for one in range(held):
            for other in range(one + 1, held):
                for third in range(other, held if has_threes else other + 1):
                    # The same attribute again means that there is no third.
                    last = keys[third] if third > other else NONE
                    number = find_compound_key(compounds, table, keys[one], keys[other], last)
                    if number != NONE:
                        keys[count] = compound.first[0] + number
                        count += 1
        return count
    for kind in range(len(kinds)):
        one, other, third = kinds[kind, 0], kinds[kind, 1], kinds[kind, 2]
        if cell_of[one] == 0 or cell_of[other] == 0:
            continue
        last = offset[third] + cell_of[third] if third != NONE else NONE
        number = find_compound_key(
            compounds, table, offset[one] + cell_of[one], offset[other] + cell_of[other], last
        )
        if number != NONE:
            keys[count] = compound.first[0] + number
            count += 1
    return count


class ProgramTables(NamedTuple):
    """The arrays that running a program reads, and its stack."""

    starts: NDArray[np.int32]
    variables: NDArray[np.int32]
    begins_inside: NDArray[np.bool_]
    guard: NDArray[np.int32]
    block: NDArray[np.int32]
    first: NDArray[np.int32]
    cell_of: NDArray[np.int32]
    predicate: NDArray[np.int32]
    stack: NDArray[np.int8]


@borrowing
def _truth(program: NDArray[np.int32], tables: ProgramTables, passing: NDArray[np.bool_]) -> int:
    """Return whether a program is true, false or unknown for an event."""
    # Local names for the arrays: taking them out of their tuple inside the loop is expensive.
    starts, variables, begins_inside, guard = (
        tables.starts,
        tables.variables,
        tables.begins_inside,
        tables.guard,
    )
    block, first, cell_of = tables.block, tables.first, tables.cell_of
    predicate, stack = tables.predicate, tables.stack
    # Without a negation, false is as good as unknown.
    sides = 1
    for code in program:
        if operator_of(code) >= OP_XOR:
            sides = 2
    depth = 0
    for code in program:
        op, bottom = read_step(code, depth)
        result = stack[bottom]
        if op == LEAF:
            own, result = block[code], UNKNOWN
            start, cell = (first[own], cell_of[own]) if own != NONE else (0, 0)
            for side in range(2 * code, 2 * code + sides):
                breakpoints = variables[starts[side] : starts[side + 1]]
                inside = bool(begins_inside[side])
                if result == UNKNOWN and _holds(
                    breakpoints, inside, guard[side], start, cell, predicate, passing
                ):
                    result = TRUE if side == 2 * code else FALSE
        elif op == OP_NOT:
            result = UNKNOWN if result == UNKNOWN else 1 - result
        for term in range(bottom + 1, depth):
            result = joined_truth(op, result, stack[term])
        stack[bottom] = result
        depth = bottom + 1
    return int(stack[0])


@borrowing
def match_postings(
    workspace: PostingWorkspace,
    values: CellsByEvent,
    first_event: int,
    ends: NDArray[np.int64],
    found: NDArray[np.int32],
) -> int:
    """Find for each event the indexed subscriptions that it satisfies.

    Writes the subscriptions, and for each event where its own end; returns the event at which
    there might be no more room.
    """
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    starts, records = workspace.postings.starts, workspace.postings.records
    codes, program_starts, leaves = workspace.codes, workspace.starts, workspace.leaves
    offset, compound = workspace.postings.cell_offset, workspace.postings.compound
    seen, cell_of, keys = workspace.seen, workspace.cell_of, workspace.keys
    passing, listed = values.passing, workspace.listed
    has_attributes = starts[offset[-1]] < starts[offset[-1] + len(offset) - 1]
    tables = ProgramTables(
        leaves.starts,
        leaves.variables,
        leaves.begins_inside,
        leaves.guard,
        leaves.block,
        values.first,
        cell_of,
        values.predicate,
        workspace.stack,
    )
    count = 0
    for event in range(first_event, len(ends)):
        if count + len(seen) > len(found) and count > 0:
            return event
        stamp = workspace.stamps[0] + event + 1
        held = slice(values.starts[event], values.starts[event + 1])
        blocks, cells = values.blocks[held], values.cells[held]
        for place in range(len(blocks)):
            cell_of[blocks[place]] = cells[place]
        end_of_keys = _keys_of_event(
            offset, compound, blocks, cells, cell_of, listed, has_attributes, keys
        )
        for number in range(len(blocks), end_of_keys):
            prefetch(records, starts[keys[min(number + _KEYS_AHEAD, end_of_keys - 1)]])
            place, end = starts[keys[number]], starts[keys[number] + 1]
            while place < end:
                member, task = records[place], records[place + 1]
                check = place + 2
                place = check + 3 * (task & MAX_CHECKS)
                passes = True
                while check < place and passes:
                    cell = cell_of[records[check]]
                    passes = records[check + 1] <= cell < records[check + 2]
                    check += 3
                if not passes:
                    continue
                if task & HAS_OTHER_KEYS:
                    if seen[member] == stamp:
                        continue
                    seen[member] = stamp
                if task & NEEDS_PROGRAM:
                    program = codes[program_starts[member] : program_starts[member + 1]]
                    passes = _truth(program, tables, passing[event]) == TRUE
                if passes:
                    found[count] = member
                    count += 1
        for place in range(len(blocks)):
            cell_of[blocks[place]] = 0
        ends[event] = count
    return len(ends)
