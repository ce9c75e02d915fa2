"""Subscriptions and events through a stream, to be compared with what the oracle says of them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from spark.contract import Answer
from tamis.spark import CompileReport, Library, read_batches, read_results, stream, stream_files
from tamis.spark import total as total_of
from tamis.spark.runtime.versions import collect_table


def by_stream(events: DataFrame, report: CompileReport, **options: Any) -> Answer:
    """Match events that have a column `name`, in two batches; workers read those in columns."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        _write(events, place / "events")
        library = Library(report.version.path.parents[1])
        where = {"to": place / "results", "checkpoint": place / "checkpoint"}
        given: dict[str, Any] = {**where, "output": "pairs", "keep": ["name"], "once": True}
        spark = events.sparkSession
        if options:
            reader = spark.readStream.schema(events.schema).option("maxFilesPerTrigger", 1)
            query = stream(reader.parquet(str(place / "events")), library, **given, **options)
        else:
            query = stream_files(spark, library, place / "events", files_per_batch=1, **given)
        query.awaitTermination()
        return _answer(read_results(spark, place / "results"), place, events.count())


def _write(events: DataFrame, folder: Path) -> None:
    folder.mkdir()
    table = collect_table(events)
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), folder / "a.parquet")
    pq.write_table(table.slice(half), folder / "b.parquet")


def _answer(results: DataFrame, place: Path, events: int) -> Answer:
    rows = results.collect()
    pairs = {(row["name"], row["subscription"]) for row in rows if row["outcome"] == "matched"}
    refused = {row["name"] for row in rows if row["outcome"] == "rejected"}
    assert len(rows) == len(pairs) + len(refused)
    counts = total_of(read_batches(place / "results"))
    assert counts.events == events == counts.matched + counts.unmatched + counts.rejected
    assert counts.matched == len({name for name, _ in pairs})
    assert (counts.matches, counts.rejected) == (len(pairs), len(refused))
    return Answer(pairs, refused)
