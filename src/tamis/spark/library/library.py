"""A library: compiled subscriptions in a folder that all workers see, version by version.

::

    library/versions/00000001/manifest.json          the files, with checksums
                              shard-0000.tamis       a snapshot; its ids are numbers
                              shard-0000.ids.arrow   the id of each number
                              rejected.parquet/      the rejected rows

The compiler writes a version to a draft folder and renames it, so a reader sees all of it or
nothing. A version never changes, so a reader that pins one gets the same matches as long as it
exists.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa

from tamis.errors import LibraryError
from tamis.events import Schema, schema_of
from tamis.events.json_text import schema_data
from tamis.units import count

MANIFEST: Final = "manifest.json"
REJECTED: Final = "rejected.parquet"


# Files whose checksum was right. A stream checks before every batch, and files do not change.
_VERIFIED: Final[set[tuple[Path, str, int, int]]] = set()


class LibraryFile(msgspec.Struct, frozen=True):
    """A file of a version: its name, size and checksum."""

    name: str
    size: int
    sha256: str


class Shard(msgspec.Struct, frozen=True):
    """A part of the subscriptions, compiled together."""

    number: int
    subscriptions: int
    snapshot: LibraryFile
    ids: LibraryFile
    attributes: tuple[str, ...]
    """The attributes that its filters mention."""
    bucket: int | None = None
    """In a library with a key, the bucket of values that its filters require; None for any."""


class VersionManifest(msgspec.Struct, frozen=True):
    """The contents of a version."""

    version: int
    created_at: str
    mode: str
    schema: dict[str, Any] | None
    id_type: str
    """`bigint` or `string`, as Spark names them."""
    rows: int
    rejected: int
    shards: tuple[Shard, ...]
    key: str | None = None
    buckets: int = 0


class Version:
    """One version of a library, which never changes."""

    def __init__(self, path: Path, manifest: VersionManifest) -> None:
        self.path: Final = path
        self.manifest: Final = manifest
        self.number: Final = manifest.version

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
        return sum(shard.snapshot.size + shard.ids.size for shard in self.manifest.shards)

    @property
    def attributes(self) -> frozenset[str]:
        """Return the attributes that filters mention."""
        return frozenset(name for shard in self.manifest.shards for name in shard.attributes)

    def ids(self) -> pa.ChunkedArray[Any]:
        """Return the ids by number, as packed and bitmap outputs count them."""
        tables = [read_ids(self.path / shard.ids.name) for shard in self.manifest.shards]
        return pa.chunked_array(tables)

    def check(self) -> None:
        """Raise if a file is missing or damaged."""
        for shard in self.manifest.shards:
            for file in (shard.snapshot, shard.ids):
                self._check(file)

    def _check(self, file: LibraryFile) -> None:
        path = self.path / file.name
        if not path.exists():
            raise LibraryError(path, "the file is missing; compile the subscriptions again")
        identity = (path, file.sha256, path.stat().st_mtime_ns, path.stat().st_size)
        if identity in _VERIFIED:
            return
        if describe_file(path) != file:
            raise LibraryError(
                path, "the file is damaged: its checksum is wrong; compile the subscriptions again"
            )
        _VERIFIED.add(identity)

    def __repr__(self) -> str:
        return (
            f"<Version {self.number}: {count(self.subscriptions, 'subscription')} in {self.path}>"
        )


class Library:
    """Versions of compiled subscriptions under one path."""

    def __init__(self, path: str | PathLike[str]) -> None:
        # People write such addresses because other readers of Spark take them.
        self.path: Final = Path(str(path).removeprefix("file://")).absolute()
        self._versions = self.path / "versions"

    def versions(self) -> list[int]:
        """Return the numbers of all versions, ascending."""
        if not self._versions.is_dir():
            return []
        return sorted(int(p.name) for p in self._versions.iterdir() if p.name.isdigit())

    def latest(self) -> Version:
        """Return the newest version."""
        numbers = self.versions()
        if not numbers:
            raise LibraryError(self.path, "there is no version in it; compile subscriptions first")
        return self.version(numbers[-1])

    def version(self, number: int) -> Version:
        """Return one version."""
        path = self._place(number)
        try:
            text = (path / MANIFEST).read_bytes()
            return Version(path, msgspec.json.decode(text, type=VersionManifest))
        except FileNotFoundError:
            known = ", ".join(map(str, self.versions())) or "none"
            raise LibraryError(
                self.path, f"there is no version {number} in it; it has {known}"
            ) from None
        except msgspec.MsgspecError as error:
            raise LibraryError(path / MANIFEST, f"the manifest is damaged: {error}") from None

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Yield a folder to write a version in, and remove it unless it was published."""
        folder = self._versions / f".draft-{uuid4().hex}"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, draft: Path, manifest: VersionManifest) -> Version:
        """Make a draft the newest version, and number it."""
        while True:
            number = max(self.versions(), default=0) + 1
            named = msgspec.structs.replace(manifest, version=number)
            (draft / MANIFEST).write_bytes(_pretty(named))
            try:
                draft.rename(self._place(number))
            except OSError:
                # Another compilation took the number; try the next.
                if not self._place(number).exists():
                    raise
            else:
                return Version(self._place(number), named)

    def _place(self, number: int) -> Path:
        return self._versions / f"{number:08}"

    def __repr__(self) -> str:
        return f"<Library {self.path}: versions {self.versions()}>"


def newest_version(library: Library | Version | str | PathLike[str]) -> Version:
    """Return the newest version of a library or of the library at a path; a version as given."""
    if isinstance(library, Version):
        return library
    return (library if isinstance(library, Library) else Library(library)).latest()


def describe_file(path: Path) -> LibraryFile:
    """Return the name, size and checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return LibraryFile(path.name, path.stat().st_size, digest)


def new_manifest(
    *,
    mode: str,
    schema: Schema | None,
    id_type: str,
    rows: int,
    rejected: int,
    shards: Sequence[Shard],
    key: str | None,
    buckets: int,
) -> VersionManifest:
    """Return the manifest of a version without a number."""
    return VersionManifest(
        version=0,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        mode=mode,
        schema=None if schema is None else schema_data(schema),
        id_type=id_type,
        rows=rows,
        rejected=rejected,
        shards=tuple(shards),
        key=key,
        buckets=buckets,
    )


# --- ids -------------------------------------------------------------------------------------


def write_ids(path: Path, ids: pa.Array) -> None:
    """Write ids in a format that can be mapped into memory."""
    batch = pa.record_batch({"id": ids})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_ids(path: Path) -> pa.Array[Any]:
    """Map ids into memory."""
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise LibraryError(path, f"the ids cannot be read: {error}") from None
    return table.column("id").combine_chunks()


def _pretty(manifest: VersionManifest) -> bytes:
    return json.dumps(msgspec.to_builtins(manifest), indent=1).encode()
