"""A driver on a machine of its own: what it reads and writes is in a store.

python -m spark.apart.program STEP MASTER SERVICE KEY JARS

The steps: `fill` compiles the library and writes events; `match` writes pairs; `plain` streams with
Spark's own sink, and `sink` with `stream`. The last line is the answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.contract import Sub
from tamis.errors import TamisError
from tamis.spark import (
    compile_subscriptions,
    local_session,
    match,
    read_batches,
    read_results,
    stream,
    total,
)
from tamis.spark.runtime.failures import readable_errors
from tamis.spark.runtime.session import JAVA_OPTIONS

BUCKET = "s3a://bucket"
LIBRARY = f"{BUCKET}/library"
EVENTS = 3_000
FILES = 6
SYMBOLS = "ABCDE"
COLUMNS = "n long, symbol string, price double"


def subscriptions() -> list[Sub]:
    rng = Random(8)
    return [
        Sub(f"s{n}", f'symbol = "{rng.choice(SYMBOLS)}" and price < {rng.uniform(0, 100):.3f}')
        for n in range(400)
    ]


def events() -> list[tuple[int, str, float]]:
    rng = Random(7)
    return [(n, rng.choice(SYMBOLS), round(rng.uniform(0, 100), 2)) for n in range(EVENTS)]


class ApartProgram:
    """The steps of the test, on one session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def fill(self) -> dict[str, Any]:
        subs = [(sub.id, sub.filter) for sub in subscriptions()]
        table = self.spark.createDataFrame(
            [*subs, ("wrong", "price <<")], "id string, filter string"
        )
        report = compile_subscriptions(table, LIBRARY, shards=4)
        rows = self.spark.createDataFrame(events(), COLUMNS).repartition(FILES)
        rows.write.parquet(f"{BUCKET}/events")
        snapshot = report.version.manifest.shards[0].snapshot
        return {"rejected": report.rejected, "snapshot": snapshot.name, "size": snapshot.size}

    def match(self) -> dict[str, Any]:
        matched = match(LIBRARY, output="pairs", keep=["n"])
        results = self.spark.read.parquet(f"{BUCKET}/events").repartition(4).transform(matched)
        results.write.mode("overwrite").parquet(f"{BUCKET}/pairs")
        return {}

    def plain(self) -> dict[str, Any]:
        """Stream as Spark does it by itself, with checkpoint and results in the store."""
        results = self._new_events().transform(match(LIBRARY, output="pairs", keep=["n"]))
        writer = results.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", f"{BUCKET}/plain-checkpoint")
        writer.start(f"{BUCKET}/plain").awaitTermination()
        return {}

    def sink(self) -> dict[str, Any]:
        """Stream with `stream`, a file in a batch; return what its batches counted."""
        stream(
            self._new_events(1),
            LIBRARY,
            output="pairs",
            keep=["n"],
            to=f"{BUCKET}/sink",
            checkpoint=f"{BUCKET}/checkpoint",
            once=True,
        ).awaitTermination()
        rows = read_results(self.spark, f"{BUCKET}/sink").select("n", "subscription", "error")
        rows.write.parquet(f"{BUCKET}/read")
        counts = total(read_batches(f"{BUCKET}/sink"))
        return {"events": counts.events, "matches": counts.matches}

    def _new_events(self, files: int = 2) -> DataFrame:
        reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", files)
        return reader.parquet(f"{BUCKET}/events")


def session(master: str, service: str, key: str, jars: str) -> SparkSession:
    store = {
        "access.key": key,
        "secret.key": "secret",
        "endpoint": service,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        # One that refuses is not asked for minutes.
        "attempts.maximum": "2",
    }
    settings = {
        "spark.jars": jars,
        "spark.executor.memory": "700m",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in store.items()},
    }
    return local_session(master, settings=settings)


def main(step: str, arguments: Sequence[str]) -> dict[str, Any]:
    spark = session(*arguments)
    try:
        with readable_errors():
            answer: dict[str, Any] = getattr(ApartProgram(spark), step)()
    except TamisError as error:
        return {"error": str(error)}
    finally:
        spark.stop()
    return answer


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
