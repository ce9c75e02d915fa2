"""The log of events: append, read, remove.

docs/concepts/storage.md explains what it guarantees, and why it is not a database table.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import Final, NamedTuple

from tamis.errors import StorageError
from tamis.ports import SYSTEM_FILES, Files, RandomBytes, Writer, system_random
from tamis.storage.counts import COUNT, CRC, CountFile
from tamis.storage.damage import Damage, DamageRegister
from tamis.storage.files import FilePool, WaitingWriter, make_folder, refusal, sync_folder
from tamis.storage.opening import open_log
from tamis.storage.records import NewRecord, Record, encode
from tamis.storage.segments import (
    HEADER_BYTES,
    LARGE_READ,
    SMALL_READ,
    VERSION,
    Extent,
    Header,
    LogSegment,
    create_segment,
    new_mark,
)

SEGMENT_BYTES: Final = 64 << 20
READ_BYTES: Final = 4 << 20
# A file grows by this much at a time, because a sync takes longer after a write that makes it grow:
# then the system also has to store its size, in another place of the disk.
ROOM_BYTES: Final = 1 << 20
# A segment is closed after this fraction of the retention age, so that no event is kept much longer
# because it shares a file with a younger one.
_AGE_PARTS: Final = 8

_first: Final = attrgetter("first")
_begun: Final = attrgetter("header.time")


class Appending(NamedTuple):
    """Records on their way to the disk."""

    active: _Active
    writer: Writer
    first: int
    stop: int
    """The sequence after the last one."""
    offset: int
    data: bytes
    starts: Sequence[int]


class EventLog:
    """Events in order, numbered 1, 2, 3, …; one thread appends, any number read.

    Readers see only what is on disk. They take the current tuple of segments; the writer replaces
    it as a whole.
    """

    def __init__(
        self,
        folder: Path,
        *,
        synced_up_to: int = 0,
        removed_below: int | None = None,
        count: CountFile | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], float] = time.time,
        files: Files = SYSTEM_FILES,
        random: RandomBytes = system_random,
        monotonic: Callable[[], float] = perf_counter,
    ) -> None:
        self._folder: Final = folder
        self._segment_bytes = segment_bytes
        self._clock = clock
        self._files = files
        self._random = random
        self._pool = FilePool(files)
        self._count = count
        self._monotonic = monotonic
        self._process: Final = os.getpid()
        self._writing = RLock()
        try:
            make_folder(files, folder)
            opened = open_log(
                folder, files, self._pool, removed_below=removed_below, synced_up_to=synced_up_to
            )
            last = opened.segments[-1] if opened.goes_on else None
            if last is not None and last.header.version < VERSION:
                # An earlier version of Tamis must not take what is appended for its own.
                last = None
            self._active = None if last is None else _Active.open(last, files)
        except OSError as error:
            raise refusal(error.filename or folder, "opening the log", error) from error
        self._segments = opened.segments
        self._header = (
            self._segments[-1].header._replace(version=VERSION) if self._segments else None
        )
        self._is_closed = False
        self._beside: Writer | None = None
        self._waiting: Final = WaitingWriter(files, monotonic)
        self._begun: Appending | None = None
        """The append that was begun, until somebody waits for its end."""
        self._next = opened.next_sequence
        self.last_time = opened.last_time
        """The time of the last append."""
        self.last_seconds = 0.0
        """How long the last append took, or, where somebody else wrote, the writing and syncing."""
        self.cut_bytes: Final = opened.cut_bytes
        """What a crash left unfinished, and opening cut off."""
        self.damage: Final = DamageRegister()
        """The damage found since the log was opened, by opening it or by reading."""
        for damage in opened.damaged:
            self.damage.add(damage)
        self._removed_below = removed_below
        if count is not None:
            count.begin(self._next - 1)

    @property
    def first_sequence(self) -> int:
        """Return the first sequence in the log; the next one to be assigned if the log is empty."""
        segments = self._segments
        return segments[0].first if segments else self._next

    @property
    def kept_from(self) -> int:
        """Return the first sequence that retention has left; damage may have taken it."""
        first, removed_below = self.first_sequence, self._removed_below
        return first if removed_below is None else min(first, max(1, removed_below))

    @property
    def next_sequence(self) -> int:
        """Return the sequence that the next event will get."""
        return self._next

    @property
    def bytes(self) -> int:
        """Return the size of the log in bytes."""
        return sum(segment.extent.end for segment in self._segments)

    def write_beside(self) -> None:
        """Make appends that somebody else writes possible, where the system has what that takes."""
        with self._writing:
            if self._beside is None and not self._is_closed:
                self._beside = self._files.writer()

    # --- appending ---------------------------------------------------------------------------

    def next_append(self) -> tuple[int, float]:
        """Return the first sequence and the time of an append that is made now.

        Only for whoever makes all of them.
        """
        # No two have the same time: that is how opening tells them apart.
        now, last = self._clock(), self.last_time
        return self._next, now if now > last else math.nextafter(last, math.inf)

    def append(self, records: Sequence[NewRecord], time: float | None = None) -> range:
        """Append all records or none, with one sync, and return their sequences.

        `time` is what `next_append` has returned since the last one.
        """
        self._refuse_fork()
        begun = self._monotonic()
        with self._writing:
            try:
                if self._begun is not None:
                    self._end_begun()
                active = self._active
                if active is None or active.is_dirty or active.is_spent or self._is_closed:
                    active = self._writable(time)
                if active.segment.extent.end >= self._segment_bytes:
                    active = self._begin(time)
                appending = self.begin(records, time, active=active) if records else None
                found = None if appending is None else self.end(appending)
                return range(self._next, self._next) if found is None else found
            finally:
                self.last_seconds = self._monotonic() - begun

    def begin(
        self,
        records: Sequence[NewRecord],
        time: float | None = None,
        *,
        active: _Active | None = None,
    ) -> Appending | None:
        """Begin an append that is written beside the caller; None if that takes more than writing.

        Then `append` has to do it. Nothing else is appended before `end`. `active` is given by
        `append`, which has made sure of all that it takes, and is to wait for the disk.
        """
        beside: Writer | None = None
        if active is None:
            active, beside = self._active, self._beside
            if active is None or beside is None:
                return None
        # `append` has the lock already, and takes it once more.
        if not self._writing.acquire(blocking=False):
            return None
        try:
            segment, offset = active.segment, active.segment.extent.end
            if time is None:
                # As `next_append`, without a call: this is on the way of every publication.
                now, last = self._clock(), self.last_time
                time = now if now > last else math.nextafter(last, math.inf)
            if beside is not None and (
                active is not self._active
                or self._begun is not None
                or active.is_dirty
                or active.is_spent
                or self._is_closed
                or os.getpid() != self._process
                or offset >= self._segment_bytes
                # Encoding much takes a while, for which the caller must not be held up.
                or sum([len(record.payload) for record in records]) > beside.max_bytes
            ):
                return None
            data, starts = encode(records, self._next, time, segment.header.mark)
            end = offset + len(data)
            if beside is not None and (end > active.size or len(data) > beside.max_bytes):
                return None
            if end > active.size:
                active.make_room(end)
            stop, file, count = self._next + len(records), -1, b""
            if self._count is not None:
                number = COUNT.pack(stop - 1)
                file, count = self._count.file, number + CRC.pack(zlib.crc32(number))
            self.last_time, active.is_dirty = time, True
            writer = beside or self._waiting
            appending = Appending(active, writer, self._next, stop, offset, data, starts)
            # Before it is, so that it never is without anybody knowing.
            self._begun = appending
            try:
                writer.begin(active.file, data, offset, file, count)
            except BaseException:
                self._begun = None
                raise
            return appending
        finally:
            self._writing.release()

    def end(self, appending: Appending, *, waits: bool = True) -> range | None:
        """Wait for the end of an append that was begun, and return its sequences.

        With `waits=False`, return None where somebody else has to be waited for; the disk has been
        waited for already.
        """
        active, writer, first, stop, offset, data, starts = appending
        if not self._writing.acquire(blocking=waits):
            return None
        try:
            if self._begun is not appending:
                ended = StorageError(self._folder, "somebody else has waited for this append")
                ended.is_outcome_known = False
                raise ended
            error, segment = writer.end(), active.segment
            # Now: whoever is interrupted before leaves the end to the next one.
            self._begun = None
            self.last_seconds = writer.seconds
            if error is not None:
                is_spent = writer.is_written
                action = "bringing what was written to the disk" if is_spent else "writing"
                refused = refusal(segment.path, action, error)
                # Zeros that could not be written are there nevertheless, as room.
                refused.is_outcome_known = self._is_cleaned_up(
                    active, is_spent=is_spent, may_be_whole=is_spent or data.endswith(b"\0")
                )
                raise refused from error
            active.is_dirty = False
            if offset + len(data) >= segment.offsets.next_noted:
                segment.offsets.note_group(first, offset, starts)
            self._next = stop
            segment.extent = Extent(offset + len(data), stop)
        finally:
            self._writing.release()
        return range(first, stop)

    def _end_begun(self) -> None:
        """Wait for an append that somebody has begun, and was cancelled before its end."""
        if self._begun is not None:
            with suppress(StorageError):
                self.end(self._begun)

    def _writable(self, time: float | None) -> _Active:
        """Return a segment without remains of a failed append, a new one if need be."""
        if self._is_closed:
            raise StorageError(self._folder, "the log is closed")
        active = self._active
        return self._begin(time) if active is None or not active.is_clean() else active

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            raise StorageError(
                self._folder,
                "this is a fork of the process that opened the log, which alone changes it",
            )

    def _begin(self, time: float | None = None) -> _Active:
        if self._header is None or self._header.first != self._next:
            # None of its events may be older.
            youngest_before = self.last_time or time or self._clock()
            self._header = Header(new_mark(self._random), self._next, youngest_before)
        # Otherwise an earlier attempt failed; its file is replaced, since two would begin with the
        # same sequence.
        header, path = self._header, self._header.path(self._folder)
        try:
            file = create_segment(self._files, self._folder, header)
        except OSError as error:
            raise refusal(path, "beginning a segment", error) from error
        self._pool.forget(path)
        if self._active is not None:
            self._active.close()
        segment = LogSegment(path, header, Extent(HEADER_BYTES, self._next), self._pool)
        self._active = _Active(segment, file, self._files)
        before = (other for other in self._segments if other.first != segment.first)
        self._segments = (*before, segment)
        return self._active

    def _is_cleaned_up(self, active: _Active, *, is_spent: bool, may_be_whole: bool) -> bool:
        """Truncate what a failed append left; check whether it has damaged what precedes it.

        Return whether opening the log will not find the append, even after a power failure: of what
        could not be written, some is missing; what may be whole must be seen to go.
        """
        active.is_spent = is_spent
        active.is_clean()
        is_gone = not may_be_whole or active.is_truncated_on_disk()
        active.is_spent |= not is_gone
        # The same block may hold both.
        if active.is_spent and active.drop_cache():
            # If it cannot be read either, the next read will report it.
            with suppress(OSError):
                self._note_damage(active.segment, max(active.segment.first, self._next - 1))
        return is_gone

    # --- reading -----------------------------------------------------------------------------

    def read(self, first: int, limit: int, max_bytes: int = READ_BYTES) -> list[Record]:
        """Return records in order, starting at a sequence; report and skip damaged ones.

        Return at least one record if there is one; an empty list means the end of the log.
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
        """Return one record; None if it was removed, is damaged, or does not exist yet."""
        # To search all that is damaged for each event that is lost with it would take for ever.
        if self.damage.lost_in(sequence, sequence + 1):
            return None
        found = self.read(sequence, 1)
        return found[0] if found and found[0].sequence == sequence else None

    def sequence_at(self, time: float) -> int:
        """Return the first sequence at or after a time; the next one if there is none."""
        segments, following = self._segments, self._next
        # All events of the next segment are at or after its own time, and so after the one given.
        at = max(0, bisect_left(segments, time, key=_begun) - 1)
        for segment in segments[at:]:
            with self._reading(segment):
                found = segment.sequence_at(time)
                if found is not None:
                    return found
        return following

    def verify(self) -> tuple[Damage, ...]:
        """Read everything, and return all damage."""
        for segment in self._segments:
            with self._reading(segment):
                self._note_damage(segment, segment.first)
        return self.damage.places

    def verify_some(self, first: int, max_bytes: int) -> int:
        """Read on from a sequence, for this many bytes; return the sequence to go on with."""
        segments, following = self._segments, self._next
        at = max(0, bisect_right(segments, first, key=_first) - 1)
        for segment in segments[at:]:
            with self._reading(segment):
                for item in segment.entries(first):
                    if isinstance(item, Damage):
                        self.damage.add(item)
                    elif item.record.sequence >= first:
                        max_bytes -= item.end - item.offset
                        if max_bytes <= 0:
                            return item.record.sequence + 1
        return following

    def _records(self, first: int, chunk: int) -> Iterator[Record]:
        segments = self._segments
        at = max(0, bisect_right(segments, first, key=_first) - 1)
        for segment in segments[at:]:
            with self._reading(segment):
                for item in segment.entries(first, chunk):
                    if isinstance(item, Damage):
                        self.damage.add(item)
                    elif item.record.sequence >= first:
                        yield item.record

    @contextmanager
    def _reading(self, segment: LogSegment) -> Iterator[None]:
        """Skip a segment that retention has removed in the meantime."""
        try:
            yield
        except OSError as error:
            if segment in self._segments:
                raise refusal(segment.path, "reading", error) from error

    def _note_damage(self, segment: LogSegment, sequence: int) -> None:
        for item in segment.entries(sequence):
            if isinstance(item, Damage):
                self.damage.add(item)

    # --- forgetting --------------------------------------------------------------------------

    def retain(
        self, *, max_age: float | None = None, max_bytes: int | None = None, keep_from: int
    ) -> range:
        """Remove the oldest segments beyond the age or size limit; return the sequences removed.

        The segment that is appended to stays, and so does everything from `keep_from` on.
        """
        return self.remove_below(
            self.first_to_stay(max_age=max_age, max_bytes=max_bytes, keep_from=keep_from)
        )

    def first_to_stay(
        self, *, max_age: float | None = None, max_bytes: int | None = None, keep_from: int
    ) -> int:
        """Return the first sequence of the oldest segment within the limits."""
        self._refuse_fork()
        with self._writing:
            is_free = self._begun is None
            if max_age is not None and is_free and self._is_to_be_closed(max_age):
                # Closing can wait if the disk is full; removing cannot.
                with suppress(StorageError):
                    self._begin()
            segments, now = self._segments, self._clock()
            size = self.bytes
            for oldest, following in pairwise(segments):
                is_old = max_age is not None and following.header.time <= now - max_age
                is_too_much = max_bytes is not None and size > max_bytes
                if following.first > keep_from or not (is_old or is_too_much):
                    return oldest.first
                size -= oldest.extent.end
            return segments[-1].first if segments else self._next

    def remove_below(self, sequence: int) -> range:
        """Remove the segments before a sequence, oldest first; return the sequences removed."""
        self._refuse_fork()
        with self._writing:
            first = self.first_sequence
            while len(self._segments) > 1 and self._segments[1].first <= sequence:
                self._remove_oldest()
                self._removed_below = self.first_sequence
            return range(first, self.first_sequence)

    def _is_to_be_closed(self, max_age: float) -> bool:
        active = self._active
        if active is None or active.segment.first == self._next:
            return False
        return active.segment.header.time + max_age / _AGE_PARTS <= self._clock()

    def _remove_oldest(self) -> None:
        before = self._segments
        # Update the tuple first: a reader that finds the file gone checks whether it was removed.
        oldest, self._segments = before[0], before[1:]
        try:
            self._files.remove(oldest.path)
            # One at a time: the middle of the log must not disappear before its beginning.
            sync_folder(self._files, self._folder)
        except OSError as error:
            if oldest.path.exists():
                self._segments = before
            raise refusal(oldest.path, "removing a segment", error) from error
        finally:
            self._pool.forget(oldest.path)

    def close(self) -> None:
        """Close the files; nothing is lost otherwise.

        In a fork of the process that opened the log, that process goes on with the files.
        """
        if os.getpid() != self._process:
            # The lock may be held by a thread that is not in this process.
            self._close_files(is_last=False)
            return
        with self._writing:
            self._end_begun()
            self._close_files(is_last=True)

    def _close_files(self, *, is_last: bool) -> None:
        self._is_closed = True
        if self._beside is not None:
            self._beside.close()
            self._beside = None
        if self._active is not None:
            self._active.close(is_last=is_last)
            self._active = None
        if self._count is not None:
            self._count.close()
            self._count = None
        self._pool.close()


