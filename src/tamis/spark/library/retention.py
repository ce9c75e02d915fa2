"""Which versions of a library stay: the newest ones, and the files that they share.

One that was the newest not long ago stays too, since a job that began with it may go on to read its
files. In a store, files belong to all versions that name them. One that no version names goes too,
if it is old: a younger one may be that of a version about to be published.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from tamis.errors import LibraryError
from tamis.spark.library.library import DRAFT, Library, version_place
from tamis.spark.library.manifests import VersionManifest
from tamis.spark.library.places import FILES, REUSED_SECONDS
from tamis.spark.runtime.stores import ObjectStore, StoredObject

GRACE_SECONDS: Final = 2 * REUSED_SECONDS
REPLACED_SECONDS: Final = 3_600.0
_FORGOTTEN: Final = ".forgotten-"


class Forgotten(NamedTuple):
    """The versions that were removed, and the files and bytes that went with them."""

    versions: list[int]
    files: int
    size: int


def forget_versions(
    library: Library | str | PathLike[str],
    *,
    keep: int,
    replaced_for: float = REPLACED_SECONDS,
    grace: float = GRACE_SECONDS,
) -> Forgotten:
    """Remove all versions but the newest, and the files that only they have.

    Keep those that a stream or a job may still need: a stream finishes a batch with the version
    that it began it with. One that has not been replaced for `replaced_for` seconds stays as well.
    `grace` is how many seconds old a file must be that no version names; it must be longer than any
    compilation takes.
    """
    target = library if isinstance(library, Library) else Library(library)
    if keep < 1:
        raise LibraryError(
            target.location, f"its newest version always stays, so `keep` cannot be {keep}"
        )
    numbers = target.versions()
    gone = [
        number
        for number, next_ in pairwise(numbers)
        if number in numbers[:-keep] and _is_older_than(target.published(next_), replaced_for)
    ]
    if target.store is None:
        return _forget_folders(target.path, gone, grace)
    if grace < REUSED_SECONDS:
        raise LibraryError(
            target.location,
            f"`grace` cannot be less than {REUSED_SECONDS:g} seconds in a store, because a new "
            "version may take files that are so old as they are",
        )
    return _Sweep(target, target.store, grace).forget(gone, sorted({*numbers} - {*gone}))


def _is_older_than(moment: datetime | None, seconds: float) -> bool:
    return moment is not None and (datetime.now(UTC) - moment).total_seconds() >= seconds


def _forget_folders(path: Path, gone: list[int], grace: float) -> Forgotten:
    folder = path / "versions"
    for number in gone:
        # By a rename, so that a reader finds all of it or nothing; another may have been quicker.
        with suppress(FileNotFoundError):
            Path(version_place(str(path), number)).rename(folder / f"{_FORGOTTEN}{uuid4().hex}")
    files = size = 0
    for place in (*folder.glob(f"{_FORGOTTEN}*"), *folder.glob(f"{DRAFT}*")):
        with suppress(FileNotFoundError):
            if place.name.startswith(DRAFT) and time.time() - place.stat().st_mtime <= grace:
                continue
            # A file with other links belongs to other versions as well.
            states = [one.stat() for one in place.rglob("*") if one.is_file()]
            only_here = [state for state in states if state.st_nlink == 1]
            files, size = files + len(only_here), size + sum(state.st_size for state in only_here)
        shutil.rmtree(place, ignore_errors=True)
    return Forgotten(gone, files, size)


class _Sweep:
    """Removes objects of a library that no version names."""

    def __init__(self, library: Library, store: ObjectStore, grace: float) -> None:
        self._library, self._store, self._grace = library, store, grace
        self._files = self._size = 0

    def forget(self, gone: list[int], kept: list[int]) -> Forgotten:
        """Remove versions, and what only they, or versions that never came to be, have named."""
        # Before anything is removed: a manifest that cannot be read may name any file.
        manifests = [found for number in kept if (found := self._manifest(number)) is not None]
        named = {
            file.name for manifest in manifests for shard in manifest.shards for file in shard.files
        }
        for number in gone:
            # What begins with the manifest is, without it, nothing to a reader.
            place = f"versions/{number:08}"
            self._remove(place, self._store.objects(place))
        self._remove(FILES, self._old(FILES, lambda name: f"{FILES}/{name}" not in named))
        tables = {manifest.tables.removeprefix("tables/") for manifest in manifests}
        self._remove("tables", self._old("tables", lambda name: name.split("/")[0] not in tables))
        # Those of the newest version stay, so that nobody claims its number again.
        newest = kept[-1]
        self._remove("claims", self._old("claims", lambda name: _number(name) < newest))
        return Forgotten(gone, self._files, self._size)

    def _manifest(self, number: int) -> VersionManifest | None:
        """Return the manifest of a version; None if somebody else has forgotten it meanwhile."""
        try:
            return self._library.version(number).manifest
        except LibraryError:
            if number in self._library.versions():
                raise
            return None

    def _old(self, folder: str, is_unnamed: Callable[[str], bool]) -> list[StoredObject]:
        """Return the objects in a folder that no version names, and no draft can have."""
        found = self._store.objects(folder)
        return [one for one in found if is_unnamed(one.name) and one.is_older_than(self._grace)]

    def _remove(self, folder: str, objects: list[StoredObject]) -> None:
        for one in objects:
            self._store.delete(f"{folder}/{one.name}")
            self._files, self._size = self._files + 1, self._size + one.size


def _number(claim: str) -> int:
    """Return the number that is claimed; nothing else may lie there, and if it does, it stays."""
    number = claim.partition("/")[0]
    return int(number) if number.isdigit() else sys.maxsize
