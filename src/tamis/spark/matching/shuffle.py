"""Shuffling events to the shard groups of a plan, and joining the results of the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import SchemaError
from tamis.spark.library.buckets import bucket_column
from tamis.spark.matching.columns import quoted
from tamis.spark.matching.outputs import Output
from tamis.spark.runtime.versions import repartition_by_number

EVENT: Final = T.StructField("__event", T.LongType())
GROUP: Final = T.StructField("__group", T.IntegerType())


def shuffle_by_key(
    events: DataFrame, columns: Sequence[Column], key: Column, buckets: int
) -> DataFrame:
    """Return the columns and the bucket of the key, with one bucket per partition."""
    bucket = bucket_column(key, buckets).alias(GROUP.name)
    rows = events.select(*columns, bucket)
    return repartition_by_number(rows, buckets, F.col(GROUP.name))


def copy_to_groups(rows: DataFrame, groups: int) -> DataFrame:
    """Return every row once per shard group, with the event's number and the group last."""
    slices = max(1, int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1) // groups)
    numbered = rows.select("*", F.monotonically_increasing_id().alias(EVENT.name))
    every_group = F.explode(F.sequence(F.lit(0), F.lit(groups - 1))).alias(GROUP.name)
    partition = F.col(GROUP.name) * slices + F.pmod(EVENT.name, F.lit(slices)).cast("int")
    return repartition_by_number(numbered.select("*", every_group), groups * slices, partition)


def group_output(output: Output) -> Output:
    """Return the output that each group produces so that the results can be joined."""
    if output is Output.BITMAP:
        raise SchemaError(
            "bitmaps of several groups cannot be joined; ask for packed numbers, or for a plan "
            "with all shards in one worker"
        )
    return Output.IDS if output is Output.PAIRS else output


def join_groups(
    results: DataFrame, by: Sequence[str], kept: Sequence[str], output: Output
) -> DataFrame:
    """Return one result per event from the results of all groups, in the order of groups."""
    columns = [F.first(quoted(name)).alias(name) for name in kept if name not in by]
    parts = F.array_sort(F.collect_list(F.struct(GROUP.name, "subscriptions")))
    lists = [] if group_output(output) is Output.COUNTS else [parts.alias("subscriptions")]
    matches = F.sum("matches").cast("int").alias("matches")
    events = results.groupBy(*by).agg(*columns, *lists, matches, F.first("error").alias("error"))
    return _in_form(events, kept, output)


def _in_form(events: DataFrame, kept: Sequence[str], output: Output) -> DataFrame:
    names = [F.col(quoted(name)) for name in kept]
    match output:
        case Output.COUNTS:
            return events.select(*names, "matches", "error")
        case Output.PACKED:
            return events.select(*names, _concatenated().alias("subscriptions"), "matches", "error")
        case Output.IDS:
            return events.select(*names, _flattened().alias("subscriptions"), "matches", "error")
        case _:
            exploded = events.select(*names, F.posexplode_outer(_flattened()), "error")
            nth = F.coalesce(F.col("pos") + 1, F.lit(0)).alias("nth")
            return exploded.select(*names, F.col("col").alias("subscription"), nth, "error")


def _flattened() -> Column:
    return F.flatten(F.transform("subscriptions", lambda part: part["subscriptions"]))


def _concatenated() -> Column:
    nothing = F.lit(bytearray())
    return F.aggregate(
        "subscriptions", nothing, lambda whole, part: F.concat(whole, part["subscriptions"])
    )
