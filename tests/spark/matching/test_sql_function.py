"""A library as a function of SQL gives what `match` gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.contract import Sub, compiled
from tamis.errors import SchemaError, SparkError
from tamis.events import Schema
from tamis.spark import CompileReport, match, register
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
