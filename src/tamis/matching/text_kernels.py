"""From the texts that pass tests to the events that hold those texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.jit import kernel


@kernel
def mark_holders(
    passed: NDArray[np.int32],
    texts: NDArray[np.int32],
    starts: NDArray[np.int64],
    holders: NDArray[np.int32],
    rows: NDArray[np.bool_],
) -> None:
    """Set, in the row that each text passed, all events that hold the text.

    The holders of text t are holders[starts[t]] to holders[starts[t + 1]].
    """
    for number in range(len(passed)):
        row = passed[number]
        for at in range(starts[texts[number]], starts[texts[number] + 1]):
            rows[row, holders[at]] = True
