"""Memory for results, used again once nobody holds the last result any more.

A batch against many subscriptions gives tens of megabytes of bits. Fresh memory of that size comes
from the system page by page, which can take as long as the evaluation itself.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Smaller results are left to the allocator, which keeps them itself.
WORTH_KEEPING: Final = 1 << 20
MOST_KEPT: Final = 2

# References to a block that is free: in the list, in the loop, and in the question itself.
_FREE: Final = 3


class Memory:
    """A few blocks of memory; arrays made of a block keep it in use for as long as they live."""

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.uint64]] = []
        self._lock = Lock()

    def array(self, rows: int, words: int) -> NDArray[np.uint64]:
        """Return an array with whatever it holds."""
        size = rows * words
        if size * 8 < WORTH_KEEPING:
            return np.empty((rows, words), np.uint64)
        with self._lock:
            return self._block(size)[:size].reshape(rows, words)

    def _block(self, size: int) -> NDArray[np.uint64]:
        for block in self._blocks:
            if len(block) >= size and sys.getrefcount(block) == _FREE:
                return block
        fresh = np.empty(size, np.uint64)
        # The oldest goes; who still holds an array of it keeps it alive.
        self._blocks = [*self._blocks[-(MOST_KEPT - 1) :], fresh]
        return fresh
