"""Memory for rows of bits, at the bounds of cache lines, and used again for results.

A vector that lies across two lines is two accesses: rows at odd places make a batch half as slow
again. A batch against many subscriptions gives tens of megabytes of bits. Fresh memory of that size
comes from the system page by page, which can take as long as the evaluation itself, so a result
takes the memory of an earlier one that nobody holds any more.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Smaller results are left to the allocator, which keeps them itself.
MIN_KEPT_BYTES: Final = 1 << 20
MAX_KEPT_BLOCKS: Final = 2

CACHE_LINE_BYTES: Final = 64
_SPARE: Final = CACHE_LINE_BYTES // 8 - 1

# References to a block that is free: in the list, in the loop, and in the question itself.
_FREE: Final = 3


def zero_rows(rows: int, words: int) -> NDArray[np.uint64]:
    """Return an array without a bit."""
    size = rows * words
    return _aligned(np.zeros(size + _SPARE, np.uint64), size).reshape(rows, words)


class Memory:
    """A few blocks of memory; arrays made of a block keep it in use for as long as they live."""

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.uint64]] = []
        self._lock = Lock()

    def array(self, rows: int, words: int) -> NDArray[np.uint64]:
        """Return an array with whatever it holds."""
        size = rows * words
        if size * 8 < MIN_KEPT_BYTES:
            return np.empty((rows, words), np.uint64)
        with self._lock:
            return _aligned(self._block(size + _SPARE), size).reshape(rows, words)

    def _block(self, size: int) -> NDArray[np.uint64]:
        for block in self._blocks:
            if len(block) >= size and sys.getrefcount(block) == _FREE:
                return block
        fresh = np.empty(size, np.uint64)
        # The oldest goes; who still holds an array of it keeps it alive.
        self._blocks = [*self._blocks[-(MAX_KEPT_BLOCKS - 1) :], fresh]
        return fresh


def _aligned(block: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    first = -block.ctypes.data % CACHE_LINE_BYTES // 8
    return block[first : first + size]
