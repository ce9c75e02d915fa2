"""Programs: filters in postfix, and which sides of their steps a result needs.

A code of 0 or more is a leaf, a negative one an operator with its number of terms. Every step has
two sides, where it is true and where it is false; with unknown between them, one is not the other's
complement. Only the sides that the root's truth needs are worked out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import inlined, kernel

# Operators of a program.
OP_AND, OP_OR, OP_XOR, OP_NOT = range(4)

TRUE_SIDE: Final = 1
FALSE_SIDE: Final = 2


# The operator of a step that is none.
LEAF: Final = -1


def operator_code(op: int, terms: int) -> int:
    """Return the code of an operator that joins the last `terms` results."""
    return -(terms * 4 + op) - 1


code_of: Final = inlined(operator_code)
"""The same inside of a kernel."""


def operator_in(code: int) -> int:
    """Return the operator of a code, LEAF if it is a leaf."""
    return LEAF if code >= 0 else (-code - 1) % 4


def terms_in(code: int) -> int:
    """Return how many results a code joins; none if it is a leaf."""
    return 0 if code >= 0 else (-code - 1) // 4


operator_of: Final = inlined(operator_in)
terms_of: Final = inlined(terms_in)
"""The same inside of a kernel."""


@inlined
def read_step(code: int, depth: int) -> tuple[int, int]:
    """Read one step of a walk with a stack of `depth` results.

    Returns the operator, or LEAF, and the place of its first term on the stack. Its terms are the
    results from there on; its own result takes the first one's place.
    """
    if code >= 0:
        return LEAF, depth
    return (-code - 1) % 4, depth - (-code - 1) // 4


class Leaves(NamedTuple):
    """The two sides of every leaf: some cells of an attribute, or one predicate."""

    starts: NDArray[np.int32]
    """Side s of leaf i has the breakpoints variables[starts[2 * i + s] : starts[2 * i + s + 1]]."""
    variables: NDArray[np.int32]
    begins_inside: NDArray[np.bool_]
    """Whether what lies below the first breakpoint is inside; for 2 * i + s."""
    guard: NDArray[np.int32]
    """A variable that must be false as well, or NONE; for 2 * i + s."""
    block: NDArray[np.int32]
    """The attribute whose cells the leaf is about, or NONE; for i."""
    node: NDArray[np.int32]
    """The node, once it was built, or NONE; for 2 * i + s."""


def gather_parts(
    starts: NDArray[np.integer], rows: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where the parts of some rows begin once concatenated, and where they were."""
    first, last = starts[rows], starts[rows + 1]
    together = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(last - first, out=together[1:])
    return together, np.repeat(first - together[:-1], last - first) + np.arange(together[-1])


class Scratch(NamedTuple):
    """Memory for one program at a time."""

    parent: NDArray[np.int32]
    sides: NDArray[np.int8]
    stack: NDArray[np.int32]
    when_true: NDArray[np.int32]
    when_false: NDArray[np.int32]


def new_scratch(longest: int) -> Scratch:
    """Return memory for programs of up to `longest` codes."""
    return Scratch(
        parent=np.empty(longest, np.int32),
        sides=np.empty(longest, np.int8),
        stack=np.empty(longest + 1, np.int32),
        when_true=np.empty(longest + 1, np.int32),
        when_false=np.empty(longest + 1, np.int32),
    )


@kernel
def mark_sides(program: NDArray[np.int32], scratch: Scratch) -> None:
    """Mark for every step the sides that the truth of the last step needs."""
    depth = 0
    for place in range(len(program)):
        _, first = read_step(program[place], depth)
        for term in range(first, depth):
            scratch.parent[scratch.stack[term]] = place
        scratch.stack[first] = place
        depth = first + 1
    scratch.sides[len(program) - 1] = TRUE_SIDE
    for place in range(len(program) - 2, -1, -1):
        above = scratch.parent[place]
        op = operator_of(program[above])
        wanted = scratch.sides[above]
        if op == OP_XOR:
            wanted = TRUE_SIDE | FALSE_SIDE
        elif op == OP_NOT:
            wanted = (wanted & 1) << 1 | wanted >> 1
        scratch.sides[place] = wanted


@kernel
def mark_needed_sides(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    scratch: Scratch,
    needed: NDArray[np.bool_],
) -> None:
    """Mark the sides of leaves that the truth of some programs needs."""
    for number in range(len(starts) - 1):
        program = codes[starts[number] : starts[number + 1]]
        mark_sides(program, scratch)
        for place in range(len(program)):
            if program[place] >= 0:
                for side in range(2):
                    if scratch.sides[place] >> side & 1:
                        needed[2 * program[place] + side] = True
