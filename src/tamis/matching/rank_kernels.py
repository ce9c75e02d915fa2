"""Ranks of numbers among cuts at whole numbers, by looking them up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import kernel


class RankTable(NamedTuple):
    """How many cuts have been passed at each whole number, and right after it."""

    low: NDArray[np.float64]
    """The first whole number."""
    at: NDArray[np.int32]
    over: NDArray[np.int32]


@kernel
def look_up(table: RankTable, values: NDArray[np.float64], passed: NDArray[np.int32]) -> None:
    """Write for each value how many cuts it has passed."""
    low, at, over = table.low[0], table.at, table.over
    for place in range(len(values)):
        whole = np.floor(values[place])
        if whole < low:
            passed[place] = 0
        elif whole - low >= len(at):
            passed[place] = over[-1]
        else:
            number = int(whole - low)
            passed[place] = at[number] if whole == values[place] else over[number]
