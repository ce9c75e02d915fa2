"""A driver of Spark whose library is in a store: compiles, matches, and compares with a folder."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tamis.errors import TamisError
from tamis.spark import change_subscriptions, compile_subscriptions, local_session, match
from tamis.spark.runtime.failures import readable_errors

LIBRARY = "s3a://bucket/library"


def events(spark: SparkSession) -> DataFrame:
    rng = Random(7)
    rows = [(n, rng.choice("ABCDE"), rng.uniform(0, 100)) for n in range(2_000)]
    return spark.createDataFrame(rows, "n int, symbol string, price double")


def subscriptions(spark: SparkSession) -> DataFrame:
    rng = Random(8)
    rows = [
        (f"s{n}", f'symbol = "{rng.choice("ABCDE")}" and price < {rng.uniform(0, 100)}')
        for n in range(500)
    ]
    return spark.createDataFrame([*rows, ("wrong", "price <<")], "id string, filter string")


def pairs(frame: DataFrame, library: Any) -> Counter[tuple[Any, ...]]:
    found = frame.transform(match(library, output="pairs", keep=["n"]))
    plan = found._jdf.queryExecution().toString()
    assert sys.argv[3] not in plan
    return Counter((row["n"], row["subscription"]) for row in found.collect())


def compare(spark: SparkSession, folder: Path) -> dict[str, Any]:
    # Other shards than those in the store: a worker that has opened one does not fetch it.
    local = compile_subscriptions(subscriptions(spark), folder / "library", shards=2)
    remote = compile_subscriptions(subscriptions(spark), LIBRARY, shards=3)
    assert remote.version.rejected_rows().num_rows == remote.rejected == local.rejected
    frame = events(spark)
    here, there = pairs(frame, local.version), pairs(frame, remote.version)
    assert sorted(remote.version.ids().to_pylist()) == sorted(local.version.ids().to_pylist())
    changed = [("s1", "price < 50", "update"), ("s2", None, "delete"), ("new", "n < 9", "insert")]
    changes = spark.createDataFrame(changed, "id string, filter string, change string")
    for library in (folder / "library", LIBRARY):
        change_subscriptions(changes, library)
    after_here, after_there = pairs(frame, folder / "library"), pairs(frame, LIBRARY)
    assert after_here == after_there != there
    remote = compile_subscriptions(subscriptions(spark), LIBRARY, shards=3)
    assert remote.version.number == 3
    files = {
        file for shard in remote.version.manifest.shards for file in (shard.snapshot, shard.ids)
    }
    return {
        "differences": ((here - there) + (there - here)).total(),
        "matches": there.total(),
        "rejected": remote.rejected,
        "files": len(files),
        "snapshot": remote.version.manifest.shards[0].snapshot.name,
    }


def main(what: str, service: str, secret: str, folder: Path) -> dict[str, Any]:
    settings = {
        "spark.hadoop.fs.s3a.access.key": "key",
        "spark.hadoop.fs.s3a.secret.key": secret,
        "spark.hadoop.fs.s3a.endpoint": service,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = local_session("local[2]", settings=settings)
    try:
        if what == "compare":
            return compare(spark, folder)
        with readable_errors():
            return {"matches": pairs(events(spark), LIBRARY).total()}
    except TamisError as error:
        return {"error": str(error)}
    finally:
        spark.stop()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))))
