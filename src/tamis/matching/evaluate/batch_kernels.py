"""From the columns of a batch: cells by event, ranks of numbers, events that hold texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import kernel
from tamis.matching.evaluate.tile_kernels import CellsByAttribute


@kernel
def sort_by_event(
    batch: CellsByAttribute,
    starts: NDArray[np.int64],
    blocks: NDArray[np.int32],
    cells: NDArray[np.int32],
) -> None:
    """Write the cells of a batch event by event; `starts` must be zeros."""
    for event in batch.events:
        starts[event + 1] += 1
    for event in range(len(starts) - 1):
        starts[event + 1] += starts[event]
    for block in range(len(batch.starts) - 1):
        for entry in range(batch.starts[block], batch.starts[block + 1]):
            place = starts[batch.events[entry]]
            starts[batch.events[entry]] = place + 1
            blocks[place], cells[place] = block, batch.cells[entry]
    for event in range(len(starts) - 1, 0, -1):
        starts[event] = starts[event - 1]
    starts[0] = 0


class RankTable(NamedTuple):
    """The number of breakpoints up to each whole number, and just above it."""

    low: NDArray[np.float64]
    """The first whole number."""
    at: NDArray[np.int32]
    over: NDArray[np.int32]


@kernel
def look_up(table: RankTable, values: NDArray[np.float64], passed: NDArray[np.int32]) -> None:
    """Write for each value how many breakpoints lie at or below it."""
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
    """Group the events by their text; `starts` must be zeros.

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
    """Set, in each row that a text passes, the events that hold the text."""
    for number in range(len(passed)):
        row = passed[number]
        for at in range(starts[texts[number]], starts[texts[number] + 1]):
            rows[row, holders[at]] = True
