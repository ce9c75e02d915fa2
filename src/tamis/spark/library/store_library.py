"""A library in a store of objects, which has no rename.

::

    library/files/<sha256>-<period>             a snapshot or ids, by checksum and half-day
            tables/<draft>/rejected.parquet/    the rejected rows of a version
            claims/00000001/<claim>             who may publish version 1
            versions/00000001/manifest.json     published last

A reader sees a version when its manifest is there, and everything else is there before. Stores
list what was written before (S3, GCS and ABFS all do), so of two compilations that claim a number
at least one sees the other's claim, and takes another number: no manifest is ever written twice.

Changes need the number after that of the version which they change. If somebody else has claimed
it, they wait for the manifest, until the claim is so old that its owner, who publishes soon after
or never, is known to be gone.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from tamis.errors import LibraryError
from tamis.spark.library.manifests import MANIFEST, VersionManifest, encode_manifest
from tamis.spark.library.places import Draft, LibraryPlace
from tamis.spark.runtime.store_access import shared_access
from tamis.spark.runtime.stores import ObjectStore

MAX_CLAIMS: Final = 1_000
CLAIM_SECONDS: Final = 60.0
"""How long after its claim a compilation may publish."""
DEAD_CLAIM_SECONDS: Final = 600.0
"""How old a claim is whose owner is gone; longer, since clocks differ and stores may be slow."""
PATIENCE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2


class _NumberClaim(NamedTuple):
    """The right to publish the version of a number, for a while."""

    number: int
    name: str
    since: float


class StoreVersions:
    """Versions in a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def numbers(self) -> list[int]:
        """Return the numbers of all versions."""
        found = ((one.name.split("/"), one.size) for one in self._store.objects("versions"))
        # Some stores show an object before its data, empty.
        return [
            int(parts[0])
            for parts, size in found
            if parts[1:] == [MANIFEST] and parts[0].isdigit() and size
        ]

    def manifest(self, number: int) -> bytes:
        """Return a manifest."""
        data = self._store.read(_manifest_name(number))
        if data is None:
            raise FileNotFoundError
        return data

    def published(self, number: int) -> datetime | None:
        """Return when a version was published, None if it is gone or the store does not tell."""
        found = self._store.object(_manifest_name(number))
        return None if found is None else found.modified

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
        claim = self._claim() if after is None else self._claim_after(after)
        if claim is None:
            return None
        named = msgspec.structs.replace(manifest, version=claim.number, tables=draft.tables)
        if time.monotonic() - claim.since > CLAIM_SECONDS:
            raise LibraryError(
                self._store.url,
                f"the store took longer than {CLAIM_SECONDS:g} seconds to number version "
                f"{claim.number}, which others may take for dead by now; compile again",
            )
        self._store.write(_manifest_name(claim.number), encode_manifest(named))
        return named

    def _claim(self) -> _NumberClaim:
        """Claim the next number."""
        for _ in range(MAX_CLAIMS):
            number = max([0, *self.numbers(), *self._claimed()]) + 1
            folder = f"claims/{number:08}"
            claim = _NumberClaim(number, f"{folder}/{uuid4().hex}", time.monotonic())
            self._store.write(claim.name, b"claimed")
            if len(self._store.names(folder)) == 1:
                return claim
            self._store.delete(claim.name)
        raise LibraryError(
            self._store.url, "too many compilations publish at once; compile again later"
        )

    def _claim_after(self, base: int) -> _NumberClaim | None:
        """Claim the number of the version that follows a version; None if there is one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._newest() == base:
            if not self._are_claimed(base + 1):
                claim = self._claim()
                if self._newest() == base and not self._are_claimed(base + 1, claim.number):
                    return claim
                # Only ours: others may have come to the same number, and count on their claims.
                self._store.delete(claim.name)
            if time.monotonic() > deadline:
                raise LibraryError(
                    self._store.url,
                    f"somebody publishes version {base + 1}, or died while doing so; change "
                    f"subscriptions in {DEAD_CLAIM_SECONDS / 60:g} minutes, or compile all of "
                    "them, which is always possible",
                )
            time.sleep(_POLL_SECONDS)
        return None

    def _newest(self) -> int:
        return max(self.numbers(), default=0)

    def _are_claimed(self, first: int, end: int | None = None) -> bool:
        """Return whether somebody may still publish a number from the first on, below the end."""
        claims = ((one, one.name.partition("/")[0]) for one in self._store.objects("claims"))
        return any(
            first <= int(number) and (end is None or int(number) < end)
            for claim, number in claims
            if number.isdigit() and not claim.is_older_than(DEAD_CLAIM_SECONDS)
        )

    def _claimed(self) -> list[int]:
        names = (name.partition("/")[0] for name in self._store.names("claims"))
        return [int(name) for name in names if name.isdigit()]


def _manifest_name(number: int) -> str:
    return f"versions/{number:08}/{MANIFEST}"
