"""Cells that must all be held: which of them are rarest, and how an event finds who waits there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel, mixed_in
from tamis.matching.program_kernels import OP_AND


class Meeting(NamedTuple):
    """Where conjunctions wait under several cells at once."""

    kinds: NDArray[np.int32]
    """The attributes, two or three, of each kind of combination; NONE for no third."""
    table: NDArray[np.int32]
    """Open hashing of the combinations, their number plus one, 0 where free."""
    keys: NDArray[np.int64]
    """The cells of each combination."""
    first: NDArray[np.int64]
    """The key of the first combination, as things to wait under are counted."""
    has_threes: NDArray[np.bool_]
    """Whether any combination is of three cells."""


@inlined
def is_conjunction(program: NDArray[np.int32]) -> bool:
    """Tell whether a program is nothing but leaves joined by and, as most of what waits is."""
    last = program[-1]
    return bool(last < 0 and (-last - 1) % 4 == OP_AND and (-last - 1) // 4 == len(program) - 1)


@kernel
def find_rarest_keys(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    leaf_key: NDArray[np.int64],
    leaf_cost: NDArray[np.float64],
    leaf_block: NDArray[np.int32],
    keys: NDArray[np.int64],
    costs: NDArray[np.float64],
) -> None:
    """Find for every conjunction the rarest cells of different attributes, the rarest first.

    `leaf_key` is the one cell that a leaf is true in, or NONE.
    """
    most = keys.shape[1]
    blocks = np.empty(most, np.int32)
    for number in range(len(keys)):
        program = codes[starts[number] : starts[number + 1]]
        if not is_conjunction(program):
            continue
        used = 0
        for leaf in program[:-1]:
            key, cost, block = leaf_key[leaf], leaf_cost[2 * leaf], leaf_block[leaf]
            known = key == NONE
            for place in range(used):
                known = known or blocks[place] == block
            if known:
                continue
            place = used if used < most else most - 1
            if used == most and cost >= costs[number, place]:
                continue
            while place > 0 and costs[number, place - 1] > cost:
                keys[number, place] = keys[number, place - 1]
                costs[number, place] = costs[number, place - 1]
                blocks[place] = blocks[place - 1]
                place -= 1
            keys[number, place], costs[number, place], blocks[place] = key, cost, block
            used = min(used + 1, most)


@inlined
def _spot(one: int, other: int, third: int, mask: int) -> int:
    mixed = mixed_in(mixed_in(mixed_in(1, one), other), third)
    return (mixed ^ (mixed >> 19)) & mask


@kernel
def enter_combinations(keys: NDArray[np.int64], table: NDArray[np.int32]) -> None:
    """Enter combinations, each once, in an empty table."""
    mask = len(table) - 1
    for number in range(len(keys)):
        spot = _spot(keys[number, 0], keys[number, 1], keys[number, 2], mask)
        while table[spot] != 0:
            spot = (spot + 1) & mask
        table[spot] = number + 1


@inlined
def find_combination(
    keys: NDArray[np.int64], table: NDArray[np.int32], one: int, other: int, third: int
) -> int:
    """Return the number of a combination, or NONE."""
    mask = len(table) - 1
    spot = _spot(one, other, third, mask)
    number = NONE
    while table[spot] != 0 and number == NONE:
        entered = table[spot] - 1
        if keys[entered, 0] == one and keys[entered, 1] == other and keys[entered, 2] == third:
            number = entered
        spot = (spot + 1) & mask
    return int(number)