class _Active:
    """The segment that is appended to, and the state of its file."""

    def __init__(self, segment: LogSegment, file: int, files: Files) -> None:
        self.segment: Final = segment
        self.file: Final = file
        self._files = files
        self.is_dirty = False
        """Whether an append failed here, so that bytes may lie past the end."""
        self.is_spent = False
        """After a failed sync the content of the disk is unknown, so nothing more is written here.
        """
        self.size = segment.extent.end
        """Up to where the file has been made to reach; zeros follow the last record."""

    @classmethod
    def open(cls, segment: LogSegment, files: Files) -> _Active:
        """Return an existing segment to append to."""
        return cls(segment, files.open(segment.path, os.O_RDWR), files)

    def make_room(self, end: int) -> None:
        """Make the file grow beyond an offset, if the system lets it; otherwise writing does it."""
        size = -(-end // ROOM_BYTES) * ROOM_BYTES
        with suppress(OSError):
            self._files.truncate(self.file, size)
            self.size = size

    def is_clean(self) -> bool:
        """Truncate what a failed append left past the end; return whether that worked."""
        if self.is_dirty:
            try:
                self._files.truncate(self.file, self.segment.extent.end)
            except OSError:
                self.is_spent = True
            else:
                self.is_dirty, self.size = False, self.segment.extent.end
        return not self.is_spent

    def is_truncated_on_disk(self) -> bool:
        """Sync the truncation of what a failed append left; return whether that worked."""
        if self.is_dirty:
            return False
        try:
            self._files.sync(self.file)
        except OSError:
            return False
        return True

    def drop_cache(self) -> bool:
        """Drop the cached pages of the file, so that the disk is read; False if impossible."""
        return self._files.drop_cache(self.file)

    def close(self, *, is_last: bool = True) -> None:
        """Close the file; if nobody else appends to it, without the room that is left in it."""
        if is_last and self.size > self.segment.extent.end and not self.is_dirty:
            with suppress(OSError):
                self._files.truncate(self.file, self.segment.extent.end)
        self._files.close(self.file)
