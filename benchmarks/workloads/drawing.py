"""Random choices that NumPy does not have."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def distinct(rng: np.random.Generator, rows: int, choices: int, width: int) -> NDArray[np.int32]:
    """Return rows of different numbers below `choices`, ascending."""
    drawn = np.empty((rows, width), np.int32)
    if width**2 > 2 * choices:
        # Few rows would be without repetition: shuffle all choices instead.
        every = np.tile(np.arange(choices, dtype=np.int32), (rows, 1))
        drawn[:] = np.sort(rng.permuted(every, axis=1)[:, :width], axis=1)
        return drawn
    again = np.arange(rows)
    while len(again):
        drawn[again] = np.sort(rng.integers(choices, size=(len(again), width)), axis=1)
        again = again[np.any(drawn[again, 1:] == drawn[again, :-1], axis=1)]
    return drawn


def zipf(rng: np.random.Generator, size: int, choices: int, exponent: float) -> NDArray[np.int64]:
    """Return numbers below `choices`, the r-th with a weight of r ** -exponent."""
    weights = np.cumsum(np.arange(1, choices + 1, dtype=np.float64) ** -exponent)
    found: NDArray[np.int64] = np.searchsorted(
        weights, rng.random(size) * weights[-1], side="right"
    )
    return found
