"""Streams: every event once, with the version and the time that its batch was begun with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark.contract import Sub, compiled
from spark.streams import Site, add_file, assert_all_are_counted, compare_with_a_clean_run
from tamis.errors import EventError, LibraryError, SchemaError, SparkError, StreamError
from tamis.spark import (
    Pin,
    compile_subscriptions,
    read_batches,
    read_kafka,
    read_results,
    stream,
    stream_files,
    total,
)
from tamis.spark.checkpoints import Checkpoint
from tamis.spark.sinks import Folder

CHEAP = Sub("cheap", "price < 10")
DEAR = Sub("dear", "price >= 10")


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Site:
    site = Site(tmp_path)
    compiled(spark, [CHEAP], site.library)
    return site


def test_new_files_and_new_versions_are_taken_batch_by_batch(
    spark: SparkSession, site: Site
) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}, '{"price": ', {"n": 1}])
    told: list[int] = []
    site.run(spark, told=lambda batch: told.append(batch.number))
    assert site.rows(spark, "batch", "version", "outcome", "position", "subscriptions") == [
        (0, 1, "matched", 0, ["cheap"]),
        (0, 1, "rejected", 27, None),
        (0, 1, "unmatched", 13, []),
        (0, 1, "unmatched", 38, []),
    ]
    compiled(spark, [CHEAP, DEAR], site.library)
    site.run(spark)
    assert len(read_batches(site.results)) == 1, "nothing is new"
    add_file(site.events, "b.jsonl", [{"price": 50}])
    site.run(spark, told=lambda batch: told.append(batch.number))
    assert (1, 2, "matched", 0, ["dear"]) in site.rows(
        spark, "batch", "version", "outcome", "position", "subscriptions"
    )
    assert told == [0, 1]
    assert total(read_batches(site.results)) == (5, 2, 2, 1, 2)
    assert_all_are_counted(spark, site, events=5)
    assert not compare_with_a_clean_run(spark, site, "json")


def test_a_version_is_picked_up_without_a_restart(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 50}])
    query = stream_files(
        spark, site.library, site.events, to=site.results, checkpoint=site.checkpoint, every=0.1
    )
    try:
        query.processAllAvailable()
        compiled(spark, [CHEAP, DEAR], site.library)
        add_file(site.events, "b.jsonl", [{"price": 50}])
        query.processAllAvailable()
    finally:
        query.stop()
    assert site.rows(spark, "version", "subscriptions") == [(1, []), (2, ["dear"])]


def test_subscriptions_expire_between_batches(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("tamis.spark.microbatches.time.time", lambda: now)
    rows = [("short", "price < 10", 1_500.0), ("long", "price < 10", 9_000.0)]
    table = spark.createDataFrame(rows, "id string, filter string, expires_at double")
    compile_subscriptions(
        table.withColumn("expires_at", table.expires_at.cast("timestamp")), site.library
    )
    for name, now in (("a", 1_000.0), ("b", 2_000.0)):
        add_file(site.events, f"{name}.jsonl", [{"price": 5}])
        site.run(spark)
    found = site.rows(spark, "batch", "subscriptions")
    assert [(batch, sorted(ids)) for batch, ids in found] == [(0, ["long", "short"]), (1, ["long"])]
    assert [batch.now for batch in read_batches(site.results)] == [1_000.0, 2_000.0]


def test_parquet_keeps_columns_and_folders_with_values(spark: SparkSession, site: Site) -> None:
    (site.events / "day=3").mkdir()
    pq.write_table(
        pa.table({"n": [1, 2], "price": [5.0, 50.0]}), site.events / "day=3" / "a.parquet"
    )
    pq.write_table(pa.table({"n": [3], "price": [6.0]}), site.events / "day=3" / "b.parquet")
    site.run(
        spark, format_=None, keep=["n", "day"], output="counts", unmatched=False, files_per_batch=1
    )
    assert site.rows(spark, "n", "day", "batch", "matches", "position") == [
        (1, 3, 0, 1, 0),
        (3, 3, 1, 1, 0),
    ]
    assert total(read_batches(site.results)).unmatched == 1


def test_any_streaming_dataframe_will_do(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}, "{"])
    events = spark.readStream.text(str(site.events))
    given: dict[str, Any] = {"to": site.results, "checkpoint": site.checkpoint, "once": True}
    stream(events, site.library, json="value", output="pairs", **given).awaitTermination()
    assert site.rows(spark, "value", "subscription", "outcome") == [
        ('{"price": 5}', "cheap", "matched"),
        ("{", None, "rejected"),
    ]
    assert total(read_batches(site.results)) == (3, 1, 1, 1, 1)
    elsewhere = site.events.with_name("elsewhere")
    elsewhere.mkdir()
    with pytest.raises(StreamError, match=r"whose source is FileSource\[.*events\], and not File"):
        stream(
            spark.readStream.text(str(elsewhere)),
            site.library,
            json="value",
            output="pairs",
            **given,
        )


# --- a batch that runs again ---------------------------------------------------------------------


class Crash(Exception):
    """The driver is gone."""


def crash(*_: object) -> None:
    raise Crash


def commit_and_crash(sink: Folder, draft: Path, batch: int) -> None:
    draft.rename(sink.place(batch))
    raise Crash


CRASHES = {
    "before the pin": ("tamis.spark.checkpoints.Checkpoint.record", crash),
    "after the pin": ("tamis.spark.sinks.Folder.write", crash),
    "after the results": ("tamis.spark.sinks.Folder.commit", crash),
    "after the commit": ("tamis.spark.sinks.Folder.commit", commit_and_crash),
}


def crash_and_run_again(
    spark: SparkSession, site: Site, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crash in batch 1, change the subscriptions, and start again."""
    add_file(site.events, "a.jsonl", [{"price": 5}])
    site.run(spark)
    add_file(site.events, "b.jsonl", [{"price": 5}, {"price": 50}, "{"])
    with monkeypatch.context() as patch:
        patch.setattr(*CRASHES[moment])
        with pytest.raises(StreamingQueryException, match="Crash"):
            site.run(spark)
    compiled(spark, [DEAR], site.library)
    site.run(spark)


