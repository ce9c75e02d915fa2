"""Regions: the sets of cells that diagrams and graph test, each numbered once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import kernel, mixed_in
from tamis.matching.compile.hash_kernels import first_spot, is_same_run, mixed_run, next_spot


class Regions(NamedTuple):
    """What diagrams and graph test: cells of an attribute, or a predicate; attribute by attribute.

    Variables are counted from the first of their attribute.
    """

    of_block: NDArray[np.int32]
    """Attribute b has the regions of_block[b] to of_block[b + 1]; constants come last."""
    starts: NDArray[np.int64]
    """Region r changes at the variables breakpoints[starts[r] : starts[r + 1]]."""
    begins: NDArray[np.bool_]
    breakpoints: NDArray[np.int32]
    guard: NDArray[np.int32]
    """A predicate that must not hold as well, or NONE."""


class VariableCounts(NamedTuple):
    """How many variables each attribute has."""

    breakpoints: NDArray[np.int32]
    """For each attribute the number of breakpoints."""
    predicates: NDArray[np.int32]
    """Attribute b has the predicates predicates[b] to predicates[b + 1]."""


@kernel
def number_regions(
    starts: NDArray[np.int64],
    begins: NDArray[np.bool_],
    breakpoints: NDArray[np.int32],
    guard: NDArray[np.int32],
    table: NDArray[np.int32],
    firsts: NDArray[np.int32],
    numbers: NDArray[np.int32],
) -> int:
    """Number regions so that equal ones have one number; write the first region of each.

    `table` is open hashing of numbers plus one, 0 where free, a power of two long.
    """
    count = 0
    for region in range(len(begins)):
        first, last = starts[region], starts[region + 1]
        mixed = mixed_in(1 if begins[region] else 0, guard[region])
        spot = first_spot(mixed_run(mixed, breakpoints, first, last), table)
        number = NONE
        while table[spot] != 0 and number == NONE:
            other = firsts[table[spot] - 1]
            start = starts[other]
            same = begins[other] == begins[region] and guard[other] == guard[region]
            same = same and starts[other + 1] - start == last - first
            if same and is_same_run(breakpoints, start, first, last - first):
                number = table[spot] - 1
            spot = next_spot(spot, table)
        if number == NONE:
            number = count
            table[spot] = number + 1
            firsts[number] = region
            count += 1
        numbers[region] = number
    return count
