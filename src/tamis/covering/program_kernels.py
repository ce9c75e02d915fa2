"""Programs: filters as words over numbered breakpoints, what they may be, and events that decide.

A program is a row of words: a header, the nodes of the filter with each after its terms, the atoms,
and the segments of each atom: from which breakpoint on the atom is true, false or unknown. Behind
this is its description: *access literals*, of which one is true wherever the filter is, and a few
probes. Breakpoints have labels, in whose order they stand; see `breakpoints.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import borrowing

# What an atom or filter may be, as a set.
CAN_BE_TRUE: Final = 1
CAN_BE_FALSE: Final = 2
CAN_BE_UNKNOWN: Final = 4

# The header of a program.
NODES, ATOMS, LITERALS_AT, LITERALS, PROBES_AT, PROBES, FIRST_PROBE, LENGTH = range(8)
HEADER: Final = 8
UNFILED: Final = -1
"""Instead of a number of literals: the filter may be true on an event without attributes."""

# A node is an operator and a count, in this many bits: of terms, or the value of a constant.
OPERATOR_BITS: Final = 3
OP_ATOM, OP_AND, OP_OR, OP_XOR, OP_NOT, OP_CONSTANT = range(6)

# An atom: its attribute, where its segments begin, all that it may be, and its polarity; then one
# row more. An atom under no negation is POSITIVE: only where it is true counts. Under a negation it
# is NEGATIVE, and in a parity it is both.
ATOM_WORDS: Final = 4
POSITIVE: Final = 1
NEGATIVE: Final = 2
# A segment: its breakpoint, whether it is a single value, and what the atom is there.
SEGMENT_BITS: Final = 4
IS_POINT: Final = 8

# Breakpoints that every attribute has: absence, or the first value where there is none; the end.
BEGIN_POINT: Final = 0
END_POINT: Final = 1
OPEN: Final = -1
"""The position of an attribute of which nothing is said."""
BELOW: Final = -2
"""What a probe has instead of a breakpoint: BELOW less its number is the last place before it."""

MAX_NODES: Final = 256
MAX_ATOMS: Final = 96
MAX_SEGMENTS: Final = 1_024
MAX_PROBES: Final = 4
# A literal with more values is filed under their range.
MAX_POINTS: Final = 32
# In what order a search tries attributes: those first that several atoms test.
SHARED_FIRST: Final = -2
# Positions to try before a search is given up.
MAX_SEARCH_STEPS: Final = 4_000

NO_EVENT: Final = 0
FOUND: Final = 1
GIVEN_UP: Final = 2


class Workspace(NamedTuple):
    """What kernels write while they work."""

    positions: NDArray[np.int64]
    """For each attribute a label, or OPEN; all are 0 between searches."""
    probed: Annotated[NDArray[np.int64], 2]
    """The same for each probe of the filter that is asked about."""
    counts: NDArray[np.int32]
    """For each attribute how many atoms test it; all are 0 between searches."""
    attributes: NDArray[np.int32]
    cells: NDArray[np.int32]
    cell_ends: NDArray[np.int32]
    chosen: NDArray[np.int32]
    stack: NDArray[np.uint8]


def new_workspace(attributes: int) -> Workspace:
    """Return what kernels need for so many attributes."""
    return Workspace(
        np.zeros(attributes, np.int64),
        np.zeros((MAX_PROBES, attributes), np.int64),
        np.zeros(attributes, np.int32),
        np.empty(2 * MAX_ATOMS, np.int32),
        np.empty(2 * MAX_SEGMENTS, np.int32),
        np.empty(2 * MAX_ATOMS + 1, np.int32),
        np.empty(2 * MAX_ATOMS, np.int32),
        np.empty(MAX_NODES, np.uint8),
    )


# --- what a program may be --------------------------------------------------------------------


@borrowing
def outcomes(
    words: NDArray[np.int32],
    at: int,
    labels: NDArray[np.int64],
    positions: NDArray[np.int64],
    stack: NDArray[np.uint8],
) -> int:
    """Return what a program may be with its attributes at some positions.

    This is exact if every attribute that is open has only one atom: then atoms are independent.
    """
    first = at + HEADER
    row = first + words[at + NODES]
    top = 0
    for place in range(first, row):
        op = words[place] & 7
        count = words[place] >> OPERATOR_BITS
        mask = 0
        if op == OP_ATOM:
            position = positions[words[row]]
            if position == OPEN:
                mask = words[row + 2]
            elif position == 0:
                # Most attributes are absent; the first segment begins there, and no label is read.
                mask = words[at + words[row + 1]] & 7
            else:
                segment = at + words[row + 1] + 1
                last = at + words[row + ATOM_WORDS + 1]
                while segment < last and labels[words[segment] >> SEGMENT_BITS] <= position:
                    segment += 1
                mask = words[segment - 1] & 7
            row += ATOM_WORDS
        elif op == OP_CONSTANT:
            mask = CAN_BE_TRUE if count else CAN_BE_FALSE
        elif op == OP_NOT:
            top -= 1
            term = stack[top]
            mask = (term & CAN_BE_UNKNOWN) | (term & 1) << 1 | (term & 2) >> 1
        elif op == OP_XOR:
            top -= count
            # Whether an even and whether an odd number of the terms may be true.
            parity = 1
            for number in range(count):
                term = stack[top + number]
                mask |= term & CAN_BE_UNKNOWN
                turned = 0
                if term & CAN_BE_TRUE:
                    turned = (parity & 1) << 1 | (parity & 2) >> 1
                if term & CAN_BE_FALSE:
                    turned |= parity
                parity = turned
            mask |= (parity & 2) >> 1 | (parity & 1) << 1
        else:
            top -= count
            neutral = CAN_BE_TRUE if op == OP_AND else CAN_BE_FALSE
            decisive = CAN_BE_TRUE + CAN_BE_FALSE - neutral
            every, some = 7, 0
            undecided = True
            for number in range(count):
                term = stack[top + number]
                every &= term
                some |= term
                undecided = undecided and (term & (neutral | CAN_BE_UNKNOWN)) != 0
            mask = (every & neutral) | (some & decisive)
            if undecided:
                mask |= some & CAN_BE_UNKNOWN
        stack[top] = mask
        top += 1
    return int(stack[0])


# --- events -----------------------------------------------------------------------------------


@borrowing
def note_attributes(words: NDArray[np.int32], at: int, work: Workspace, noted: int) -> int:
    """Open the attributes of a program, and count their atoms; return how many there are now."""
    row = at + HEADER + words[at + NODES]
    for _ in range(words[at + ATOMS]):
        attribute = words[row]
        if work.counts[attribute] == 0:
            work.attributes[noted] = attribute
            noted += 1
            work.positions[attribute] = OPEN
        work.counts[attribute] += 1
        row += ATOM_WORDS
    return noted


@borrowing
def _add_cells(
    words: NDArray[np.int32],
    at: int,
    attribute: int,
    cells: NDArray[np.int32],
    begin: int,
    end: int,
) -> int:
    """Add the breakpoints of an attribute's atoms to others; return the end of all."""
    row = at + HEADER + words[at + NODES]
    for _ in range(words[at + ATOMS]):
        if words[row] == attribute:
            for segment in range(at + words[row + 1], at + words[row + ATOM_WORDS + 1]):
                point = words[segment] >> SEGMENT_BITS
                known = False
                for number in range(begin, end):
                    known = known or cells[number] == point
                if not known:
                    cells[end] = point
                    end += 1
        row += ATOM_WORDS
    return end


