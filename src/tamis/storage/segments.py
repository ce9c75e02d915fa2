"""A segment: one file of the log.

::

    00000000000000000001-5f3a9c21.log        first sequence, mark

    magic 12 | version 2 | mark 4 | first sequence 8 | time 8 | unused 2 | crc 4 | records

A segment cannot be read without its mark, so the mark is in its name as well as in its header. The
file is written under another name and renamed, so its header is always complete.

There is no index on disk. Marks can be found from any offset, and records are in order, so a binary
search finds a record; offsets met on the way are remembered.
"""

from __future__ import annotations

import math
import os
import re
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from tamis.errors import StorageError
from tamis.ports import Files, RandomBytes
from tamis.storage.damage import Damage
from tamis.storage.files import FilePool, sync_folder, write_all
from tamis.storage.records import (
    MARK_BYTES,
    MIN_RECORD_BYTES,
    LocatedRecord,
    Record,
    claimed_size,
    decode,
)

SMALL_READ: Final = 16 << 10
LARGE_READ: Final = 256 << 10

Read = Callable[[int, int], bytes]
"""Returns a number of bytes at an offset, if there are as many."""


class RecordScanner:
    """A file up to some byte, partly in memory."""

    def __init__(self, read: Read, mark: bytes, end: int, chunk: int) -> None:
        self._read = read
        self._mark = mark
        self._end = end
        self._chunk = chunk
        self._base = 0
        self._data = b""

    def run(self, at: int) -> Iterator[LocatedRecord]:
        """Yield consecutive records, starting at an offset."""
        needed = MIN_RECORD_BYTES
        while at + needed <= self._end and self._hold(at, needed):
            for entry in decode(self._data, self._mark, at - self._base, self._base):
                at = entry.end
                yield entry
            # The next bytes are not a record, or it is not completely in memory. Its size cannot be
            # trusted, but cannot exceed the rest of the file.
            needed = claimed_size(self._data, at - self._base, self._mark) or MIN_RECORD_BYTES
            if at + needed <= self._base + len(self._data):
                return

    def next_entry(self, at: int, stop: int) -> LocatedRecord | None:
        """Return the first record between two offsets."""
        while (at := self._next_mark(at)) < stop:
            entry = next(self.run(at), None)
            if entry is not None:
                return entry
            at += 1
        return None

    def _next_mark(self, at: int) -> int:
        while at + MIN_RECORD_BYTES <= self._end:
            if not self._hold(at, MARK_BYTES):
                break
            found = self._data.find(self._mark, at - self._base)
            if found >= 0:
                return self._base + found
            # A mark may span the end of this part.
            at = self._base + len(self._data) - MARK_BYTES + 1
        return self._end

    def _hold(self, at: int, size: int) -> bool:
        """Ensure that some bytes are in memory; False if the file ends before them."""
        if not self._base <= at <= at + size <= self._base + len(self._data):
            self._data = self._read(at, min(max(size, self._chunk), self._end - at))
            self._base = at
        return size <= len(self._data)


MAGIC: Final = b"tamis log\r\n\0"
VERSION: Final = 2
_VERSIONS: Final = (1, VERSION)
"""Those that can be read; a segment of version 1 has no origins, and is not appended to."""
_FIELDS: Final = struct.Struct("<12sH4sQd2x")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _CRC.size
_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{8})\.log")

# Distance in bytes between remembered records, and so the most that reading one has to skip.
OFFSET_SPACING_BYTES: Final = 8 << 10

PART: Final = ".part"


# --- files -----------------------------------------------------------------------------------


class Header(NamedTuple):
    """The header of a segment."""

    mark: bytes
    first: int
    time: float
    """No event in the segment is older, and none in earlier segments is younger."""
    version: int = VERSION

    def path(self, folder: Path) -> Path:
        """Return the path of the segment."""
        return folder / f"{self.first:020}-{self.mark.hex()}.log"


