"""Sets of filters by number, which kernels read as marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

FilterNumber = int
"""The number of a filter in the index; equal filters may share theirs."""

FIRST_CAPACITY: Final = 64


class FilterSet:
    """Some filters of an index, in the order in which they came.

    >>> some = FilterSet()
    >>> some.add(3)
    >>> 3 in some, len(some), some.marks(5).tolist()[:5]
    (True, 1, [0, 0, 0, 1, 0])
    """

    def __init__(self) -> None:
        self._numbers: Final[dict[FilterNumber, None]] = {}
        self._marks: NDArray[np.uint8] = np.zeros(FIRST_CAPACITY, np.uint8)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    def __iter__(self) -> Iterator[FilterNumber]:
        return iter(self._numbers)

    def add(self, number: FilterNumber) -> None:
        """Add a filter."""
        self.marks(number + 1)[number] = 1
        self._numbers[number] = None

    def discard(self, number: FilterNumber) -> None:
        """Remove a filter, if it is there."""
        if number in self._numbers:
            del self._numbers[number]
            self._marks[number] = 0

    def common(self, other: FilterSet) -> list[FilterNumber]:
        """Return the filters that another set has too, in order of their numbers."""
        return sorted(self._numbers.keys() & other._numbers.keys())

    def marks(self, size: int) -> NDArray[np.uint8]:
        """Return a mark for each number below a limit, and perhaps for more."""
        if size > len(self._marks):
            more = np.zeros(max(size, 2 * len(self._marks)), np.uint8)
            more[: len(self._marks)] = self._marks
            self._marks = more
        return self._marks
