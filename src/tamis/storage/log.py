"""The log of events: append, read, forget.

Why it is no table of a database, and what is promised: docs/concepts/storage.md.
"""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Final

from tamis.errors import StorageError
from tamis.storage.files import FilePool, Sync, make_folder, refusal, sync_folder, write_all
from tamis.storage.opening import open_log
from tamis.storage.records import Damage, NewRecord, Record, encoded
from tamis.storage.segments import (
    HEADER_BYTES,
    LARGE_READ,
    SMALL_READ,
    Extent,
    Header,
    LogSegment,
    create_segment,
    new_mark,
)

SEGMENT_BYTES: Final = 64 << 20
READ_BYTES: Final = 4 << 20
# A segment that is appended to is closed after this part of the age at which events go, so that no
# event stays much longer because a younger one lies beside it.
_AGE_PARTS: Final = 8
_MOST_DAMAGE_KEPT: Final = 1_000

_first: Final = attrgetter("first")
_begun: Final = attrgetter("header.time")


class EventLog:
    """Events in order, numbered 1, 2, 3, …; one thread appends at a time, any number read.

    Readers see only what is on the disk. They take the tuple of segments as it is; whoever changes
    it replaces it as a whole.
    """

    def __init__(
        self,
        folder: Path,
        *,
        synced_up_to: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], float] = time.time,
        sync: Sync = os.fsync,
        files: FilePool | None = None,
    ) -> None:
        self._folder: Final = folder
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._sync = sync
        self._files = files or FilePool()
        self._writing = Lock()
        try:
            make_folder(folder, sync)
            opened = open_log(folder, self._files, sync, synced_up_to)
            last = opened.segments[-1] if opened.goes_on else None
            self._active = None if last is None else _Active.opened(last, sync)
        except OSError as error:
            raise refusal(error.filename or folder, "opening the log", error) from error
        self._segments = opened.segments
        self._header = self._segments[-1].header if self._segments else None
        self._is_closed = False
        self._next = opened.next_sequence
        self._last_time = opened.last_time
        self.cut_bytes: Final = opened.cut_bytes
        """What a crash had left behind, and opening cut off."""
        self._damaged = {(damage.segment, damage.offset): damage for damage in opened.damaged}

    @property
    def first_sequence(self) -> int:
        """Return the first sequence that is there; the next one if none is."""
        segments = self._segments
        return segments[0].first if segments else self._next

    @property
    def next_sequence(self) -> int:
        """Return the sequence that the next event will get."""
        return self._next

    @property
    def last_time(self) -> float:
        """Return the time of the last append."""
        return self._last_time

    @property
    def bytes(self) -> int:
        """Return how much room the log takes."""
        return sum(segment.extent.end for segment in self._segments)

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """Return the damage found since the log was opened, by opening it or by reading."""
        return tuple(self._damaged.copy().values())

    # --- appending ---------------------------------------------------------------------------

    def append(self, records: Sequence[NewRecord]) -> range:
        """Append all records or none, with one sync, and return their sequences."""
        with self._writing:
            active = self._ready()
            if not records:
                return range(self._next, self._next)
            first, end = self._next, active.segment.extent.end
            data, starts = encoded(records, first, self._tick(), active.segment.header.mark)
            try:
                active.write(data)
            except StorageError:
                self._look_back(active)
                raise
            active.segment.places.note_group(first, end, starts)
            self._next = first + len(records)
            active.segment.extent = Extent(end + len(data), self._next)
            return range(first, self._next)

    def _tick(self) -> float:
        """Return the time, later than at any other append: so it tells appends apart."""
        now, last = self._clock(), self._last_time
        self._last_time = now if now > last else math.nextafter(last, math.inf)
        return self._last_time

    def _ready(self) -> _Active:
        """Return a segment that can be appended to, a new one if need be."""
        if self._is_closed:
            raise StorageError(self._folder, "the log is closed")
        active = self._active
        if active is None or not active.is_clean():
            return self._begin()
        return active if active.segment.extent.end < self._segment_bytes else self._begin()

    def _begin(self) -> _Active:
        if self._header is None or self._header.first != self._next:
            youngest_before = self._last_time or self._clock()
            self._header = Header(new_mark(), self._next, youngest_before)
        # Otherwise there was a try before; its file is replaced, as two would begin alike.
        header, path = self._header, self._header.path(self._folder)
        try:
            file = create_segment(self._folder, header, self._sync)
        except OSError as error:
            raise refusal(path, "beginning a segment", error) from error
        self._files.forget(path)
        if self._active is not None:
            self._active.close()
        segment = LogSegment(path, header, Extent(HEADER_BYTES, self._next), self._files)
        self._active = _Active(segment, file, self._sync)
        before = (other for other in self._segments if other.first != segment.first)
        self._segments = (*before, segment)
        return self._active

    def _look_back(self, active: _Active) -> None:
        """See whether a write that failed has spoiled what lies before it, in the same block."""
        if active.is_spent and active.drop_cache():
            # If it cannot be read either, that is found out when it is asked for.
            with suppress(OSError):
                self._note_damage(active.segment, max(active.segment.first, self._next - 1))

    # --- reading -----------------------------------------------------------------------------

    def read(self, first: int, limit: int, max_bytes: int = READ_BYTES) -> list[Record]:
        """Return records in order from a sequence on; damaged ones are reported and left out.

        At least one if there is one; an empty list is the end of the log.
        """
        found: list[Record] = []
        if limit < 1:
            return found
        for record in self._records(first, SMALL_READ if limit == 1 else LARGE_READ):
            max_bytes -= len(record.payload)
            if found and max_bytes < 0:
                break
            found.append(record)
            if len(found) == limit:
                break
        return found

    def get(self, sequence: int) -> Record | None:
        """Return one record; None if it was removed, is damaged, or is yet to come."""
        found = self.read(sequence, 1)
        return found[0] if found and found[0].sequence == sequence else None

    def sequence_at(self, time: float) -> int:
        """Return the first sequence at or after a time; the next one if there is none yet."""
        segments, following = self._segments, self._next
        # All in the next segment are at or after its own time, and so after the one asked for.
        at = max(0, bisect_left(segments, time, key=_begun) - 1)
        for segment in segments[at:]:
            with self._reading(segment):
                found = segment.sequence_at(time)
                if found is not None:
                    return found
        return following

    def verify(self) -> tuple[Damage, ...]:
        """Read everything, and return all damage there is."""
        for segment in self._segments:
            with self._reading(segment):
                self._note_damage(segment, segment.first)
        return self.damaged

    def _records(self, first: int, chunk: int) -> Iterator[Record]:
        segments = self._segments
        at = max(0, bisect_right(segments, first, key=_first) - 1)
        for segment in segments[at:]:
            with self._reading(segment):
                for item in segment.entries(first, chunk):
                    if isinstance(item, Damage):
                        self._note(item)
                    elif item.record.sequence >= first:
                        yield item.record

    @contextmanager
    def _reading(self, segment: LogSegment) -> Iterator[None]:
        """Pass over a segment that retention has removed in the meantime."""
        try:
            yield
        except OSError as error:
            if segment in self._segments:
                raise refusal(segment.path, "reading", error) from error

    def _note_damage(self, segment: LogSegment, sequence: int) -> None:
        for item in segment.entries(sequence):
            if isinstance(item, Damage):
                self._note(item)

    def _note(self, damage: Damage) -> None:
        if len(self._damaged) < _MOST_DAMAGE_KEPT:
            self._damaged.setdefault((damage.segment, damage.offset), damage)

    # --- forgetting --------------------------------------------------------------------------

    def retain(
        self, *, max_age: float | None = None, max_bytes: int | None = None, keep_from: int
    ) -> range:
        """Remove the oldest segments that are too old or too much; return the sequences removed.

        The segment that is appended to stays, and so does everything from `keep_from` on.
        """
        with self._writing:
            if max_age is not None and self._is_to_be_closed(max_age):
                # It can wait, if the disk is full; removing cannot.
                with suppress(StorageError):
                    self._begin()
            first = self.first_sequence
            while len(self._segments) > 1 and self._segments[1].first <= keep_from:
                if not self._is_to_go(max_age, max_bytes):
                    break
                self._remove_oldest()
            return range(first, self.first_sequence)

    def _is_to_be_closed(self, max_age: float) -> bool:
        active = self._active
        if active is None or active.segment.first == self._next:
            return False
        return active.segment.header.time + max_age / _AGE_PARTS <= self._clock()

    def _is_to_go(self, max_age: float | None, max_bytes: int | None) -> bool:
        youngest = self._segments[1].header.time
        is_old = max_age is not None and youngest <= self._clock() - max_age
        return is_old or (max_bytes is not None and self.bytes > max_bytes)

    def _remove_oldest(self) -> None:
        before = self._segments
        # First from here: who finds the file gone looks whether it was to go.
        oldest, self._segments = before[0], before[1:]
        try:
            oldest.path.unlink(missing_ok=True)
            # One by one: the middle of the log must not be gone before its beginning.
            sync_folder(self._folder, self._sync)
        except OSError as error:
            if oldest.path.exists():
                self._segments = before
            raise refusal(oldest.path, "removing a segment", error) from error
        finally:
            self._files.forget(oldest.path)

    def close(self) -> None:
        """Close the files; nothing is lost without it."""
        with self._writing:
            self._is_closed = True
            if self._active is not None:
                self._active.close()
                self._active = None
            self._files.close()


