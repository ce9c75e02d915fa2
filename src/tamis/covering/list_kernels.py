"""Lists of programs: by their access literals, and by where their first probes lie."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.covering.program_kernels import (
    ATOM_WORDS,
    END_POINT,
    FIRST_PROBE,
    HEADER,
    IS_POINT,
    LITERALS,
    LITERALS_AT,
    MAX_POINTS,
    NODES,
    SEGMENT_BITS,
    UNFILED,
)
from tamis.jit import borrowing

# The head of a list: where its rows are, how many there are, and for how many there is room.
START, SIZE, ROOM = range(3)
# A row: a filter, and the two breakpoints between which it is filed.
ROW_FIELDS: Final = 3
FIRST_ROOM: Final = 4
NO_ATTRIBUTE: Final = 0
"""Under this are the programs that may be true on an event without attributes."""
FREE: Final = -1

# What `file` is to do.
ADD: Final = 0
REMOVE: Final = 1
DONE: Final = -1

# Two lists of each breakpoint and each attribute: of access literals, and of first probes.
ACCESS: Final = 0
FIRST_PROBES: Final = 1


class ProgramStore(NamedTuple):
    """All programs of an index."""

    words: NDArray[np.int32]
    starts: NDArray[np.int64]
    """For each filter where its program begins, or FREE."""
    labels: NDArray[np.int64]
    attribute_of: NDArray[np.int32]
    """For each breakpoint its attribute."""
    point_heads: Annotated[NDArray[np.int64], 2]
    """The lists of single values: two for each breakpoint."""
    range_heads: Annotated[NDArray[np.int64], 2]
    """The lists of other ranges: two for each attribute."""
    rows: Annotated[NDArray[np.int32], 2]
    used: NDArray[np.int64]
    """How many rows are in use, or were before their list moved."""


# --- filing -----------------------------------------------------------------------------------


@borrowing
def _change(
    heads: NDArray[np.int64],
    key: int,
    rows: NDArray[np.int32],
    used: NDArray[np.int64],
    owner: int,
    low: int,
    high: int,
    task: int,
) -> bool:
    """Add a row to a list, or remove the rows of a filter; return whether there was room."""
    start, size = heads[key, START], heads[key, SIZE]
    if task == REMOVE:
        place = start
        while place < start + size:
            if rows[place, 0] == owner:
                size -= 1
                for field in range(ROW_FIELDS):
                    rows[place, field] = rows[start + size, field]
            else:
                place += 1
        heads[key, SIZE] = size
        return True
    if size == heads[key, ROOM]:
        room = max(FIRST_ROOM, 2 * size)
        if used[0] + room > len(rows):
            return False
        begin = used[0]
        for number in range(size):
            for field in range(ROW_FIELDS):
                rows[begin + number, field] = rows[start + number, field]
        used[0] += room
        start = begin
        heads[key, START], heads[key, ROOM] = begin, room
    rows[start + size, 0] = owner
    rows[start + size, 1] = low
    rows[start + size, 2] = high
    heads[key, SIZE] = size + 1
    return True


@borrowing
def literal_hull(words: NDArray[np.int32], at: int, literal: int) -> tuple[int, int, int, bool]:
    """Return the attribute of a literal, between which breakpoints it is true, and if in points."""
    row = at + HEADER + words[at + NODES] + ATOM_WORDS * words[literal]
    low, high, count, is_points = 0, END_POINT, 0, True
    last = at + words[row + ATOM_WORDS + 1]
    for place in range(at + words[row + 1], last):
        if words[place] & words[literal + 1]:
            if count == 0:
                low = words[place] >> SEGMENT_BITS
            count += 1
            is_points = is_points and (words[place] & IS_POINT) != 0
            high = words[place + 1] >> SEGMENT_BITS if place + 1 < last else END_POINT
    return words[row], low, high, is_points and count <= MAX_POINTS


@borrowing
def file(store: ProgramStore, owner: int, begin: int, task: int) -> int:
    """Put a program into its lists, or remove it; return DONE, or what was the first without room.

    What was done before is not done again: `begin` is what to go on with.
    """
    words, at = store.words, store.starts[owner]
    literals = words[at + LITERALS]
    probe = at + words[at + FIRST_PROBE]
    step = 0
    # First the access literals, then the probe; one row for a filter that has no such literals.
    for number in range(abs(literals) + words[probe]):
        is_access = number < abs(literals)
        attribute, low, high, is_points = NO_ATTRIBUTE, 0, END_POINT, False
        first = last = 0
        mask = 0
        if not is_access:
            pair = probe + 1 + 2 * (number - abs(literals))
            attribute, low, high = words[pair], words[pair + 1], words[pair + 1]
        elif literals != UNFILED:
            literal = at + words[at + LITERALS_AT] + 2 * number
            attribute, low, high, is_points = literal_hull(words, at, literal)
            row = at + HEADER + words[at + NODES] + ATOM_WORDS * words[literal]
            first, last = at + words[row + 1], at + words[row + ATOM_WORDS + 1]
            mask = words[literal + 1]
        # Under the range, unless the values are few; then under each value.
        for place in range(first - 1, last + 1):
            is_range = place == first - 1
            point = low
            if is_range:
                if is_points:
                    continue
            elif is_access:
                if not is_points or place == last or not words[place] & mask:
                    continue
                point = words[place] >> SEGMENT_BITS
            elif place != last:
                continue
            if step >= begin and not _change(
                store.range_heads if is_range else store.point_heads,
                2 * (attribute if is_range else point) + (ACCESS if is_access else FIRST_PROBES),
                store.rows,
                store.used,
                owner,
                low if is_range else point,
                high if is_range else point,
                task,
            ):
                return step
            step += 1
    return DONE
