"""Evaluation: rows of bits, one bit per event, a machine word of events at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import kernel
from tamis.matching.program_kernels import (
    FALSE_SIDE,
    OP_AND,
    OP_NOT,
    OP_XOR,
    TRUE_SIDE,
    Scratch,
    mark_sides,
)


@kernel
def set_rows(cells: NDArray[np.int32], rows: NDArray[np.uint64]) -> None:
    """Fill the rows of a line's cuts: which events lie left of each.

    Every event starts in the row of the first cut over its cell, and then is in all after it.
    """
    for event in range(len(cells)):
        if cells[event] < len(rows):
            rows[cells[event], event >> 6] |= np.uint64(1) << np.uint64(event & 63)
    for cut in range(1, len(rows)):
        for word in range(rows.shape[1]):
            rows[cut, word] |= rows[cut - 1, word]


class Regions(NamedTuple):
    """What the nodes of diagrams ask for: cells of a line, or one predicate."""

    starts: NDArray[np.int64]
    """Region r changes at the variables cuts[starts[r] : starts[r + 1]]."""
    begins: NDArray[np.bool_]
    cuts: NDArray[np.int32]


@kernel
def set_region_rows(
    regions: Regions, rows: NDArray[np.uint64], region_rows: NDArray[np.uint64]
) -> None:
    """Fill the row of every region from the rows of the cuts at which it changes."""
    for region in range(len(regions.begins)):
        target = region_rows[region]
        target[:] = ~np.uint64(0) if regions.begins[region] else np.uint64(0)
        for place in range(regions.starts[region], regions.starts[region + 1]):
            row = rows[regions.cuts[place]]
            for word in range(len(target)):
                target[word] ^= ~row[word]


class Chunks(NamedTuple):
    """The diagrams of all chunks, one after the other."""

    node_starts: NDArray[np.int64]
    test: NDArray[np.uint16]
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    region_starts: NDArray[np.int64]
    regions: NDArray[np.int32]
    """For each test of a chunk the region it asks for."""
    root_starts: NDArray[np.int64]
    roots: NDArray[np.uint16]
    members: NDArray[np.int32]
    """For each root the subscription it belongs to."""


@kernel
def evaluate_chunks(
    chunks: Chunks,
    first: int,
    last: int,
    rows: NDArray[np.uint64],
    values: NDArray[np.uint64],
    matched: NDArray[np.uint64],
) -> None:
    """Evaluate some chunks on all events of the rows, a machine word of events at a time.

    `values` is room for the largest chunk; its first two rows are all false and all true.
    """
    width, wanted = rows.shape[1], matched.shape[1]
    for chunk in range(first, last):
        # Slices of the chunk's own arrays: a fifth faster than offsets into those of all chunks.
        nodes = slice(chunks.node_starts[chunk], chunks.node_starts[chunk + 1])
        tests, lows, highs = chunks.test[nodes], chunks.low[nodes], chunks.high[nodes]
        regions = chunks.regions[chunks.region_starts[chunk] : chunks.region_starts[chunk + 1]]
        # The white-hot centre: one pass, children before parents, vectorised over the words.
        for node in range(len(tests)):
            test = rows[regions[tests[node]]]
            low, high, value = values[lows[node]], values[highs[node]], values[node + 2]
            for word in range(width):
                value[word] = low[word] ^ (test[word] & (low[word] ^ high[word]))
        for root in range(chunks.root_starts[chunk], chunks.root_starts[chunk + 1]):
            value, target = values[chunks.roots[root]], matched[chunks.members[root]]
            for word in range(wanted):
                target[word] = value[word]


class Graphs(NamedTuple):
    """Programs that are evaluated as they are, for all events at once."""

    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]
    """For each program its row in the result."""
    sides: Regions
    """The sides of leaves that the programs need."""
    guard: NDArray[np.int32]
    """For each of those a variable that must be false as well, or NONE."""
    row: NDArray[np.int32]
    """For side s of leaf i, at 2 * i + s: which of those it is, or NONE."""


@kernel
def deny_guarded(
    guard: NDArray[np.int32], rows: NDArray[np.uint64], side_rows: NDArray[np.uint64]
) -> None:
    """Take from each side the events for which its guard is true."""
    for side in range(len(guard)):
        if guard[side] != NONE:
            for word in range(side_rows.shape[1]):
                side_rows[side, word] &= ~rows[guard[side], word]


@kernel
def evaluate_graphs(
    graphs: Graphs,
    side_rows: NDArray[np.uint64],
    scratch: Scratch,
    stack: NDArray[np.uint64],
    matched: NDArray[np.uint64],
) -> None:
    """Evaluate programs on all events of the rows, only the sides that each step needs."""
    width = side_rows.shape[1]
    for number in range(len(graphs.members)):
        program = graphs.codes[graphs.starts[number] : graphs.starts[number + 1]]
        mark_sides(program, scratch)
        depth = 0
        for place in range(len(program)):
            code, sides = program[place], scratch.sides[place]
            if code >= 0:
                for side in range(2):
                    if sides >> side & 1:
                        row, target = side_rows[graphs.row[2 * code + side]], stack[depth, side]
                        for word in range(width):
                            target[word] = row[word]
                depth += 1
                continue
            op, terms = (-code - 1) % 4, (-code - 1) // 4
            depth -= terms
            true, false = stack[depth, 0], stack[depth, 1]
            if op == OP_NOT:
                for word in range(width):
                    true[word], false[word] = false[word], true[word]
            for term in range(depth + 1, depth + terms):
                other, unlike = stack[term, 0], stack[term, 1]
                if op == OP_XOR:
                    for word in range(width):
                        odd = (true[word] & unlike[word]) | (false[word] & other[word])
                        false[word] = (true[word] & other[word]) | (false[word] & unlike[word])
                        true[word] = odd
                    continue
                if sides & TRUE_SIDE:
                    if op == OP_AND:
                        for word in range(width):
                            true[word] &= other[word]
                    else:
                        for word in range(width):
                            true[word] |= other[word]
                if sides & FALSE_SIDE:
                    if op == OP_AND:
                        for word in range(width):
                            false[word] |= unlike[word]
                    else:
                        for word in range(width):
                            false[word] &= unlike[word]
            depth += 1
        target = matched[graphs.members[number]]
        for word in range(len(target)):
            target[word] = stack[0, 0, word]


@kernel
def count_matches(matched: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
    """Add to each event's count the subscriptions whose bit is set."""
    for row in range(len(matched)):
        for word in range(matched.shape[1]):
            bits, event = matched[row, word], word << 6
            while bits:
                counts[event] += np.int64(bits & np.uint64(1))
                bits >>= np.uint64(1)
                event += 1


@kernel
def list_matches(
    matched: NDArray[np.uint64], places: NDArray[np.int64], members: NDArray[np.int32]
) -> None:
    """Write for each event the rows whose bit is set, from places[event] on, and move that."""
    for row in range(len(matched)):
        for word in range(matched.shape[1]):
            bits, event = matched[row, word], word << 6
            while bits:
                if bits & np.uint64(1):
                    members[places[event]] = row
                    places[event] += 1
                bits >>= np.uint64(1)
                event += 1