class _Active:
    """The segment that is appended to, and how its file is."""

    def __init__(self, segment: LogSegment, file: int, sync: Sync) -> None:
        self.segment: Final = segment
        self._file: Final = file
        self._sync = sync
        self._is_dirty = False
        self.is_spent = False
        """After a sync that failed nobody can tell what is on the disk: nothing more goes here."""

    @classmethod
    def opened(cls, segment: LogSegment, sync: Sync) -> _Active:
        """Return a segment that was found, to go on with."""
        return cls(segment, os.open(segment.path, os.O_RDWR | os.O_CLOEXEC), sync)

    def write(self, data: bytes) -> None:
        """Write past the end, and bring it to the disk; if this fails, it is cut off again."""
        self._is_dirty = True
        try:
            action = "writing"
            write_all(self._file, data, self.segment.extent.end)
            action = "bringing what was written to the disk"
            self._sync(self._file)
        except OSError as error:
            self.is_spent = action != "writing"
            self.is_clean()
            raise refusal(self.segment.path, action, error) from error
        self._is_dirty = False

    def is_clean(self) -> bool:
        """Return whether nothing lies past the end; what a failed append left is cut off."""
        if self._is_dirty:
            try:
                os.ftruncate(self._file, self.segment.extent.end)
            except OSError:
                self.is_spent = True
            else:
                self._is_dirty = False
        return not self.is_spent

    def drop_cache(self) -> bool:
        """Let go of what memory holds of the file, so that the disk is read; False: cannot."""
        with suppress(AttributeError, OSError):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
            return True
        return False

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
