"""Checkpoint and results in a store: a folder that Arrow and Spark take for one.

tests/spark/apart has a service that speaks S3, with a cluster and killed drivers.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark.contract import Sub, compiled
from spark.streams import Site, add_file, assert_all_are_counted, compare_with_a_clean_run
from tamis.errors import StreamError
from tamis.spark import read_batches, read_results
from tamis.spark.connectors.results import OWNER, ResultRecords
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.connectors.store_sink import StoreSink
from tamis.spark.runtime.records import LocalFolder, record_folder
from tamis.spark.runtime.stores import ObjectStore
from tamis.spark.streaming.stream import sink_of

USERS = ("connectors.results", "streaming.checkpoint")


class CrashError(Exception):
    """The driver is gone."""


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose checkpoint and results are read and written as objects."""

    def as_a_store(path: object) -> ObjectStore:
        return ObjectStore(f"file://{str(path).removeprefix('file://')}", error_of=StreamError)

    for user in USERS:
        monkeypatch.setattr(f"tamis.spark.{user}.record_folder", as_a_store)
    site = Site(tmp_path)
    compiled(spark, [Sub("cheap", "price < 10")], site.library)
    return site


def run(spark: SparkSession, site: Site, **options: Any) -> None:
    site.run(spark, to=StoreSink(f"file://{site.results}"), files_per_batch=1, **options)


def test_a_stream_that_starts_again_leaves_the_record_of_its_owner(tmp_path: Path) -> None:
    """HDFS would remove it first; killed then, the stream could never start again."""
    records = ResultRecords(tmp_path)
    for stream, is_new in (("a", True), ("a", False), ("b", True)):
        before = os.stat(tmp_path / OWNER).st_ino if (tmp_path / OWNER).exists() else None
        records.take(SinkOwner(stream, LocalFolder(tmp_path / "checkpoint"), has_begun=True))
        assert (os.stat(tmp_path / OWNER).st_ino != before) is is_new


def test_rows_are_those_of_a_folder(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}, "{"])
    run(spark, site)
    compiled(spark, [Sub("dear", "price > 10")], site.library)
    add_file(site.events, "b.jsonl", [{"price": 50}])
    run(spark, site)
    assert not compare_with_a_clean_run(spark, site, "json")
    assert_all_are_counted(spark, site, events=4)
    assert [(batch.number, batch.version) for batch in read_batches(site.results)] == [
        (0, 1),
        (1, 2),
    ]
    columns = read_results(spark, site.results).columns
    assert columns[-3:] == ["version", "outcome", "batch"]


def leave_rows(sink: StoreSink, results: DataFrame, *_: object) -> None:
    """Write the rows of an attempt, and no record of it."""
    place = f"{sink.name}/batch=00000000/attempt=dead"
    results.selectExpr("*", "'matched' AS outcome").write.partitionBy("outcome").parquet(place)
    raise CrashError


class CrashingStore(ObjectStore):
    """Is gone after it has written the record of a batch."""

    def write(self, name: str, data: bytes | Path) -> None:
        super().write(name, data)
        if name.startswith("_tamis/batches/"):
            raise CrashError


def crashing_store(path: object) -> ObjectStore:
    return CrashingStore(str(path), error_of=StreamError)


@pytest.mark.parametrize("moment", ["after the rows", "after the commit"])
def test_a_batch_that_runs_again_is_there_once(
    moment: str, spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}])
    with monkeypatch.context() as patch:
        if moment == "after the rows":
            patch.setattr(StoreSink, "write", leave_rows)
        else:
            patch.setattr("tamis.spark.connectors.results.record_folder", crashing_store)
        with pytest.raises(StreamingQueryException, match="CrashError"):
            run(spark, site)
    compiled(spark, [Sub("dear", "price > 10")], site.library)
    run(spark, site)
    assert [pin.version for pin in site.pins()] == [1]
    assert not compare_with_a_clean_run(spark, site, "json")
    assert_all_are_counted(spark, site, events=2)


def test_of_two_records_of_a_batch_the_first_counts(spark: SparkSession, site: Site) -> None:
    """Two drivers wrote a batch at once, and readers may have seen it between them."""
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}])
    run(spark, site)
    [rows] = site.results.glob("batch=00000000/*")
    shutil.copytree(rows, rows.with_name("attempt=0"))
    [record] = site.results.glob("_tamis/batches/*/*.json")
    other = json.loads(record.read_text()) | {"version": 9}
    record.with_name("0.json").write_text(json.dumps(other))
    record.with_name("_mark_of_another_program").write_bytes(b"")
    os.utime(record, (1, 1))
    assert [batch.version for batch in read_batches(site.results)] == [1]
    assert not compare_with_a_clean_run(spark, site, "json")
    assert_all_are_counted(spark, site, events=2)


def test_a_batch_that_another_driver_commits_meanwhile_is_not_committed_again(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}])
    answers = iter((False, True))
    monkeypatch.setattr(StoreSink, "has", lambda *_: next(answers))
    run(spark, site)
    assert not list(site.results.glob("_tamis/batches/*/*.json"))


def test_a_batch_without_rows_is_read_too(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 50}])
    run(spark, site, unmatched=False)
    assert read_results(spark, site.results).count() == 0
    assert [batch.events for batch in read_batches(site.results)] == [1]


def test_results_of_another_stream_are_refused(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}])
    run(spark, site)
    sink = StoreSink(f"file://{site.results}")
    other = SinkOwner("other", record_folder(site.checkpoint), has_begun=False)
    with pytest.raises(StreamError, match="it holds the results of another stream, whose"):
        sink.check(other)
    with pytest.raises(StreamError, match="it holds something else; name a new folder"):
        StoreSink(f"file://{site.events}").check(other)
    late = other._replace(has_begun=True)
    with pytest.raises(StreamError, match="it lacks the results of the batches that the checkp"):
        StoreSink(f"file://{site.results}-new").check(late)


def test_a_damaged_record_is_one_sentence(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}])
    run(spark, site)
    [record] = site.results.glob("_tamis/batches/*/*.json")
    record.write_text(json.dumps({"number": 0}))
    with pytest.raises(StreamError, match="the record in it is damaged"):
        read_batches(site.results)


@pytest.mark.parametrize(
    ("to", "kind"), [("s3a://bucket/results", "StoreSink"), ("results", "FolderSink")]
)
def test_an_address_in_a_store_is_a_sink(
    to: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    sink = sink_of(to)
    assert type(sink).__name__ == kind
    assert sink.name.endswith(to)


@pytest.mark.parametrize("names", [["a", "b/c"], []])
def test_folders_and_stores_list_the_same_names(names: Sequence[str], tmp_path: Path) -> None:
    for folder in (LocalFolder(tmp_path / "a"), ObjectStore(f"file://{tmp_path}/b")):
        for name in names:
            folder.write(f"records/{name}", b"data")
        assert folder.names("records") == sorted(names)
        folder.delete("records/missing")
        assert folder.read("records/missing") is None
        assert [folder.read(f"records/{name}") for name in names] == [b"data"] * len(names)
