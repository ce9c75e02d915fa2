"""Rows of bits: for every region of a line that some filter asks for, the events that lie in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel, mixed_in


class Regions(NamedTuple):
    """What diagrams and graphs ask for: cells of a line, or one predicate; attribute by attribute.

    Variables are counted from the first of their attribute.
    """

    of_block: NDArray[np.int32]
    """Attribute b has the regions of_block[b] to of_block[b + 1]; constants stand after all."""
    starts: NDArray[np.int64]
    """Region r changes at the variables cuts[starts[r] : starts[r + 1]]."""
    begins: NDArray[np.bool_]
    cuts: NDArray[np.int32]
    guard: NDArray[np.int32]
    """A predicate that must not hold as well, or NONE."""


class Lines(NamedTuple):
    """How many variables each attribute has."""

    cuts: NDArray[np.int32]
    """Of attribute b the number of cuts."""
    predicates: NDArray[np.int32]
    """Attribute b has the predicates predicates[b] to predicates[b + 1]."""


class Held(NamedTuple):
    """What the events of a batch hold."""

    starts: NDArray[np.int64]
    """Of attribute b the entries are starts[b] to starts[b + 1]."""
    events: NDArray[np.int32]
    cells: NDArray[np.int32]
    passing: NDArray[np.uint64]
    """For each predicate the events for which it holds, a bit each."""


@kernel
def _set_cuts(
    held: Held, block: int, first_word: int, words: int, rows: NDArray[np.uint64]
) -> bool:
    """Fill the rows of a line's cuts: which events lie left of each; or tell that no event has it.

    Every event starts in the row of the first cut over its cell, and then is in all after it.
    What is absent lies left of every cut.
    """
    first, last = 64 * first_word, 64 * (first_word + words)
    anything = False
    for entry in range(held.starts[block], held.starts[block + 1]):
        if first <= held.events[entry] < last:
            anything = True
            break
    if not anything or not len(rows):
        return anything
    rows[0] = ~np.uint64(0)
    rows[1:] = np.uint64(0)
    for entry in range(held.starts[block], held.starts[block + 1]):
        event, cell = held.events[entry] - first, held.cells[entry]
        if 0 <= event < last - first and cell > 0:
            bit = np.uint64(1) << np.uint64(event & 63)
            rows[0, event >> 6] &= ~bit
            if cell < len(rows):
                rows[cell, event >> 6] |= bit
    for cut in range(1, len(rows)):
        before, row = rows[cut - 1], rows[cut]
        for word in range(len(row)):
            row[word] |= before[word]
    return anything


@inlined
def _set_region(
    cuts: NDArray[np.int32],
    begins: bool,
    guard: int,
    rows: NDArray[np.uint64],
    target: NDArray[np.uint64],
) -> bool:
    """Fill the row of one region from those of its attribute's variables; tell if any bit is."""
    # Left of a cut and right of it are complements, so each change turns all bits round.
    inverted = begins != (len(cuts) % 2 == 1)
    turn = ~np.uint64(0) if inverted else np.uint64(0)
    if len(cuts) == 0:
        target[:] = turn
    else:
        row = rows[cuts[0]]
        for word in range(len(target)):
            target[word] = row[word] ^ turn
        for cut in cuts[1:]:
            row = rows[cut]
            for word in range(len(target)):
                target[word] ^= row[word]
    if guard != NONE:
        row = rows[guard]
        for word in range(len(target)):
            target[word] &= ~row[word]
    found = np.uint64(0)
    for word in range(len(target)):
        found |= target[word]
    return bool(found != 0)


@kernel
def set_region_rows(
    regions: Regions,
    lines: Lines,
    held: Held,
    first_word: int,
    words: int,
    room: NDArray[np.uint64],
    rows: NDArray[np.uint64],
    is_set: NDArray[np.bool_],
) -> None:
    """Fill the row of every region for the events from a word on, and tell which have a bit.

    `room` is for the variables of one attribute. The rows may be wider than the words asked for;
    what stands there means nothing.
    """
    # Arrays by names of their own: to take them out of their tuple in the loops costs much there.
    of_block, starts, begins = regions.of_block, regions.starts, regions.begins
    all_cuts, guards, passing = regions.cuts, regions.guard, held.passing
    for block in range(len(of_block) - 1):
        # The constants come last, under no attribute.
        is_line = block < len(lines.cuts)
        cuts = lines.cuts[block] if is_line else 0
        predicates = lines.predicates[block] if is_line else 0
        count = lines.predicates[block + 1] - predicates if is_line else 0
        if is_line and not _set_cuts(held, block, first_word, words, room[:cuts]):
            room[:cuts] = ~np.uint64(0)
        for number in range(count):
            for word in range(words):
                room[cuts + number, word] = passing[predicates + number, first_word + word]
        for region in range(of_block[block], of_block[block + 1]):
            own = all_cuts[starts[region] : starts[region + 1]]
            inside = bool(begins[region])
            is_set[region] = _set_region(own, inside, guards[region], room, rows[region])


@kernel
def sort_by_event(
    held: Held,
    starts: NDArray[np.int64],
    blocks: NDArray[np.int32],
    cells: NDArray[np.int32],
) -> None:
    """Write the same event after event; `starts` begins as zeros."""
    for event in held.events:
        starts[event + 1] += 1
    for event in range(len(starts) - 1):
        starts[event + 1] += starts[event]
    for block in range(len(held.starts) - 1):
        for entry in range(held.starts[block], held.starts[block + 1]):
            place = starts[held.events[entry]]
            starts[held.events[entry]] = place + 1
            blocks[place], cells[place] = block, held.cells[entry]
    for event in range(len(starts) - 1, 0, -1):
        starts[event] = starts[event - 1]
    starts[0] = 0


@kernel
def number_regions(
    starts: NDArray[np.int64],
    begins: NDArray[np.bool_],
    cuts: NDArray[np.int32],
    guard: NDArray[np.int32],
    table: NDArray[np.int32],
    firsts: NDArray[np.int32],
    numbers: NDArray[np.int32],
) -> int:
    """Number regions so that equal ones have one number; write the first region of each.

    `table` is open hashing of numbers plus one, 0 where free, a power of two long.
    """
    mask, count = len(table) - 1, 0
    for region in range(len(begins)):
        first, last = starts[region], starts[region + 1]
        mixed = mixed_in(1 if begins[region] else 0, guard[region])
        for place in range(first, last):
            mixed = mixed_in(mixed, cuts[place])
        spot = (mixed ^ (mixed >> 17)) & mask
        number = NONE
        while table[spot] != 0 and number == NONE:
            other = firsts[table[spot] - 1]
            start = starts[other]
            same = begins[other] == begins[region] and guard[other] == guard[region]
            same = same and starts[other + 1] - start == last - first
            for offset in range(last - first):
                same = same and cuts[start + offset] == cuts[first + offset]
            if same:
                number = table[spot] - 1
            spot = (spot + 1) & mask
        if number == NONE:
            number = count
            table[spot] = number + 1
            firsts[number] = region
            count += 1
        numbers[region] = number
    return count
