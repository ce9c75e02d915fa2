"""Scans of lists of programs for those that relate to one, decided by searches for events."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.covering.list_kernels import (
    ACCESS,
    FIRST_PROBES,
    FREE,
    NO_ATTRIBUTE,
    SIZE,
    START,
    ProgramStore,
    literal_hull,
)
from tamis.covering.program_kernels import (
    ATOM_WORDS,
    ATOMS,
    BEGIN_POINT,
    BELOW,
    CAN_BE_FALSE,
    CAN_BE_TRUE,
    CAN_BE_UNKNOWN,
    END_POINT,
    FIRST_PROBE,
    FOUND,
    GIVEN_UP,
    HEADER,
    LITERALS,
    LITERALS_AT,
    NO_EVENT,
    NODES,
    OPEN,
    PROBES,
    PROBES_AT,
    SEGMENT_BITS,
    UNFILED,
    Workspace,
    outcomes,
    search,
)
from tamis.jit import borrowing, prefetch

# What a scan is to find: filters that cover one, that it covers, or that it intersects.
WIDER: Final = 0
NARROWER: Final = 1
MEETING: Final = 2

# How many candidates ahead programs are fetched, and how many lines of how many words.
AHEAD: Final = 4
FETCHED_LINES: Final = 6
LINE: Final = 16


class Question(NamedTuple):
    """What is asked, and what was found."""

    number: int
    """No other question has it."""
    marks: NDArray[np.uint8]
    """For each filter whether it is to be found."""
    seen: NDArray[np.int64]
    """For each filter the last question that came across it."""
    found: NDArray[np.int64]


# --- one candidate ----------------------------------------------------------------------------


@borrowing
def _place(
    words: NDArray[np.int32],
    probe: int,
    labels: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> None:
    """Set the positions of a probe's attributes."""
    for number in range(words[probe]):
        point = words[probe + 2 + 2 * number]
        position = OPEN
        if point >= 0:
            position = labels[point]
        elif point <= BELOW:
            position = labels[BELOW - point] - 1
        positions[words[probe + 1 + 2 * number]] = position


@borrowing
def _clear(words: NDArray[np.int32], probe: int, positions: NDArray[np.int64]) -> None:
    for number in range(words[probe]):
        positions[words[probe + 1 + 2 * number]] = 0


@borrowing
def _matches_probes(
    words: NDArray[np.int32],
    other: NDArray[np.int32],
    at: int,
    labels: NDArray[np.int64],
    work: Workspace,
) -> bool:
    """Return whether a program matches all probes of another.

    Where it is filed, a probe needs an attribute of the program, which `work.counts` counts.
    """
    for turn in range(2):
        probe = at + other[at + PROBES_AT]
        for _ in range(other[at + PROBES]):
            if turn == 0 and words[LITERALS] != UNFILED:
                is_near = False
                for number in range(other[probe]):
                    is_near = is_near or work.counts[other[probe + 1 + 2 * number]] != 0
                if not is_near:
                    return False
            elif turn:
                _place(other, probe, labels, work.positions)
                mask = outcomes(words, 0, labels, work.positions, work.stack)
                _clear(other, probe, work.positions)
                if not mask & CAN_BE_TRUE:
                    return False
            probe += 1 + 2 * other[probe]
    return True


@borrowing
def _is_same(words: NDArray[np.int32], at: int, other: NDArray[np.int32], other_at: int) -> bool:
    """Return whether two programs are the same but for what is behind them."""
    length = words[at + LITERALS_AT]
    if other[other_at + LITERALS_AT] != length or other[other_at + NODES] != words[at + NODES]:
        return False
    is_same = True
    for place in range(HEADER, length):
        is_same = is_same and words[at + place] == other[other_at + place]
    return is_same


