"""Columns of numbers that rows join and leave, searched with NumPy."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.value_order import NUMBERS, Breakpoint, Interval

FIRST_ROWS: Final = 8

K = TypeVar("K", bound=Hashable)


def is_numeric(interval: Interval) -> bool:
    """Return whether all positions of an interval are numbers."""
    low, high = interval
    return low[0] == NUMBERS and (high[0] == NUMBERS or high == (NUMBERS + 1,))


def low_number(point: Breakpoint) -> float:
    """Return the lower end of an interval of numbers, rounded."""
    return float(point[1]) if len(point) == 2 else -np.inf


def high_number(point: Breakpoint) -> float:
    """Return the upper end of an interval of numbers, rounded."""
    return float(point[1]) if len(point) == 2 else np.inf


class RangeColumn(Generic[K]):
    """Intervals of numbers, and the keys that they belong to.

    Numbers are rounded to floats. Rounding keeps the order, so closed intervals of rounded ends
    contain every rounded number that lies inside: there may be too many answers, never too few.
    """

    def __init__(self) -> None:
        self._low: NDArray[np.float64] = np.empty(FIRST_ROWS)
        self._high: NDArray[np.float64] = np.empty(FIRST_ROWS)
        self._keys: list[K] = []
        self._rows: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> list[K]:
        """Return all keys."""
        return self._keys

    def add(self, key: K, low: float, high: float) -> None:
        """Add an interval."""
        row = len(self._keys)
        if row == len(self._low):
            self._low = np.concatenate((self._low, np.empty(row)))
            self._high = np.concatenate((self._high, np.empty(row)))
        self._low[row], self._high[row] = low, high
        self._keys.append(key)
        self._rows[key] = row

    def remove(self, key: K) -> None:
        """Remove an interval; the last one takes its place."""
        row, last = self._rows.pop(key), self._keys.pop()
        if last != key:
            end = len(self._keys)
            self._low[row], self._high[row] = self._low[end], self._high[end]
            self._keys[row] = last
            self._rows[last] = row

    def meeting(self, low: float, high: float) -> list[K]:
        """Return the keys of the intervals that have something in common with another."""
        end = len(self._keys)
        rows = np.flatnonzero((self._low[:end] <= high) & (self._high[:end] >= low))
        if len(rows) == end:
            return self._keys
        keys = self._keys
        return [keys[row] for row in rows.tolist()]
