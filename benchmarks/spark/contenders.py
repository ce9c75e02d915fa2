"""What the Spark benchmark compares: ways from a folder of events to a DataFrame of matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

# Their types are nobody's concern here, whether or not the configuration says so already.
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import pandas_udf

from benchmarks.spark.data import Numbers, Place
from tamis.spark import match, match_files, register

Make = Callable[[SparkSession, Place], DataFrame]


def drain(spark: SparkSession, make: Make, place: Place) -> None:
    """Compute all rows, and keep none."""
    make(spark, place).write.format("noop").mode("overwrite").save()


# --- Tamis, and what it is measured by -----------------------------------------------------------


def scanned(spark: SparkSession, place: Place, columns: Sequence[str] = ("*",)) -> DataFrame:
    """Read events, and nothing else."""
    return spark.read.parquet(place.events).select(*columns)


def handed_over(spark: SparkSession, place: Place, columns: Sequence[str] = ("*",)) -> DataFrame:
    """Send rows to Python and back unchanged."""

    def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    events = scanned(spark, place, columns)
    return events.mapInArrow(same, events.schema)


def matched(
    spark: SparkSession, place: Place, output: str, keep: Sequence[str] | None = ()
) -> DataFrame:
    """Match rows that Spark hands over."""
    return scanned(spark, place).transform(match(place.library, output=output, keep=keep))


def matched_in_sql(spark: SparkSession, place: Place) -> DataFrame:
    """Match rows by a function of SQL."""
    register(spark, place.library, "alerts")
    scanned(spark, place).createOrReplaceTempView("events")
    return spark.sql("SELECT *, alerts(struct(*)) AS subscriptions FROM events")


def matched_in_files(spark: SparkSession, place: Place, output: str) -> DataFrame:
    """Match rows that workers read."""
    return match_files(
        spark, place.library, place.events, output=output, split_size=place.bytes_per_file
    )


# --- without Tamis -------------------------------------------------------------------------------


def joined_by_hash(spark: SparkSession, place: Place) -> DataFrame:
    """Join with a table of rules, which only equalities on the same fields allow."""
    rules = F.broadcast(spark.read.parquet(place.rules))
    return scanned(spark, place).join(rules, F.expr("f0 = s0 and f1 = s1 and f2 = s2"))


def joined_by_loops(spark: SparkSession, place: Place) -> DataFrame:
    """Cross join with a table of rules, each of which has a lower and an upper bound."""
    rules = F.broadcast(spark.read.parquet(place.rules))
    inside = " and ".join(f"f{n} between s{n} and s{n}" for n in range(3))
    return scanned(spark, place).crossJoin(rules).where(inside)


def by_expressions(spark: SparkSession, place: Place) -> DataFrame:
    """Evaluate every subscription as an expression of SQL."""
    rules = pq.read_table(place.rules).to_pylist()
    ids = (
        f"case when f0 = {rule['s0']} and f1 = {rule['s1']} and f2 = {rule['s2']} "
        f"then {rule['id']}L end"
        for rule in rules
    )
    found = F.expr(f"array_compact(array({', '.join(ids)}))")
    return scanned(spark, place).select(found.alias("subscriptions"))


def by_pandas(spark: SparkSession, place: Place) -> DataFrame:
    """Loop over subscriptions in a `pandas_udf`, each compared with all rows of a batch."""
    table = pq.read_table(place.rules)
    rules = np.stack([table.column(f"s{n}").to_numpy() for n in range(3)], axis=1)

    def ids(f0: pd.Series, f1: pd.Series, f2: pd.Series) -> pd.Series:
        a, b, c = f0.to_numpy(), f1.to_numpy(), f2.to_numpy()
        hits = [np.flatnonzero((a == x) & (b == y) & (c == z)) for x, y, z in rules]
        events = np.concatenate(hits)
        numbers = np.repeat(np.arange(len(hits)), [len(hit) for hit in hits])
        order = np.argsort(events, kind="stable")
        ends = np.cumsum(np.bincount(events, minlength=len(a)))[:-1]
        return pd.Series(np.split(numbers[order], ends))

    # Its stubs know only the older form, without hints.
    udf: Any = pandas_udf
    found = udf(ids, "array<bigint>")("f0", "f1", "f2")
    return scanned(spark, place).select(found.alias("subscriptions"))


# --- what they find ------------------------------------------------------------------------------


def rows_of(spark: SparkSession, make: Make, place: Place) -> int:
    """Return the number of rows."""
    return make(spark, place).count()


def counts_by_subscription(
    spark: SparkSession, make: Make, place: Place, subscriptions: int
) -> Numbers:
    """Return how many events match each subscription."""
    found = make(spark, place)
    ids = found.select(_id(found).alias("id")).groupBy("id").count().toArrow()
    counts = np.zeros(subscriptions, np.int64)
    counts[ids.column("id").to_numpy()] = ids.column("count").to_numpy()
    return counts


def counts_by_matches(spark: SparkSession, make: Make, place: Place) -> Numbers:
    """Return how many events have no match, one match, two and so on."""
    found = make(spark, place).groupBy("matches").count().toArrow()
    numbers = found.column("matches").to_numpy()
    counts = np.zeros(numbers.max() + 1, np.int64)
    counts[numbers] = found.column("count").to_numpy()
    return counts


def _id(found: DataFrame) -> Column:
    for name in ("subscription", "id"):
        if name in found.columns:
            return F.col(name)
    return F.explode("subscriptions")
