"""A disk that knows what a power failure may leave: all that was synced, and some of the rest.

The files are real ones, in a folder of their own; SQLite reaches them through `sqlite_vfs`.
Beside them the disk keeps what was synced of each file and folder, and what was done to it since.
`image` writes what may be left of that to another folder, at any moment, without disturbing anyone.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from storage import sqlite_vfs
from storage.writers import LateWriter
from tamis.ports import SystemFiles, Writer

SECTOR_BYTES = (64, 512, 4096)
"""Smaller than any real one too, so that small files have many."""


class PowerCutError(BaseException):
    """The power goes: nobody gets to handle it."""


class Write(NamedTuple):
    offset: int
    data: bytes


class Resize(NamedTuple):
    size: int


class DiskFile:
    """A file: its content as of its last sync, and what was done to it since."""

    def __init__(self, content: bytes = b"") -> None:
        self.synced = bytearray(content)
        self.changes: list[Write | Resize] = []
        self.written_end = len(content)
        """How far it was written: where a file was only made longer, it has no room of its own."""

    def note(self, change: Write | Resize) -> None:
        self.changes.append(change)
        if isinstance(change, Resize):
            self.written_end = min(self.written_end, change.size)
        else:
            self.written_end = max(self.written_end, change.offset + len(change.data))

    def sync(self) -> None:
        for change in self.changes:
            _apply(self.synced, change)
        self.changes.clear()

    def fail_to_sync(self, rng: Random) -> None:
        """Keep some of what was written; the system takes the rest for written, too."""
        self.synced = bytearray(self.left(rng))
        self.changes.clear()

    def left(self, rng: Random) -> bytes:
        """Return what may be left."""
        content = bytearray(self.synced)
        how = rng.choice(("nothing", "all", "the first", "some"))
        if not self.changes or how == "nothing":
            return bytes(content)
        if how == "some":
            return self._mixed(rng)
        stop = len(self.changes) if how == "all" else rng.randrange(len(self.changes))
        for change in self.changes[:stop]:
            _apply(content, change)
        if how == "the first" and isinstance(last := self.changes[stop], Write):
            _apply(content, Write(last.offset, last.data[: _torn(last, rng)]))
        return bytes(content)

    def _mixed(self, rng: Random) -> bytes:
        """Return any of the versions that each sector has had since the last sync."""
        sector = rng.choice(SECTOR_BYTES)
        content = bytearray(self.synced)
        sizes = [len(content)]
        versions: dict[int, list[bytes]] = {}
        for change in self.changes:
            before = len(content)
            start, stop = _apply(content, change)
            sizes.append(len(content))
            for number in range(start // sector, -(-max(stop, before * (stop < start)) // sector)):
                version = bytes(content[number * sector : (number + 1) * sector])
                versions.setdefault(number, []).append(version)
        size = rng.choice((sizes[0], sizes[-1], rng.choice(sizes)))
        left = self.synced[:size].ljust(size, b"\0")
        likely = rng.choice((0.2, 0.5, 0.9))
        for number, known in versions.items():
            if rng.random() < likely:
                version = rng.choice((known[-1], rng.choice(known))).ljust(sector, b"\0")
                start = number * sector
                left[start : start + sector] = version[: max(0, min(sector, size - start))]
        return bytes(left[:size])


def _torn(write: Write, rng: Random) -> int:
    """Return how many bytes of a write come through: those up to the end of some sector."""
    stop = write.offset + rng.randrange(len(write.data) + 1)
    return max(0, stop - stop % min(SECTOR_BYTES) - write.offset)


def _apply(content: bytearray, change: Write | Resize) -> tuple[int, int]:
    """Make a change, and return from where to where it reaches."""
    if isinstance(change, Resize):
        before = len(content)
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
        return min(before, change.size), max(before, change.size)
    start, stop = change.offset, change.offset + len(change.data)
    content.extend(bytes(max(0, start - len(content))))
    content[start:stop] = change.data
    return start, stop


class DiskFolder:
    """A folder: its names as of its last sync, and what was done to them since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now: dict[str, DiskFile | DiskFolder] = {}
        for entry in sorted(path.iterdir()):
            self.now[entry.name] = (
                DiskFolder(entry) if entry.is_dir() else DiskFile(entry.read_bytes())
            )
        self.synced = dict(self.now)
        self.changes: list[dict[str, DiskFile | DiskFolder | None]] = []

    def change(self, names: dict[str, DiskFile | DiskFolder | None]) -> None:
        self.changes.append(names)
        _rename(self.now, names)

    def sync(self) -> None:
        self.synced = dict(self.now)
        self.changes.clear()

    def write_left(self, rng: Random, target: Path) -> None:
        """Write what may be left."""
        target.mkdir(exist_ok=True)
        names = dict(self.synced)
        likely = rng.choice((0.0, 0.5, 1.0))
        for change in self.changes:
            if rng.random() < likely:
                _rename(names, change)
        for name, entry in sorted(names.items()):
            if isinstance(entry, DiskFolder):
                entry.write_left(rng, target / name)
            else:
                (target / name).write_bytes(entry.left(rng))


