"""Splits of files, which tasks read: row groups of Parquet, or byte ranges of JSON lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import EventError
from tamis.spark.runtime.addresses import is_remote, local_path

# A core that finishes early takes another split.
SPLITS_PER_CORE: Final = 2
# Some hundred thousand small events: half a second of work, far more than starting a task takes.
# JSON needs more bytes per event, and far more time per byte.
SPLIT_BYTES: Final = {
    "parquet": 16 * 1024 * 1024,
    "json": 4 * 1024 * 1024,
    "xml": 4 * 1024 * 1024,
}

_FORMATS: Final = {
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".xml": "xml",
}
NAMES: Final = "'parquet', 'json' or 'xml'"


class Split(NamedTuple):
    """A part of a file: its row groups, or its bytes, from `first` up to `last`."""

    path: str
    first: int
    last: int
    position: int
    """The number of the first row, or the offset of the first byte."""
    size: int


def files_in(path: str | PathLike[str]) -> list[Path]:
    """Return a file, or all files below a folder except hidden ones, by their absolute paths."""
    place = absolute_path(path)
    if not place.exists():
        raise EventError(f"there is no file or folder {place} of events")
    files = [*map(Path, _walk(str(place)))] if place.is_dir() else [place]
    if not files:
        raise EventError(f"there is no file of events in {place}")
    return files


def _walk(folder: str) -> Iterator[str]:
    """Yield all files below a folder, by name, and none that is hidden or in a hidden folder.

    `Path.rglob` takes several times as long, which shows if events are files of their own.
    """
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(("_", "."))]
    for entry in sorted(shown, key=attrgetter("name")):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        elif entry.is_file():
            yield entry.path


def absolute_path(path: str | PathLike[str]) -> Path:
    """Return the path of a file of this machine; workers run in folders of their own."""
    if is_remote(path):
        raise EventError(
            f"{path} is not a path of this machine, so workers cannot read it by themselves; let "
            "Spark read it (spark.read), and use `match` or `stream`"
        )
    return local_path(path)


def format_of_files(files: Iterable[Path]) -> str:
    """Return the format that the names of all files imply."""
    formats = {_FORMATS.get(file.suffix) for file in files}
    known = formats.pop() if len(formats) == 1 else None
    if known is None:
        raise EventError(f"the names of the files do not imply one format; name it: {NAMES}")
    return known


def default_split_size(files: Iterable[Path], format_: str) -> int:
    """Return a split size that gives every core of a machine like this some splits."""
    total = sum(os.stat(file).st_size for file in files)
    return max(1, min(SPLIT_BYTES[format_], total // (SPLITS_PER_CORE * (os.cpu_count() or 1))))


def split_files(files: Iterable[Path], format_: str, size: int) -> list[Split]:
    """Split all files, into about `size` bytes each."""
    cuts = {"parquet": _row_groups, "json": _byte_ranges, "xml": _whole_file}
    cut = cuts[format_]
    return [split for file in files for split in cut(file, size)]


def group_into_tasks(splits: Iterable[Split], size: int) -> list[list[Split]]:
    """Return the splits of each task; small splits share one."""
    tasks: list[list[Split]] = []
    room = 0
    for split in splits:
        if split.size > room:
            tasks.append([])
            room = size
        tasks[-1].append(split)
        room -= split.size
    return tasks


def _row_groups(file: Path, size: int) -> Iterator[Split]:
    try:
        metadata = pq.read_metadata(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise EventError(f"{file} cannot be read as a Parquet file: {error}") from None
    groups, average = metadata.num_row_groups, 1
    if groups:
        average = max(1, file.stat().st_size // groups)
    together, position = max(1, size // average), 0
    for first in range(0, groups, together):
        last = min(first + together, groups)
        yield Split(str(file), first, last, position, (last - first) * average)
        position += sum(metadata.row_group(group).num_rows for group in range(first, last))


def _whole_file(file: Path, _: int) -> Iterator[Split]:
    """Yield a file as one: it is one document."""
    path = str(file)
    end = os.stat(path).st_size
    yield Split(path, 0, end, 0, end)


def _byte_ranges(file: Path, size: int) -> Iterator[Split]:
    end = file.stat().st_size
    for first in range(0, end, size):
        last = min(first + size, end)
        yield Split(str(file), first, last, first, last - first)
