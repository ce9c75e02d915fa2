"""Open hashing: a table holds numbers plus one, 0 where it is free, and is a power of two long."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel, mixed_in


@inlined
def first_spot(mixed: int, table: NDArray[np.int32]) -> int:
    """Return where in a table to look first for what has this hash."""
    return (mixed ^ (mixed >> 19)) & (len(table) - 1)


@inlined
def next_spot(spot: int, table: NDArray[np.int32]) -> int:
    """Return where to look next."""
    return (spot + 1) & (len(table) - 1)


@inlined
def mixed_run(mixed: int, values: NDArray[np.integer], first: int, last: int) -> int:
    """Return a hash with a run of values in it."""
    for place in range(first, last):
        mixed = mixed_in(mixed, values[place])
    return mixed


@inlined
def is_same_run(values: NDArray[np.integer], one: int, other: int, length: int) -> bool:
    """Return whether two runs of values are the same."""
    offset = 0
    while offset < length and values[one + offset] == values[other + offset]:
        offset += 1
    return offset == length


@kernel
def find_run(
    table: NDArray[np.int32],
    heads: NDArray[np.generic],
    starts: NDArray[np.integer],
    values: NDArray[np.integer],
    head: int,
    first: int,
    last: int,
) -> tuple[int, int]:
    """Look for the entry that has this head and the same run as values[first:last].

    Entry e has heads[e] and values[starts[e] : starts[e + 1]]. Returns the spot and the entry, or
    the free spot and NONE.
    """
    spot = first_spot(mixed_run(int(head), values, first, last), table)
    while table[spot] != 0:
        entry = table[spot] - 1
        start = starts[entry]
        same = heads[entry] == head and starts[entry + 1] - start == last - first
        if same and is_same_run(values, start, first, last - first):
            return spot, entry
        spot = next_spot(spot, table)
    return spot, NONE