@borrowing
def relate(
    task: int,
    words: NDArray[np.int32],
    at: int,
    other: NDArray[np.int32],
    other_at: int,
    labels: NDArray[np.int64],
    work: Workspace,
) -> int:
    """Return FOUND if another program covers one, is covered by it, or intersects it."""
    if _is_same(words, at, other, other_at):
        return FOUND
    goal = CAN_BE_TRUE if task == MEETING else CAN_BE_FALSE | CAN_BE_UNKNOWN
    is_turned = task == NARROWER
    found = search(
        other if is_turned else words,
        other_at if is_turned else at,
        words if is_turned else other,
        at if is_turned else other_at,
        goal,
        labels,
        work,
        0,
    )
    if task == MEETING or found == GIVEN_UP:
        return found
    return FOUND if found == NO_EVENT else NO_EVENT


@borrowing
def _state(
    task: int,
    words: NDArray[np.int32],
    is_exact: bool,
    store: ProgramStore,
    owner: int,
    work: Workspace,
) -> int:
    """Return whether a filter is one of those that are sought; GIVEN_UP if that is open."""
    other, at = store.words, store.starts[owner]
    if task == WIDER:
        for number in range(words[PROBES]):
            mask = outcomes(other, at, store.labels, work.probed[number], work.stack)
            if not mask & CAN_BE_TRUE:
                return NO_EVENT
        if not is_exact:
            return GIVEN_UP
    elif task == NARROWER:
        if not _matches_probes(words, other, at, store.labels, work):
            return NO_EVENT
        _count_attributes(words, work, 0)
    state = relate(task, words, 0, other, at, store.labels, work)
    if task == NARROWER:
        _count_attributes(words, work, 1)
    return state if is_exact or state == NO_EVENT else GIVEN_UP


@borrowing
def _count_attributes(words: NDArray[np.int32], work: Workspace, count: int) -> None:
    row = HEADER + words[NODES]
    for number in range(words[ATOMS]):
        work.counts[words[row + ATOM_WORDS * number]] = count


# --- scans ------------------------------------------------------------------------------------


@borrowing
def _collect(
    heads: NDArray[np.int64],
    key: int,
    low: int,
    high: int,
    store: ProgramStore,
    question: Question,
    count: int,
) -> int:
    """Add the filters of a list whose rows have something in common with some labels."""
    labels, rows = store.labels, store.rows
    start = heads[key, START]
    for place in range(start, start + heads[key, SIZE]):
        owner = rows[place, 0]
        if question.seen[owner] == question.number or not question.marks[owner]:
            continue
        # The upper end of a range lies outside of it, so this may be one too many.
        if labels[rows[place, 1]] > high or labels[rows[place, 2]] < low:
            continue
        question.seen[owner] = question.number
        question.found[count] = owner
        count += 1
    return count


@borrowing
def _collect_all(store: ProgramStore, question: Question) -> int:
    count = 0
    for owner in range(len(store.starts)):
        is_seen = question.seen[owner] == question.number
        if store.starts[owner] != FREE and question.marks[owner] and not is_seen:
            question.found[count] = owner
            count += 1
    return count


@borrowing
def _collect_wider(words: NDArray[np.int32], store: ProgramStore, question: Question) -> int:
    """Collect the filters that may match the first probe of a program."""
    probe = words[FIRST_PROBE]
    count = 0
    for number in range(2 * words[probe] + 1):
        # Last come the filters that are under no attribute.
        is_last = number == 2 * words[probe]
        is_range = is_last or number % 2 == 1
        pair = probe + 1 + number - number % 2
        attribute = NO_ATTRIBUTE if is_last else words[pair]
        point = BEGIN_POINT if is_last else words[pair + 1]
        count = _collect(
            store.range_heads if is_range else store.point_heads,
            2 * (attribute if is_range else point) + ACCESS,
            store.labels[point],
            store.labels[point],
            store,
            question,
            count,
        )
    return count


@borrowing
def _collect_narrower(words: NDArray[np.int32], store: ProgramStore, question: Question) -> int:
    """Collect the filters whose first probe lies where a program may be true."""
    labels = store.labels
    count = 0
    for number in range(words[LITERALS]):
        literal = words[LITERALS_AT] + 2 * number
        attribute, low, high, is_points = literal_hull(words, 0, literal)
        row = HEADER + words[NODES] + ATOM_WORDS * words[literal]
        for place in range(words[row + 1], words[row + ATOM_WORDS + 1]):
            if is_points and not words[place] & words[literal + 1]:
                continue
            point = words[place] >> SEGMENT_BITS
            count = _collect(
                store.point_heads if is_points else store.range_heads,
                2 * (point if is_points else attribute) + FIRST_PROBES,
                labels[point if is_points else low],
                labels[point if is_points else high],
                store,
                question,
                count,
            )
            if not is_points:
                break
    return count


