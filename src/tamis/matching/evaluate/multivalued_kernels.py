"""Posting lists for events that hold several values of an attribute.

An access predicate is one leaf of a program that must hold. It holds if some value makes it hold,
so a subscription is found under some cell of the event, whichever of its values that is. What a
record checks, and its program, ask all values.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import borrowing, inlined
from tamis.matching.compile.access_kernels import (
    HAS_OTHER_KEYS,
    MAX_CHECKS,
    NEEDS_PROGRAM,
    CompoundKeys,
    find_compound_key,
)
from tamis.matching.compile.program_kernels import LEAF, OP_NOT, Leaves, read_step
from tamis.matching.evaluate.batch_kernels import lies_inside
from tamis.matching.evaluate.posting_kernels import (
    FALSE,
    TRUE,
    UNKNOWN,
    PostingWorkspace,
    joined_truth,
)

# Longer runs are searched; shorter ones are looked through.
_LOOKED_THROUGH: Final = 8


class CellRuns(NamedTuple):
    """The cells of events: for each event and attribute a run of them, ascending, each once."""

    events: NDArray[np.int64]
    """Event e has the runs events[e] to events[e + 1]."""
    starts: NDArray[np.int64]
    """Run r has the cells starts[r] to starts[r + 1]."""
    blocks: NDArray[np.int32]
    """The attribute of each run."""
    cells: NDArray[np.int32]
    passing: Annotated[NDArray[np.bool_], 2]
    """For each event and predicate."""
    predicate: NDArray[np.int32]
    """For each variable the predicate that it is, or NONE."""
    first: NDArray[np.int32]
    """For each attribute its first variable."""
    absent: NDArray[np.int32]
    """The one cell of an absent attribute, the first."""


@inlined
def _first_from(cells: NDArray[np.int32], low: int) -> int:
    """Return the place of the first cell that is not below one."""
    if len(cells) > _LOOKED_THROUGH:
        return int(np.searchsorted(cells, low))
    place = 0
    while place < len(cells) and cells[place] < low:
        place += 1
    return place


@inlined
def _passes(predicate: NDArray[np.int32], passing: NDArray[np.bool_], variable: int) -> bool:
    return bool(predicate[variable] != NONE and passing[predicate[variable]])


@borrowing
def _leaf_truth(
    leaf: int,
    leaves: Leaves,
    runs: CellRuns,
    run_of: NDArray[np.int32],
    passing: NDArray[np.bool_],
) -> int:
    """Return whether a leaf is true, false or unknown: one passing value is enough."""
    block = leaves.block[leaf]
    if block == NONE:
        for side in range(2 * leaf, 2 * leaf + 2):
            start = leaves.starts[side]
            holds = bool(leaves.begins_inside[side])
            if start < leaves.starts[side + 1]:
                holds = _passes(runs.predicate, passing, leaves.variables[start])
            if leaves.guard[side] != NONE:
                holds = not _passes(runs.predicate, passing, leaves.guard[side])
            if holds:
                return TRUE if side == 2 * leaf else FALSE
        return UNKNOWN
    run = run_of[block] - 1
    cells = runs.absent
    if run >= 0:
        cells = runs.cells[runs.starts[run] : runs.starts[run + 1]]
    guard = leaves.guard[2 * leaf + 1]
    if guard == NONE:
        is_true = lies_inside(leaves, 2 * leaf, runs.first[block], cells)
    else:
        is_true = _passes(runs.predicate, passing, guard)
    if is_true:
        return TRUE
    return FALSE if lies_inside(leaves, 2 * leaf + 1, runs.first[block], cells) else UNKNOWN


@borrowing
def _program_truth(
    program: NDArray[np.int32],
    leaves: Leaves,
    runs: CellRuns,
    run_of: NDArray[np.int32],
    passing: NDArray[np.bool_],
    stack: NDArray[np.int8],
) -> int:
    """Return whether a program is true, false or unknown for an event."""
    depth = 0
    for code in program:
        op, bottom = read_step(code, depth)
        result = stack[bottom]
        if op == LEAF:
            result = _leaf_truth(code, leaves, runs, run_of, passing)
        elif op == OP_NOT:
            result = UNKNOWN if result == UNKNOWN else 1 - result
        for term in range(bottom + 1, depth):
            result = joined_truth(op, result, stack[term])
        stack[bottom] = result
        depth = bottom + 1
    return int(stack[0])


@inlined
def _run(runs: CellRuns, run_of: NDArray[np.int32], block: int) -> tuple[int, int]:
    """Return where the cells of an attribute begin and end; an absent one has none."""
    run = run_of[block] - 1
    return (runs.starts[run], runs.starts[run + 1]) if run >= 0 else (0, 0)


@borrowing
def _touches(
    key: int, offset: NDArray[np.int64], runs: CellRuns, run_of: NDArray[np.int32]
) -> bool:
    """Return whether an event has a cell, given its key."""
    block = np.searchsorted(offset, key, side="right") - 1
    begin, end = _run(runs, run_of, int(block))
    at = begin + np.searchsorted(runs.cells[begin:end], key - offset[block])
    return bool(at < end and runs.cells[at] == key - offset[block])


@borrowing
def _combinations(compound: CompoundKeys, runs: CellRuns, run_of: NDArray[np.int32]) -> int:
    """Return how many compounds an event may have."""
    total = 0
    for kind in compound.kinds:
        count = 1
        for place in range(len(kind)):
            if kind[place] != NONE:
                begin, end = _run(runs, run_of, int(kind[place]))
                count *= end - begin
        total += count
    return total


@borrowing
def _add_compounds(
    offset: NDArray[np.int64],
    compound: CompoundKeys,
    runs: CellRuns,
    run_of: NDArray[np.int32],
    keys: NDArray[np.int64],
    count: int,
) -> int:
    """Write the compound keys of an event after other keys; return how many there are.

    A publisher chooses how many combinations an event has; if they are more than all compounds
    there are, those are tried instead.
    """
    if _combinations(compound, runs, run_of) > len(compound.keys):
        for number in range(len(compound.keys)):
            touched = True
            for key in compound.keys[number]:
                touched = touched and (key == NONE or _touches(key, offset, runs, run_of))
            if touched:
                keys[count] = compound.first[0] + number
                count += 1
        return count
    for kind in range(len(compound.kinds)):
        one, other, third = (
            compound.kinds[kind, 0],
            compound.kinds[kind, 1],
            compound.kinds[kind, 2],
        )
        low, high = 0, 1
        if third != NONE:
            low, high = _run(runs, run_of, int(third))
        for place in range(*_run(runs, run_of, one)):
            for beside in range(*_run(runs, run_of, other)):
                for last in range(low, high):
                    number = find_compound_key(
                        compound.keys,
                        compound.table,
                        offset[one] + runs.cells[place],
                        offset[other] + runs.cells[beside],
                        offset[third] + runs.cells[last] if third != NONE else NONE,
                    )
                    if number != NONE:
                        keys[count] = compound.first[0] + number
                        count += 1
    return count


@borrowing
def _keys_of_event(
    event: int,
    workspace: PostingWorkspace,
    runs: CellRuns,
    run_of: NDArray[np.int32],
    has_attributes: bool,
) -> int:
    """Write the keys of an event that have lists; return how many there are."""
    offset, listed, keys = workspace.postings.cell_offset, workspace.listed, workspace.keys
    count = 0
    for run in range(runs.events[event], runs.events[event + 1]):
        block = runs.blocks[run]
        for place in range(runs.starts[run], runs.starts[run + 1]):
            key = offset[block] + runs.cells[place]
            keys[count] = key
            # Without a branch: the processor cannot guess which cells have lists.
            count += int((listed[key >> 3] >> (key & 7)) & 1)
        if has_attributes:
            keys[count] = offset[-1] + block
            count += 1
    compound = workspace.postings.compound
    if len(compound.kinds) > 0:
        count = _add_compounds(offset, compound, runs, run_of, keys, count)
    return count


@borrowing
def match_multivalued(
    workspace: PostingWorkspace,
    runs: CellRuns,
    first_event: int,
    ends: NDArray[np.int64],
    found: NDArray[np.int32],
) -> int:
    """Find for each event the indexed subscriptions that it satisfies.

    Writes the subscriptions, and for each event where its own end; returns the event at which
    there might be no more room.
    """
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    starts, records, offset = (
        workspace.postings.starts,
        workspace.postings.records,
        workspace.postings.cell_offset,
    )
    codes, program_starts, leaves = workspace.codes, workspace.starts, workspace.leaves
    # For each attribute one more than its run, 0 if it is absent.
    seen, keys, run_of = workspace.seen, workspace.keys, workspace.cell_of
    cells, run_starts = runs.cells, runs.starts
    has_attributes = bool(starts[offset[-1]] < starts[offset[-1] + len(offset) - 1])
    count = 0
    for event in range(first_event, len(ends)):
        if count + len(seen) > len(found) and count > 0:
            return event
        stamp = workspace.stamps[0] + event + 1
        for run in range(runs.events[event], runs.events[event + 1]):
            run_of[runs.blocks[run]] = run + 1
        for number in range(_keys_of_event(event, workspace, runs, run_of, has_attributes)):
            place, end = starts[keys[number]], starts[keys[number] + 1]
            while place < end:
                member, task = records[place], records[place + 1]
                check = place + 2
                place = check + 3 * (task & MAX_CHECKS)
                passes = True
                while check < place and passes:
                    run = run_of[records[check]] - 1
                    passes = False
                    if run >= 0:
                        held = cells[run_starts[run] : run_starts[run + 1]]
                        at = _first_from(held, records[check + 1])
                        passes = at < len(held) and held[at] < records[check + 2]
                    check += 3
                if not passes:
                    continue
                if task & HAS_OTHER_KEYS:
                    if seen[member] == stamp:
                        continue
                    seen[member] = stamp
                if task & NEEDS_PROGRAM:
                    program = codes[program_starts[member] : program_starts[member + 1]]
                    truth = _program_truth(
                        program, leaves, runs, run_of, runs.passing[event], workspace.stack
                    )
                    passes = truth == TRUE
                if passes:
                    found[count] = member
                    count += 1
        for run in range(runs.events[event], runs.events[event + 1]):
            run_of[runs.blocks[run]] = 0
        ends[event] = count
    return len(ends)
