"""A driver to be killed that streams into a Delta or Iceberg table, or reads what is in it.

python -m spark.lake.program STEP FOLDER FORMAT ARCHIVE JARS

The steps: `compile` subscriptions to versions, and rehearse the others; `plain` (Spark's own sink),
`sink` (`TableSink`), `batch`, and `read`, which writes what the tables hold to FOLDER/found.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.contract import Sub, compiled
from spark.quick_java import end_java, quick_session
from spark.streams import add_file
from tamis.spark import Library, TableSink, match, stream

VERSIONS = 4
WAYS = ("plain", "sink", "batch")
COLUMNS = "n long, file string, price double, symbol string"
CATALOG = "org.apache.iceberg.spark.SparkCatalog"
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def subscriptions(version: int) -> list[Sub]:
    """Return the subscriptions of a version, each of which matches other events than the last."""
    return [Sub("cheap", f"price < {10 * version}"), Sub("acme", 'symbol = "ACME"')]


def settings(format_: str, folder: Path) -> Mapping[str, str]:
    shared = {
        "spark.sql.extensions": EXTENSIONS[format_],
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    if format_ == "delta":
        name = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        return {**shared, "spark.sql.catalog.spark_catalog": name}
    lake = {"": CATALOG, ".type": "hadoop", ".warehouse": str(folder / "warehouse")}
    return {**shared, **{f"spark.sql.catalog.lake{key}": value for key, value in lake.items()}}


class LakeProgram:
    """The steps of the test, on one session."""

    def __init__(self, spark: SparkSession, folder: Path, format_: str) -> None:
        self.spark, self.folder, self.format = spark, folder, format_

    def table(self, way: str) -> str:
        return (
            str(self.folder / way) if self.format == "delta" else f"lake.{self.folder.name}.{way}"
        )

    def library(self, way: str) -> Path:
        return self.folder / f"{way}-library"

    def events(self) -> DataFrame:
        reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / "events"))

    def compile(self) -> None:
        for version in range(1, VERSIONS + 1):
            compiled(self.spark, subscriptions(version), self.folder / "staged")
        LakeProgram(self.spark, self.folder / "rehearsal", self.format).rehearse()

    def rehearse(self) -> None:
        """Do everything once, so that the JVM loads the classes that it takes."""
        for way in WAYS:
            compiled(self.spark, subscriptions(1), self.library(way))
        event = {"n": 1, "file": "0.json", "price": 1.5, "symbol": "ACME"}
        add_file(self.folder / "events", "0.json", [event])
        self.plain()
        self.sink()
        self.batch()
        self.read()

    def plain(self) -> None:
        """Stream with the table's own sink, as the page shows."""
        library = Library(self.library("plain"))
        if self.format == "iceberg":
            # A batch that runs again overwrites its files, so it has to give the same rows.
            matched = match(library.version(1), output="pairs", keep=["n", "file"], now=0.0)
        else:
            matched = match(library, output="pairs", keep=["n", "file"])
        results = self.events().transform(matched)
        if self.format == "iceberg":
            columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in results.schema)
            name = self.table("plain")
            self.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg")
        writer = results.writeStream.format(self.format).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.folder / "plain-checkpoint"))
        start = writer.start if self.format == "delta" else writer.toTable
        start(self.table("plain")).awaitTermination()

    def sink(self, plant: str = "") -> None:
        """Stream with `stream`, each batch by the version that is newest when it begins."""
        if plant:
            self._plant(pytest.MonkeyPatch())
        stream(
            self.events(),
            self.library("sink"),
            output="pairs",
            keep=["n", "file"],
            to=TableSink(self.table("sink"), self.format),
            checkpoint=self.folder / "sink-checkpoint",
            once=True,
        ).awaitTermination()

    def _plant(self, patch: pytest.MonkeyPatch) -> None:
        """Forget which batches the table has."""
        patch.setattr(TableSink, "has", lambda *_: False)
        patch.setattr(TableSink, "open", lambda self, _: setattr(self, "_stream", _new_id()))

    def batch(self) -> None:
        """Match all events at once, and write them to a table."""
        events = self.spark.read.schema(COLUMNS).json(str(self.folder / "events"))
        matched = match(self.library("batch"), output="pairs", keep=["n", "file"])
        results = events.transform(matched)
        if self.format == "delta":
            results.write.format("delta").save(self.table("batch"))
        else:
            results.writeTo(self.table("batch")).using("iceberg").create()

    def read(self) -> None:
        found: dict[str, Any] = {}
        for way in WAYS:
            name = self.table(way)
            rows = self.spark.table(f"delta.`{name}`" if self.format == "delta" else name)
            columns = [
                one for one in ("file", "n", "subscription", "version") if one in rows.columns
            ]
            found[way] = [row.asDict() for row in rows.select(*columns).collect()]
        (self.folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


def _new_id() -> str:
    from uuid import uuid4  # noqa: PLC0415 - only for a planted bug

    return uuid4().hex


def main(step: str, folder: str, format_: str, archive: str, jars: str, *plant: str) -> None:
    place = Path(folder)
    spark = quick_session(Path(archive), jars.split(","), settings(format_, place))
    getattr(LakeProgram(spark, place, format_), step)(*plant)
    end_java(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
