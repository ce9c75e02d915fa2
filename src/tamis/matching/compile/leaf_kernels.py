"""Leaves in columns: numbering those that differ in integers, and finding all their breakpoints."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import kernel, mixed_in
from tamis.matching.compile.hash_kernels import find_run, first_spot, mixed_run, next_spot

# More in one atom are not put in order by a kernel.
MAX_INTEGERS: Final = 32
# Up to here every integer is a float, and so is the next number of either type.
MAX_EXACT: Final = 2**53 - 1

# The breakpoints of a shape: below an integer, above it among all numbers or among integers only;
# a number, and anything else by its number.
BELOW, ABOVE, ABOVE_WHOLE, NUMBER, OTHER = range(5)


class LeafTable(NamedTuple):
    """Leaves as the number of a shape and integers, each leaf once."""

    shape: NDArray[np.int32]
    starts: NDArray[np.int64]
    integers: NDArray[np.int64]
    table: NDArray[np.int32]
    """Open hashing of the leaves."""
    size: NDArray[np.int64]
    """How many there are."""


def new_leaf_table(leaves: int, integers: int) -> LeafTable:
    """Return an empty table for so many leaves with so many integers in all."""
    return LeafTable(
        np.empty(leaves, np.int32),
        np.zeros(leaves + 1, np.int64),
        np.empty(integers, np.int64),
        np.zeros(1 << (2 * leaves).bit_length(), np.int32),
        np.zeros(1, np.int64),
    )


@kernel
def _sort(
    integers: NDArray[np.int64], first: int, last: int, gap: int, ordered: NDArray[np.int64]
) -> bool:
    """Put integers in order unless the gap is 0; return whether they are as their shape needs."""
    for place in range(first, last):
        value, at = integers[place], place - first
        if not -MAX_EXACT <= value <= MAX_EXACT:
            return False
        while gap > 0 and at > 0 and ordered[at - 1] > value:
            ordered[at] = ordered[at - 1]
            at -= 1
        ordered[at] = value
    for at in range(1, last - first):  # noqa: SIM110 - a kernel has no generators
        if ordered[at] - ordered[at - 1] < gap:
            return False
    return True


@kernel
def number_leaves(
    leaves: LeafTable,
    gaps: NDArray[np.int8],
    shapes: NDArray[np.int32],
    starts: NDArray[np.int64],
    integers: NDArray[np.int64],
    numbers: NDArray[np.int32],
) -> None:
    """Find leaves, or add them; there is space. A leaf that is not like its shape has no number."""
    ordered = np.empty(MAX_INTEGERS, np.int64)
    for given in range(len(shapes)):
        shape, numbers[given] = shapes[given], NONE
        first, last = starts[given], starts[given + 1]
        if shape == NONE or not _sort(integers, first, last, gaps[shape], ordered):
            continue
        size = leaves.size[0]
        begin = leaves.starts[size]
        end = begin + last - first
        leaves.integers[begin:end] = integers[first:last]
        spot, known = find_run(
            leaves.table, leaves.shape, leaves.starts, leaves.integers, shape, begin, end
        )
        if known == NONE:
            known = size
            leaves.shape[size], leaves.starts[size + 1] = shape, end
            leaves.table[spot] = size + 1
            leaves.size[0] = size + 1
        numbers[given] = known


@kernel
def enter_leaves(leaves: LeafTable) -> None:
    """Enter all leaves into a table that has none."""
    for number in range(leaves.size[0]):
        first, last = leaves.starts[number], leaves.starts[number + 1]
        spot = first_spot(
            mixed_run(int(leaves.shape[number]), leaves.integers, first, last), leaves.table
        )
        while leaves.table[spot] != 0:
            spot = next_spot(spot, leaves.table)
        leaves.table[spot] = number + 1


class ShapeEnds(NamedTuple):
    """The breakpoints of both sides of every shape."""

    starts: NDArray[np.int64]
    """Side s of shape i has those from starts[2 * i + s] to starts[2 * i + s + 1]."""
    kind: NDArray[np.int8]
    which: NDArray[np.int32]
    """The integer, or the number of what is neither."""
    value: NDArray[np.float64]
    """Of a NUMBER."""
    gap: NDArray[np.int8]
    block: NDArray[np.int32]
    """The attribute of each shape."""


class NumberPoints(NamedTuple):
    """Breakpoints that are numbers, each once."""

    block: NDArray[np.int32]
    value: NDArray[np.float64]
    bits: NDArray[np.int64]
    """The same memory as the values."""
    table: NDArray[np.int32]
    size: NDArray[np.int64]


def new_number_points(most: int) -> NumberPoints:
    """Return space for so many breakpoints."""
    value = np.empty(most + 1, np.float64)
    return NumberPoints(
        np.empty(most + 1, np.int32),
        value,
        value.view(np.int64),
        np.zeros(1 << (2 * most + 1).bit_length(), np.int32),
        np.zeros(1, np.int64),
    )


@kernel
def _point(points: NumberPoints, block: int, value: float) -> int:
    """Return the number of a breakpoint."""
    size = points.size[0]
    # Adding zero makes one zero of the two.
    points.value[size] = value + 0.0
    bits = points.bits[size]
    # The first bits last, since only those of small whole numbers differ.
    mixed = mixed_in(mixed_in(int(block), bits & 0x1F_FFFF), bits >> 21 & 0x1F_FFFF)
    mixed = mixed_in(mixed, bits >> 42)
    spot = first_spot(mixed, points.table)
    while points.table[spot] != 0:
        known = points.table[spot] - 1
        if points.bits[known] == bits and points.block[known] == block:
            return int(known)
        spot = next_spot(spot, points.table)
    points.block[size] = block
    points.table[spot] = size + 1
    points.size[0] = size + 1
    return int(size)


@kernel
def find_ends(
    ends: ShapeEnds,
    shapes: NDArray[np.int32],
    starts: NDArray[np.int64],
    integers: NDArray[np.int64],
    others: int,
    points: NumberPoints,
    found: NDArray[np.int32],
) -> None:
    """Write the breakpoints of both sides of all leaves: numbers come after so many others."""
    ordered = np.empty(MAX_INTEGERS, np.int64)
    written = 0
    for leaf in range(len(shapes)):
        shape = shapes[leaf]
        _sort(integers, starts[leaf], starts[leaf + 1], ends.gap[shape], ordered)
        for place in range(ends.starts[2 * shape], ends.starts[2 * shape + 2]):
            kind, which = ends.kind[place], ends.which[place]
            if kind == OTHER:
                found[written] = which
            else:
                value = ends.value[place]
                if kind != NUMBER:
                    value = np.float64(ordered[which])
                if kind == ABOVE:
                    value = np.nextafter(value, np.inf)
                elif kind == ABOVE_WHOLE:
                    value += 1.0
                found[written] = others + _point(points, ends.block[shape], value)
            written += 1