@borrowing
def _outcome_at(
    words: NDArray[np.int32], at: int, row: int, label: int, labels: NDArray[np.int64]
) -> int:
    """Return what an atom is at a position."""
    segment = at + words[row + 1] + 1
    last = at + words[row + ATOM_WORDS + 1]
    while segment < last and labels[words[segment] >> SEGMENT_BITS] <= label:
        segment += 1
    return int(words[segment - 1] & 7)


@borrowing
def _is_as_good(
    words: NDArray[np.int32],
    at: int,
    attribute: int,
    is_wanted: bool,
    better: int,
    worse: int,
    labels: NDArray[np.int64],
) -> bool:
    """Return whether a program is true at one position of an attribute if it is at another.

    That is, as far as the atoms show, or the reverse if truth is not wanted.
    """
    row = at + HEADER + words[at + NODES]
    for _ in range(words[at + ATOMS]):
        if words[row] == attribute:
            one = _outcome_at(words, at, row, better, labels)
            other = _outcome_at(words, at, row, worse, labels)
            decisive = words[row + 3]
            if decisive == POSITIVE | NEGATIVE:
                if one != other:
                    return False
            elif is_wanted:
                if other == decisive and one != decisive:
                    return False
            elif one == decisive and other != decisive:
                return False
        row += ATOM_WORDS
    return True


