"""Opening a log: cut off what a crash left unfinished, report what is damaged.

Only the last segment can have been written to when the process or the power failed, so it is read
completely. Each of the others was complete before the next one began, so it is enough to check that
it reaches the next; the rest of it is verified while the log is in use.

The last segment ends with a group that may never have been acknowledged. If that group is complete,
it stays. If it is not, and nothing shows that it was ever synced, it is removed completely: if a
part of a publication remained, a retry would be taken for a repetition. Everything before was on
disk before anything was written after it, so errors there are damage, and intact records stay.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tamis.ports import Files
from tamis.storage.damage import Damage
from tamis.storage.files import FilePool, sync_folder
from tamis.storage.records import LocatedRecord
from tamis.storage.segments import (
    HEADER_BYTES,
    PART,
    Extent,
    LogSegment,
    header_by_name,
    read_header,
    segment_paths,
)

# Larger than any sequence: reading the last segment determines its end.
_UNKNOWN: Final = 1 << 63


class OpenedLog(NamedTuple):
    """A log as found on disk, ready to be read."""

    segments: tuple[LogSegment, ...]
    next_sequence: int
    last_time: float
    cut_bytes: int
    damaged: tuple[Damage, ...]
    goes_on: bool
    """Whether the last segment may be appended to."""


class _AppendGroup(msgspec.Struct):
    """Records that were appended together, as far as they were found."""

    first: int
    stop: int
    time: float
    offset: int
    found: int = 0

    @property
    def is_whole(self) -> bool:
        return self.found == self.stop - self.first


class _LogTail(NamedTuple):
    """Where the last segment ends, and before which sequence."""

    end: int
    found_stop: int
    """One more than the last sequence found."""
    stop: int
    """One more than the last sequence ever assigned."""
    time: float
    damaged: list[Damage]


def open_log(
    folder: Path, files: Files, pool: FilePool, *, removed_below: int | None, synced_up_to: int
) -> OpenedLog:
    """Read a folder; events up to `synced_up_to` are known to have been on disk.

    Retention has removed at most those below `removed_below`, if that is known.
    """
    for name in files.names(folder):
        if name.endswith(PART):
            files.remove(folder / name)
    segments, damaged = _segments(folder, files, pool)
    if not segments:
        lost = range(max(1, removed_below or 1), synced_up_to + 1)
        missing = [Damage(folder.name, 0, 0, lost, "all segments are missing")] if lost else []
        return OpenedLog((), synced_up_to + 1, 0.0, 0, tuple(missing), goes_on=False)
    damaged += _gaps(segments, removed_below)
    last = segments[-1]
    tail = _tail(last, synced_up_to)
    next_sequence = max(tail.stop, synced_up_to + 1)
    # Lost sequences are carried over from one segment to the next.
    goes_on = next_sequence == tail.found_stop
    cut = _cut(last, tail.end, files) if goes_on else 0
    end = tail.end if goes_on else last.extent.end
    last.extent = Extent(end, next_sequence)
    damaged += tail.damaged
    if not goes_on:
        damaged += [item for item in last.entries(tail.found_stop) if isinstance(item, Damage)]
    sync_folder(files, folder)
    return OpenedLog(tuple(segments), next_sequence, tail.time, cut, tuple(damaged), goes_on)


def _segments(folder: Path, files: Files, pool: FilePool) -> tuple[list[LogSegment], list[Damage]]:
    paths = segment_paths(files, folder)
    stops = [*list(paths)[1:], _UNKNOWN]
    segments: list[LogSegment] = []
    damaged: list[Damage] = []
    for path, stop in zip(paths.values(), stops, strict=False):
        extent = Extent(max(path.stat().st_size, HEADER_BYTES), stop)
        header = read_header(path, pool)
        if header is None:
            header = header_by_name(path, segments[-1].header.time if segments else 0.0)
            time, found = _without_header(LogSegment(path, header, extent, pool))
            header = header._replace(time=time)
            damaged += found
        segments.append(LogSegment(path, header, extent, pool))
    return segments, damaged


def _without_header(segment: LogSegment) -> tuple[float, list[Damage]]:
    """Read a segment whose header is damaged; return a possible time for it, and all damage.

    Too early a time would remove events too early.
    """
    reason = "the header is damaged; the name of the file tells what is needed of it"
    damaged = [Damage(segment.path.name, 0, HEADER_BYTES, range(0), reason)]
    times = []
    for item in segment.all_entries():
        if isinstance(item, LocatedRecord):
            times.append(item.record.time)
        elif item.lost.stop != _UNKNOWN:
            damaged.append(item)
    return times[0] if times else segment.header.time, damaged


def _gaps(segments: list[LogSegment], removed_below: int | None) -> list[Damage]:
    """Return what is missing before the first segment, and at the ends of all but the last."""
    first, lost = segments[0], range(0)
    if removed_below is not None:
        lost = range(max(1, removed_below), first.first)
    gaps = [Damage(first.path.name, 0, 0, lost, "files before it are missing")] if lost else []
    for segment in segments[:-1]:
        gaps += segment.damage_at_end()
    return gaps


def _tail(segment: LogSegment, synced_up_to: int) -> _LogTail:
    end, expected, time = HEADER_BYTES, segment.first, segment.header.time
    group = _AppendGroup(expected, expected, time, end)
    damaged: list[Damage] = []
    for item in segment.all_entries():
        if isinstance(item, Damage):
            damaged.append(item)
            continue
        group = _joined(group, item, end)
        end, expected, time = item.end, item.record.sequence + 1, item.record.time
    if damaged and damaged[-1].lost.stop == _UNKNOWN:
        # Bytes past the last record are not damage; they are cut off.
        damaged.pop()
    if group.is_whole or group.first <= synced_up_to:
        return _LogTail(end, expected, group.stop, time, damaged)
    before = [damage for damage in damaged if damage.offset < group.offset]
    return _LogTail(group.offset, group.first, group.first, time, before)


def _joined(group: _AppendGroup, entry: LocatedRecord, end: int) -> _AppendGroup:
    """Return the group of a record: the current one, or a new one that begins here."""
    record = entry.record
    first = record.sequence - entry.place
    if (first, record.time) != (group.first, group.time) or not group.found:
        # If both begin with the same sequence, the earlier one was refused and not completely
        # overwritten.
        offset = group.offset
        if first != group.first:
            # Without its first record, the group begins in the damage before it.
            offset = entry.offset if entry.place == 0 else end
        group = _AppendGroup(first, first + entry.group, record.time, offset)
    group.found += 1
    return group


def _cut(segment: LogSegment, end: int, files: Files) -> int:
    """Cut off what lies past the end, and sync the rest before it is used.

    Return how much of it was written; the rest is room that the log has made for more.
    """
    unfinished = segment.written_end(end) - end
    file = files.open(segment.path, os.O_RDWR)
    try:
        if files.size(file) != end:
            files.truncate(file, end)
        files.sync(file)
    finally:
        files.close(file)
    return unfinished
