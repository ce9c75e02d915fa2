"""SQLite's files on a test disk: a VFS that reports what the default one does to them.

It is registered, by ctypes, in the very library that Python's `sqlite3` uses, so that library must
be a shared one. It is the default VFS except for its name, for how it opens and removes files, and
for how files that lie on a test disk are written, truncated and synced. The shared memory of a
write-ahead log does not outlive the process, and is none of the disk's business.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import sqlite3
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, addressof, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from storage.disk import Disk, DiskFile

NAME = "tamistest"
OK, FULL = 0, 13
IOERR_WRITE, IOERR_FSYNC, IOERR_DELETE = 10 | 3 << 8, 10 | 4 << 8, 10 | 10 << 8
OPEN_CREATE, OPEN_MAIN_JOURNAL, OPEN_WAL = 0x4, 0x800, 0x80000

_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_DELETE = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_CLOSE = CFUNCTYPE(c_int, c_void_p)
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)


class Vfs(Structure):
    _fields_: ClassVar = [
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", c_void_p),
        ("xDelete", c_void_p),
        *((f"other{number}", c_void_p) for number in range(14)),
    ]


class Methods(Structure):
    _fields_: ClassVar = [
        ("iVersion", c_int),
        ("xClose", c_void_p),
        ("xRead", c_void_p),
        ("xWrite", c_void_p),
        ("xTruncate", c_void_p),
        ("xSync", c_void_p),
        *((f"other{number}", c_void_p) for number in range(13)),
    ]


class OpenFile(NamedTuple):
    """A file of SQLite on a test disk."""

    disk: Disk
    path: Path
    entry: DiskFile
    new: list[bool]
    """Whether the first sync also syncs the folder, as it does for a new journal."""


_disks: dict[Path, Disk] = {}


def plug_in(disk: Disk) -> str:
    """Report what happens to files on a disk; return the name of the VFS to use for them."""
    shim()
    _disks[disk.folder] = disk
    return NAME


def unplug(disk: Disk) -> None:
    _disks.pop(disk.folder, None)


@cache
def is_available() -> bool:
    """Return whether `sqlite3` uses a shared library, as it does on most systems."""
    return _library() is not None


@cache
def _library() -> ctypes.CDLL | None:
    assert sqlite3.sqlite_version
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return None
    found = {line.split()[-1] for line in maps.splitlines() if "libsqlite3" in line}
    return ctypes.CDLL(found.pop()) if found else None


@cache
def shim() -> Shim:
    """Register the VFS, once for the process."""
    library = _library()
    assert library is not None
    return Shim(library)


class Shim:
    """The VFS: a copy of the default one, with some functions replaced."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.sqlite3_vfs_find.restype = POINTER(Vfs)
        default = library.sqlite3_vfs_find(None).contents
        self._files: dict[int, OpenFile] = {}
        self._methods: dict[int, tuple[Methods, Any]] = {}
        self._open = _OPEN(default.xOpen)
        self._delete = _DELETE(default.xDelete)
        self._vfs = Vfs.from_buffer_copy(default)
        self._vfs.zName = NAME.encode()
        self._kept = (_OPEN(_guarded(self.open)), _DELETE(_guarded(self.delete)))
        self._vfs.xOpen, self._vfs.xDelete = (_address(function) for function in self._kept)
        assert library.sqlite3_vfs_register(ctypes.byref(self._vfs), 0) == OK
        _immortal(self._vfs)
        atexit.register(self.restore, default)

    def restore(self, default: Vfs) -> None:
        """Leave connections that the end of Python closes to the default VFS."""
        self._vfs.xOpen, self._vfs.xDelete = default.xOpen, default.xDelete
        for address, (methods, _) in self._methods.items():
            ctypes.memmove(addressof(methods), address, ctypes.sizeof(Methods))

    # --- the VFS -----------------------------------------------------------------------------

    def open(self, vfs: int, name: int, file: int, flags: int, out: Any) -> int:
        path = Path(ctypes.string_at(name).decode()) if name else None
        disk = None if path is None else _disks.get(path.parent)
        if path is None or disk is None:
            return int(self._open(vfs, name, file, flags, out))
        if flags & OPEN_CREATE and disk.is_full and not path.exists():
            return FULL
        code = int(self._open(vfs, name, file, flags, out))
        methods = c_void_p.from_address(file)
        if code == OK and methods.value:
            is_new = disk.entry(path) is None
            entry = disk.note_opened(path)
            assert entry is not None
            journal = bool(flags & (OPEN_WAL | OPEN_MAIN_JOURNAL))
            self._files[file] = OpenFile(disk, path, entry, [is_new and journal])
            methods.value = addressof(self._replaced(methods.value)[0])
        return code

    def delete(self, vfs: int, name: bytes, sync_folder: int) -> int:
        path = Path(name.decode())
        disk = _disks.get(path.parent)
        if disk is not None and disk.is_dead:
            return IOERR_DELETE
        code = int(self._delete(vfs, name, sync_folder))
        if code == OK and disk is not None:
            disk.note_removed(path)
            if sync_folder:
                disk.note_synced(disk._folder(path))
        return code

    # --- a file ------------------------------------------------------------------------------

    def _replaced(self, address: int) -> tuple[Methods, Any]:
        """Return the functions for a file, which call those at an address."""
        if address not in self._methods:
            original = Methods.from_address(address)
            methods = Methods.from_buffer_copy(original)
            calls = Calls(self._files, original)
            functions = (
                _CLOSE(_guarded(calls.close)),
                _WRITE(_guarded(calls.write)),
                _TRUNCATE(_guarded(calls.truncate)),
                _SYNC(_guarded(calls.sync)),
            )
            addresses = (_address(function) for function in functions)
            methods.xClose, methods.xWrite, methods.xTruncate, methods.xSync = addresses
            self._methods[address] = methods, functions
            _immortal(methods)
        return self._methods[address]