@pytest.mark.parametrize("moment", CRASHES)
def test_a_batch_that_runs_again_gives_the_same_rows_once(
    moment: str, spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_and_run_again(spark, site, moment, monkeypatch)
    assert not compare_with_a_clean_run(spark, site, "json")
    assert_all_are_counted(spark, site, events=4)
    expected = 2 if moment == "before the pin" else 1
    assert [pin.version for pin in site.pins()] == [1, expected]
    assert not list(site.results.glob("_writing*"))


def test_the_comparison_sees_a_version_that_is_not_pinned(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: a batch that runs again takes the newest version."""
    monkeypatch.setattr(Checkpoint, "pin", lambda *_: None)
    keep_first = Checkpoint.record

    def record(self: Checkpoint, pin: Pin) -> None:
        if pin.batch not in [known.batch for known in self.pins()]:
            keep_first(self, pin)

    monkeypatch.setattr(Checkpoint, "record", record)
    crash_and_run_again(spark, site, "after the results", monkeypatch)
    assert compare_with_a_clean_run(spark, site, "json") == {"missing": 3, "too many": 3}


def test_the_comparison_sees_a_batch_that_is_appended_again(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: what is there is not looked at, and the same rows are written beside it."""
    monkeypatch.setattr(Folder, "has", lambda *_: False)
    number = iter(range(9))
    monkeypatch.setattr(
        Folder, "place", lambda self, batch: self.path / f"batch={'0' * next(number)}{batch}"
    )
    crash_and_run_again(spark, site, "after the commit", monkeypatch)
    assert compare_with_a_clean_run(spark, site, "json") == {"too many": 3}


# --- to a function -------------------------------------------------------------------------------


def test_a_function_gets_the_same_rows_again(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}])
    calls: list[tuple[Pin, list[list[str]]]] = []

    def take(results: DataFrame, pin: Pin) -> None:
        calls.append((pin, sorted(row["subscriptions"] for row in results.collect())))
        if len(calls) == 1:
            raise Crash

    with pytest.raises(StreamingQueryException, match="Crash"):
        site.run(spark, to=take)
    compiled(spark, [DEAR], site.library)
    site.run(spark, to=take)
    assert calls[0] == calls[1]
    assert calls[0][1] == [[], ["cheap"]]


# --- refused before anything is written ----------------------------------------------------------


@pytest.fixture
def begun(spark: SparkSession, site: Site) -> Iterator[Site]:
    """A site with one committed batch, which the test must leave as it is."""
    add_file(site.events, "a.jsonl", [{"price": 5}])
    site.run(spark)
    before = sorted(site.results.rglob("*"))
    yield site
    if site.results.exists():
        assert sorted(site.results.rglob("*")) == before


