"""Tables that answer queries: pushing a filter down changes nothing but the time it takes."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from seeds import seeds
from strategies import NAMES, World, random_filter
from tamis import intersects
from tamis.errors import TamisError
from tamis.filters import TRUE, Filter, attr
from tamis.sources import SourceTable, TableSummary, open_table
from tamis.sources.table import as_event

INTEGERS = (0, 1, 2, -1, 3, 2**53, 2**53 + 1, None)
FLOATS = (0.0, 1.0, 1.5, -1.0, 2.0, float(2**53), 0.5, math.nan, math.inf, -math.inf, None)
TEXTS = ("", "a", "b", "ab", "ba", "aa", "abab", "é", "a\0b", "A", "10.1.2.3", None)
COLUMNS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "int64": (pa.int64(), INTEGERS),
    "int8": (pa.int8(), (0, 1, 2, -1, None)),
    "float64": (pa.float64(), FLOATS),
    "float32": (pa.float32(), FLOATS),
    "string": (pa.string(), TEXTS),
    "bool": (pa.bool_(), (True, False, None)),
    "list": (pa.list_(pa.int64()), ([], [1], [0, 2], None)),
    "struct": (pa.struct([("c", pa.int64())]), ({"c": 1}, {"c": None}, None)),
}


def random_arrow(rng: Random, names: list[str]) -> Any:
    count = rng.choice((0, 1, 3, 12))
    arrays = []
    for _ in names:
        type_, values = rng.choice([*COLUMNS.values()])
        few = rng.sample(values, rng.randint(1, min(4, len(values))))
        arrays.append(pa.array([rng.choice(few) for _ in range(count)], type_))
    return pa.table(arrays, names=names)


def check_table(table: SourceTable, filters: list[Filter], tally: dict[str, int]) -> None:
    rows = [*table.rows(TRUE)]
    summary = TableSummary.of(table)
    assert all(summary.filter.matches(row) for row in rows), summary.filter
    for filter_ in filters:
        wanted = [row for row in rows if filter_.matches(as_event(row))]
        assert [*table.rows(filter_)] == wanted, filter_
        found, is_exact = table.candidates(filter_)
        candidates = [*found]
        assert not is_exact or candidates == wanted, filter_
        tally["exact" if is_exact else "wider"] += 1
        tally["pushed"] += len(candidates) < len(rows)
        if wanted:
            assert intersects(summary.filter, filter_, many=summary.many), filter_


def random_filters(rng: Random) -> list[Filter]:
    world = World(NAMES, None, exact=False)
    return [random_filter(rng, world) for _ in range(12)]


@pytest.mark.parametrize("seed", seeds(400, 6))
def test_parquet_pushed_down_is_the_oracle(seed: int, tmp_path: Path) -> None:
    rng, tally = Random(seed), {"exact": 0, "wider": 0, "pushed": 0}
    for n in range(6):
        names = rng.choice((["a", "b.c", "unit price"], ["a", "b", "unit price"], ["a"]))
        pq.write_table(random_arrow(rng, names), tmp_path / f"{n}.parquet")
        check_table(open_table(str(tmp_path / f"{n}.parquet")), random_filters(rng), tally)
    assert min(tally.values()) > 0, tally


@pytest.mark.parametrize("seed", seeds(400, 4))
def test_sqlite_pushed_down_is_the_oracle(seed: int, tmp_path: Path) -> None:
    rng, tally = Random(seed), {"exact": 0, "wider": 0, "pushed": 0}
    pool = [*INTEGERS, *FLOATS[:-2], *TEXTS, b"bytes", math.inf]
    for n in range(6):
        path = tmp_path / f"{n}.sqlite"
        with sqlite3.connect(path) as connection:
            types = rng.choices(
                ("TEXT", "INTEGER", "REAL", "", "NUMERIC", "TEXT COLLATE NOCASE"), k=3
            )
            columns = zip(("a", "b.c", "unit price"), types, strict=True)
            declared = ", ".join(f'"{name}" {type_}' for name, type_ in columns)
            connection.execute(f"CREATE TABLE t ({declared})")
            for _ in range(rng.choice((0, 1, 12))):
                connection.execute("INSERT INTO t VALUES (?, ?, ?)", rng.choices(pool, k=3))
        connection.close()
        check_table(open_table(str(path)), random_filters(rng), tally)
    assert min(tally.values()) > 0, tally


def test_csv_and_folders_are_tables(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "1.csv").write_text("price,name,day\n4,Emma,2026-01-31\n9.5,Row,2026-02-01\n")
    table = open_table(str(folder))
    assert [*table.rows(attr("price") < 5)] == [{"price": 4.0, "name": "Emma", "day": "2026-01-31"}]
    assert str(TableSummary.of(table).filter) == ('price in (4, 9.5) and name in ("Emma", "Row")')
    before = table.version()
    (folder / "2.csv").write_text("price,name,day\n1,Lives,2026-02-02\n")
    assert table.version() != before
    assert [row["name"] for row in table.rows(attr("price") < 5)] == ["Emma", "Lives"]


def test_a_summary_is_short_whatever_the_table_has(tmp_path: Path) -> None:
    wide = {f"column {n}": [f"{v} {'x' * 80}" for v in range(40)] for n in range(300)}
    pq.write_table(pa.table(wide), tmp_path / "wide.parquet")
    table = open_table(str(tmp_path / "wide.parquet"))
    summary = TableSummary.of(table)
    assert len(str(summary.filter)) < 16_000
    assert all(summary.filter.matches(row) for row in table.rows(TRUE))


def test_duckdb_answers_queries(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", None]}), tmp_path / "t.parquet")
    table = open_table(f"duckdb:FROM '{tmp_path}/t.parquet' SELECT a, a * 2 AS twice, b")
    assert [*table.rows(attr("twice") > 3)] == [
        {"a": 2, "twice": 4, "b": "y"},
        {"a": 3, "twice": 6},
    ]
    check_table(
        table,
        [attr("a") == 1, attr("b").is_absent(), attr("b") != "x"],
        {
            "exact": 0,
            "wider": 0,
            "pushed": 0,
        },
    )
    with pytest.raises(TamisError, match="DuckDB cannot run the query"):
        open_table("duckdb:SELECT nonsense")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none.parquet", "there is no file"),
        ("text.parquet", "cannot be read as parquet"),
        ("text.sqlite", "is not a SQLite file"),
        ("text.txt", "is no table that can be served"),
    ],
)
def test_what_is_no_table_gets_a_sentence(name: str, sentence: str, tmp_path: Path) -> None:
    for ending in ("parquet", "sqlite", "txt"):
        (tmp_path / f"text.{ending}").write_text(json.dumps({"not": "a table"}) * 100)
    with pytest.raises(TamisError) as error:
        open_table(str(tmp_path / name))
    assert sentence in str(error.value)
