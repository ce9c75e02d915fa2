"""Tables of subscriptions become libraries; rejected rows are reported."""

from __future__ import annotations

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.contract import Sub, by_spark, by_the_oracle, compiled
from tamis.errors import FilterError, LibraryError, SchemaError
from tamis.events import Event, Schema
from tamis.spark import Library, compile_subscriptions, match
from tamis.spark.library import compile as compiling
from tamis.spark.library.changes import FeedBatch, apply_changes
from tamis.spark.library.compile import _build
from tamis.spark.library.shard_builder import ShardOptions, build_shards
from tamis.spark.runtime.store_access import driver_access, shared_access

ROWS: list[dict[str, str | None]] = [
    {"id": "cheap", "filter": "price < 10", "language": "tamis"},
    {"id": "typo", "filter": "price << 10", "language": "tamis"},
    {"id": "cheap", "filter": "price < 20", "language": "tamis"},
    {"id": "between", "filter": "price BETWEEN 5 AND 9\nOR price = 1", "language": "jms"},
    {"id": "unknown", "filter": "price < 1", "language": "cobol"},
    {"id": None, "filter": "price < 1", "language": None},
    {"id": "empty", "filter": None, "language": None},
    {"id": "quoted", "filter": 'name = "a, ""b"', "language": None},
]
REASONS = {
    2: 'expected a condition or value, found "<"',
    3: "the id 'cheap' is already that of row 1",
    5: "cobol",
    6: "the id is missing",
    7: "the filter is missing",
    8: "line 1",
}


def rejected(spark: SparkSession, path: str) -> dict[int, Any]:
    return {row["row"]: row for row in spark.read.parquet(path).collect()}


