"""Copies on this machine of files in a store, by checksum, shared by all processes of a user.

A copy has the checksum for its name. It is written beside and renamed, so there are no half copies,
and each process computes its checksum before the first use, so a damaged copy is fetched again.
Who looks at a copy shares its lock, and who writes or removes it has the lock alone. The folder may
hold other files, which nobody touches.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from tamis.errors import LibraryError
from tamis.spark.library.manifests import LibraryFile
from tamis.spark.runtime.stores import ObjectStore

FOLDER_VARIABLE: Final = "TAMIS_LIBRARY_CACHE"
SIZE_VARIABLE: Final = "TAMIS_LIBRARY_CACHE_BYTES"
DEFAULT_SIZE: Final = 20_000_000_000
# Longer than any fetch: its process is dead.
_STALE_SECONDS: Final = 3_600.0
# Longer than it takes to map a copy after asking where it is.
_IN_USE_SECONDS: Final = 60.0
_COPY: Final = re.compile("[0-9a-f]{64}")
_BESIDE: Final = re.compile(r"[0-9a-f]{64}\.(lock|[0-9a-f]+\.part)")


class FileCache:
    """Files of stores in a folder of bounded size, the least recently used removed first."""

    def __init__(self, folder: Path, size: int = DEFAULT_SIZE) -> None:
        self.folder: Final = folder
        self._size = size
        self._verified: set[tuple[str, int, int]] = set()

    @classmethod
    def of_environment(cls) -> FileCache:
        """Return the cache that the environment names, or one in the folder for temporary files."""
        named = os.environ.get(FOLDER_VARIABLE)
        default = Path(tempfile.gettempdir()) / f"tamis-library-{os.getuid()}"
        size = os.environ.get(SIZE_VARIABLE, str(DEFAULT_SIZE))
        if not size.isdigit():
            raise LibraryError(default, f"{SIZE_VARIABLE} should be a number, but is {size!r}")
        return cls(Path(named) if named else default, int(size))

    def path(self, store: ObjectStore, file: LibraryFile) -> Path:
        """Return a copy of a file, fetching it if this machine has none or a damaged one."""
        place = self.folder / file.sha256
        self._make_folder()
        try:
            with self._locked(place, fcntl.LOCK_SH):
                if self._is_right(place, file) and _touched(place):
                    return place
            with self._locked(place, fcntl.LOCK_EX):
                # Another process may have fetched it meanwhile.
                if not (self._is_right(place, file) and _touched(place)):
                    self._fetch(store, file, place)
                    self._make_room(place)
        except OSError as error:
            raise LibraryError(
                self.folder,
                f"the copy of {store.address(file.name)} cannot be written: {error.strerror}; make "
                f"room, or name another folder in {FOLDER_VARIABLE}",
            ) from None
        return place

    def _is_right(self, place: Path, file: LibraryFile) -> bool:
        try:
            # Others may clean the folder, so look at what is open.
            with place.open("rb") as data:
                state = os.fstat(data.fileno())
                identity = (place.name, state.st_ino, state.st_size)
                if identity in self._verified:
                    return True
                if state.st_size != file.size:
                    return False
                right = hashlib.file_digest(data, "sha256").hexdigest() == file.sha256
        except FileNotFoundError:
            return False
        if right:
            self._verified.add(identity)
        return right

    def _fetch(self, store: ObjectStore, file: LibraryFile, place: Path) -> None:
        beside = place.with_name(f"{place.name}.{uuid4().hex}.part")
        digest, size = hashlib.sha256(), 0
        try:
            with beside.open("wb") as target:
                for data in store.chunks(file.name):
                    digest.update(data)
                    size += len(data)
                    target.write(data)
            if (size, digest.hexdigest()) != (file.size, file.sha256):
                raise LibraryError(
                    store.address(file.name),
                    f"the object is damaged: it has {size:,} bytes and the manifest {file.size:,}, "
                    "or its checksum is wrong; compile the subscriptions again",
                )
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)
        state = place.stat()
        self._verified.add((place.name, state.st_ino, state.st_size))

    def _make_room(self, newest: Path) -> None:
        """Remove what was used least recently, but not just now: who has it mapped keeps it."""
        copies, now = [], time.time()
        for one in self.folder.iterdir():
            with suppress(FileNotFoundError):
                state = one.lstat()
                if not stat.S_ISREG(state.st_mode):
                    continue
                # Who waits for a lock that is removed fetches a copy of its own, without harm.
                if _BESIDE.fullmatch(one.name) and now - state.st_mtime > _STALE_SECONDS:
                    one.unlink()
                elif _COPY.fullmatch(one.name) and one != newest:
                    copies.append((state.st_mtime, state.st_size, one))
        total = newest.stat().st_size + sum(size for _, size, _ in copies)
        for used, size, one in sorted(copies):
            if total <= self._size or now - used < _IN_USE_SECONDS:
                return
            if self._removed(one):
                total -= size

    def _removed(self, copy: Path) -> bool:
        """Remove a copy unless somebody looks at it, or has just done so."""
        with suppress(BlockingIOError), self._locked(copy, fcntl.LOCK_EX | fcntl.LOCK_NB):
            with suppress(FileNotFoundError):
                if time.time() - copy.stat().st_mtime < _IN_USE_SECONDS:
                    return False
                copy.unlink()
            return True
        return False

    def _make_folder(self) -> None:
        """Make the folder; a folder of somebody else is not to be trusted."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = self.folder.stat().st_uid
        except OSError as error:
            raise LibraryError(
                self.folder, f"the folder for copies cannot be made: {error.strerror}"
            ) from None
        if owner != os.getuid():
            raise LibraryError(
                self.folder,
                f"the folder for copies belongs to another user; name one in {FOLDER_VARIABLE}",
            )

    @contextmanager
    def _locked(self, place: Path, how: int) -> Iterator[None]:
        with place.with_name(f"{place.name}.lock").open("wb") as lock:
            fcntl.flock(lock, how)
            yield


def _touched(copy: Path) -> bool:
    """Show that a copy is in use; return whether it is there, since others may clean the folder."""
    try:
        os.utime(copy)
    except FileNotFoundError:
        return False
    return True
