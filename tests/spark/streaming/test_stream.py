"""Streams: every event once, with the version and the time that its batch was begun with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark.contract import Sub, compiled
from spark.planted import plant_append, plant_unpinned
from spark.streams import (
    TIMEOUT,
    Site,
    add_file,
    assert_all_are_counted,
    compare_with_a_clean_run,
)
from tamis.errors import StreamError
from tamis.spark import (
    Pin,
    compile_subscriptions,
    match,
    read_batches,
    stream,
    stream_files,
    total,
)
from tamis.spark.connectors.folder import FolderSink

CHEAP = Sub("cheap", "price < 10")
DEAR = Sub("dear", "price >= 10")


@pytest.fixture(scope="module")
def library(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library")
    compiled(spark, [CHEAP], path)
    return path


@pytest.fixture
def site(library: Path, tmp_path: Path) -> Site:
    return Site.with_library(tmp_path, library)


def test_new_files_and_new_versions_are_taken_batch_by_batch(
    spark: SparkSession, site: Site
) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}, '{"price": ', {"n": 1}])
    numbers: list[int] = []
    site.run(spark, on_batch=lambda batch: numbers.append(batch.number))
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
    site.run(spark, on_batch=lambda batch: numbers.append(batch.number))
    assert (1, 2, "matched", 0, ["dear"]) in site.rows(
        spark, "batch", "version", "outcome", "position", "subscriptions"
    )
    assert numbers == [0, 1]
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
    times = [1_000.0, 2_000.0]
    clock = iter(times)
    monkeypatch.setattr("tamis.spark.streaming.microbatch.time.time", lambda: next(clock))
    rows = [("short", "price < 10", 1_500.0), ("long", "price < 10", 9_000.0)]
    table = spark.createDataFrame(rows, "id string, filter string, expires_at double")
    compile_subscriptions(
        table.withColumn("expires_at", table.expires_at.cast("timestamp")), site.library
    )
    for name in ("a.jsonl", "b.jsonl"):
        add_file(site.events, name, [{"price": 5}])
        site.run(spark)
    found = site.rows(spark, "batch", "subscriptions")
    assert [(batch, sorted(ids)) for batch, ids in found] == [(0, ["long", "short"]), (1, ["long"])]
    assert [batch.now for batch in read_batches(site.results)] == times


def test_parquet_keeps_columns_and_folders_with_values(spark: SparkSession, site: Site) -> None:
    (site.events / "day=3").mkdir()
    pq.write_table(
        pa.table({"n": [1, 2], "price": [5.0, 50.0]}), site.events / "day=3" / "a.parquet"
    )
    pq.write_table(pa.table({"n": [3], "price": [6.0]}), site.events / "day=3" / "b.parquet")
    site.run(
        spark, format_=None, keep=["n", "day"], output="counts", unmatched=False, files_per_batch=1
    )
    assert site.rows(spark, "n", "day", "matches", "position") == [(1, 3, 1, 0), (3, 3, 1, 0)]
    batches = read_batches(site.results)
    assert sorted(batch.events for batch in batches) == [1, 2]
    assert total(batches).unmatched == 1


def test_folders_of_streams_are_no_patterns(
    spark: SparkSession, library: Path, tmp_path: Path
) -> None:
    """To Spark they are, and it would stream the events of the folder beside."""
    site = Site.with_library(tmp_path / "site[12]", library)
    add_file(site.events, "here.json", [{"price": 1}])
    add_file(Site(tmp_path / "site1").events, "beside.json", [{"price": 2}])
    site.run(spark)
    assert site.rows(spark, "file") == [(str(site.events / "here.json"),)]


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


class CrashError(Exception):
    """The driver is gone."""


def crash(*_: object) -> None:
    raise CrashError


def commit_and_crash(sink: FolderSink, draft: Path, batch: int) -> None:
    draft.rename(sink.place(batch))
    raise CrashError


CRASHES = {
    "before the pin": ("tamis.spark.streaming.checkpoint.Checkpoint.record", crash),
    "after the pin": ("tamis.spark.connectors.folder.FolderSink.write", crash),
    "after the results": ("tamis.spark.connectors.folder.FolderSink.commit", crash),
    "after the commit": ("tamis.spark.connectors.folder.FolderSink.commit", commit_and_crash),
}


def crash_and_run_again(
    spark: SparkSession, site: Site, moments: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crash in every batch, change the subscriptions, and start again."""
    for moment in moments:
        add_file(site.events, f"{moment}.jsonl", [{"price": 5}, {"price": 50}, "{"])
        with monkeypatch.context() as patch:
            patch.setattr(*CRASHES[moment])
            with pytest.raises(StreamingQueryException, match="CrashError"):
                site.run(spark)
        compiled(spark, [DEAR], site.library)
        site.run(spark)


