"""DuckDB as a matcher: filters are a table, and events are joined with it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.doors.ways import DoorEvents, Way
from benchmarks.engines import Counts
from tamis.filters import Filter
from tamis.filters.atoms import Compare, TextTest
from tamis.filters.boolean import And

# With so few attributes, a column each; with more, a row for each attribute of each event.
MAX_COLUMNS: Final = 20

Terms = Sequence[tuple[str, str, int | str]]


def is_installed() -> bool:
    """Return whether DuckDB can be imported."""
    return importlib.util.find_spec("duckdb") is not None


def join_ways(filters: Sequence[Filter], events: DoorEvents, folder: Path) -> dict[str, Way]:
    """Return the joins from Arrow and from JSON; none if the filters are no conjunctions."""
    terms = [_terms(filter_) for filter_ in filters]
    known = [each for each in terms if each is not None]
    if len(known) < len(terms):
        return {}
    duckdb: Any = importlib.import_module("duckdb")
    connection = duckdb.connect(config={"threads": 1})
    shapes = {tuple((name, op) for name, op, _ in each) for each in known}
    if len(shapes) == 1 and len(events.columns.schema) <= MAX_COLUMNS:
        query = _join_columns(connection, known)
    elif all(op == "=" for shape in shapes for _, op in shape):
        query = _join_rows(connection, known, events.columns.schema.names)
    else:
        return {}
    numbered = _numbered(events.columns)

    def by_arrow(count: int) -> Counts:
        whole = count == len(numbered)
        connection.register("events", numbered if whole else numbered.slice(0, count))
        return _counts(connection.execute(query), count)

    def by_json(count: int) -> Counts:
        path = folder / f"duckdb-{count}.jsonl"
        if not path.exists():
            path.write_bytes(events.text(count))
        columns = ", ".join(f"'{f.name}': '{_sql_type(f.type)}'" for f in events.columns.schema)
        connection.unregister("events")
        connection.execute(
            "create or replace temp view events as select (row_number() over ()) - 1 as n, * "  # noqa: S608
            f"from read_json('{path}', format='newline_delimited', columns={{{columns}}})"
        )
        found = _counts(connection.execute(query), count)
        connection.execute("drop view events")
        return found

    return {"DuckDB join, Arrow": by_arrow, "DuckDB join, JSON": by_json}


def _terms(filter_: Filter) -> Terms | None:
    found: list[tuple[str, str, int | str]] = []
    for term in filter_.terms if isinstance(filter_, And) else (filter_,):
        match term:
            case Compare(attribute=name, op="=", value=int() | str() as value):
                found.append((name, "=", value))
            case TextTest(attribute=name, op="starts with", text=text):
                found.append((name, "starts with", text))
            case _:
                return None
    return found


def _join_columns(connection: Any, filters: Sequence[Terms]) -> str:
    """Make a table with a column for each test; return the join of events with it."""
    columns = {
        f"v{place}": pa.array([each[place][2] for each in filters])
        for place in range(len(filters[0]))
    }
    connection.register("given", pa.table({"id": np.arange(len(filters)), **columns}))
    connection.execute("create temp table filters as select * from given")
    tests = [
        f'e."{name}" = f.v{place}' if op == "=" else f'starts_with(e."{name}", f.v{place})'
        for place, (name, op, _) in enumerate(filters[0])
    ]
    return f"select e.n, f.id from events e join filters f on {' and '.join(tests)}"  # noqa: S608


def _join_rows(connection: Any, filters: Sequence[Terms], names: Sequence[str]) -> str:
    """Make a table with a row for each test; return the join with the attributes of events."""
    numbers = np.repeat(np.arange(len(filters)), [len(each) for each in filters])
    tests = [test for each in filters for test in each]
    table = {
        "id": numbers,
        "name": [name for name, _, _ in tests],
        "value": [value for _, _, value in tests],
    }
    connection.register("given", pa.table(table))
    connection.execute("create temp table tests as select * from given")
    connection.execute(
        "create temp table sizes as select id, count(*) as size from tests group by id"
    )
    listed = ", ".join(f'"{name}"' for name in names)
    return (
        f"with held as (unpivot events on {listed} into name name value value) "  # noqa: S608
        "select n, id from (select h.n, t.id, count(*) as found from held h "
        "join tests t on h.name = t.name and h.value = t.value group by h.n, t.id) "
        "join sizes using (id) where found = size"
    )


def _numbered(columns: pa.RecordBatch) -> pa.Table:
    table = pa.Table.from_batches([columns])
    return table.add_column(0, "n", pa.array(np.arange(len(columns))))


def _counts(result: Any, count: int) -> Counts:
    found = result.fetchnumpy()
    return np.bincount(np.asarray(found["n"], np.int64), minlength=count).astype(np.int64)


def _sql_type(type_: pa.DataType) -> str:
    return {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.bool_(): "BOOLEAN"}.get(
        type_, "VARCHAR"
    )
