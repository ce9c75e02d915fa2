"""Subscriptions out of tables and Parquet files, and the rows of tables as events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.errors import EventError, FilterError
from tamis.events import Schema
from tamis.matching import Added, Engine, Rejected
from tamis.matching.store.tables import SUBSCRIPTIONS_PER_READ, rows_of

Source = Callable[[pa.Table], Any]


def in_file(folder: Path, table: pa.Table, **options: Any) -> Path:
    path = folder / "subscriptions.parquet"
    pq.write_table(table, path, **options)
    return path


@pytest.fixture(params=["table", "record batch", "chunks", "file", "name of a file", "stream"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """Every form in which the same table may come."""
    forms: dict[str, Source] = {
        "table": lambda table: table,
        "record batch": lambda table: table.combine_chunks().to_batches()[0],
        "chunks": lambda table: pa.concat_tables([table[:1], table[1:]]),
        "file": lambda table: in_file(tmp_path, table),
        "name of a file": lambda table: str(in_file(tmp_path, table, row_group_size=1)),
        "stream": Stream,
    }
    return forms[request.param]


class Stream:
    """A table of another library, which offers its columns in Arrow's layout and no more."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_a_table_of_subscriptions_is_added_as_a_list_of_them_is(source: Source) -> None:
    table = pa.table(
        {
            "comment": ["first", "second", "third", "fourth"],
            "id": ["cheap", "ibm", "late", "strict"],
            "filter": ["price < 5", "name = 'IBM'", "price > 0", "price < 5 or name = 'x'"],
            "language": [None, "jms", None, None],
            "mode": pa.array([None, None, None, "strict"]).dictionary_encode(),
            "expires_at": pa.array([None, None, 50_000, None], pa.timestamp("ms")),
        }
    )
    now = 0.0
    engine = Engine(clock=lambda: now)
    assert engine.add_many(source(table)) == Added(4, ())
    event = {"price": 4, "name": "IBM"}
    assert engine.match(event) == ["cheap", "ibm", "late", "strict"]
    assert engine.match({"price": 4}) == ["cheap", "late"]
    now = 50.0
    assert engine.match(event) == ["cheap", "ibm", "strict"]


def test_rejected_rows_are_reported_with_their_number(source: Source) -> None:
    table = pa.table({"id": [1, None, 3, 4, 1], "filter": ["a < 1", "a < 1", None, "a <", "a < 2"]})
    engine = Engine()
    added = engine.add_many(source(table))
    assert added.added == len(engine) == 1
    assert [(r.row, r.id) for r in added.rejected] == [(2, None), (3, 3), (4, 4), (5, 1)]
    assert added.rejected[:2] == (
        Rejected(2, None, "an id is a text or an integer, not None"),
        Rejected(3, 3, "a filter is a text or a Filter, not None"),
    )


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"id": [1]}, 'has no column "filter"; such a table has id and filter, and may have '),
        ({"ids": [1], "filter": ["a"]}, 'expires_at; did you mean "ids"?'),
        ({"id": [1.5], "filter": ["a"]}, "should hold texts or integers, but has the Arrow type d"),
        ({"id": [1], "filter": [7]}, "should hold texts, but has the Arrow type int64"),
        ({"id": [1], "filter": ["a"], "mode": [b"sql"]}, "but has the Arrow type binary"),
        ({"id": [1], "filter": ["a"], "expires_at": ["noon"]}, "should hold timestamps, or sec"),
    ],
)
def test_a_wrong_column_is_one_sentence_before_anything_is_added(
    source: Source, columns: dict[str, list[Any]], sentence: str
) -> None:
    engine = Engine()
    with pytest.raises(FilterError) as refused:
        engine.add_many(source(pa.table(columns)))
    assert sentence in str(refused.value)
    assert len(engine) == 0


def test_two_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([["a"], ["b"], ["price < 5"]], names=["id", "id", "filter"])
    with pytest.raises(FilterError, match='has two columns "id"'):
        rows_of(table)


@pytest.mark.parametrize(
    ("moments", "seconds"),
    [
        (pa.array([1.5, None]), 1.5),
        (pa.array([2]), 2),
        (pa.array([1_500_000_001], pa.timestamp("ns")), 1.500000001),
        (pa.array([3], pa.timestamp("s", "Europe/Paris")), 3.0),
        (pa.array([2], pa.date32()), 172_800.0),
        (
            pa.array([datetime(2026, 1, 1, tzinfo=UTC)]),
            datetime(2026, 1, 1, tzinfo=UTC).timestamp(),
        ),
        (pa.array([2**62], pa.timestamp("s")), float(2**62)),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Array) else "",
)
def test_the_end_of_a_subscription_is_in_seconds(moments: pa.Array, seconds: float) -> None:
    length = len(moments)
    table = pa.table({"id": range(length), "filter": ["a"] * length, "expires_at": moments})
    assert next(rows_of(table))["expires_at"] == seconds