@pytest.mark.parametrize(
    ("moments", "versions"),
    [
        (["after the pin", "after the commit"], [1, 2]),
        pytest.param(list(CRASHES), [2, 2, 3, 4], marks=pytest.mark.slow),
    ],
)
def test_a_batch_that_runs_again_gives_the_same_rows_once(
    moments: list[str],
    versions: list[int],
    spark: SparkSession,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crash_and_run_again(spark, site, moments, monkeypatch)
    assert [pin.version for pin in site.pins()] == versions
    assert not compare_with_a_clean_run(spark, site, "json")
    assert_all_are_counted(spark, site, events=3 * len(moments))
    assert not list(site.results.glob("_writing*"))


@pytest.mark.slow
def test_the_comparison_sees_a_version_that_is_not_pinned(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: a batch that runs again takes the newest version."""
    plant_unpinned(monkeypatch)
    crash_and_run_again(spark, site, ["after the results"], monkeypatch)
    assert compare_with_a_clean_run(spark, site, "json") == {"missing": 3, "too many": 3}


@pytest.mark.slow
def test_the_comparison_sees_a_batch_that_is_appended_again(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: what is there is not looked at, and the same rows are written beside it."""
    plant_append(monkeypatch)
    crash_and_run_again(spark, site, ["after the commit"], monkeypatch)
    assert compare_with_a_clean_run(spark, site, "json") == {"too many": 3}


# --- to a function -------------------------------------------------------------------------------


def test_a_function_gets_the_same_rows_again(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}])
    calls: list[tuple[Pin, list[list[str]]]] = []

    def take(results: DataFrame, pin: Pin) -> None:
        calls.append((pin, sorted(row["subscriptions"] for row in results.collect())))
        if len(calls) == 1:
            raise CrashError

    with pytest.raises(StreamingQueryException, match="CrashError"):
        site.run(spark, to=take)
    compiled(spark, [DEAR], site.library)
    site.run(spark, to=take)
    assert calls[0] == calls[1]
    assert calls[0][1] == [[], ["cheap"]]


def test_records_are_for_people_too(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}])
    site.run(spark)
    summary = json.loads((site.results / "batch=00000000" / "_batch.json").read_text())
    assert summary["version"] == 1
    assert summary["matched"] == 1
    plain = spark.read.parquet(str(site.results)).collect()
    assert [(row["batch"], row["outcome"]) for row in plain] == [(0, "matched")]


def test_match_alone_works_on_a_stream_with_sparks_own_sinks(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}, "{"])
    lines = spark.readStream.text(str(site.events))

    def run(name: str, plan: str) -> None:
        matched = lines.transform(match(site.library, json="value", plan=plan))
        writer = matched.writeStream.format("memory").queryName(name).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination(TIMEOUT)

    run("alone", "single")
    rows = spark.table("alone").orderBy("value").select("subscriptions", "matches").collect()
    assert [tuple(row) for row in rows] == [(None, None), ([], 0), (["cheap"], 1)]
    with pytest.raises(AnalysisException, match=r"output mode: append|Append output mode"):
        run("grid", "grid")
