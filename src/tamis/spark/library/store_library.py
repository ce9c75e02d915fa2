"""A library in a store of objects, which has no rename.

::

    library/files/<sha256>                      a snapshot or ids, by checksum
            tables/<draft>/rejected.parquet/    the rejected rows of a version
            claims/00000001/<claim>             who may publish version 1
            versions/00000001/manifest.json     published last

A reader sees a version when its manifest is there, and everything else is there before. Stores
list what was written before (S3, GCS and ABFS all do), so of two compilations that claim a number
at least one sees the other's claim, and takes another number: no manifest is ever written twice.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import msgspec

from tamis.errors import LibraryError
from tamis.spark.library.manifests import MANIFEST, VersionManifest, encode_manifest
from tamis.spark.library.places import Draft, LibraryPlace
from tamis.spark.runtime.store_access import shared_access
from tamis.spark.runtime.stores import ObjectStore

MAX_CLAIMS: Final = 1_000


class StoreVersions:
    """Versions in a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def numbers(self) -> list[int]:
        """Return the numbers of all versions."""
        names = (name.split("/") for name in self._store.names("versions"))
        return [int(parts[0]) for parts in names if parts[1:] == [MANIFEST] and parts[0].isdigit()]

    def manifest(self, number: int) -> bytes:
        """Return a manifest."""
        data = self._store.read(_manifest_name(number))
        if data is None:
            raise FileNotFoundError
        return data

    def draft(self) -> Draft:
        """Begin a version; nobody sees its files before its manifest."""
        place = LibraryPlace(self._store.url, shared_access(self._store.access))
        return Draft(place, f"tables/{uuid4().hex}")

    def discard(self, draft: Draft) -> None:
        """Leave the files: by checksum, they may be those of another version."""

    def publish(
        self, draft: Draft, manifest: VersionManifest, after: int | None = None
    ) -> VersionManifest | None:
        """Claim a number, and write the manifest; None if another came `after` a version."""
        number = self._claimed_number()
        if after is not None and number != after + 1:
            self._unclaim(number)
            if self.numbers() and max(self.numbers()) == after:
                raise LibraryError(
                    self._store.url,
                    f"somebody publishes version {after + 1}, or died while doing so; change "
                    "subscriptions later, or compile all of them, which is always possible",
                )
            return None
        named = msgspec.structs.replace(manifest, version=number, tables=draft.tables)
        self._store.write(_manifest_name(number), encode_manifest(named))
        return named

    def _claimed_number(self) -> int:
        for _ in range(MAX_CLAIMS):
            number = max([0, *self.numbers(), *self._claimed()]) + 1
            folder = f"claims/{number:08}"
            claim = f"{folder}/{uuid4().hex}"
            self._store.write(claim, b"claimed")
            if len(self._store.names(folder)) == 1:
                return number
            self._store.delete(claim)
        raise LibraryError(
            self._store.url, "too many compilations publish at once; compile again later"
        )

    def _unclaim(self, number: int) -> None:
        """Give back a number that nobody else can have claimed."""
        folder = f"claims/{number:08}"
        for name in self._store.names(folder):
            self._store.delete(f"{folder}/{name}")

    def _claimed(self) -> list[int]:
        names = (name.partition("/")[0] for name in self._store.names("claims"))
        return [int(name) for name in names if name.isdigit()]


def _manifest_name(number: int) -> str:
    return f"versions/{number:08}/{MANIFEST}"