def segment_paths(files: Files, folder: Path) -> dict[int, Path]:
    """Return the segments in a folder by their first sequence, ascending."""
    paths: dict[int, Path] = {}
    for found in sorted(files.names(folder)):
        if name := _NAME.fullmatch(found):
            first, path = int(name[1]), folder / found
            if first in paths:
                raise StorageError(
                    path,
                    f"{paths[first].name} begins with the same sequence",
                    advice="move one of them elsewhere",
                )
            paths[first] = path
    return paths


def create_segment(files: Files, folder: Path, header: Header) -> int:
    """Create a segment that survives a power failure, and return the open file."""
    path = header.path(folder)
    beside = path.with_suffix(PART)
    file = files.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        fields = _FIELDS.pack(MAGIC, VERSION, *header[:3])
        write_all(files, file, fields + _CRC.pack(zlib.crc32(fields)), 0)
        files.sync(file)
        files.rename(beside, path)
        sync_folder(files, folder)
    except BaseException:
        files.close(file)
        files.remove(beside)
        raise
    return file


def new_mark(random: RandomBytes) -> bytes:
    """Return an unpredictable mark that cannot occur in an empty part of a file."""
    while 0 in (mark := random(MARK_BYTES)):
        pass
    return mark


def read_header(path: Path, files: FilePool) -> Header | None:
    """Return the header of a segment; None if it is damaged."""
    data = files.read(path, 0, HEADER_BYTES)
    fields, crc = data[: _FIELDS.size], data[_FIELDS.size :]
    if _CRC.pack(zlib.crc32(fields)) != crc:
        return None
    magic, version, *rest = _FIELDS.unpack(fields)
    if magic != MAGIC or version not in _VERSIONS:
        raise StorageError(path, "the file was not written by this version of Tamis")
    header = Header(*rest)._replace(version=version)
    if header.path(path.parent) != path:
        raise StorageError(
            path,
            f"the file was once named {header.path(path.parent).name}",
            advice="rename it back",
        )
    return header


def header_by_name(path: Path, time: float) -> Header:
    """Return the header a segment must have had, with a possible time."""
    first, mark = path.stem.split("-")
    return Header(bytes.fromhex(mark), int(first), time)


# --- reading ---------------------------------------------------------------------------------


class Extent(NamedTuple):
    """How far a segment may be read: to which byte, and below which sequence."""

    end: int
    stop: int


