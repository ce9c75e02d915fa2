"""What docs/how-to/stream-on-spark.md says about Kafka, as a program with Spark's own connector.

python -m spark.kafka.program SERVERS FOLDER JARS

It has a process of its own because a session takes jars only when its JVM starts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.contract import Sub, compiled
from tamis.spark import Pin, local_session, match, read_results, stream

SUBS = [Sub("cheap", "price < 10"), Sub("acme", 'symbol = "ACME"')]
LATER = Sub("dear", "price >= 90")
POSITION = ["topic", "partition", "offset"]


def events(first: int, last: int) -> list[str]:
    """Return events as JSON; every tenth is cut off."""
    texts = [
        json.dumps({"price": n, "symbol": ("ACME", "BOLT")[n % 2]}) for n in range(first, last)
    ]
    return [text[:-1] if n % 10 == 9 else text for n, text in enumerate(texts, first)]


class Program:
    """The steps of the test, on one session."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark = spark
        self.kafka = {"kafka.bootstrap.servers": servers}
        self.folder = folder
        self.library = folder / "library"

    def send(self, texts: list[str]) -> None:
        rows = self.spark.createDataFrame([(text,) for text in texts], "value string")
        rows.write.format("kafka").options(**self.kafka).option("topic", "trades").save()

    def messages(self) -> DataFrame:
        reader = self.spark.readStream.format("kafka").options(**self.kafka)
        return reader.options(subscribe="trades", startingOffsets="earliest").load()

    def topic(self, name: str) -> list[Any]:
        reader = self.spark.read.format("kafka").options(**self.kafka)
        rows = reader.option("subscribe", name).load().selectExpr("CAST(value AS string)")
        return [json.loads(row.value) for row in rows.collect()]

    def to_folder(self) -> list[dict[str, Any]]:
        """Stream to a folder, exactly once."""
        query = stream(
            self.messages(),
            self.library,
            json="value",
            keep=["value", *POSITION],
            to=self.folder / "results",
            checkpoint=self.folder / "checkpoint",
            once=True,
        )
        query.awaitTermination()
        rows = read_results(self.spark, self.folder / "results")
        return [
            row.asDict()
            for row in rows.withColumn("value", F.expr("CAST(value AS string)")).collect()
        ]

    def to_topic(self) -> list[Any]:
        """Match with plain Structured Streaming, from topic to topic."""
        matched = self.messages().transform(match(self.library, json="value", keep=POSITION))
        query = (
            matched.select(F.to_json(F.struct("*")).alias("value"))
            .writeStream.format("kafka")
            .options(**self.kafka)
            .option("topic", "plain")
            .option("checkpointLocation", str(self.folder / "plain-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.topic("plain")

    def by_function(self) -> list[Any]:
        """Stream to a topic through a function, which fails once after it has written."""
        crashes = iter((True, False))

        def send(results: DataFrame, pin: Pin) -> None:
            row = results.withColumn("batch", F.lit(pin.batch)).withColumn("v", F.lit(pin.version))
            messages = row.select(F.to_json(F.struct("*")).alias("value"))
            messages.write.format("kafka").options(**self.kafka).option("topic", "matches").save()
            if next(crashes):
                raise ConnectionError("the driver crashed")

        for _ in range(2):
            try:
                stream(
                    self.messages(),
                    self.library,
                    json="value",
                    keep=POSITION,
                    to=send,
                    checkpoint=self.folder / "function-checkpoint",
                    once=True,
                ).awaitTermination()
            except StreamingQueryException as error:
                assert "the driver crashed" in str(error)  # noqa: PT017 - and then it runs again
        return self.topic("matches")


def main(servers: str, folder: str, jars: str) -> None:
    spark = local_session(
        "local[2]", settings={"spark.sql.shuffle.partitions": "2", "spark.jars": jars}
    )
    program = Program(spark, servers, Path(folder))
    compiled(spark, SUBS, program.library)
    program.send(events(0, 50))
    first = program.to_folder()
    compiled(spark, [*SUBS, LATER], program.library)
    program.send(events(50, 100))
    found = {
        "first": first,
        "second": program.to_folder(),
        "plain": program.to_topic(),
        "function": program.by_function(),
    }
    (Path(folder) / "found.json").write_text(json.dumps(found, default=str), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
