"""The matches of a batch with one compiled set, as arrays, and the memory of their bits.

Rows are aligned: a vector that lies across two cache lines takes two accesses, and rows at odd
places make a batch half as slow again. A batch against many subscriptions gives tens of megabytes
of bits. Fresh memory of that size comes from the system page by page, which can take as long as the
evaluation itself, so results reuse the memory of earlier results.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bitmap = NDArray[np.uint64]


class SegmentMatches(NamedTuple):
    """The matches of one compiled set: bits of unindexed subscriptions, lists of the others."""

    unindexed: NDArray[np.int32]
    """The subscription of each row of the bitmap."""
    bitmap: Bitmap
    """For each tile of events and each of these subscriptions, one bit per event.

    Tiles are consecutive in memory, because they are written and read that way.
    """
    ends: NDArray[np.int64]
    """Where the part of each event in `indexed` ends."""
    indexed: NDArray[np.int32]
    """The matching indexed subscriptions, event after event."""

    def events(self) -> NDArray[np.int64]:
        """Return the event of each match of an indexed subscription."""
        return np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))

    def set_bits(self, event: int, rows: NDArray[np.integer], holds: NDArray[np.bool_]) -> None:
        """Set which of some rows of the bitmap an event matches."""
        tile, word = divmod(event >> 6, self.bitmap.shape[2])
        bit = np.uint64(1) << np.uint64(event & 63)
        column = self.bitmap[tile, rows, word]
        self.bitmap[tile, rows, word] = np.where(holds, column | bit, column & ~bit)

    def without(self, events: Iterable[int]) -> SegmentMatches:
        """Return the matches without those of some events.

        A refused event is empty in its batch, but must not match filters that absent attributes
        satisfy.
        """
        rows = np.arange(len(self.unindexed))
        refused, nothing = np.zeros(len(self.ends), np.bool_), np.zeros(len(rows), np.bool_)
        for event in events:
            refused[event] = True
            self.set_bits(event, rows, nothing)
        holders = self.events()
        kept = ~refused[holders]
        counts = np.bincount(holders[kept], minlength=len(refused))
        return self._replace(ends=np.cumsum(counts), indexed=self.indexed[kept])

    def rows_in_force(self, in_force: NDArray[np.bool_]) -> tuple[NDArray[np.int32], Bitmap]:
        """Return the subscriptions in force that have a row, and the rows, tile by tile."""
        rows = in_force[self.unindexed]
        return self.unindexed[rows], self.bitmap[:, rows]

    def whole_bitmap(self, count: int) -> Bitmap:
        """Return a row for each of `count` subscriptions, with its tiles side by side."""
        words = -(-len(self.ends) // 64)
        whole = np.zeros((count, words), np.uint64)
        width = self.bitmap.shape[2]
        for number, tile in enumerate(self.bitmap):
            first = number * width
            whole[self.unindexed, first : first + width] = tile[:, : words - first]
        events = self.events()
        bits = np.uint64(1) << (events & 63).astype(np.uint64)
        np.bitwise_or.at(whole, (self.indexed, events >> 6), bits)
        return whole


# --- memory ---------------------------------------------------------------------------------------


# Smaller results are left to the allocator, which keeps their memory itself.
MIN_KEPT_BYTES: Final = 1 << 20
MAX_KEPT_BLOCKS: Final = 2

CACHE_LINE_BYTES: Final = 64
_SPARE_WORDS: Final = CACHE_LINE_BYTES // 8 - 1


def zero_rows(rows: int, words: int) -> NDArray[np.uint64]:
    """Return aligned rows of zeros."""
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