class Calls:
    """What is done to a file: reported, and passed on to the default VFS."""

    def __init__(self, files: dict[int, OpenFile], original: Methods) -> None:
        self._files = files
        self._close = _CLOSE(original.xClose)
        self._write = _WRITE(original.xWrite)
        self._truncate = _TRUNCATE(original.xTruncate)
        self._sync = _SYNC(original.xSync)

    def close(self, file: int) -> int:
        self._files.pop(file, None)
        return int(self._close(file))

    def write(self, file: int, buffer: int, size: int, offset: int) -> int:
        from storage.disk import Write  # noqa: PLC0415 - the disk imports this module

        disk, path, entry, _ = self._files[file]
        disk.on_operation("write", path.name)
        if disk.is_dead:
            return IOERR_WRITE
        if code := disk.fault("write", path.name):
            return FULL if code == errno.ENOSPC else IOERR_WRITE
        if disk.allowed(size, offset, entry) < size:
            return FULL
        code = int(self._write(file, buffer, size, offset))
        if code == OK:
            entry.note(Write(offset, ctypes.string_at(buffer, size)))
        return code

    def truncate(self, file: int, size: int) -> int:
        from storage.disk import Resize  # noqa: PLC0415 - the disk imports this module

        if self._files[file].disk.is_dead:
            return IOERR_WRITE
        code = int(self._truncate(file, size))
        if code == OK:
            self._files[file].entry.note(Resize(size))
        return code

    def sync(self, file: int, _flags: int) -> int:
        disk, path, entry, new = self._files[file]
        disk.on_operation("sync", path.name)
        if disk.is_dead:
            return IOERR_FSYNC
        if disk.fault("sync", path.name):
            entry.fail_to_sync(disk.rng)
            return IOERR_FSYNC
        # The default VFS would sync a real file, which nobody needs here.
        disk.note_synced(entry)
        if new[0]:
            disk.note_synced(disk._folder(path))
            new[0] = False
        return OK


def _immortal(structure: Structure) -> None:
    """Keep memory that SQLite refers to until the process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(structure))


def _address(function: Any) -> int:
    address = ctypes.cast(function, c_void_p).value
    assert address is not None
    return address


def _guarded(function: Callable[..., int]) -> Callable[..., int]:
    """Return a function whose errors fail the operation: nobody else would hear of them."""

    def guarded(*args: Any) -> int:
        try:
            return function(*args)
        except BaseException as error:
            failures.append(error)
            return IOERR_WRITE

    return guarded


failures: list[BaseException] = []
"""Errors of this module, which its tests look at."""
