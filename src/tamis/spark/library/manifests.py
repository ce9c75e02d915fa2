"""The manifest of a version: its shards, and their files with checksums."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from tamis.events import Schema
from tamis.events.json_text import schema_data

MANIFEST: Final = "manifest.json"
REJECTED: Final = "rejected.parquet"


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
    removed: LibraryFile | None = None
    """The numbers of what was removed since it was compiled, if any was."""
    removed_count: int = 0
    rows: LibraryFile | None = None
    """The subscriptions as they were given, in a shard of changes, which later ones may absorb."""
    tests_elements: bool = False
    """Whether some subscriptions test elements, of which columns know nothing."""

    @property
    def numbers(self) -> int:
        """Return how many numbers it takes: removed subscriptions keep theirs."""
        return self.subscriptions + self.removed_count

    @property
    def files(self) -> tuple[LibraryFile, ...]:
        """Return all files."""
        optional = (self.removed, self.rows)
        return (self.snapshot, self.ids, *(file for file in optional if file is not None))


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
    tables: str = ""
    """In a store, the folder of the tables of rejected rows and findings."""
    feeds: dict[str, int] = {}
    """The last batch of each feed of changes that is in it, by the ids of the feeds."""


def describe_file(path: Path) -> LibraryFile:
    """Return the name, size and checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return LibraryFile(path.name, path.stat().st_size, digest)


def now_as_text() -> str:
    """Return the time, as manifests have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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
    tables: str = "",
    feeds: Mapping[str, int] | None = None,
) -> VersionManifest:
    """Return the manifest of a version without a number."""
    return VersionManifest(
        version=0,
        created_at=now_as_text(),
        mode=mode,
        schema=None if schema is None else schema_data(schema),
        id_type=id_type,
        rows=rows,
        rejected=rejected,
        shards=tuple(shards),
        key=key,
        buckets=buckets,
        tables=tables,
        feeds=dict(feeds or {}),
    )


def encode_manifest(manifest: VersionManifest) -> bytes:
    """Return a manifest as people can read it."""
    return json.dumps(msgspec.to_builtins(manifest), indent=1).encode()
