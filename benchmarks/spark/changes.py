"""Changes: `python -m benchmarks.spark.changes [--subscriptions 1000000] [--changes 1000]`.

A third of the changes inserts, a third updates and a third deletes subscriptions of the workload
`market`; a full compile of all subscriptions is beside them. Beside seconds stands processor time,
of Java and all workers, which other programs on the machine do not change.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.harness import options, step
from benchmarks.spark.processor_time import processor_time
from tamis.spark import (
    change_subscriptions,
    compile_subscriptions,
    local_session,
    match,
    subscription_rows,
)

WORKLOAD = "market"
ROUNDS = 5


def changes_of(spark: SparkSession, table: DataFrame, number: int, seed: int) -> DataFrame:
    """Return changes: of known ids for two thirds, of new ids for one."""
    known = table.orderBy(F.xxhash64("id", F.lit(seed))).limit(number * 2 // 3)
    kind = F.when(F.xxhash64("id") % 2 == 0, "update").otherwise("delete")
    old = known.select("id", "filter", kind.alias("change"))
    new = subscription_rows(spark, WORKLOAD, number - number * 2 // 3, seed=seed)
    named = F.concat(F.lit(f"new-{seed}-"), F.col("id").cast("string")).alias("id")
    fresh = new.select(named, "filter", F.lit("insert").alias("change"))
    together = old.select(F.col("id").cast("string"), "filter", "change").unionAll(fresh)
    return together.localCheckpoint()


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure and print."""
    spark = local_session("local[2]")
    rows = subscription_rows(spark, WORKLOAD, chosen.subscriptions)
    path = str(folder / "subscriptions.parquet")
    rows.select(F.col("id").cast("string"), "filter").write.parquet(path)
    table = spark.read.parquet(path)
    with step("compiled all"):
        before = processor_time()
        full = compile_subscriptions(table, folder / "library")
        work_of_all = processor_time() - before
    seconds, work = [], []
    for seed in range(1, ROUNDS + 1):
        changes = changes_of(spark, table, chosen.changes, seed)
        with step("changed some"):
            before = processor_time()
            change = change_subscriptions(changes, folder / "library")
            work.append(processor_time() - before)
        seconds.append(change.seconds)
    # What was changed can be matched at once.
    event = spark.createDataFrame([(1,)], "price int")
    with step("matched an event"):
        event.transform(match(folder / "library", output="counts")).collect()
    shards = len(change.version.manifest.shards)
    spark.stop()
    print(
        f"{chosen.subscriptions:,} subscriptions: all in {full.seconds:,.1f} s, {chosen.changes:,} "
        f"changes in {median(seconds):,.2f} s (median of {ROUNDS}), "
        f"{full.seconds / median(seconds):,.0f} times less; {shards} shards; processor time "
        f"{work_of_all:,.1f} s and {median(work):,.2f} s, {work_of_all / median(work):,.0f} times "
        "less"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run with the data in a temporary folder."""
    chosen = options(__doc__, arguments, subscriptions=1_000_000, changes=1_000)
    with TemporaryDirectory(prefix="tamis-changes-") as folder:
        run(chosen, Path(folder))


if __name__ == "__main__":
    main()
