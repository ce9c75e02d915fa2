"""Changes of subscriptions: a version that shares all shards with the one before, but a small one.

Subscriptions that were replaced or deleted are left out of the shards that have them, by number.
The new ones make a shard of changes, which absorbs earlier ones that are not much larger, so their
number grows as the logarithm of what changed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from tamis.errors import FilterError, LibraryError
from tamis.events import Type
from tamis.events.arrow_values import type_of_arrow
from tamis.events.schema import did_you_mean
from tamis.matching.store.tables import seconds_of_column
from tamis.spark.library.compile import write_empty_table
from tamis.spark.library.ids import read_ids, write_ids
from tamis.spark.library.library import Library, Version
from tamis.spark.library.manifests import LibraryFile, Shard, VersionManifest, now_as_text
from tamis.spark.library.places import Draft
from tamis.spark.library.shard_builder import BuiltShard, ShardBuilder, ShardOptions
from tamis.spark.library.subscription_table import id_type
from tamis.spark.runtime.versions import collect_table

MAX_CHANGES: Final = 100_000
"""More than this are compiled sooner with all the others."""
CHANGES: Final = ("insert", "update", "delete")
# A shard of changes absorbs earlier ones of up to this many times its size.
_ABSORBED_TIMES: Final = 4
_MAX_ATTEMPTS: Final = 20
_COLUMNS: Final = ("id", "filter", "language", "mode", "expires_at", "change")

_COUNTED: Final = ("inserted", "updated", "deleted", "rejected", "superseded")

ChangeRow = dict[str, Any]


class FeedBatch(NamedTuple):
    """A batch of a feed, which a version that has it names."""

    feed: str
    batch: int

    def is_in(self, manifest: VersionManifest) -> bool:
        """Return whether a version has the changes of this batch."""
        return manifest.feeds.get(self.feed, -1) >= self.batch


class ChangeReport(NamedTuple):
    """The outcome of changes: changes = inserted + updated + deleted + rejected + superseded."""

    version: Version
    changes: int
    inserted: int
    updated: int
    deleted: int
    rejected: int
    superseded: int
    """Those of a feed that a later one of the same batch made pointless."""
    seconds: float


def change_subscriptions(
    changes: DataFrame, library: Library | str | PathLike[str]
) -> ChangeReport:
    """Publish a version of a library with some subscriptions inserted, updated or deleted.

    The table has the columns of `compile_subscriptions`, and `change`: insert, update or delete. An
    insert of a known id updates it, and an update of an unknown one inserts it. Rejected rows
    change nothing, and are written to a table with the reasons.
    """
    target = library if isinstance(library, Library) else Library(library)
    started = time.monotonic()
    rows = rows_of_changes(changes)
    require_id_type(id_type(changes, ("id",)), target.latest())
    report = apply_changes(target, rows)
    return report._replace(seconds=time.monotonic() - started)


def apply_changes(
    target: Library, rows: list[ChangeRow], *, in_order: bool = False, of: FeedBatch | None = None
) -> ChangeReport:
    """Publish a version with changes given as mappings.

    An id may have several if they are `in_order`; the last one without a mistake counts. The
    version remembers the batch that they are `of`.
    """
    started = time.monotonic()
    for _ in range(_MAX_ATTEMPTS):
        base = target.latest()
        base.check()
        with target.draft() as draft:
            change = _Change(base, draft, rows, in_order=in_order)
            manifest = change.manifest()
            if of is not None:
                feeds = {**manifest.feeds, of.feed: of.batch}
                manifest = msgspec.structs.replace(manifest, feeds=feeds)
            version = target.publish_after(base, draft, manifest)
        if version is not None:
            counts = {name: change.counts[name] for name in _COUNTED}
            seconds = time.monotonic() - started
            return ChangeReport(version=version, changes=len(rows), seconds=seconds, **counts)
    raise LibraryError(target.location, "others publish versions all the time; try again later")


def rows_of_changes(
    changes: DataFrame, *also: str, instead: str = "compile all subscriptions instead"
) -> list[ChangeRow]:
    """Return the rows of a table of changes, with the columns that a library knows and others.

    If there are too many, the error says what to do `instead`.
    """
    kind = id_type(changes, ("id",))
    if "change" not in changes.columns:
        hint = did_you_mean("change", changes.columns)
        raise FilterError(
            'the table of changes has no column "change", which is insert, update or delete'
            f"{'; ' + hint if hint else ''}"
        )
    names = [name for name in (*_COLUMNS, *also) if name in changes.columns]
    chosen = changes.select(*names).limit(MAX_CHANGES + 1)
    table = collect_table(chosen.withColumn("id", chosen["id"].cast(kind)))
    if table.num_rows > MAX_CHANGES:
        raise FilterError(f"there are more than {MAX_CHANGES:,} changes; {instead}")
    return changes_in(table)


def changes_in(table: pa.Table) -> list[ChangeRow]:
    """Return the rows of a table of changes as mappings, with times as a compilation reads them.

    >>> changes_in(pa.table({"id": ["a"], "change": ["delete"]}))
    [{'id': 'a', 'change': 'delete', 'filter': None}]
    """
    names = table.column_names
    columns = {name: table.column(name).to_pylist() for name in names}
    if "expires_at" in names:
        times = table.column("expires_at").combine_chunks()
        if type_of_arrow(times.type) is Type.TIMESTAMP:
            columns["expires_at"] = seconds_of_column(times)
    if "filter" not in names:
        if any(change != "delete" for change in columns["change"]):
            raise FilterError(
                'the table of changes has no column "filter", which only deletes do without'
            )
        columns["filter"] = [None] * table.num_rows
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def require_id_type(kind: str, version: Version) -> None:
    """Raise if ids of a type are none of a library."""
    known = version.manifest.id_type
    if kind != known:
        raise FilterError(
            f'the column "id" of changes has the type {kind}, and the ids of the library '
            f"{version.library} have the type {known}; cast the column"
        )


class _Change:
    """The next version, made from a version and some changes."""

    def __init__(
        self, base: Version, draft: Draft, rows: list[ChangeRow], *, in_order: bool
    ) -> None:
        self._base = base
        self._draft = draft
        manifest = base.manifest
        numbers = [shard.number for shard in manifest.shards]
        # Lower numbers are those of buckets.
        number = max([*numbers, 2 * manifest.buckets - 1], default=-1) + 1
        options = ShardOptions(
            draft, manifest.schema, manifest.mode, manifest.id_type, None, manifest.buckets
        )
        self._builder = ShardBuilder(options, number)
        self._places = _places(base, [row["id"] for row in rows])
        self._gone: set[Any] = set()
        """The ids whose former subscriptions are left out."""
        self._given: list[ChangeRow] = []
        """The rows in the shard of changes."""
        self.counts: Counter[str] = Counter()
        if in_order:
            self._apply_last(rows)
        else:
            self._apply(rows)

    def _apply(self, rows: list[ChangeRow]) -> None:
        """Add or leave out what each row names."""
        firsts: dict[Any, int] = {}
        for number, row in enumerate(rows, 1):
            self.counts[self._outcome(row, number, firsts.setdefault(row["id"], number))] += 1

    def _apply_last(self, rows: list[ChangeRow]) -> None:
        """Add or leave out what the last row of each id names that has no mistake."""
        left = Counter(row["id"] for row in rows)
        settled: set[Any] = set()
        for number, row in reversed([*enumerate(rows, 1)]):
            left[row["id"]] -= 1
            if row["id"] in settled:
                outcome = "superseded"
            elif row["change"] == "delete" and left[row["id"]] and row["id"] not in self._places:
                # What it deletes came in the same batch.
                outcome = "deleted"
            else:
                outcome = self._outcome(row, number, number)
            if outcome != "rejected":
                settled.add(row["id"])
            self.counts[outcome] += 1

    def _outcome(self, row: ChangeRow, number: int, first: int) -> str:
        """Do what a row says, if it has no mistake; return what was done."""
        known = row["id"] in self._places
        error = _mistake(row, number, first, known=known)
        if error is not None:
            self._builder.reject(row, number, error)
            return "rejected"
        if row["change"] == "delete":
            self._gone.add(row["id"])
            return "deleted"
        if not self._builder.add(row, number, first):
            return "rejected"
        self._given.append(row)
        self._gone.add(row["id"])
        return "updated" if known else "inserted"

    def manifest(self) -> VersionManifest:
        """Write the shard of changes, and return the manifest of the version."""
        kept = list(self._base.manifest.shards)
        while kept and kept[-1].rows is not None and _is_absorbed(kept[-1], len(self._given)):
            self._absorb(kept.pop())
        shards = [self._without_gone(shard) for shard in kept]
        built = self._write()
        shards = [shard for shard in [*shards, built.shard] if shard.subscriptions]
        # A version has a shard, if only to say what type its ids have.
        shards = shards or [built.shard]
        if not built.rejected:
            write_empty_table(self._draft)
        live = sum(shard.subscriptions for shard in shards)
        return msgspec.structs.replace(
            self._base.manifest,
            created_at=now_as_text(),
            rows=live + built.rejected,
            rejected=built.rejected,
            shards=tuple(shards),
        )

    def _absorb(self, shard: Shard) -> None:
        """Add what is left of a shard of changes."""
        assert shard.rows is not None  # noqa: S101 - the caller looked
        rows = msgspec.json.decode(self._base.file(shard.rows).read_bytes(), type=list[ChangeRow])
        removed = set() if shard.removed is None else set(_numbers(self._base, shard.removed))
        for place, row in enumerate(rows):
            if place not in removed and row["id"] not in self._gone:
                added = self._builder.add(row, 0, 0)
                assert added, row  # noqa: S101 - it was, under the same schema
                self._given.append(row)

    def _without_gone(self, shard: Shard) -> Shard:
        """Return a shard with the numbers of what is left out, and its files in the draft."""
        here = self._gone_from(shard)
        for file in shard.files:
            if file is not shard.removed or not here:
                self._draft.keep_again(self._base.place, file)
        if not here:
            return shard
        before = [] if shard.removed is None else _numbers(self._base, shard.removed)
        numbers = sorted({*before, *here})
        with self._draft.folder() as folder:
            path = folder / f"shard-{shard.number:04}.removed-{uuid4().hex[:8]}.arrow"
            write_ids(path, pa.array(numbers, pa.int64()))
            file = self._draft.keep(path)
        return msgspec.structs.replace(
            shard,
            subscriptions=shard.numbers - len(numbers),
            removed=file,
            removed_count=len(numbers),
        )

    def _gone_from(self, shard: Shard) -> list[int]:
        places = (place for id_ in self._gone for place in self._places.get(id_, ()))
        return [number for at, number in places if at == shard.number]

    def _write(self) -> BuiltShard:
        built = self._builder.write()
        given = [_plain(row) for row in self._given]
        with self._draft.folder() as folder:
            path = folder / f"shard-{built.shard.number:04}.rows.json"
            path.write_bytes(msgspec.json.encode(given))
            rows = self._draft.keep(path)
        return msgspec.structs.replace(built, shard=msgspec.structs.replace(built.shard, rows=rows))


def _mistake(row: ChangeRow, number: int, first: int, *, known: bool) -> FilterError | None:
    if row["change"] not in CHANGES:
        return FilterError(f"the change {row['change']!r} is none of {', '.join(CHANGES)}")
    if row["change"] != "delete":
        return None
    if number != first:
        return FilterError(f"the id {row['id']!r} is already that of row {first}")
    if not known:
        return FilterError(f"there is no subscription {row['id']!r} to delete")
    return None


def _places(base: Version, ids: list[Any]) -> dict[Any, list[tuple[int, int]]]:
    """Return the shard and the number of each id that a version has."""
    found: dict[Any, list[tuple[int, int]]] = {}
    for shard in base.manifest.shards:
        known = read_ids(base.file(shard.ids))
        wanted = pa.array(list(dict.fromkeys(ids)), known.type)
        removed = () if shard.removed is None else _numbers(base, shard.removed)
        gone = np.zeros(shard.numbers, np.bool_)
        gone[np.asarray(removed, np.int64)] = True
        for place in _indices(known, wanted):
            if not gone[place]:
                found.setdefault(known[place].as_py(), []).append((shard.number, int(place)))
    return found


def _indices(known: pa.Array[Any], wanted: pa.Array[Any]) -> Iterator[int]:
    """Yield the places of all values that are wanted."""
    places: NDArray[np.int64] = np.flatnonzero(
        pc.is_in(known, value_set=wanted.drop_null()).to_numpy(zero_copy_only=False)
    )
    yield from places.tolist()


def _numbers(version: Version, file: LibraryFile) -> list[int]:
    numbers: list[int] = read_ids(Path(version.file(file))).to_pylist()
    return numbers


def _is_absorbed(shard: Shard, new: int) -> bool:
    return shard.subscriptions <= _ABSORBED_TIMES * max(1, new)


def _plain(row: ChangeRow) -> ChangeRow:
    """Return a row for JSON; a time as seconds."""
    expires_at = row.get("expires_at")
    seconds = expires_at.timestamp() if isinstance(expires_at, datetime) else expires_at
    given = {name: row.get(name) for name in ("id", "filter", "language", "mode")}
    return given | {"expires_at": seconds}
