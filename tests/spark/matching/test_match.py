"""Matching DataFrames: every form of output, every form of event, and what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.contract import Sub, compiled
from tamis.errors import EventError, LibraryError, SchemaError, SparkError
from tamis.events import Schema
from tamis.spark import (
    CompileReport,
    Tally,
    compile_subscriptions,
    match,
    split,
    write,
)
from tamis.spark.matching import worker
from tamis.spark.matching.columns import select_columns
from tamis.spark.matching.outputs import Output, SubscriptionNumbers
from tamis.spark.runtime.versions import SPARK

SUBS = [Sub("cheap", "price < 10"), Sub("dear", "price >= 10"), Sub("acme", 'symbol = "ACME"')]
EVENTS = [(1, "ACME", 5.0), (2, "BOLT", 50.0), (3, None, None), (4, "ACME", None)]
EXPECTED: dict[int, set[str]] = {1: {"cheap", "acme"}, 2: {"dear"}, 3: set(), 4: {"acme"}}


@pytest.fixture(scope="module")
def market(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CompileReport:
    return compiled(spark, SUBS, tmp_path_factory.mktemp("market"), shards=2)


@pytest.fixture
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(EVENTS, "n int, symbol string, price double")


def by_event(events: DataFrame, report: CompileReport, **options: Any) -> dict[int, Any]:
    rows = events.transform(match(report.version, keep=["n"], **options)).collect()
    return {row["n"]: row for row in rows}


def test_a_test_of_any_attribute_sees_all_columns_with_texts(
    spark: SparkSession, tmp_path: Path
) -> None:
    subs = [Sub("any", 'any contains "CM"'), Sub("none", 'not any contains "CM"'), SUBS[0]]
    report = compiled(spark, subs, tmp_path, shards=2)
    rows = [
        (1, "ACME", 5.0, {"tags": ["x"]}),
        (2, "BOLT", 50.0, {"tags": ["y", "CM"]}),
        (3, "BOLT", 5.0, None),
        (4, None, 5.0, None),
    ]
    types = "n int, symbol string, price double, more struct<tags: array<string>>"
    expected = {1: {"any", "cheap"}, 2: {"any"}, 3: {"none", "cheap"}, 4: {"cheap"}}
    events = spark.createDataFrame(rows, types)
    found = by_event(events, report, output="ids")
    assert {n: set(row["subscriptions"]) for n, row in found.items()} == expected
    texts = events.select("n", F.to_json(F.struct("symbol", "price", "more")).alias("payload"))
    found = by_event(texts, report, output="ids", json="payload")
    assert {n: set(row["subscriptions"]) for n, row in found.items()} == expected


def test_all_outputs_agree(events: DataFrame, market: CompileReport) -> None:
    ids = market.version.ids().to_pylist()
    lists = by_event(events, market, output="ids")
    assert {n: set(row["subscriptions"]) for n, row in lists.items()} == EXPECTED
    packed = by_event(events, market, output="packed")
    assert {
        n: {ids[number] for number in np.frombuffer(row["subscriptions"], "<i4")}
        for n, row in packed.items()
    } == EXPECTED
    bitmaps = by_event(events, market, output="bitmap")
    assert {
        n: {ids[at] for at in np.flatnonzero(_bits(row["subscriptions"]))}
        for n, row in bitmaps.items()
    } == EXPECTED
    counts = by_event(events, market, output="counts")
    sizes = {n: len(found) for n, found in EXPECTED.items()}
    for rows in (lists, packed, bitmaps, counts):
        assert {n: row["matches"] for n, row in rows.items()} == sizes


def _bits(data: bytes) -> Any:
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")


def test_what_matches_nothing_can_be_kept_or_not(events: DataFrame, market: CompileReport) -> None:
    assert by_event(events, market, unmatched=False).keys() == {1, 2, 4}
    assert by_event(events, market, unmatched=False, tally=Tally()).keys() == {1, 2, 4}
    pairs = events.transform(match(market.version, output="pairs", unmatched=True)).collect()
    reported = {(row["n"], row["subscription"]) for row in pairs}
    assert reported == {(n, id_) for n, ids in EXPECTED.items() for id_ in ids or (None,)}


def test_all_columns_are_kept_unless_some_are_named(
    events: DataFrame, market: CompileReport
) -> None:
    whole = events.transform(match(market.version, output="counts"))
    assert whole.columns == ["n", "symbol", "price", "matches", "error"]
    assert [tuple(row)[:3] for row in whole.orderBy("n").collect()] == EVENTS


def test_only_what_filters_ask_for_reaches_python(spark: SparkSession) -> None:
    events = spark.createDataFrame(
        [],
        "n int, price double, noise string, order struct<total: double, noise: string>, "
        "items array<struct<price: double, tags: array<string>>>",
    )
    wanted = {"price", "order.total", "items.price", "missing"}
    selection = select_columns(events, ["n", "price"], wanted)
    assert selection.attributes == (("items.price", 2), ("order.total", 3), ("price", 1))
    types = [field.dataType.simpleString() for field in events.select(*selection.columns).schema]
    assert types == ["int", "double", "array<double>", "double"]


def test_nested_events(spark: SparkSession, tmp_path: Path) -> None:
    subs = [
        Sub("total", "order.total > 5"),
        Sub("tag", 'order.tags = "red"'),
        Sub("item", "items.price < 3"),
        Sub("deep", 'items.parts.name = "bolt"'),
    ]
    report = compiled(spark, subs, tmp_path)
    events = spark.createDataFrame(
        [
            (1, {"total": 9.0, "tags": ["blue", "red"]}, []),
            (2, None, [{"price": 2.0, "parts": [{"name": "bolt"}]}, {"price": 9.0, "parts": []}]),
            (3, {"total": None, "tags": None}, None),
        ],
        "n int, order struct<total: double, tags: array<string>>, "
        "items array<struct<price: double, parts: array<struct<name: string>>>>",
    )
    found = {n: set(row["subscriptions"]) for n, row in by_event(events, report).items()}
    assert found == {1: {"total", "tag"}, 2: {"item", "deep"}, 3: set()}


@pytest.mark.parametrize("kind", ["binary", "variant"])
def test_events_in_a_binary_or_variant_column(
    kind: str, spark: SparkSession, market: CompileReport
) -> None:
    texts = spark.createDataFrame([(1, '{"price": 5}'), (2, None)], "n int, text string")
    if kind == "binary":
        events = texts.select("n", F.col("text").cast("binary").alias("b"))
        found = by_event(events, market, json="b")
    elif SPARK >= (4, 0):
        found = by_event(texts.select("n", F.parse_json("text").alias("v")), market, variant="v")
    else:
        with pytest.raises(SparkError, match=r"Variant takes Spark 4.0 or newer, and this is"):
            by_event(texts, market, variant="text")
        return
    assert found[1]["subscriptions"] == ["cheap"]
    assert found[2]["error"] == "there is no event: the text is null"


def test_rejected_events_are_reported_and_counts_add_up(
    spark: SparkSession, market: CompileReport, tmp_path: Path
) -> None:
    texts = [
        '{"price": 5}',
        '{"price": ',
        "[1]",
        '{"price": 1e999}',
        '{"a": 1}',
        '{"a": 1, "a": 2}',
    ]
    events = spark.createDataFrame(list(enumerate(texts)), "n int, payload string")
    tally = Tally()
    results = events.transform(match(market.version, json="payload", tally=tally))
    write(results, str(tmp_path / "out"))
    assert tally.counts() == (6, 1, 1, 4, 1)
    rejected = spark.read.parquet(str(tmp_path / "out" / "outcome=rejected")).collect()
    assert {row["n"]: row["payload"] for row in rejected} == {n: texts[n] for n in (1, 2, 3, 5)}
    assert {row["n"]: row["error"] for row in rejected}[
        5
    ] == "a: the name is given twice in one object"
    written = spark.read.parquet(str(tmp_path / "out")).groupBy("outcome").count().collect()
    assert {row["outcome"]: row["count"] for row in written} == {
        "matched": 1,
        "unmatched": 1,
        "rejected": 4,
    }
    fine, wrong = split(events.transform(match(market.version, json="payload")))
    assert (fine.count(), wrong.count()) == (2, 4)


def test_events_are_held_against_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema({"price": "float", "flags": "bits", "at": "timestamp"})
    report = compiled(spark, [Sub("a", "price < 5")], tmp_path, schema=schema)
    events = spark.createDataFrame(
        [(1, 1.0, 3, "2026-01-01"), (2, 1.0, -1, None), (3, 1.0, None, "noon")],
        "n int, price double, flags int, at string",
    )
    found = by_event(events, report)
    assert found[1]["subscriptions"] == ["a"]
    assert "flags" in found[2]["error"]
    assert "at: 'noon' is not a timestamp" in found[3]["error"]


def test_expiry_uses_the_pinned_time(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.sql("select 'a' id, 'x = 1' filter, timestamp_seconds(1000) expires_at")
    report = compile_subscriptions(table, tmp_path)
    events = spark.createDataFrame([(1, 1)], "n int, x int")
    assert by_event(events, report, now=999.0)[1]["subscriptions"] == ["a"]
    assert by_event(events, report, now=1000.0)[1]["subscriptions"] == []


def test_very_many_matches_come_in_pieces(
    market: CompileReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = market.version.manifest
    job = worker.MatchJob(
        place=market.version.place,
        shards=manifest.shards,
        numbers=SubscriptionNumbers((0, manifest.shards[0].subscriptions), 3, "string"),
        schema=None,
        mode="sql",
        wanted=frozenset({"price"}),
        output=Output.PAIRS,
        unmatched=False,
        now=0,
        layout=worker.RowLayout((("n", 0),), (("price", 1),)),
    )
    rows = pa.record_batch({"n": list(range(100)), "price": [float(n) for n in range(100)]})
    whole = list(worker.match_rows([rows], job))
    monkeypatch.setattr(worker, "MAX_MATCHES_PER_BATCH", 7)
    pieces = list(worker.match_rows([rows], job))
    assert len(whole) == 1 < len(pieces)
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches(whole))


def test_no_subscriptions_and_no_attributes(spark: SparkSession, tmp_path: Path) -> None:
    empty = compiled(spark, [], tmp_path / "empty")
    assert (empty.rows, empty.subscriptions, empty.rejected) == (0, 0, 0)
    always = compiled(spark, [Sub("all", "true")], tmp_path / "always")
    for report, expected in ((empty, []), (always, ["all"])):
        for output in ("ids", "packed", "bitmap", "counts"):
            rows = spark.range(5).transform(match(report.version, output=output, keep=[])).collect()
            assert [row["matches"] for row in rows] == [len(expected)] * 5
        pairs = spark.range(5).transform(match(report.version, output="pairs")).collect()
        assert [row["subscription"] for row in pairs] == expected * 5


# --- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"output": "list"}, "'list' is not an output; the outputs are 'ids', 'pairs'"),
        ({"json": "payload"}, "the events have no column 'payload'"),
        ({"json": "price"}, "'price' should hold JSON as text, but has the type double"),
        ({"json": "symbol", "variant": "symbol"}, "not in several"),
        ({"keep": ["m"]}, "there is no column 'm' to keep"),
    ],
)
def test_a_mistake_is_reported_before_the_job_runs(
    options: dict[str, Any], sentence: str, events: DataFrame, market: CompileReport
) -> None:
    with pytest.raises(SchemaError, match=sentence):
        events.transform(match(market.version, **options))


def test_unusable_event_columns_are_reported(spark: SparkSession, market: CompileReport) -> None:
    with pytest.raises(SchemaError, match=r"no attribute that a filter mentions.*price, symbol"):
        spark.range(3).transform(match(market.version))
    with pytest.raises(EventError, match="price: the column has the Arrow type decimal"):
        spark.sql("select 1.5 price").transform(match(market.version))
    with pytest.raises(SchemaError, match="'error' cannot be kept beside the results; rename it"):
        spark.sql("select 1 price, 2 error").transform(match(market.version))


def test_a_schema_that_the_events_lack_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema({"price": "float", "size": "int"})
    report = compiled(spark, [Sub("a", "price < 5")], tmp_path, schema=schema, mode="total")
    with pytest.raises(SchemaError, match="the events lack size, and in mode 'total'"):
        spark.sql("select 1.5D price").transform(match(report.version))
    with pytest.raises(SchemaError, match=r"price has the type string in the events.*'float'"):
        spark.sql("select 'x' price, 1 size").transform(match(report.version))


def test_a_damaged_library_is_reported_before_the_job_runs(
    events: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    report = compiled(spark, SUBS, tmp_path)
    (report.version.path / "shard-0000.tamis").write_bytes(b"tamis")
    with pytest.raises(LibraryError, match=r"shard-0000.tamis cannot be used: the file is damaged"):
        events.transform(match(tmp_path))
