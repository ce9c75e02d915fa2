"""Rows of bits: for every region of a line that some filter asks for, the events that lie in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import kernel
from tamis.matching.evaluate.tile_kernels import CellsByAttribute


@kernel
def sort_by_event(
    held: CellsByAttribute,
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


@kernel
def gather_holders(
    texts: NDArray[np.int32],
    events: NDArray[np.int32],
    starts: NDArray[np.int64],
    holders: NDArray[np.int32],
) -> None:
    """Write the events of each text beside each other; `starts` begins as zeros.

    The holders of text t are holders[starts[t]] to holders[starts[t + 1]].
    """
    for text in texts:
        starts[text + 1] += 1
    for text in range(len(starts) - 1):
        starts[text + 1] += starts[text]
    for entry in range(len(texts) - 1, -1, -1):
        end = texts[entry] + 1
        starts[end] -= 1
        holders[starts[end]] = events[entry]
    ends = len(starts) - 1
    for text in range(ends):
        starts[text] = starts[text + 1]
    starts[ends] = len(texts)


@kernel
def mark_holders(
    passed: NDArray[np.int32],
    texts: NDArray[np.int32],
    starts: NDArray[np.int64],
    holders: NDArray[np.int32],
    rows: NDArray[np.bool_],
) -> None:
    """Set, in the row that each text passed, all events that hold the text."""
    for number in range(len(passed)):
        row = passed[number]
        for at in range(starts[texts[number]], starts[texts[number] + 1]):
            rows[row, holders[at]] = True
