"""Compiling a table of subscriptions to a new version of a library."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.analysis.lint import LintLimits
from tamis.errors import FilterError, LibraryError
from tamis.events import Schema, Type
from tamis.events.json_text import schema_data
from tamis.filters import Mode
from tamis.filters.modes import as_mode, require_schema
from tamis.spark.library.library import Library, Version
from tamis.spark.library.manifests import REJECTED, VersionManifest, new_manifest
from tamis.spark.library.places import Draft
from tamis.spark.library.shard_builder import (
    REJECTED_SCHEMA,
    BuiltShard,
    ShardOptions,
    add_buckets,
    build_shards,
)
from tamis.spark.library.subscription_table import id_type, numbered, read_table
from tamis.spark.runtime.versions import repartition_by_number

# Large enough that an event meets few shards, small enough that workers share the building.
SUBSCRIPTIONS_PER_SHARD: Final = 250_000


class CompileReport(NamedTuple):
    """The outcome of a compilation: rows = subscriptions + rejected."""

    version: Version
    rows: int
    subscriptions: int
    rejected: int
    findings: int
    seconds: float

    @property
    def rejected_path(self) -> str:
        """Return the table of rejected rows: row, id, reason, line, column, filter."""
        return self.version.rejected_path


def compile_subscriptions(
    subscriptions: DataFrame | str | PathLike[str],
    library: Library | str | PathLike[str],
    *,
    schema: Schema | None = None,
    mode: str = Mode.SQL,
    shards: int | None = None,
    shard_size: int = SUBSCRIPTIONS_PER_SHARD,
    key: str | None = None,
    lint: bool | LintLimits = False,
    format_: str | None = None,
    spark: SparkSession | None = None,
) -> CompileReport:
    """Compile subscriptions to a new version of a library, and report rejected rows.

    A `key`, a text attribute that most filters pin down, shards the subscriptions, so that
    matching can shuffle events by it too. With `lint`, look for mistakes in the filters of a shard;
    a mapping of limits (`filters`, `pairs`, `steps`) says how far.
    """
    started = time.monotonic()
    require_schema(as_mode(mode), schema)
    _check_key(key, schema)
    target = library if isinstance(library, Library) else Library(library)
    # Before the table is read: what a feed changes later may not be in it.
    feeds = feeds_in(target)
    table = _table(subscriptions, spark, format_)
    rows, count = numbered(table)
    number = shards or max(1, -(-count // shard_size))
    with target.draft() as draft:
        declared = None if schema is None else schema_data(schema)
        buckets = number if key else 0
        limits = (LintLimits() if lint else None) if isinstance(lint, bool) else lint
        options = ShardOptions(draft, declared, mode, id_type(table), key, buckets, limits)
        built = _build(_sharded(rows, number, options), options)
        rejected = sum(one.rejected for one in built)
        manifest = new_manifest(
            mode=mode,
            schema=schema,
            id_type=options.id_type,
            rows=count,
            rejected=rejected,
            shards=[one.shard for one in built],
            key=key,
            buckets=buckets,
            feeds=feeds,
        )
        if not rejected:
            write_empty_table(draft)
        require_same_feeds(target, manifest)
        version = target.publish(draft, manifest)
    findings = sum(one.findings for one in built)
    seconds = time.monotonic() - started
    return CompileReport(version, count, version.subscriptions, rejected, findings, seconds)


def feeds_in(library: Library) -> dict[str, int]:
    """Return the last batch of each feed of changes that the newest version has."""
    numbers = library.versions()
    try:
        return library.version(numbers[-1]).manifest.feeds if numbers else {}
    except LibraryError:
        # To compile is what one does about a damaged version.
        return {}


def require_same_feeds(library: Library, manifest: VersionManifest) -> None:
    """Raise if a feed has gone on since the subscriptions of a version were read."""
    if feeds_in(library) != manifest.feeds:
        raise LibraryError(
            library.location,
            "a feed has changed it while the subscriptions were compiled, and this would be lost; "
            "stop the feed, compile again, and start the feed",
        )


def _table(
    subscriptions: DataFrame | str | PathLike[str], spark: SparkSession | None, format_: str | None
) -> DataFrame:
    if isinstance(subscriptions, str | PathLike):
        return read_table(spark or SparkSession.active(), subscriptions, format_)
    return subscriptions


def _check_key(key: str | None, schema: Schema | None) -> None:
    if key is None or schema is None:
        return
    if key not in schema:
        raise FilterError(
            f"the key {key!r} is not in the schema; {schema.suggestion(key)}".rstrip("; ")
        )
    if schema[key].type is not Type.STR:
        raise FilterError(f"the key {key!r} should be a text, but is {schema[key].type.value!r}")
    if schema[key].caseless:
        raise FilterError(f"the key {key!r} ignores case, so no subscription is pinned down by it")


def _sharded(rows: DataFrame, shards: int, options: ShardOptions) -> DataFrame:
    """Return the rows partitioned by shard, in the order of the table."""
    by_id = F.pmod(F.xxhash64("id"), F.lit(shards)).cast("int")
    if not options.key:
        sharded = rows.withColumn("shard", by_id)
        return _in_order(sharded, shards)
    schema = T.StructType([*rows.schema, T.StructField("bucket", T.IntegerType())])

    def bucketed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return add_buckets(batches, options)

    shard = F.coalesce(F.col("bucket"), by_id + shards)
    sharded = rows.mapInArrow(bucketed, schema).withColumn("shard", shard).drop("bucket")
    return _in_order(sharded, 2 * shards)


def _in_order(sharded: DataFrame, partitions: int) -> DataFrame:
    placed = repartition_by_number(sharded, partitions, F.col("shard"))
    return placed.sortWithinPartitions("row")


def _build(sharded: DataFrame, options: ShardOptions) -> list[BuiltShard]:
    def build(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return build_shards(batches, options)

    rows = sharded.mapInArrow(build, "built string").collect()
    built = [msgspec.json.decode(row.built, type=BuiltShard) for row in rows]
    return sorted(built, key=lambda one: one.shard.number)


def write_empty_table(draft: Draft) -> None:
    """Make sure that there is a table to read even if no row was rejected."""
    with draft.folder() as folder:
        path = folder / REJECTED / "none.parquet"
        path.parent.mkdir()
        pq.write_table(REJECTED_SCHEMA.empty_table(), path)
        draft.keep_table(path)
