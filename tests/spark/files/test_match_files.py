"""Files that workers read give the same results as rows that Spark hands over."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from seeds import seeds
from spark.contract import Sub, compiled
from tamis.errors import EventError, LibraryError, SchemaError
from tamis.events import EventLimits, read_lines
from tamis.spark import CompileReport, Tally, match, match_files
from tamis.spark.files import readers
from tamis.spark.files.readers import read_json_lines
from tamis.spark.files.splits import Split, group_into_tasks, split_files
from tamis.spark.library.subscription_table import read_table

SUBS = [
    Sub("cheap", "price < 10"),
    Sub("acme", 'symbol = "ACME"'),
    Sub("red", 'order.tags = "red"'),
    Sub("part", 'items.name = "bolt"'),
]


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CompileReport:
    return compiled(spark, SUBS, tmp_path_factory.mktemp("library"), shards=2)


def table(first: int, rows: int) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * rows, pa.timestamp("ms", "UTC")),
            "symbol": ["ACME" if n % 3 else None for n in numbers],
            "price": [float(n % 20) for n in numbers],
            "order": [{"tags": ["blue", "red"][: n % 3], "noise": n} for n in numbers],
            "items": [[{"name": "bolt", "size": n}] * (n % 2) for n in numbers],
        }
    )


def rows_of(results: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in columns) for row in results.collect())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("events")
    pq.write_table(table(0, 90), path / "a.parquet", row_group_size=25)
    pq.write_table(table(90, 10), path / "b.parquet")
    (path / "_SUCCESS").touch()
    return path


def test_parquet_files_give_the_same_as_their_rows(
    spark: SparkSession, folder: Path, report: CompileReport
) -> None:
    tally = Tally()
    found = match_files(
        spark, report.version, folder, keep=["n", "at"], tally=tally, split_size=2_000
    )
    columns = ("n", "subscriptions", "matches", "at")
    by_rows = spark.read.parquet(str(folder)).transform(match(report.version, keep=["n", "at"]))
    assert rows_of(found, *columns) == rows_of(by_rows, *columns)
    assert tally.counts().events == 100
    places = rows_of(found, "n", "file", "position")
    assert places[89][1:] == (str(folder / "a.parquet"), 89)
    assert places[90][1:] == (str(folder / "b.parquet"), 0)


def test_a_grid_of_files_and_folders_with_values_give_the_same(
    spark: SparkSession, folder: Path, report: CompileReport, tmp_path: Path
) -> None:
    columns = ("n", "subscription", "position")
    single = rows_of(
        match_files(spark, report.version, folder, output="pairs", keep=["n"]), *columns
    )
    grid = match_files(spark, report.version, folder, output="pairs", keep=["n"], plan="grid")
    assert rows_of(grid, *columns) == single
    partitioned = tmp_path / "day=1"
    partitioned.mkdir()
    pq.write_table(table(0, 90), partitioned / "a.parquet")
    by_spark = match_files(spark, report.version, tmp_path, output="pairs", keep=["n", "day"])
    assert rows_of(by_spark, *columns) == [row for row in single if row[0] < 90]
    assert rows_of(by_spark, "day", "file")[0] == (1, str(partitioned / "a.parquet"))


def test_names_are_no_patterns(spark: SparkSession, report: CompileReport, tmp_path: Path) -> None:
    """To Spark they are, and a folder beside would be read instead."""
    for name, columns in (("ev[12]", {"price": [1]}), ("ev1", {"symbol": ["ACME"]})):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(columns), tmp_path / name / "a.parquet")
    found = match_files(spark, report.version, tmp_path / "ev[12]")
    assert rows_of(found, "subscriptions") == [(["cheap"],)]
    subscriptions = tmp_path / "ev{1}.json"
    subscriptions.write_text('{"id": "a", "filter": "price < 1"}')
    assert read_table(spark, subscriptions).count() == 1
    with pytest.raises(LibraryError, match="takes such a name of a file of CSV for a pattern"):
        read_table(spark, subscriptions, "csv")


def test_a_file_below_a_value_has_its_name(
    spark: SparkSession, report: CompileReport, tmp_path: Path
) -> None:
    """Spark gives it as a URL."""
    place = tmp_path / "a b+c%20é?#[1]" / "day=1" / "e.parquet"
    place.parent.mkdir(parents=True)
    pq.write_table(pa.table({"price": [1]}), place)
    found = match_files(spark, report.version, place.parents[1])
    assert rows_of(found, "file") == [(str(place),)]


def test_json_lines_are_read_by_their_bytes(
    spark: SparkSession, report: CompileReport, tmp_path: Path
) -> None:
    lines = [json.dumps({"price": n, "text": "é" * n}).encode() for n in range(30)]
    lines[7], lines[8], lines[9] = b'{"price": ', b"", b"\xff"
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\r\n".join(lines))
    tally = Tally()
    results = match_files(spark, report.version, path, tally=tally, split_size=100).collect()
    assert tally.counts() == (29, 7, 20, 2, 7)
    data = path.read_bytes()
    for row in results:
        line = data[row["position"] :].split(b"\r\n")[0]
        assert line in lines
        assert (row["error"] is not None) == (line in (lines[7], lines[9]))


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("size", range(1, 12))
def test_every_line_is_in_one_split(size: int, end: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lines.json"
    path.write_bytes(b"1\n22\n\n333\r\n4444" + end)
    splits = split_files([path], "json", size)
    read = [batch.column(2).to_pylist() for batch in read_json_lines(splits)]
    assert [line for lines in read for line in lines] == [b"1", b"22", b"333", b"4444"]


def one_by_one(path: Path, limits: EventLimits) -> list[tuple[int, bytes]]:
    """Return the position and text of the lines of a file."""
    found, position = [], 0
    with path.open("rb") as stream:
        for line in read_lines(stream, limits=limits):
            if line.strip():
                found.append((position, line.removesuffix(b"\n").removesuffix(b"\r")))
            position = stream.tell()
    return found


@pytest.mark.parametrize("seed", seeds(12, by_default=4))
def test_blocks_hold_the_lines_that_reading_one_by_one_gives(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    monkeypatch.setattr(readers, "LONGEST_LINE_BYTES", 202)
    monkeypatch.setattr(readers, "BYTES_PER_BLOCK", rng.choice((50, 300, 5_000)))
    lengths = (0, 1, 5, 80, 199, 200, 201, 202, 203, 700)
    lines = [
        b" " * rng.randint(0, 1) + b"x" * rng.choice(lengths) + rng.choice((b"", b"\r"))
        for _ in range(150)
    ]
    path = tmp_path / "lines.json"
    path.write_bytes(b"\n".join(lines) + rng.choice((b"", b"\n")))
    wanted = one_by_one(path, EventLimits(size=200))
    for split in split_files([path], "json", rng.choice((30, 900, 1 << 23))):
        rows = [
            (position.as_py(), text.as_py())
            for batch in read_json_lines([split])
            for position, text in zip(batch.column(1), batch.column(2), strict=True)
        ]
        assert rows == [row for row in wanted if split.first <= row[0] < split.last]


def test_small_splits_share_a_task() -> None:
    splits = [Split("a", 0, 1, 0, size) for size in (5, 4, 3, 9, 1)]
    tasks = group_into_tasks(splits, 9)
    assert [[split.size for split in task] for task in tasks] == [
        [5, 4],
        [3],
        [9],
        [1],
    ]


def test_unreadable_files_are_reported(
    spark: SparkSession, report: CompileReport, tmp_path: Path
) -> None:
    def read(name: str, **options: Any) -> None:
        match_files(spark, report.version, tmp_path / name, **options)

    with pytest.raises(EventError, match="there is no file or folder"):
        read("none")
    (tmp_path / "_hidden").touch()
    with pytest.raises(EventError, match="there is no file of events in"):
        read("")
    (tmp_path / "events.txt").write_text("{}")
    with pytest.raises(EventError, match="do not imply one format"):
        read("events.txt")
    with pytest.raises(EventError, match="'avro' is not a format"):
        read("events.txt", format_="avro")
    with pytest.raises(SchemaError, match="have no columns to keep"):
        read("events.txt", format_="json", keep=["n"])
