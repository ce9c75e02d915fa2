"""From the texts that pass tests to the events that hold those texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.jit import kernel


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