def test_a_checkpoint_of_another_stream_is_refused(
    spark: SparkSession, begun: Site, tmp_path: Path
) -> None:
    other = Site(tmp_path / "other")
    compiled(spark, [CHEAP], other.library)
    mine = {"to": begun.results, "checkpoint": begun.checkpoint, "format_": "json", "once": True}

    def refuses(sentence: str, **options: Any) -> None:
        given = {"library": begun.library, "path": begun.events, **mine, **options}
        with pytest.raises(StreamError, match=sentence):
            stream_files(spark, **given)

    refuses("whose library is .*library, and not .*other/library", library=other.library)
    refuses("whose source is .*, and not .*other/events", path=other.events)
    refuses("whose sink is .*, and not .*other/results", to=other.results)
    refuses("whose output is ids, and not pairs", output="pairs")
    refuses("whose columns is none, and not none, without", unmatched=False)
    refuses("holds the results of another stream", checkpoint=other.checkpoint)
    refuses("holds something else", checkpoint=other.checkpoint, to=begun.events)
    refuses("is not a path of this machine", to="s3://bucket/results")
    shutil.rmtree(begun.checkpoint / "tamis")
    refuses("a query that is not a stream of Tamis")
    assert not other.checkpoint.exists()
    assert not other.results.exists()


def test_lost_results_are_missed(spark: SparkSession, begun: Site) -> None:
    shutil.rmtree(begun.results)
    with pytest.raises(StreamError, match="it lacks the results of the batches"):
        begun.run(spark)


def test_a_checkpoint_that_was_set_back_is_noticed(spark: SparkSession, begun: Site) -> None:
    for log in ("offsets", "commits", "sources"):
        shutil.rmtree(begun.checkpoint / log)
    with pytest.raises(StreamingQueryException, match="begun with other events than it has now"):
        begun.run(spark)
    shutil.rmtree(begun.checkpoint / "tamis" / "batches")
    with pytest.raises(StreamingQueryException, match="holds a batch 0 of other events"):
        begun.run(spark)


def test_a_pinned_version_must_stay(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}])
    with monkeypatch.context() as patch:
        patch.setattr(*CRASHES["after the pin"])
        with pytest.raises(StreamingQueryException):
            site.run(spark)
    compiled(spark, [CHEAP], site.library)
    shutil.rmtree(site.library / "versions" / "00000001")
    with pytest.raises(StreamingQueryException, match="batch 0 was begun with version 1 and can"):
        site.run(spark)


def test_a_version_that_does_not_fit_is_not_pinned(spark: SparkSession, begun: Site) -> None:
    table = spark.createDataFrame([(1, "price < 5")], "id int, filter string")
    compile_subscriptions(table, begun.library)
    add_file(begun.events, "b.jsonl", [{"price": 5}])
    with pytest.raises(StreamingQueryException, match="the results have other columns than those"):
        begun.run(spark)
    compiled(spark, [DEAR], begun.library)


def test_mistakes_are_told_before_the_stream_starts(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    rates = spark.readStream.format("rate").load()
    given: dict[str, Any] = {"to": site.results, "checkpoint": site.checkpoint}
    with pytest.raises(SchemaError, match="the events have no attribute that a filter mentions"):
        stream(rates, site.library, **given)
    with pytest.raises(SchemaError, match="the events are not a stream"):
        stream(spark.range(3).withColumnRenamed("id", "price"), site.library, **given)
    with pytest.raises(SchemaError, match="the column 'batch' cannot be kept"):
        stream(rates.selectExpr("value AS price", "0 AS batch"), site.library, **given)
    with pytest.raises(LibraryError, match="there is no version in it"):
        stream(rates, tmp_path / "none", **given)
    with pytest.raises(EventError, match="there is no file in .* yet to tell the format"):
        stream_files(spark, site.library, site.events, **given)
    with pytest.raises(ValueError, match="not both"):
        stream_files(spark, site.library, site.events, **given, format_="json", every=1, once=True)
    with pytest.raises(StreamError, match="there are no results of a stream in it yet"):
        read_results(spark, site.results)
    assert read_batches(site.results) == []
    assert total([]) == (0, 0, 0, 0, 0)
    assert not site.checkpoint.exists()


def test_kafka_needs_its_connector(spark: SparkSession) -> None:
    with pytest.raises(SparkError, match="spark.jars.packages = org.apache.spark:spark-sql-kafka"):
        read_kafka(spark, "localhost:9092", ["trades", "quotes"])


def test_records_are_for_people_too(spark: SparkSession, begun: Site) -> None:
    told = json.loads((begun.results / "batch=00000000" / "_batch.json").read_text())
    assert told["version"] == 1
    assert told["matched"] == 1
    plain = spark.read.parquet(str(begun.results)).collect()
    assert [(row["batch"], row["outcome"]) for row in plain] == [(0, "matched")]