@borrowing
def _reduce_cells(
    words: NDArray[np.int32],
    at: int,
    other_words: NDArray[np.int32],
    other_at: int,
    goal: int,
    attribute: int,
    cells: NDArray[np.int32],
    begin: int,
    end: int,
    labels: NDArray[np.int64],
) -> int:
    """Drop the cells that are no better than others; return the end of the rest."""
    kept = begin
    for number in range(begin, end):
        label = labels[cells[number]]
        is_needed = True
        place = begin
        while place < kept and is_needed:
            rival = labels[cells[place]]
            is_better, is_worse = True, True
            for turn in range(2):
                program = other_words if turn else words
                start = other_at if turn else at
                is_wanted = turn == 0 or goal == CAN_BE_TRUE
                is_better = is_better and _is_as_good(
                    program, start, attribute, is_wanted, rival, label, labels
                )
                is_worse = is_worse and _is_as_good(
                    program, start, attribute, is_wanted, label, rival, labels
                )
            is_needed = not is_better
            if is_needed and is_worse:
                kept -= 1
                cells[place] = cells[kept]
            else:
                place += 1
        if is_needed:
            cells[kept] = cells[number]
            kept += 1
    return kept


@borrowing
def _put_shared_first(work: Workspace, noted: int) -> int:
    """Put the attributes first that several atoms test; return how many there are."""
    shared = 0
    for number in range(noted):
        attribute = work.attributes[number]
        if work.counts[attribute] > 1:
            work.attributes[number] = work.attributes[shared]
            work.attributes[shared] = attribute
            shared += 1
    return shared


@borrowing
def _rotate(attributes: NDArray[np.int32], noted: int, rotation: int) -> None:
    """Put the first attributes behind the others; those of one program leave room for a copy."""
    for number in range(noted):
        attributes[noted + number] = attributes[number]
    for number in range(noted):
        attributes[number] = attributes[noted + (number + rotation) % noted]


@borrowing
def search(
    words: NDArray[np.int32],
    at: int,
    other_words: NDArray[np.int32],
    other_at: int,
    goal: int,
    labels: NDArray[np.int64],
    work: Workspace,
    rotation: int,
) -> int:
    """Look for an event on which a program is true, and another is one of `goal`.

    Only attributes that several atoms test need a choice; then the others are independent. Without
    a goal there is no other program, and every attribute gets a position: `work.chosen` has their
    breakpoints. Absence is tried first, so that the event is small; `rotation` says which
    attributes are absent rather than others, and whether high values come first. Where atoms of one
    attribute contradict each other, SHARED_FIRST finds out soonest.
    """
    noted = note_attributes(words, at, work, 0)
    if goal:
        noted = note_attributes(other_words, other_at, work, noted)
    if goal or rotation == SHARED_FIRST:
        chosen = _put_shared_first(work, noted)
    else:
        _rotate(work.attributes, noted, rotation)
    if not goal:
        chosen = noted
    end = 0
    for number in range(chosen):
        attribute = work.attributes[number]
        begin = end
        end = _add_cells(words, at, attribute, work.cells, begin, end)
        if goal:
            end = _add_cells(other_words, other_at, attribute, work.cells, begin, end)
            if chosen > 1:
                # Cells multiply; those of a single attribute are tried sooner than compared.
                end = _reduce_cells(
                    words,
                    at,
                    other_words,
                    other_at,
                    goal,
                    attribute,
                    work.cells,
                    begin,
                    end,
                    labels,
                )
        elif rotation & 1:
            for step in range((end - begin - 1) // 2):
                low, high = begin + 1 + step, end - 1 - step
                work.cells[low], work.cells[high] = work.cells[high], work.cells[low]
        work.cell_ends[number] = end
    found = _search(words, at, other_words, other_at, goal, labels, work, chosen)
    for number in range(noted):
        work.positions[work.attributes[number]] = 0
        work.counts[work.attributes[number]] = 0
    return found


@borrowing
def _search(
    words: NDArray[np.int32],
    at: int,
    other_words: NDArray[np.int32],
    other_at: int,
    goal: int,
    labels: NDArray[np.int64],
    work: Workspace,
    chosen: int,
) -> int:
    depth, steps = -1, 0
    programs = 2 if goal else 1
    while True:
        # One place to ask both programs, so that it is compiled only once.
        is_possible = True
        for turn in range(programs):
            if is_possible:
                mask = outcomes(
                    other_words if turn else words,
                    other_at if turn else at,
                    labels,
                    work.positions,
                    work.stack,
                )
                is_possible = (mask & (goal if turn else CAN_BE_TRUE)) != 0
        if is_possible:
            depth += 1
            if depth == chosen:
                return FOUND
            work.chosen[depth] = (work.cell_ends[depth - 1] if depth else 0) - 1
        while depth >= 0 and work.chosen[depth] + 1 == work.cell_ends[depth]:
            work.positions[work.attributes[depth]] = OPEN
            depth -= 1
        if depth < 0:
            return NO_EVENT
        work.chosen[depth] += 1
        attribute = work.attributes[depth]
        work.positions[attribute] = labels[work.cells[work.chosen[depth]]]
        steps += 1
        if steps > MAX_SEARCH_STEPS:
            return GIVEN_UP