def test_rejected_rows_are_reported_with_their_place(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.createDataFrame(
        [tuple(row.values()) for row in ROWS], "id string, filter string, language string"
    )
    report = compile_subscriptions(table.repartition(1), tmp_path, shards=3)
    assert (report.rows, report.subscriptions, report.rejected) == (8, 2, 6)
    assert sorted(report.version.ids().to_pylist()) == ["between", "cheap"]
    rows = rejected(spark, report.rejected_path)
    assert rows.keys() == REASONS.keys()
    for number, reason in REASONS.items():
        assert reason in rows[number]["reason"]
        assert rows[number]["filter"] == ROWS[number - 1]["filter"]
    assert (rows[2]["line"], rows[2]["column"]) == (1, 8)


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_tables_are_read_from_files(format_: str, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / f"subscriptions.{format_}"
    good: list[dict[str, str | None]] = [
        ROWS[0],
        ROWS[1],
        ROWS[3],
        {"id": "old", "filter": "a = 1", "expires_at": "soon"},
    ]
    if format_ == "json":
        lines = [json.dumps(row) for row in good]
        path.write_text("\n".join([*lines, "", '{"id": ', lines[0].replace("cheap", "last")]))
        wrong = {2: "<", 4: "'soon' is not a timestamp", 5: "this line is not JSON"}
    else:
        with path.open("w", newline="") as file:
            names = ["id", "filter", "language", "expires_at"]
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows([*good, {"id": "last", "filter": 'a = ",""'}])
        wrong = {2: "<", 4: "'soon' is not a timestamp", 5: "line 1"}
    report = compile_subscriptions(path, tmp_path / "library", spark=spark)
    reported = rejected(spark, report.rejected_path)
    assert {
        row: reason in reported[row]["reason"] for row, reason in wrong.items()
    } == dict.fromkeys(wrong, True)
    assert report.rejected == len(wrong)
    assert report.rows == report.subscriptions + report.rejected


def test_integers_stay_integers(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.createDataFrame([(7, "a = 1"), (8, "a = 2")], "id int, filter string")
    report = compile_subscriptions(table, tmp_path)
    assert report.version.ids().to_pylist() == [7, 8]
    events = spark.createDataFrame([(1,)], "a int")
    (row,) = events.transform(match(report.version)).collect()
    assert row["subscriptions"] == [7]


def test_lint_looks_for_mistakes(spark: SparkSession, tmp_path: Path) -> None:
    subs = [Sub("wide", "price < 10"), Sub("narrow", "price < 5"), Sub("no", "a < 1 and a > 2")]
    report = compiled(spark, subs, tmp_path, lint=True)
    assert report.findings == 2
    reported = spark.read.parquet(str(report.version.path / "findings.parquet")).collect()
    assert {row["id"]: (row["rule"], row["other"]) for row in reported} == {
        "narrow": ("covered", "wide"),
        "no": ("never-true", None),
    }


def test_a_key_gives_every_subscription_one_place(spark: SparkSession, tmp_path: Path) -> None:
    symbols = [f"S{n}" for n in range(8)]
    subs = [
        *(Sub(s, f'symbol = "{s}" and price < 5') for s in symbols),
        Sub("some", f'symbol in ("{symbols[0]}", "{symbols[1]}", "{symbols[2]}")'),
        Sub("any", "price < 3"),
    ]
    report = compiled(spark, subs, tmp_path, key="symbol", shards=3)
    shards = report.version.manifest.shards
    assert sum(shard.subscriptions for shard in shards) == len(subs)
    assert {shard.bucket for shard in shards if shard.subscriptions} >= {0, 1, 2, None}
    events = {f"{s}-{p}": Event({"symbol": s, "price": p}) for s in symbols for p in (1, 4, 9)}
    events["none"] = Event({"price": 1})
    rows = [
        (name, *(e.get(n, (None,))[0] for n in ("symbol", "price"))) for name, e in events.items()
    ]
    frame = spark.createDataFrame(rows, "name string, symbol string, price int")
    expected = by_the_oracle(events, subs, None, "sql")
    for plan in ("single", "keyed", "grid"):
        assert by_spark(frame, report, plan=plan) == expected


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("id string, filters string", 'has no column "filter".*did you mean "filters"'),
        ("id double, filter string", 'column "id" should hold texts or integers.*double'),
    ],
)
def test_a_table_with_wrong_columns_is_refused(
    columns: str, sentence: str, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(FilterError, match=sentence):
        compile_subscriptions(spark.createDataFrame([], columns), tmp_path)
    assert not tmp_path.joinpath("versions").exists()


def test_mistakes_are_reported_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = spark.createDataFrame([("a", "b = 1")], "id string, filter string")
    with pytest.raises(SchemaError, match="schema"):
        compile_subscriptions(table, tmp_path, mode="total")
    with pytest.raises(FilterError, match="the key 'symbl' is not in the schema"):
        compile_subscriptions(table, tmp_path, schema=Schema({"symbol": "str"}), key="symbl")
    with pytest.raises(FilterError, match="the key 'n' should be a text"):
        compile_subscriptions(table, tmp_path, schema=Schema({"n": "int"}), key="n")
    with pytest.raises(FilterError, match="does not imply a format"):
        compile_subscriptions(tmp_path, tmp_path, spark=spark)
    with pytest.raises(LibraryError, match="no such file"):
        compile_subscriptions(tmp_path / "none.parquet", tmp_path, spark=spark)
    assert not tmp_path.joinpath("versions").exists()


def test_a_compilation_knows_what_feeds_have_changed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that runs again must not change what was compiled since."""
    table = spark.createDataFrame([("a", "b = 1")], "id string, filter string")
    library = compile_subscriptions(table, tmp_path).version.library
    row = {"id": "c", "filter": "b = 2", "change": "insert"}
    apply_changes(Library(library), [row], of=FeedBatch("feed", 3))
    assert compile_subscriptions(table, tmp_path).version.manifest.feeds == {"feed": 3}

    def build(*arguments: Any) -> Any:
        apply_changes(Library(library), [row], of=FeedBatch("feed", 4))
        return _build(*arguments)

    monkeypatch.setattr(compiling, "_build", build)
    with pytest.raises(
        LibraryError, match=r"a feed has changed it while .* stop the feed, compile"
    ):
        compile_subscriptions(table, tmp_path)
    newest = Library(library).latest()
    assert sorted(newest.ids().to_pylist()) == ["a", "c"]
    # To compile is what one does about a damaged version.
    (newest.path / "manifest.json").write_text("{")
    monkeypatch.undo()
    assert compile_subscriptions(table, tmp_path).version.number == newest.number + 1


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_times_may_be_large_texts(type_: pa.DataType, tmp_path: Path) -> None:
    """With the setting useLargeVarTypes, Spark has another type for them."""
    columns = {"id": ["a", "b"], "filter": ["b = 1"] * 2, "expires_at": ["2030-01-01", "soon"]}
    batch = pa.record_batch({name: pa.array(given, type_) for name, given in columns.items()})
    numbers = pa.array([1, 2])
    for name, given in (("shard", pa.array([0, 0])), ("row", numbers), ("first", numbers)):
        batch = batch.append_column(name, given)
    with Library(tmp_path).draft() as draft:
        [built] = build_shards([batch], ShardOptions(draft, None, "sql", "string"))
        described = json.loads(built.column("built")[0].as_py())
    assert (described["shard"]["subscriptions"], described["rejected"]) == (1, 1)


def test_other_threads_find_what_opens_stores(spark: SparkSession) -> None:
    """Spark has no active session in a thread that it did not start."""
    options: Any = spark.sparkContext._jsc.hadoopConfiguration()
    options.set("fs.s3a.secret.key", "hidden")
    try:
        here = driver_access()
        with ThreadPoolExecutor(1) as pool:
            found, shared = pool.submit(lambda: (driver_access(), shared_access(here))).result()
    finally:
        options.unset("fs.s3a.secret.key")
    assert here.s3_options("bucket") == {"secret_key": "hidden"}
    assert found == here == shared.value