def _rename(
    names: dict[str, DiskFile | DiskFolder], change: dict[str, DiskFile | DiskFolder | None]
) -> None:
    for name, entry in change.items():
        if entry is None:
            names.pop(name, None)
        else:
            names[name] = entry


Fault = Callable[[str, str], int]
"""Returns the errno with which an operation on a file fails; 0: it works.

The operations are write, sync, truncate, rename and remove.
"""


def no_fault(_operation: str, _name: str) -> int:
    return 0


class RandomFaults:
    """Operations that fail now and then, by seed."""

    def __init__(self, rng: Random, *, write: float = 0.0, sync: float = 0.0) -> None:
        self._rng = rng
        self.chance = {"write": write, "sync": sync}

    def __call__(self, operation: str, _name: str) -> int:
        return errno.EIO if self._rng.random() < self.chance.get(operation, 0.0) else 0


class Disk(SystemFiles):
    """A files port on a folder, whose power may go.

    `plan` tells what the next syncs do, except those of SQLite: work (the default), fail, or be cut
    off by the power.
    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.rng = Random(seed)
        self.root = DiskFolder(folder)
        self.fault: Fault = no_fault
        self.is_full = False
        self.is_dead = False
        """Whether the process has died: nothing reaches the disk any more, but reads work."""
        self.plan: list[str] = []
        self.syncs = 0
        self.forgets_files = False
        """The planted mistake: a sync of a file does nothing."""
        self.forgets_folders = False
        """Another: a sync of a folder does nothing."""
        self.on_operation: Callable[[str, str], None] = lambda _operation, _name: None
        """Is called before each write and sync, with its file's name: a moment for an image."""
        self._open: dict[int, tuple[str, DiskFile | DiskFolder]] = {}
        self._is_unplugged = False
        self._late = Random(seed + 1)
        """What a writer beside its caller goes by; other decisions do not depend on it."""
        if sqlite_vfs.is_available():
            self.vfs = sqlite_vfs.plug_in(self)

    def image(self, rng: Random, target: Path) -> None:
        """Write what may be left after a power failure now to another folder."""
        self.root.write_left(rng, target)

    def close_all(self) -> None:
        """Close what a process that has died left open."""
        for file in [*self._open]:
            self.close(file)

    def unplug(self) -> None:
        """Close everything, and forget SQLite's files."""
        self.close_all()
        sqlite_vfs.unplug(self)
        self._is_unplugged = True

    # --- files -------------------------------------------------------------------------------

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            self.fail("write", path.name)
        if flags & os.O_CREAT and self.is_full and not path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file = super().open(path, flags)
        entry = self.entry(path) if path.is_dir() else self.note_opened(path)
        if entry is not None:
            self._open[file] = path.name, entry
            if flags & os.O_TRUNC and isinstance(entry, DiskFile):
                entry.note(Resize(0))
        return file

    def close(self, file: int) -> None:
        # What is collected later must not close a file of somebody else.
        if self._open.pop(file, None) is not None or not self._is_unplugged:
            os.close(file)

    def pwrite(self, file: int, data: bytes | memoryview, offset: int, /) -> int:  # type: ignore[override]
        name, entry = self._open[file]
        assert isinstance(entry, DiskFile)
        self.on_operation("write", name)
        self.fail("write", name)
        size = self.allowed(len(data), offset, entry)
        if not size and data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        written = os.pwrite(file, data[:size], offset)
        entry.note(Write(offset, bytes(data[:written])))
        return written

    def truncate(self, file: int, size: int, /) -> None:
        name, entry = self._open[file]
        assert isinstance(entry, DiskFile)
        self.fail("truncate", name)
        os.ftruncate(file, size)
        entry.note(Resize(size))

    def sync(self, file: int, /) -> None:  # type: ignore[override]
        self.syncs += 1
        todo = self.plan.pop(0) if self.plan else "work"
        if todo == "cut":
            raise PowerCutError
        if file not in self._open:
            return
        name, entry = self._open[file]
        self.on_operation("sync", name)
        if self.is_dead:
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        if todo == "fail" or self.fault("sync", name):
            if isinstance(entry, DiskFile):
                entry.fail_to_sync(self.rng)
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        self.note_synced(entry)

    def sync_data(self, file: int, /) -> None:  # type: ignore[override]
        self.sync(file)

    def writer(self) -> Writer | None:
        # Some systems have none.
        return LateWriter(self, self._late) if self._late.random() < 0.7 else None

    # --- folders -----------------------------------------------------------------------------

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        parent = self.entry(path.parent)
        if isinstance(parent, DiskFolder):
            parent.change({path.name: DiskFolder(path)})

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        self.fail("rename", source.name)
        os.rename(source, target)
        self._folder(source).change({source.name: None, target.name: self._entry(source)})

    def remove(self, path: Path) -> None:
        self.fail("remove", path.name)
        super().remove(path)
        self.note_removed(path)

    # --- the same, for SQLite ----------------------------------------------------------------

    def note_opened(self, path: Path) -> DiskFile | None:
        """Return what is kept of a file, which may be new; None if it is not on this disk."""
        folder = self.entry(path.parent)
        if not isinstance(folder, DiskFolder):
            return None
        found = folder.now.get(path.name)
        if not isinstance(found, DiskFile):
            found = DiskFile()
            folder.change({path.name: found})
        return found

    def note_synced(self, entry: DiskFile | DiskFolder) -> None:
        forgotten = self.forgets_files if isinstance(entry, DiskFile) else self.forgets_folders
        if not forgotten:
            entry.sync()

    def note_removed(self, path: Path) -> None:
        folder = self.entry(path.parent)
        if isinstance(folder, DiskFolder) and path.name in folder.now:
            folder.change({path.name: None})

    def allowed(self, size: int, offset: int, entry: DiskFile) -> int:
        """Return how many bytes find room: on a full disk, those over what was written before."""
        return max(0, min(size, entry.written_end - offset)) if self.is_full else size

    def entry(self, path: Path) -> DiskFile | DiskFolder | None:
        """Return what is kept of a file or folder."""
        if not path.is_relative_to(self.folder):
            return None
        entry: DiskFile | DiskFolder | None = self.root
        for name in path.relative_to(self.folder).parts:
            entry = entry.now.get(name) if isinstance(entry, DiskFolder) else None
        return entry

    def _entry(self, path: Path) -> DiskFile | DiskFolder:
        entry = self.entry(path)
        assert entry is not None, path
        return entry

    def _folder(self, path: Path) -> DiskFolder:
        folder = self._entry(path.parent)
        assert isinstance(folder, DiskFolder)
        return folder

    def fail(self, operation: str, name: str) -> None:
        """Raise if an operation is to fail."""
        if code := errno.EIO if self.is_dead else self.fault(operation, name):
            raise OSError(code, os.strerror(code), name)


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Limit the size of files: writing stops in the middle, and then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
