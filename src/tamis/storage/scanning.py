"""Records in a file, found one after the other, or from any place by their mark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tamis.storage.records import LEAST_RECORD, MARK_BYTES, Entry, claimed_size, decoded

SMALL_READ: Final = 16 << 10
LARGE_READ: Final = 256 << 10

Read = Callable[[int, int], bytes]
"""Returns bytes from an offset on, so many if there are."""


class Window:
    """A file up to some byte, a part of which is in memory."""

    def __init__(self, read: Read, mark: bytes, end: int, chunk: int) -> None:
        self._read = read
        self._mark = mark
        self._end = end
        self._chunk = chunk
        self._base = 0
        self._data = b""

    def run(self, at: int) -> Iterator[Entry]:
        """Yield records from an offset on, each of which begins where the one before it ends."""
        needed = LEAST_RECORD
        while at + needed <= self._end and self._hold(at, needed):
            for entry in decoded(self._data, self._mark, at - self._base, self._base):
                at = entry.end
                yield entry
            # The next is no record, or not all of it is in memory. What it says of its size is not
            # to be trusted, but cannot be more than there is.
            needed = claimed_size(self._data, at - self._base, self._mark) or LEAST_RECORD
            if at + needed <= self._base + len(self._data):
                return

    def next_entry(self, at: int, stop: int) -> Entry | None:
        """Return the first record that begins at an offset or later, but before another."""
        while (at := self._next_mark(at)) < stop:
            entry = next(self.run(at), None)
            if entry is not None:
                return entry
            at += 1
        return None

    def _next_mark(self, at: int) -> int:
        while at + LEAST_RECORD <= self._end:
            if not self._hold(at, MARK_BYTES):
                break
            found = self._data.find(self._mark, at - self._base)
            if found >= 0:
                return self._base + found
            # A mark may lie across the end of this part.
            at = self._base + len(self._data) - MARK_BYTES + 1
        return self._end

    def _hold(self, at: int, size: int) -> bool:
        """See to it that some bytes are in memory; False if the file ends before them."""
        if not self._base <= at <= at + size <= self._base + len(self._data):
            self._data = self._read(at, min(max(size, self._chunk), self._end - at))
            self._base = at
        return size <= len(self._data)