@borrowing
def _collect_meeting(
    words: NDArray[np.int32], store: ProgramStore, work: Workspace, question: Question
) -> int:
    """Collect all but those filed under single values at which the program cannot be true."""
    labels = store.labels
    count = 0
    row = HEADER + words[NODES]
    points = len(store.attribute_of)
    for key in range(points + len(store.range_heads) // 2):
        is_near = True
        if key < points:
            if store.point_heads[2 * key + ACCESS, SIZE] == 0:
                continue
            attribute = store.attribute_of[key]
            is_tested = False
            for number in range(words[ATOMS]):
                work.positions[words[row + ATOM_WORDS * number]] = OPEN
                is_tested = is_tested or words[row + ATOM_WORDS * number] == attribute
            if is_tested:
                work.positions[attribute] = labels[key]
                mask = outcomes(words, 0, labels, work.positions, work.stack)
                is_near = (mask & CAN_BE_TRUE) != 0
            for number in range(words[ATOMS]):
                work.positions[words[row + ATOM_WORDS * number]] = 0
        if is_near:
            count = _collect(
                store.point_heads if key < points else store.range_heads,
                2 * (key if key < points else key - points) + ACCESS,
                0,
                labels[END_POINT],
                store,
                question,
                count,
            )
    return count


@borrowing
def _place_probes(
    words: NDArray[np.int32], labels: NDArray[np.int64], work: Workspace, is_over: bool
) -> bool:
    """Set the positions of all probes, or clear them; return whether something is open."""
    probe = words[PROBES_AT]
    is_open = words[PROBES] == 0
    for number in range(words[PROBES]):
        if is_over:
            _clear(words, probe, work.probed[number])
        else:
            _place(words, probe, labels, work.probed[number])
        for pair in range(words[probe]):
            is_open = is_open or words[probe + 2 + 2 * pair] == OPEN
        probe += 1 + 2 * words[probe]
    return bool(is_open)


@borrowing
def _fetch(store: ProgramStore, owner: int) -> None:
    """Have a program fetched from memory while others are looked at."""
    at = store.starts[owner]
    last = len(store.words) - 1
    for line in range(FETCHED_LINES):
        prefetch(store.words, min(last, at + LINE * line))


@borrowing
def scan(
    task: int,
    words: NDArray[np.int32],
    is_exact: bool,
    store: ProgramStore,
    work: Workspace,
    question: Question,
    limit: int,
) -> int:
    """Find some marked filters by how they relate to a program; return how many.

    Each is twice its number, and one more if it is open whether it belongs there, as it always is
    where the program is not exact. For WIDER such a program has only probes; otherwise it may be
    too wide.
    """
    labels = store.labels
    is_open = task == WIDER and _place_probes(words, labels, work, False)
    if is_open or (task == NARROWER and words[LITERALS] == UNFILED):
        collected = _collect_all(store, question)
    elif task == WIDER:
        collected = _collect_wider(words, store, question)
    elif task == NARROWER:
        collected = _collect_narrower(words, store, question)
    else:
        collected = _collect_meeting(words, store, work, question)
    if task == NARROWER:
        _count_attributes(words, work, 1)
    count = 0
    for number in range(collected):
        if number + AHEAD < collected:
            _fetch(store, question.found[number + AHEAD])
        owner = question.found[number]
        state = _state(task, words, is_exact, store, owner, work)
        if state != NO_EVENT:
            question.found[count] = 2 * owner + (state == GIVEN_UP)
            count += 1
            if count == limit:
                break
    if task == NARROWER:
        _count_attributes(words, work, 0)
    elif task == WIDER:
        _place_probes(words, labels, work, True)
    return count
