"""File-system operations of the log and the state."""

from __future__ import annotations

import errno
import os
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from tamis.errors import StorageError, StorageFullError
from tamis.ports import SYSTEM_FILES, Files

_BLOCK: Final = 4096
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def refusal(path: object, action: str, error: OSError) -> StorageError:
    """Return the error to raise when the system refused an operation."""
    reason = f"{action} failed: {error.strerror or error}"
    if error.errno in FULL:
        return StorageFullError(path, reason, advice="free space on the disk; no restart is needed")
    return StorageError(path, reason)


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder has no room left; False if that is not known."""
    try:
        room = os.statvfs(folder)
    except (AttributeError, OSError):
        return False
    return not room.f_bavail


def write_all(files: Files, file: int, data: bytes, offset: int) -> None:
    """Write all bytes at an offset, however few the system accepts at a time."""
    rest = memoryview(data)
    while rest:
        written = files.pwrite(file, rest, offset)
        offset += written
        rest = rest[written:]


class WaitingWriter:
    """Writes and syncs where it is asked to, so that its caller waits."""

    max_bytes: Final = sys.maxsize

    def __init__(self, files: Files, monotonic: Callable[[], float]) -> None:
        self._files = files
        self._monotonic = monotonic
        self._error: OSError | None = None
        self.seconds = 0.0
        """How long it was written and synced."""
        self.is_written = True
        """Whether everything was written, so that an error is one of the sync."""

    def begin(self, file: int, data: bytes, offset: int, count_file: int, count: bytes) -> None:
        """Write and sync, then write a count at the start of a file, if there is one."""
        self.is_written, self._error, pwrite = False, None, self._files.pwrite
        begun = self._monotonic()
        try:
            written = pwrite(file, data, offset)
            if written < len(data):
                write_all(self._files, file, data[written:], offset + written)
            self.is_written = True
            self._files.sync_data(file)
        except OSError as error:
            self._error = error
        self.seconds = self._monotonic() - begun
        if self._error is None and count_file >= 0:
            # Evidence only: everything is correct without it.
            with suppress(OSError):
                pwrite(count_file, count, 0)

    def is_stored(self, _seconds: float) -> bool:
        """Return whether everything is written and synced."""
        return self._error is None

    def end(self) -> OSError | None:
        """Return what went wrong."""
        return self._error

    def close(self) -> None:
        """Do nothing: there is no thread to end."""


def sync_folder(files: Files, path: Path) -> None:
    """Sync a folder's list of files to disk."""
    folder = files.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        files.sync(folder)
    finally:
        files.close(folder)


def make_folder(files: Files, path: Path) -> None:
    """Create a private folder that survives a power failure."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        files.make_folder(folder)
        sync_folder(files, folder.parent)


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """Write a file that replaces another as a whole, and survives a power failure."""
    beside = path.with_suffix(".part")
    file = files.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(files, file, data, 0)
        files.sync(file)
    finally:
        files.close(file)
    files.rename(beside, path)
    sync_folder(files, path.parent)


class FolderLock:
    """A file that one process at a time can lock; the system unlocks it when the process ends."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._file: Final = files.open(path, os.O_RDWR | os.O_CREAT)
        if not files.lock(self._file):
            holder = files.pread(self._file, 20, 0).decode(errors="replace").strip()
            files.close(self._file)
            raise StorageError(
                path.parent,
                f"the folder is in use by the process {holder or 'that has just opened it'}",
                advice="stop that process, or use another folder",
            )
        holder = f"{os.getpid()}\n"
        try:
            # Over the last one, which takes no room on a full disk.
            write_all(files, self._file, holder.encode(), 0)
            files.truncate(self._file, len(holder))
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Unlock; the file stays, since after removing it two processes could lock one each."""
        self._files.close(self._file)


class _OpenFile:
    """An open file that is closed when its last reader releases it."""

    def __init__(self, files: Files, path: Path) -> None:
        self._close = files.close
        self.number: Final = files.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        with suppress(AttributeError):
            self._close(self.number)


class FilePool:
    """A pool of files for reading, of which only a limited number are open at a time."""

    def __init__(self, files: Files = SYSTEM_FILES, most_open: int = 32) -> None:
        self._files = files
        self._pread = files.pread
        self._most = most_open
        self._open: OrderedDict[Path, _OpenFile] = OrderedDict()
        self._lock = Lock()

    def read(self, path: Path, offset: int, size: int) -> bytes:
        """Return some bytes of a file, fewer only at its end; unreadable bytes are zeros."""
        # Hold a reference while reading, so that no other thread closes the file.
        file = self._file(path)
        parts, end = [], offset + size
        while offset < end:
            part = self._part(file.number, end - offset, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _part(self, file: int, size: int, offset: int) -> bytes:
        try:
            return self._pread(file, size, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        # A bad sector must not affect its neighbours: skip to the next block and continue.
        size = min(size, _BLOCK - offset % _BLOCK)
        try:
            return self._pread(file, size, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        return bytes(size)

    def _file(self, path: Path) -> _OpenFile:
        with self._lock:
            file = self._open.get(path)
            if file is None:
                file = self._open[path] = _OpenFile(self._files, path)
                if len(self._open) > self._most:
                    self._open.popitem(last=False)
            self._open.move_to_end(path)
            return file

    def forget(self, path: Path) -> None:
        """Close a file that will not be read any more."""
        with self._lock:
            self._open.pop(path, None)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._open.clear()
