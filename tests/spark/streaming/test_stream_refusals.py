"""Streams that must not start, or not go on: one sentence, and nothing is written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark.contract import Sub, compiled
from spark.streams import Site, add_file
from tamis.errors import EventError, LibraryError, SchemaError, StreamError
from tamis.spark import (
    compile_subscriptions,
    read_batches,
    read_results,
    stream,
    stream_files,
    total,
)
from tamis.spark.streaming.checkpoint import Checkpoint, Claim


@pytest.fixture(scope="module")
def library(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library")
    compiled(spark, [Sub("cheap", "price < 10")], path)
    return path


@pytest.fixture
def site(library: Path, tmp_path: Path) -> Site:
    return Site.with_library(tmp_path, library)


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
    shutil.copytree(begun.library, other.library)
    mine = {"to": begun.results, "checkpoint": begun.checkpoint, "format_": "json", "once": True}

    def refuses(sentence: str, **options: Any) -> None:
        given = {"library": begun.library, "path": begun.events, **mine, **options}
        with pytest.raises(StreamError, match=sentence):
            stream_files(spark, **given)

    refuses("whose library is .*library, and not .*other/library", library=other.library)
    refuses("whose source is .*, and not .*other/events", path=other.events)
    refuses("whose sink is .*, and not .*other/results", to=other.results)
    refuses("whose output is ids, and not pairs", output="pairs")
    refuses("unmatched events is to keep them, and not to drop them", unmatched=False)
    refuses("holds the results of another stream", checkpoint=other.checkpoint)
    refuses("holds something else", checkpoint=other.checkpoint, to=begun.events)
    refuses("whose sink is .* and not s3://bucket/results", to="s3://bucket/results")
    shutil.rmtree(begun.checkpoint / "tamis")
    refuses("a query that is not a stream of Tamis")
    assert not other.checkpoint.exists()
    assert not other.results.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"told": print}, r"has no option 'told'; it is now 'on_batch'"),
        ({"outptu": "pairs"}, r"""has no option 'outptu'; did you mean "output"\?"""),
        ({"xyz": 1}, r"has no option 'xyz'$"),
    ],
)
def test_an_unknown_option_is_refused(
    spark: SparkSession, site: Site, options: dict[str, Any], sentence: str
) -> None:
    places: dict[str, Any] = {"to": site.results, "checkpoint": site.checkpoint}
    events = spark.readStream.schema("price int").json(str(site.events))
    with pytest.raises(TypeError, match=rf"stream\(\) {sentence}"):
        stream(events, site.library, **places, **options)
    with pytest.raises(TypeError, match=rf"stream_files\(\) {sentence}"):
        stream_files(spark, site.library, site.events, **places, **options)
    assert not site.checkpoint.exists()


def test_a_missing_option_is_named(spark: SparkSession, site: Site) -> None:
    options: Any = {"once": True}
    with pytest.raises(TypeError, match=r"stream_files\(\) needs 'checkpoint' and 'to'"):
        stream_files(spark, site.library, site.events, **options)
    options["checkpoint"] = site.checkpoint
    events = spark.readStream.schema("price int").json(str(site.events))
    with pytest.raises(TypeError, match=r"stream\(\) needs 'to'"):
        stream(events, site.library, **options)
    assert not site.checkpoint.exists()


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
        patch.setattr("tamis.spark.connectors.folder.FolderSink.write", lambda *_: 1 / 0)
        with pytest.raises(StreamingQueryException):
            site.run(spark)
    compiled(spark, [Sub("cheap", "price < 10")], site.library)
    shutil.rmtree(site.library / "versions" / "00000001")
    with pytest.raises(StreamingQueryException, match="batch 0 was begun with version 1 and can"):
        site.run(spark)


def test_a_version_that_does_not_fit_is_not_pinned(spark: SparkSession, site: Site) -> None:
    add_file(site.events, "a.jsonl", [{"price": 5}])
    site.run(spark)
    table = spark.createDataFrame([(1, "price < 5")], "id int, filter string")
    compile_subscriptions(table, site.library)
    add_file(site.events, "b.jsonl", [{"price": 50}])
    with pytest.raises(StreamingQueryException, match="the results have other columns than those"):
        site.run(spark)
    compiled(spark, [Sub("dear", "price >= 10")], site.library)
    site.run(spark)
    assert site.rows(spark, "version", "subscriptions") == [(1, ["cheap"]), (3, ["dear"])]


def test_mistakes_are_reported_before_the_stream_starts(
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
    with pytest.raises(EventError, match=r"there is no file in .* yet that implies a format"):
        stream_files(spark, site.library, site.events, **given)
    with pytest.raises(EventError, match="'avro' is not a format"):
        stream_files(spark, site.library, site.events, **given, format_="avro")
    with pytest.raises(ValueError, match="not both"):
        stream_files(spark, site.library, site.events, **given, format_="json", every=1, once=True)
    with pytest.raises(StreamError, match="there are no results of a stream in it yet"):
        read_results(spark, site.results)
    assert read_batches(site.results) == []
    assert total([]) == (0, 0, 0, 0, 0)
    assert not site.checkpoint.exists()


def test_a_run_ends_when_the_stream_is_started_again(spark: SparkSession, begun: Site) -> None:
    """A driver that was believed dead would pin and write batches beside the new one."""
    run = Checkpoint(begun.checkpoint)
    run.keep(run.claim({}))
    run.require_last_run()
    begun.run(spark)
    with pytest.raises(StreamError, match="the stream was started again elsewhere, so this run"):
        run.require_last_run()


def test_a_run_that_is_not_the_last_writes_nothing(
    spark: SparkSession, begun: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_file(begun.events, "b.jsonl", [{"price": 5}])
    # Another starts between this one's start and its first batch.
    keep = Checkpoint.keep

    def overtaken(self: Checkpoint, claim: Claim) -> None:
        keep(self, claim)
        keep(Checkpoint(begun.checkpoint), claim)

    monkeypatch.setattr(Checkpoint, "keep", overtaken)
    with pytest.raises(StreamingQueryException, match="this run of it ends"):
        begun.run(spark)


def test_of_two_streams_that_take_a_checkpoint_at_once_one_does(tmp_path: Path) -> None:
    """Otherwise both would write as streams of their own, each under its own id."""
    first, second = Checkpoint(tmp_path), Checkpoint(tmp_path)
    claims = first.claim({}), second.claim({})
    first.keep(claims[0])
    with pytest.raises(StreamError, match="another stream has just taken it"):
        second.keep(claims[1])
    first.require_last_run()
