"""A library: compiled subscriptions, version by version, in a folder that all workers see.

::

    library/versions/00000001/manifest.json          the files, with checksums
                              shard-0000.tamis       a snapshot; its ids are numbers
                              shard-0000.ids.arrow   the id of each number
                              rejected.parquet/      the rejected rows

The compiler writes a version to a draft folder and renames it, so a reader sees all of it or
nothing. A version never changes, so a reader that pins one gets the same matches as long as it
exists. `store_library.py` describes libraries in stores, which have no rename.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import LibraryError
from tamis.events import Schema, schema_of
from tamis.spark.library.ids import read_ids
from tamis.spark.library.manifests import (
    MANIFEST,
    REJECTED,
    LibraryFile,
    VersionManifest,
    describe_file,
    encode_manifest,
)
from tamis.spark.library.places import Draft, LibraryPlace
from tamis.spark.library.store_library import StoreVersions
from tamis.spark.runtime.addresses import is_remote, local_path
from tamis.spark.runtime.store_access import driver_access, shared_access
from tamis.spark.runtime.stores import ObjectStore
from tamis.units import count

DRAFT: Final = ".draft-"
"""How the names of folders begin that hold a version before it is published."""
# Files whose checksum was right. A stream checks before every batch, and files do not change.
_VERIFIED: Final[set[tuple[int, str, int, int]]] = set()


class Version:
    """One version of a library, which never changes."""

    def __init__(
        self, path: Path | str, manifest: VersionManifest, store: ObjectStore | None = None
    ) -> None:
        self.location: Final = str(path)
        self.manifest: Final = manifest
        self.number: Final = manifest.version
        self._store = store

    @property
    def path(self) -> Path:
        """Return the folder of the version; in a store it has none."""
        if self._store is not None:
            raise LibraryError(self.location, "it lies in a store, so it is no folder")
        return Path(self.location)

    @property
    def library(self) -> str:
        """Return where the library is."""
        return self.location.rpartition("/versions/")[0]

    @property
    def place(self) -> LibraryPlace:
        """Return where workers find the files."""
        if self._store is None:
            return LibraryPlace(self.location)
        return LibraryPlace(self._store.url, shared_access(self._store.access))

    @property
    def schema(self) -> Schema | None:
        """Return the schema of the events."""
        data = self.manifest.schema
        return None if data is None else schema_of(data)

    @property
    def subscriptions(self) -> int:
        """Return how many subscriptions there are."""
        return sum(shard.subscriptions for shard in self.manifest.shards)

    @property
    def size(self) -> int:
        """Return the bytes of all shards."""
        return sum(file.size for shard in self.manifest.shards for file in shard.files)

    @property
    def attributes(self) -> frozenset[str]:
        """Return the attributes that filters mention."""
        return frozenset(name for shard in self.manifest.shards for name in shard.attributes)

    @property
    def rejected_path(self) -> str:
        """Return the table of rejected rows: row, id, reason, line, column, filter."""
        if self._store is None:
            return str(self.path / REJECTED)
        return self._store.address(f"{self.manifest.tables}/{REJECTED}")

    def rejected_rows(self) -> pa.Table:
        """Read the table of rejected rows."""
        if self._store is None:
            return pq.read_table(self.rejected_path)
        return self._store.table(f"{self.manifest.tables}/{REJECTED}")

    def file(self, file: LibraryFile) -> Path:
        """Return a file of the version on this machine."""
        if self._store is None:
            return self.path / file.name
        return LibraryPlace(self._store.url, self._store.access).path(file)

    def ids(self) -> pa.ChunkedArray[Any]:
        """Return the ids by number, as packed and bitmap outputs count them."""
        tables = [read_ids(self.file(shard.ids)) for shard in self.manifest.shards]
        return pa.chunked_array(tables)

    def check(self) -> None:
        """Raise if a file is missing or damaged; workers check what they fetch from a store."""
        for shard in self.manifest.shards:
            for file in shard.files:
                if self._store is None:
                    self._check(self.path / file.name, file)
                else:
                    _check_object(self._store, file)

    def _check(self, path: Path, file: LibraryFile) -> None:
        if not path.exists():
            raise LibraryError(path, "the file is missing; compile the subscriptions again")
        state = path.stat()
        # Versions share files by links, which have the same number.
        identity = (state.st_ino, file.sha256, state.st_mtime_ns, state.st_size)
        if identity in _VERIFIED:
            return
        if describe_file(path) != file:
            raise LibraryError(
                path, "the file is damaged: its checksum is wrong; compile the subscriptions again"
            )
        _VERIFIED.add(identity)

    def __repr__(self) -> str:
        held = count(self.subscriptions, "subscription")
        return f"<Version {self.number}: {held} in {self.location}>"


def _check_object(store: ObjectStore, file: LibraryFile) -> None:
    size = store.size(file.name)
    if size is None:
        raise LibraryError(
            store.address(file.name), "the object is missing; compile the subscriptions again"
        )
    if size != file.size:
        raise LibraryError(
            store.address(file.name),
            f"the object is damaged: it has {size:,} bytes, and the manifest says {file.size:,}; "
            "compile the subscriptions again",
        )


class Versions(Protocol):
    """What keeps the versions of a library: a folder, or a store."""

    def numbers(self) -> list[int]:
        """Return the numbers of all versions."""

    def manifest(self, number: int) -> bytes:
        """Return a manifest, or raise FileNotFoundError."""

    def published(self, number: int) -> datetime | None:
        """Return when a version was published, None if it is gone or nobody knows."""

    def draft(self) -> Draft:
        """Begin a version."""

    def publish(
        self, draft: Draft, manifest: VersionManifest, after: int | None = None
    ) -> VersionManifest | None:
        """Make a draft the newest version, and number it; None if another came `after` one."""

    def discard(self, draft: Draft) -> None:
        """Remove what is left of a draft."""


class Library:
    """Versions of compiled subscriptions under one path, or one address in a store."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.store: Final = ObjectStore(str(path), driver_access()) if is_remote(path) else None
        self._versions: Versions
        if self.store is None:
            folder = local_path(path)
            self.location, self._versions = str(folder), FolderVersions(folder)
        else:
            self.location, self._versions = self.store.url, StoreVersions(self.store)

    @property
    def path(self) -> Path:
        """Return the folder of the library; in a store it has none."""
        if self.store is not None:
            raise LibraryError(self.location, "it lies in a store, so it is no folder")
        return Path(self.location)

    def versions(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        return sorted(self._versions.numbers())

    def latest(self) -> Version:
        """Return the newest version."""
        numbers = self.versions()
        if not numbers:
            raise LibraryError(
                self.location, "there is no version in it; compile subscriptions first"
            )
        return self.version(numbers[-1])

    def version(self, number: int) -> Version:
        """Return one version."""
        path = version_place(self.location, number)
        try:
            manifest = msgspec.json.decode(self._versions.manifest(number), type=VersionManifest)
            return Version(path, manifest, self.store)
        except FileNotFoundError:
            known = ", ".join(map(str, self.versions())) or "none"
            raise LibraryError(
                self.location, f"there is no version {number} in it; it has {known}"
            ) from None
        except msgspec.MsgspecError as error:
            raise LibraryError(f"{path}/{MANIFEST}", f"the manifest is damaged: {error}") from None

    def published(self, number: int) -> datetime | None:
        """Return when a version was published, None if it is gone or nobody knows."""
        return self._versions.published(number)

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Yield a draft to write a version to, and remove it unless it was published."""
        draft = self._versions.draft()
        try:
            yield draft
        finally:
            self._versions.discard(draft)

    def publish(self, draft: Draft, manifest: VersionManifest) -> Version:
        """Make a draft the newest version, and number it."""
        named = self._versions.publish(draft, manifest)
        assert named is not None  # noqa: S101 - any number will do
        return self._published(named)

    def publish_after(
        self, base: Version, draft: Draft, manifest: VersionManifest
    ) -> Version | None:
        """Make a draft the version after another; None if that is no longer the newest."""
        named = self._versions.publish(draft, manifest, base.number)
        return None if named is None else self._published(named)

    def _published(self, named: VersionManifest) -> Version:
        return Version(version_place(self.location, named.version), named, self.store)

    def __repr__(self) -> str:
        return f"<Library {self.location}: versions {self.versions()}>"


def version_place(location: str, number: int) -> str:
    """Return where a version is."""
    return f"{location}/versions/{number:08}"


class FolderVersions:
    """Versions in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = folder / "versions"

    def numbers(self) -> list[int]:
        """Return the numbers of all versions."""
        if not self._versions.is_dir():
            return []
        return [int(p.name) for p in self._versions.iterdir() if p.name.isdigit()]

    def manifest(self, number: int) -> bytes:
        """Return a manifest."""
        return (self._place(number) / MANIFEST).read_bytes()

    def published(self, number: int) -> datetime | None:
        """Return when a version was published, None if it is gone."""
        try:
            seconds = (self._place(number) / MANIFEST).stat().st_mtime
        except FileNotFoundError:
            return None
        return datetime.fromtimestamp(seconds, UTC)

    def draft(self) -> Draft:
        """Make a folder to write a version in."""
        folder = self._versions / f"{DRAFT}{uuid4().hex}"
        folder.mkdir(parents=True)
        return Draft(LibraryPlace(str(folder)))

    def discard(self, draft: Draft) -> None:
        """Remove the folder, unless it was renamed."""
        shutil.rmtree(draft.place.location, ignore_errors=True)

    def publish(
        self, draft: Draft, manifest: VersionManifest, after: int | None = None
    ) -> VersionManifest | None:
        """Rename a draft."""
        folder = Path(draft.place.location)
        while True:
            number = max(self.numbers(), default=0) + 1
            if after is not None and number != after + 1:
                return None
            named = msgspec.structs.replace(manifest, version=number)
            (folder / MANIFEST).write_bytes(encode_manifest(named))
            try:
                folder.rename(self._place(number))
            except OSError:
                # Another compilation took the number; try the next.
                if not self._place(number).exists():
                    raise
            else:
                return named

    def _place(self, number: int) -> Path:
        return Path(version_place(str(self._folder), number))


def newest_version(library: Library | Version | str | PathLike[str]) -> Version:
    """Return the newest version of a library or of the library at a path; a version as given."""
    if isinstance(library, Version):
        return library
    return (library if isinstance(library, Library) else Library(library)).latest()
