"""A library as a function of SQL gives what `match` gives."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from spark.contract import Sub, compiled
from spark.library.test_changes import base
from tamis.errors import SchemaError, SparkError
from tamis.events import Schema
from tamis.spark import CompileReport, match, register
from tamis.spark.matching.sql_function import SqlFunction, _job
from tamis.spark.runtime import versions
from tamis.spark.runtime.versions import SPARK

SUBS = [
    Sub("cheap", "price < 10"),
    Sub("acme", 'symbol = "ACME" and tag in ("a", "b")'),
    Sub("inner", "place.floor >= 2"),
    Sub("never", "price > 1000"),
]
TYPES = "n int, symbol string, price double, tag array<string>, place struct<floor: int>"
ROWS = [
    (n, ("ACME", "BOLT", None)[n % 3], (None if n % 5 == 0 else n * 1.5), ["abc"[n % 3]], (n % 4,))
    for n in range(60)
]
needs_functions = pytest.mark.skipif(SPARK < (4, 1), reason="Spark has no functions of Arrow yet")


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CompileReport:
    return compiled(spark, SUBS, tmp_path_factory.mktemp("sql"), shards=2)


@pytest.fixture(autouse=True, scope="module")
def events(spark: SparkSession) -> Iterator[None]:
    spark.createDataFrame(ROWS, TYPES).createOrReplaceTempView("sql_events")
    yield
    spark.catalog.dropTempView("sql_events")


def by_number(rows: list[Any], name: str) -> dict[int, Any]:
    found = {row["n"]: row[name] for row in rows}
    return {n: sorted(ids) if isinstance(ids, list) else ids for n, ids in found.items()}


@needs_functions
@pytest.mark.parametrize(
    "output",
    ["ids", *(pytest.param(one, marks=pytest.mark.slow) for one in ("packed", "bitmap", "counts"))],
)
def test_a_function_gives_what_match_gives(
    output: str, spark: SparkSession, report: CompileReport
) -> None:
    register(spark, report.version, "alerts", output=output)
    found = spark.sql("SELECT n, alerts(struct(*)) AS found FROM sql_events").collect()
    column = "matches" if output == "counts" else "subscriptions"
    events = spark.table("sql_events")
    expected = events.transform(match(report.version, output=output, keep=["n"])).collect()
    assert by_number(found, "found") == by_number(expected, column)
    assert len(found) == len(ROWS)


@needs_functions
def test_pairs_by_explode_and_events_as_json(spark: SparkSession, report: CompileReport) -> None:
    register(spark, report.version, "alerts")
    found_ids = spark.sql("SELECT n, alerts(to_json(struct(*))) AS ids FROM sql_events")
    exploded = found_ids.selectExpr("n", "explode(ids) AS id").collect()
    found = {(row["n"], row["id"]) for row in exploded}
    pairs = match(report.version, output="pairs", keep=["n"])
    expected = spark.table("sql_events").transform(pairs).collect()
    assert found == {(row["n"], row["subscription"]) for row in expected}
    where = "SELECT count(*) FROM sql_events WHERE array_contains(alerts(struct(*)), 'cheap')"
    assert spark.sql(where).first()[0] == sum(id_ == "cheap" for _, id_ in found)  # type: ignore[index]


@needs_functions
def test_a_function_of_a_table_gives_the_pairs_of_match(
    spark: SparkSession, report: CompileReport
) -> None:
    register(spark, report.version, "alerts", output="counts")
    found = spark.sql("SELECT * FROM alerts_pairs(TABLE(sql_events))").collect()
    pairs = match(report.version, output="pairs")
    expected = spark.table("sql_events").transform(pairs).collect()
    assert found[0].__fields__ == expected[0].__fields__
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    grouped = """
        SELECT subscription, count(*) AS events
        FROM alerts_pairs(TABLE(SELECT price, symbol FROM sql_events WHERE n < 30))
        GROUP BY subscription"""
    counts = {row["subscription"]: row["events"] for row in spark.sql(grouped).collect()}
    assert counts["cheap"] == sum(
        row["subscription"] == "cheap" for row in expected if row["n"] < 30
    )
    with pytest.raises(Exception, match="should be a table of events, as in TABLE"):
        spark.sql("SELECT * FROM alerts_pairs(5)").collect()
    with pytest.raises(Exception, match="the events have a column 'error', which pairs have too"):
        spark.sql("SELECT * FROM alerts_pairs(TABLE(SELECT price, 1 AS error FROM sql_events))")


# --- as a worker runs it, without Spark ----------------------------------------------------------

UTC_TIME = pa.timestamp("us", "UTC")


@pytest.fixture(params=["America/New_York", "Asia/Kolkata", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of the process, in which Spark gives times to Python."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (UTC_TIME, lambda one: one),
        (pa.list_(UTC_TIME), lambda one: [None, one]),
        (pa.struct({"at": UTC_TIME}), lambda one: Row(at=one)),
        (pa.list_(pa.struct({"at": pa.list_(UTC_TIME)})), lambda one: [Row(at=[one]), None]),
        (pa.map_(pa.string(), UTC_TIME), None),
    ],
)
def test_pairs_know_the_zone_of_times(type_: pa.DataType, given: Any, tmp_path: Path) -> None:
    name = "t.at" if "at" in str(type_).split("timestamp")[0] else "t"
    moments = [datetime(2024, 6, 1, hour, tzinfo=UTC) for hour in (11, 12, 13)]
    # The hour that comes twice in New York.
    moments += [datetime(2024, 11, 3, hour, 30, tzinfo=UTC) for hour in (5, 6)]
    local = [datetime.fromtimestamp(moment.timestamp()) for moment in moments]
    # Those that may be out of range in UTC are rejected then, and do no harm.
    local += [datetime(9999, 12, 31, 23, 59), datetime(1, 1, 1, 0, 1)]
    if given is None:
        rows = [Row(n=n, t={"k": one}) for n, one in enumerate(local)]
        library = base(tmp_path, {"all": "n >= 0"})
        expected = {(n, "all") for n in range(len(moments))}
    else:
        rows = [Row(n=n, t=given(one)) for n, one in enumerate(local)]
        filters = {"noon": "2024-06-01T12:00:00Z", "twice": "2024-11-03T06:00:00Z"}
        library = base(
            tmp_path, {id_: f'{name} > timestamp "{one}"' for id_, one in filters.items()}
        )
        expected = {(2, "noon"), (3, "noon"), (4, "noon"), (4, "twice")}
    function = SqlFunction(_job(library.latest(), "ids", 0))
    found = [*function.pairs(rows, pa.schema([("n", pa.int64()), ("t", type_)]))]
    assert {(row[0], row[2]) for row in found if row[0] < len(moments)} == expected
    assert all(row[1] == rows[row[0]].t for row in found)


def test_pairs_leave_columns_that_no_filter_mentions(tmp_path: Path) -> None:
    """Arrow cannot make them of what Spark gives, as with Variant."""
    function = SqlFunction(_job(base(tmp_path, {"all": "n >= 0"}).latest(), "ids", 0))
    variant = pa.struct({"value": pa.binary(), "metadata": pa.binary()})
    rows = [Row(v=object(), n=1), Row(v=object(), n=None)]
    found = [*function.pairs(rows, pa.schema([("v", variant), ("n", pa.int64())]))]
    assert found == [(rows[0].v, 1, "all", None)]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_events_as_json_may_be_large_texts(type_: pa.DataType, tmp_path: Path) -> None:
    """With the setting useLargeVarTypes, Spark has other types for them."""
    function = SqlFunction(_job(base(tmp_path, {"all": "n >= 0"}).latest(), "ids", 0))
    events = pa.array(['{"n": 1}', "{", None], pa.string()).cast(type_)
    assert function.matches(events).to_pylist() == [["all"], None, None]
    assert [error is None for error in function.errors(events).to_pylist()] == [True, False, False]


@needs_functions
def test_rejected_events_are_null_and_have_a_reason(
    spark: SparkSession, report: CompileReport
) -> None:
    register(spark, report.version, "alerts")
    texts = spark.createDataFrame(
        [(1, "{"), (2, json.dumps({"price": 5})), (3, None)], "n int, t string"
    )
    texts.createOrReplaceTempView("sql_texts")
    query = "SELECT n, alerts(t) AS ids, alerts_error(t) AS error FROM sql_texts"
    found = {row["n"]: (row["ids"], row["error"]) for row in spark.sql(query).collect()}
    assert found[2] == (["cheap"], None)
    assert found[3] == (None, "there is no event: the text is null")
    assert found[1][0] is None
    assert found[1][1]
    spark.catalog.dropTempView("sql_texts")


@pytest.mark.slow
@needs_functions
def test_a_schema_rejects_events(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema({"price": "int"})
    typed = compiled(spark, [Sub("cheap", "price < 10")], tmp_path, schema=schema)
    register(spark, typed.version, "typed")
    texts = spark.createDataFrame([('{"price": 5}',), ('{"price": "five"}',)], "e string")
    good, bad = texts.selectExpr("typed(e) AS ids", "typed_error(e) AS error").collect()
    assert (good["ids"], good["error"], bad["ids"]) == (["cheap"], None, None)
    assert "price" in bad["error"]


def test_what_cannot_be_registered_says_why(
    spark: SparkSession, report: CompileReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    if SPARK >= (4, 1):
        with pytest.raises(SchemaError, match="a function gives one value for each event; for pa"):
            register(spark, report.version, "alerts", output="pairs")
        with pytest.raises(SchemaError, match="'my alerts' cannot be the name of a function"):
            register(spark, report.version, "my alerts")
    monkeypatch.setattr(versions, "SPARK", (4, 0))
    with pytest.raises(SparkError, match=r"a function of SQL takes Spark 4.1 or newer, and this"):
        register(spark, report.version, "alerts")


@pytest.mark.slow
@needs_functions
def test_events_without_any_attribute_are_refused(
    spark: SparkSession, report: CompileReport
) -> None:
    register(spark, report.version, "alerts")
    with pytest.raises(Exception, match="the events have no attribute that a filter mentions"):
        spark.sql("SELECT alerts(struct(n)) FROM sql_events").collect()
    with pytest.raises(Exception, match=r"should be a struct, as in struct\(\*\), or JSON as text"):
        spark.sql("SELECT alerts(n) FROM sql_events").collect()