def test_a_file_is_read_a_piece_at_a_time(tmp_path: Path) -> None:
    length = 3 * SUBSCRIPTIONS_PER_READ + 5
    table = pa.table({"id": range(length), "filter": [f"a = {n}" for n in range(length)]})
    path = in_file(tmp_path, table, row_group_size=SUBSCRIPTIONS_PER_READ)
    rows = rows_of(path)
    assert next(rows) == {"id": 0, "filter": "a = 0"}
    assert [row["id"] for row in rows] == list(range(1, length))


def test_what_is_not_a_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.csv"
    path.write_text("id,filter\n1,price < 5\n")
    with pytest.raises(FilterError, match=r"subscriptions.csv is not a Parquet file that can be"):
        Engine().add_many(path)
    with pytest.raises(FileNotFoundError):
        Engine().add_many(tmp_path / "nowhere.parquet")


def test_a_damaged_file_is_reported_with_its_last_good_row(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": range(2 * SUBSCRIPTIONS_PER_READ),
            "filter": ["a = 1"] * (2 * SUBSCRIPTIONS_PER_READ),
        }
    )
    path = in_file(tmp_path, table, row_group_size=SUBSCRIPTIONS_PER_READ, compression="zstd")
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 60] = b"\xff" * 60
    path.write_bytes(content)
    engine = Engine()
    with pytest.raises(
        FilterError, match=f"cannot be read beyond row {SUBSCRIPTIONS_PER_READ}; the rows up to"
    ):
        engine.add_many(path)
    assert len(engine) == SUBSCRIPTIONS_PER_READ


def test_a_text_that_is_not_utf8_is_a_rejected_row() -> None:
    offsets = pa.py_buffer(np.array([0, 5, 6], np.int32))
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a = 1\xff")])
    added = Engine().add_many(pa.table({"id": ["x", "y"], "filter": texts}))
    assert added.added == 1
    assert added.rejected[0].row == 2
    assert "the text is not valid UTF-8" in added.rejected[0].reason


# --- rows of tables as events ----------------------------------------------------------------


def random_rows(rng: Random, length: int) -> list[dict[str, Any]]:
    return [
        {
            "price": rng.choice((None, 1, 5, 9)),
            "name": rng.choice((None, "IBM", "Dell", "x")),
            "tag": rng.choice((None, [], ["new"], ["new", "red"])),
            "by": {"age": rng.choice((None, 17, 18))},
        }
        for _ in range(length)
    ]


@pytest.mark.parametrize(
    "schema",
    [None, Schema({"price": "int", "name": "str", "by.age": "int"})],
    ids=["without a schema", "with a schema"],
)
def test_the_rows_of_a_table_match_as_mappings_do(source: Source, schema: Schema | None) -> None:
    engine = Engine(schema)
    engine.add("cheap", "price < 6 and name = 'IBM'")
    engine.add("adult", "by.age >= 18 or price = 9")
    if schema is None:
        engine.add("red", "tag = 'red'")
        engine.add("sum", "price + by.age > 20")
    rows = random_rows(Random(1), 300)
    table = pa.Table.from_pylist(rows).append_column("payload", pa.array([b"x"] * 300))
    given = source(table)
    if isinstance(given, str | Path):
        given = pq.read_table(given)
    assert list(engine.match_batch(given)) == list(engine.match_batch(rows))


def test_what_a_later_subscription_asks_for_is_read_as_well() -> None:
    engine = Engine()
    table = pa.table({"a": [1, 2], "b": [1, 1]})
    engine.add("a", "a = 2")
    assert list(engine.match_batch(table)) == [[], ["a"]]
    engine.add("b", "b = 1")
    assert list(engine.match_batch(table)) == [["b"], ["a", "b"]]


def test_a_row_that_contradicts_the_schema_is_an_error_for_itself_alone() -> None:
    engine = Engine(Schema({"price": "float", "by": "int"}))
    engine.add("cheap", "price < 6")
    matches = engine.match_batch(pa.table({"price": [1, 2**53 + 1, 3], "by": [1.5, None, None]}))
    assert list(matches) == [[], [], ["cheap"]]
    assert [str(error)[:20] for error in matches.errors.values()] == [
        "by: 1.5 is not of ty",
        "price: the integer 9",
    ]


def test_a_column_of_an_unknown_type_is_refused_only_if_a_filter_asks_for_it() -> None:
    table = pa.table({"price": [1], "payload": [Decimal("1.5")]})
    engine = Engine()
    engine.add("cheap", "price < 6")
    assert list(engine.match_batch(table)) == [["cheap"]]
    engine.add("loaded", "payload is present")
    with pytest.raises(EventError, match="payload: the column has the Arrow type decimal"):
        engine.match_batch(table)
