"""Events dealt out to the shares of a plan, and the results of the shares joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import SchemaError
from tamis.spark.library.keys import bucket_column
from tamis.spark.matching.columns import quoted
from tamis.spark.matching.outputs import Output

EVENT: Final = T.StructField("__event", T.LongType())
SHARE: Final = T.StructField("__share", T.IntegerType())


def deal_by_key(
    events: DataFrame, columns: Sequence[Column], key: Column, buckets: int
) -> DataFrame:
    """Return columns of events, then the bucket of the key; all of a bucket are together."""
    share = bucket_column(key, buckets).alias(SHARE.name)
    return events.select(*columns, share).repartitionById(buckets, SHARE.name)


def deal_to_all(rows: DataFrame, shares: int) -> DataFrame:
    """Return every row once for each share, with the number of the event and the share last."""
    slices = max(1, int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1) // shares)
    numbered = rows.select("*", F.monotonically_increasing_id().alias(EVENT.name))
    everywhere = F.explode(F.sequence(F.lit(0), F.lit(shares - 1))).alias(SHARE.name)
    place = F.col(SHARE.name) * slices + F.pmod(EVENT.name, F.lit(slices)).cast("int")
    return numbered.select("*", everywhere).repartitionById(shares * slices, place)


def told_output(output: Output) -> Output:
    """Return the output that shares tell, so that it can be joined."""
    if output is Output.BITMAP:
        raise SchemaError(
            "bitmaps of several groups cannot be joined; ask for packed numbers, or for a plan "
            "with all shards in one worker"
        )
    return Output.IDS if output is Output.PAIRS else output


def joined(results: DataFrame, by: Sequence[str], kept: Sequence[str], output: Output) -> DataFrame:
    """Return one result for each event, from those of all shares, in the order of shares."""
    columns = [F.first(quoted(name)).alias(name) for name in kept if name not in by]
    told = told_output(output)
    parts = F.array_sort(F.collect_list(F.struct(SHARE.name, "subscriptions")))
    lists = [] if told is Output.COUNTS else [parts.alias("subscriptions")]
    matches = F.sum("matches").cast("int").alias("matches")
    one = results.groupBy(*by).agg(*columns, *lists, matches, F.first("error").alias("error"))
    return _finished(one, kept, output)


def _finished(one: DataFrame, kept: Sequence[str], output: Output) -> DataFrame:
    names = [F.col(quoted(name)) for name in kept]
    match output:
        case Output.COUNTS:
            return one.select(*names, "matches", "error")
        case Output.PACKED:
            return one.select(*names, _concatenated().alias("subscriptions"), "matches", "error")
        case Output.IDS:
            return one.select(*names, _flattened().alias("subscriptions"), "matches", "error")
        case _:
            exploded = one.select(*names, F.posexplode_outer(_flattened()), "error")
            nth = F.coalesce(F.col("pos") + 1, F.lit(0)).alias("nth")
            return exploded.select(*names, F.col("col").alias("subscription"), nth, "error")


def _flattened() -> Column:
    return F.flatten(F.transform("subscriptions", lambda part: part["subscriptions"]))


def _concatenated() -> Column:
    nothing = F.lit(bytearray())
    return F.aggregate(
        "subscriptions", nothing, lambda whole, part: F.concat(whole, part["subscriptions"])
    )
