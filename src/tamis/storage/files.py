"""What the log and the state ask of the file system."""

from __future__ import annotations

import errno
import fcntl
import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from tamis.errors import StorageError, StorageFullError

Sync = Callable[[int], None]
"""Brings a file, or a folder's list of files, to the disk; raises OSError if it could not."""

_BLOCK: Final = 4096
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def refusal(path: object, action: str, error: OSError) -> StorageError:
    """Return what to raise when the system refused something."""
    reason = f"{action} failed: {error.strerror or error}"
    if error.errno in FULL:
        return StorageFullError(path, reason, advice="make room on the disk, and it goes on")
    return StorageError(path, reason)


def write_all(file: int, data: bytes, offset: int) -> None:
    """Write all bytes at an offset; the system may take fewer at a time."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, offset)
        offset += written
        rest = rest[written:]


def sync_folder(path: Path, sync: Sync) -> None:
    """Bring the list of files in a folder to the disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(folder)
    finally:
        os.close(folder)


def make_folder(path: Path, sync: Sync) -> None:
    """Make a folder of one's own that is still there after a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent, sync)


class FolderLock:
    """A file that one process at a time can hold; the system lets go of it when that ends."""

    def __init__(self, path: Path) -> None:
        self._file: Final = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip()
            os.close(self._file)
            raise StorageError(
                path.parent,
                f"the folder is in use by the process {holder or 'that has just opened it'}",
                advice="stop that one, or take another folder",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go; the file stays, as removing it would let two processes hold one each."""
        os.close(self._file)


class _OpenFile:
    """An open file that is closed when the last one who reads it lets go."""

    def __init__(self, path: Path) -> None:
        self.number: Final = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        with suppress(AttributeError):
            os.close(self.number)


class FilePool:
    """Files to read from, of which only so many are open at a time."""

    def __init__(
        self, most_open: int = 32, pread: Callable[[int, int, int], bytes] = os.pread
    ) -> None:
        self._pread = pread
        self._most = most_open
        self._open: OrderedDict[Path, _OpenFile] = OrderedDict()
        self._lock = Lock()

    def read(self, path: Path, offset: int, size: int) -> bytes:
        """Return some bytes of a file, fewer only at its end; what cannot be read is zeros."""
        # Held here while it is read, so another thread cannot close it in between.
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
        # A bad sector must not take its neighbours with it: up to the next block, then on.
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
                file = self._open[path] = _OpenFile(path)
                if len(self._open) > self._most:
                    self._open.popitem(last=False)
            self._open.move_to_end(path)
            return file

    def forget(self, path: Path) -> None:
        """Close a file that will not be read again."""
        with self._lock:
            self._open.pop(path, None)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._open.clear()
