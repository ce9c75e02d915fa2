"""Aligned memory for rows of bits; results use the memory of earlier results again.

A vector that lies across two cache lines takes two accesses: rows at odd places make a batch half
as slow again. A batch against many subscriptions gives tens of megabytes of bits. Fresh memory of
that size comes from the system page by page, which can take as long as the evaluation itself.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Smaller results are left to the allocator, which keeps their memory itself.
MIN_KEPT_BYTES: Final = 1 << 20
MAX_KEPT_BLOCKS: Final = 2

CACHE_LINE_BYTES: Final = 64
_SPARE_WORDS: Final = CACHE_LINE_BYTES // 8 - 1


def zero_rows(rows: int, words: int) -> NDArray[np.uint64]:
    """Return an array without a bit."""
    size = rows * words
    return _aligned(np.zeros(size + _SPARE_WORDS, np.uint64), size).reshape(rows, words)


class Memory:
    """A few free blocks of memory; a block comes back when the last array made of it is gone."""

    def __init__(self) -> None:
        # Several threads take and return blocks; both are one step of a deque.
        self._free: deque[NDArray[np.uint64]] = deque(maxlen=MAX_KEPT_BLOCKS)

    def array(self, *shape: int) -> NDArray[np.uint64]:
        """Return an array with arbitrary content."""
        size = int(np.prod(shape))
        try:
            block = self._free.pop()
        except IndexError:
            block = np.empty(0, np.uint64)
        if len(block) < size + _SPARE_WORDS:
            block = np.empty(size + _SPARE_WORDS, np.uint64)
        # Views keep the array they are made of alive, down to the first that is no view of another
        # array. That is this one, because its memory belongs to a memoryview.
        lease = np.frombuffer(block.data, np.uint64)
        weakref.finalize(lease, self._free.append, block).atexit = False
        return _aligned(lease, size).reshape(shape)


def _aligned(block: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    first = -block.ctypes.data % CACHE_LINE_BYTES // 8
    return block[first : first + size]
