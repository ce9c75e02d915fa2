"""Events that hold several values: test every leaf on every value, then run the programs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import kernel
from tamis.matching.compile.program_kernels import LEAF, OP_AND, OP_NOT, OP_OR, Leaves, read_step


class Lanes(NamedTuple):
    """The values of some events, for each attribute an entry per value."""

    starts: NDArray[np.int64]
    """For attribute b, its entries are starts[b] to starts[b + 1]."""
    lanes: NDArray[np.int32]
    cells: NDArray[np.int32]
    first: NDArray[np.int32]
    """For each attribute its first variable; variable v is the breakpoint above cell v - first."""


@kernel
def _lies_inside(leaves: Leaves, index: int, first: int, cell: int) -> bool:
    inside = bool(leaves.begins_inside[index])
    for number in range(leaves.starts[index], leaves.starts[index + 1]):
        if leaves.variables[number] - first < cell:
            inside = not inside
    return inside


@kernel
def set_leaf_rows(
    leaves: Leaves,
    lanes: Lanes,
    rows: NDArray[np.uint64],
    when_true: NDArray[np.uint64],
    when_false: NDArray[np.uint64],
) -> None:
    """Fill the rows of every leaf for events with several values; one passing value is enough.

    A leaf is false where a value lies on one of its sides and none makes it true.
    """
    for leaf in range(len(leaves.block)):
        block = leaves.block[leaf]
        if block == NONE:
            for side, target in ((2 * leaf, when_true[leaf]), (2 * leaf + 1, when_false[leaf])):
                if leaves.starts[side] == leaves.starts[side + 1]:
                    target[:] = ~np.uint64(0) if leaves.begins_inside[side] else np.uint64(0)
                else:
                    target[:] = rows[leaves.variables[leaves.starts[side]]]
                if leaves.guard[side] != NONE:
                    target[:] = ~rows[leaves.guard[side]]
            continue
        guard = leaves.guard[2 * leaf + 1]
        for entry in range(lanes.starts[block], lanes.starts[block + 1]):
            lane, cell = lanes.lanes[entry], lanes.cells[entry]
            bit = np.uint64(1) << np.uint64(lane & 63)
            if guard == NONE and _lies_inside(leaves, 2 * leaf, lanes.first[block], cell):
                when_true[leaf, lane >> 6] |= bit
            elif _lies_inside(leaves, 2 * leaf + 1, lanes.first[block], cell):
                when_false[leaf, lane >> 6] |= bit
        if guard != NONE:
            when_true[leaf] = rows[guard]
        for word in range(when_true.shape[1]):
            when_false[leaf, word] &= ~when_true[leaf, word]


@kernel
def evaluate_programs(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    when_true: NDArray[np.uint64],
    when_false: NDArray[np.uint64],
    stack: NDArray[np.uint64],
    truths: NDArray[np.uint64],
) -> None:
    """Evaluate every program on words of its leaves, and write for which events it is true.

    The stack holds two words for each step: where it is true, and where it is false.
    """
    for number in range(len(truths)):
        depth = 0
        for place in range(starts[number], starts[number + 1]):
            code = codes[place]
            op, first = read_step(code, depth)
            true, false = stack[first, 0], stack[first, 1]
            if op == LEAF:
                true, false = when_true[code], when_false[code]
            elif op == OP_NOT:
                true, false = false, true
            for term in range(first + 1, depth):
                other, unlike = stack[term, 0], stack[term, 1]
                if op == OP_AND:
                    true, false = true & other, false | unlike
                elif op == OP_OR:
                    true, false = true | other, false & unlike
                else:
                    true, false = (
                        (true & unlike) | (false & other),
                        (true & other) | (false & unlike),
                    )
            stack[first, 0], stack[first, 1] = true, false
            depth = first + 1
        truths[number] = stack[0, 0]
