"""Evaluating every subscription: three-valued code with jumps over decided operands."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.truths import FALSE, TRUE, UNKNOWN, holds
from benchmarks.workloads.forms import AND, NOT, OR, XOR, Predicates, Programs, Rows
from tamis.jit import kernel

# Instructions beside the predicates. A fold is `-1 - op` and joins the two upper values; a jump
# is `_JUMP - op` and leaves the connective when the value so far decides it. Its distance follows.
_NOT: Final = -1 - NOT
_JUMP: Final = -5
_JUMP_UNLESS_TRUE: Final = -8


class Code(NamedTuple):
    """Instructions of all subscriptions."""

    predicates: Predicates
    instruction: NDArray[np.int32]
    start: NDArray[np.int64]


class Values(NamedTuple):
    """An event as a row over all attributes."""

    value: NDArray[np.float64]
    event: NDArray[np.int64]
    """The event that set the value; values of other events count as absent."""
    stack: NDArray[np.uint8]


class _Tree(NamedTuple):
    """The tokens of one program: what each is an operand of, and what that means for jumps."""

    stack: NDArray[np.int64]
    parent: NDArray[np.int64]
    order: NDArray[np.int64]
    last_jump: NDArray[np.int64]
    """Of a connective: the jump that leaves it, which holds the place of the one before it."""
    only_true_counts: NDArray[np.bool_]
    """Nothing above is a negation or a parity, so that unknown is as good as false."""


@kernel
def compile_programs(
    programs: Programs, longest: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return programs with a fold after each operand, and a jump where it may decide."""
    # A token becomes itself or nothing, a fold, and a jump of two.
    out = np.empty(4 * len(programs.code), np.int32)
    start = np.zeros(len(programs.start), np.int64)
    tree = _Tree(
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.int64),
        np.empty(longest, np.bool_),
    )
    end = 0
    for program in range(len(start) - 1):
        code = programs.code[programs.start[program] : programs.start[program + 1]]
        _find_parents(code, tree)
        for place in range(len(code)):
            if code[place] >= 0 or (-1 - code[place]) & 3 == NOT:
                out[end] = code[place] if code[place] >= 0 else _NOT
                end += 1
            else:
                jump = tree.last_jump[place]
                while jump >= 0:
                    before = out[jump]
                    out[jump] = end - jump
                    jump = before if before < 0 else jump - before
            end = _after_operand(code, tree, place, out, end)
        start[program + 1] = end
    return out[:end].copy(), start


@kernel
def _find_parents(code: NDArray[np.int32], tree: _Tree) -> None:
    depth = 0
    for place in range(len(code)):
        tree.last_jump[place] = -1
        if code[place] < 0:
            operands = (-1 - code[place]) >> 2
            depth -= operands
            for number in range(operands):
                tree.parent[tree.stack[depth + number]] = place
                tree.order[tree.stack[depth + number]] = number
        tree.stack[depth] = place
        depth += 1
    tree.parent[len(code) - 1] = -1
    tree.only_true_counts[len(code) - 1] = True
    for place in range(len(code) - 2, -1, -1):
        above = tree.parent[place]
        op = (-1 - code[above]) & 3
        tree.only_true_counts[place] = tree.only_true_counts[above] and op <= OR


@kernel
def _after_operand(
    code: NDArray[np.int32], tree: _Tree, place: int, out: NDArray[np.int32], end: int
) -> int:
    """Write the fold and the jump that follow an operand, and return where the code ends now."""
    above = tree.parent[place]
    if above < 0:
        return end
    op, operands = (-1 - code[above]) & 3, (-1 - code[above]) >> 2
    if op == NOT:
        return end
    if tree.order[place] > 0:
        out[end] = -1 - op
        end += 1
    if tree.order[place] < operands - 1:
        out[end] = _JUMP - op
        if op == AND and tree.only_true_counts[above]:
            out[end] = _JUMP_UNLESS_TRUE
        # Until its distance is known, how far back the jump before it is.
        before = tree.last_jump[above]
        out[end + 1] = end + 1 - before if before >= 0 else -1
        tree.last_jump[above] = end + 1
        end += 2
    return end


@kernel
def truth_of(code: Code, program: int, values: Values, now: int) -> int:
    """Run one program on the event that `values` holds."""
    stack = values.stack
    place, end = code.start[program], code.start[program + 1]
    depth = 0
    while place < end:
        token = code.instruction[place]
        place += 1
        if token >= 0:
            attribute = code.predicates.attribute[token]
            stack[depth] = UNKNOWN
            if values.event[attribute] == now:
                stack[depth] = holds(code.predicates, token, values.value[attribute])
            depth += 1
        elif token == _JUMP_UNLESS_TRUE:
            place += code.instruction[place] if stack[depth - 1] != TRUE else 1
        elif token <= _JUMP:
            # AND is decided by false, OR by true and XOR by unknown, which have their numbers.
            place += code.instruction[place] if stack[depth - 1] == _JUMP - token else 1
        elif token == _NOT:
            if stack[depth - 1] != UNKNOWN:
                stack[depth - 1] = TRUE - stack[depth - 1]
        else:
            depth -= 1
            stack[depth - 1] = _folded(-1 - token, stack[depth - 1], stack[depth])
    return int(stack[0])


@kernel
def _folded(op: int, one: int, other: int) -> int:
    if op == XOR:
        return UNKNOWN if one == UNKNOWN or other == UNKNOWN else one ^ other
    decisive = FALSE if op == AND else TRUE
    if one == decisive or other == decisive:
        return decisive
    return UNKNOWN if one == UNKNOWN or other == UNKNOWN else TRUE - decisive


@kernel
def match_event(
    code: Code, rows: Rows, event: int, values: Values, now: int, out: NDArray[np.int32]
) -> int:
    """Write the subscriptions that an event satisfies, and return how many they are."""
    for place in range(rows.start[event], rows.start[event + 1]):
        values.value[rows.attribute[place]] = rows.value[place]
        values.event[rows.attribute[place]] = now
    matched = 0
    for program in range(len(code.start) - 1):
        if truth_of(code, program, values, now) == TRUE:
            out[matched] = program
            matched += 1
    return matched
