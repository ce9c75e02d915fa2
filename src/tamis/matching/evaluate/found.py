"""Which events of a batch match which subscriptions of a compiled set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bitmap = NDArray[np.uint64]


class Found(NamedTuple):
    """Matches in two forms: bits of those that are evaluated for all events, lists of the rest."""

    unindexed: NDArray[np.int32]
    """The subscription of each row of the bitmap."""
    bitmap: Bitmap
    """For each tile of events and each of those the events that match, a bit each: tiles lie one
    after the other in memory, because that is how they are written and read."""
    ends: NDArray[np.int64]
    """For each event where its part of `waiting` ends."""
    waiting: NDArray[np.int32]
    """The other subscriptions that match, event after event."""

    def without(self, events: Iterable[int]) -> Found:
        """Return the same without the matches of some events.

        An event that was refused is empty here; that it lacks everything must match nothing.
        """
        refused, everyone = np.zeros(len(self.ends), np.bool_), np.arange(len(self.unindexed))
        for event in events:
            refused[event] = True
            self.set_unindexed(event, np.zeros(len(self.unindexed), np.bool_), everyone)
        holders = self.indexed_events()
        kept = ~refused[holders]
        counts = np.bincount(holders[kept], minlength=len(self.ends))
        return self._replace(ends=np.cumsum(counts), waiting=self.waiting[kept])

    def indexed_events(self) -> NDArray[np.int64]:
        """Return the event of each of the waiting subscriptions."""
        return np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))

    def whole_rows(self) -> Bitmap:
        """Return the bitmap with the tiles of each row side by side."""
        words = -(-len(self.ends) // 64)
        rows = np.empty((len(self.unindexed), words), np.uint64)
        width = self.bitmap.shape[2]
        for number, tile in enumerate(self.bitmap):
            first = number * width
            rows[:, first : first + width] = tile[:, : words - first]
        return rows

    def set_unindexed(
        self, event: int, holds: NDArray[np.bool_], rows: NDArray[np.integer]
    ) -> None:
        """Set which of some rows an event matches."""
        tile, word = divmod(event >> 6, self.bitmap.shape[2])
        bit = np.uint64(1) << np.uint64(event & 63)
        column = self.bitmap[tile, rows, word]
        self.bitmap[tile, rows, word] = np.where(holds, column | bit, column & ~bit)