class LogSegment:
    """One file of the log, readable by any number of threads.

    The appending thread replaces `extent` as a whole, so readers see two numbers of the same
    moment.
    """

    def __init__(self, path: Path, header: Header, extent: Extent, files: FilePool) -> None:
        self.path: Final = path
        self.header: Final = header
        self.first: Final = header.first
        self.extent = extent
        self.offsets: Final = _SparseIndex(_RecordOffset(header.first, HEADER_BYTES))
        self._read = partial(files.read, path)

    def entries(self, sequence: int, chunk: int = LARGE_READ) -> Iterator[LocatedRecord | Damage]:
        """Yield records in order, starting shortly before a sequence."""
        extent = self.extent
        low, high = self.offsets.around(sequence, extent.end)
        start = self._halve(lambda record: record.sequence <= sequence, low, high)
        return self._scan(start, extent, chunk)

    def all_entries(self) -> Iterator[LocatedRecord | Damage]:
        """Yield every record and damage, and add the records to the sparse index."""
        for item in self._scan(self.offsets.first, self.extent, LARGE_READ):
            if isinstance(item, LocatedRecord):
                self.offsets.note(item.record.sequence, item.offset)
            yield item

    def damage_at_end(self) -> list[Damage]:
        """Return the damage at the end of the segment; a whole one takes a single read."""
        extent = self.extent
        window = RecordScanner(self._read, self.header.mark, extent.end, SMALL_READ)
        found = window.next_entry(max(HEADER_BYTES, extent.end - SMALL_READ), extent.end)
        start = extent.end if found is None else found.offset
        for last in window.run(start):
            if (last.end, last.record.sequence + 1) == extent:
                return []
        return [item for item in self.entries(extent.stop - 1) if isinstance(item, Damage)]

    def written_end(self, end: int) -> int:
        """Return where the zeros begin that the file ends with, at the earliest at an offset."""
        stop = self.extent.end
        while stop > end:
            start = max(end, stop - LARGE_READ)
            if written := len(self._read(start, stop - start).rstrip(b"\0")):
                return start + written
            stop = start
        return end

    def sequence_at(self, time: float) -> int | None:
        """Return the first sequence at or after a time; None if all are before."""
        extent = self.extent
        start = self._halve(lambda record: record.time < time, self.offsets.first, extent.end)
        for item in self._scan(start, extent, SMALL_READ):
            if isinstance(item, LocatedRecord) and item.record.time >= time:
                return item.record.sequence
        return None

    def _halve(
        self, is_before: Callable[[Record], bool], low: _RecordOffset, high: int
    ) -> _RecordOffset:
        """Return an offset shortly before the first record that is not before."""
        window = RecordScanner(self._read, self.header.mark, high, SMALL_READ)
        while high - low.offset > OFFSET_SPACING_BYTES:
            middle = (low.offset + high) // 2
            entry = window.next_entry(middle, high)
            if entry is None or not is_before(entry.record):
                high = middle
            else:
                low = _RecordOffset(entry.record.sequence, entry.offset)
                self.offsets.note(*low)
        return low

    def _scan(
        self, start: _RecordOffset, extent: Extent, chunk: int
    ) -> Iterator[LocatedRecord | Damage]:
        window = RecordScanner(self._read, self.header.mark, extent.end, chunk)
        expected, good = start
        at, time = good, -math.inf
        while at < extent.end:
            for entry in window.run(at):
                record = entry.record
                if record.sequence >= extent.stop:
                    # It was refused and could not be cut off.
                    at = extent.end
                    break
                if record.sequence < expected or record.time < time:
                    # Left over from a refused append, below one that was cut short.
                    at = entry.offset + 1
                    break
                if record.sequence > expected or entry.offset > good:
                    yield self._damage(good, entry.offset, range(expected, record.sequence))
                yield entry
                at = good = entry.end
                expected, time = record.sequence + 1, record.time
            following = window.next_entry(at, extent.end)
            at = extent.end if following is None else following.offset
        if expected < extent.stop:
            yield self._damage(good, extent.end, range(expected, extent.stop))

    def _damage(self, start: int, end: int, lost: range) -> Damage:
        size = end - start
        reason = f"{size:,} bytes are damaged" if size else "what follows is missing"
        return Damage(self.path.name, start, size, lost, reason)


class _RecordOffset(NamedTuple):
    sequence: int
    offset: int


class _SparseIndex:
    """Offsets of some records of a segment, learned by appending and by reading."""

    def __init__(self, first: _RecordOffset) -> None:
        self.first: Final = first
        self._sequences = array("Q", [first.sequence])
        self._offsets = array("Q", [first.offset])
        self.next_noted = first.offset + OFFSET_SPACING_BYTES
        """An append that ends before this offset adds nothing to the index."""
        self._lock = Lock()

    def around(self, sequence: int, end: int) -> tuple[_RecordOffset, int]:
        """Return the last known offset at or before a sequence, and the offset of the next one."""
        with self._lock:
            after = max(1, bisect_right(self._sequences, sequence))
            low = _RecordOffset(self._sequences[after - 1], self._offsets[after - 1])
            return low, self._offsets[after] if after < len(self._offsets) else end

    def note_group(self, sequence: int, offset: int, starts: Sequence[int]) -> None:
        """Remember offsets of some appended records, including the last."""
        known = self._offsets[-1]
        for place, start in enumerate(starts):
            if offset + start - known >= OFFSET_SPACING_BYTES:
                known = offset + start
                self.note(sequence + place, known)

    def note(self, sequence: int, offset: int) -> None:
        """Remember an offset, if none is nearby."""
        with self._lock:
            at = bisect_right(self._offsets, offset)
            if offset - self._offsets[at - 1] < OFFSET_SPACING_BYTES:
                return
            if at < len(self._offsets) and self._offsets[at] - offset < OFFSET_SPACING_BYTES:
                return
            self._sequences.insert(at, sequence)
            self._offsets.insert(at, offset)
            self.next_noted = self._offsets[-1] + OFFSET_SPACING_BYTES
