"""Where the files of a library are, told to workers, and how they reach them."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from tamis.spark.library.file_cache import FileCache
from tamis.spark.library.manifests import LibraryFile, describe_file
from tamis.spark.runtime.addresses import is_remote
from tamis.spark.runtime.store_access import opened_store
from tamis.spark.runtime.stores import ObjectStore

FILES: Final = "files"
# How old an object may be to serve a new version as it is: the names of older ones are others.
REUSED_SECONDS: Final = 12 * 3600.0


class LibraryPlace(NamedTuple):
    """The folder of a version, or the address of a library in a store."""

    location: str
    access: Any = None
    """What opens the store: a `StoreAccess`, or one that Spark broadcasts; None if it is open."""

    def path(self, file: LibraryFile) -> Path:
        """Return a file on this machine, fetching it from the store if need be."""
        if not is_remote(self.location):
            return Path(self.location, file.name)
        return _cache().path(self.store(), file)

    def store(self) -> ObjectStore:
        """Return the store."""
        return opened_store(self.location, self.access)


class Draft(NamedTuple):
    """A version that is being written: by workers, before anybody sees it."""

    place: LibraryPlace
    tables: str = ""
    """In a store, the folder of the tables."""

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yield the folder to write files and tables to; `keep` each of them afterwards."""
        if not is_remote(self.place.location):
            yield Path(self.place.location)
            return
        with tempfile.TemporaryDirectory(prefix="tamis-shard-") as folder:
            yield Path(folder)

    def keep(self, path: Path) -> LibraryFile:
        """Return the description of a file; in a store, its name is its checksum and the time.

        An object that no version names may be removed when it is old, and even while it is written
        anew. So an old one is never taken for a new version: by now, the name has changed.
        """
        file = describe_file(path)
        if not is_remote(self.place.location):
            return file
        period = int(time.time() // REUSED_SECONDS)
        stored = LibraryFile(f"{FILES}/{file.sha256}-{period}", file.size, file.sha256)
        store = self.place.store()
        # A damaged one is written again, as who finds it is told.
        if store.size(stored.name) != file.size or not _is_right(store, stored):
            store.write(stored.name, path)
        return stored

    def keep_again(self, version: LibraryPlace, file: LibraryFile) -> LibraryFile:
        """Keep a file of another version: by a link, or as it is in a store."""
        if not is_remote(self.place.location):
            source, target = version.path(file), Path(self.place.location, file.name)
            try:
                os.link(source, target)
            except OSError:
                # Not every file system has links.
                shutil.copy2(source, target)
        return file

    def keep_table(self, path: Path) -> None:
        """Keep a table, which is in a folder for tables of its kind."""
        if is_remote(self.place.location):
            name = f"{self.tables}/{path.parent.name}/{path.name}"
            self.place.store().write(name, path)


def _is_right(store: ObjectStore, file: LibraryFile) -> bool:
    digest = hashlib.sha256()
    for data in store.chunks(file.name):
        digest.update(data)
    return digest.hexdigest() == file.sha256


@cache
def _cache() -> FileCache:
    return FileCache.of_environment()
