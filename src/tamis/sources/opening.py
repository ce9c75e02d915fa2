"""Opening tables by name, and what is advertised of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from tamis.errors import TamisError
from tamis.filters import FALSE, Filter, all_of, any_of, attr
from tamis.sources.arrow import open_duckdb, open_files
from tamis.sources.sqlite import SqliteTable
from tamis.sources.table import ColumnSummary, SourceTable

DUCKDB: Final = "duckdb:"
SQLITE_ENDINGS: Final = (".sqlite", ".sqlite3", ".db")
# A broker takes filters of 16 KiB; whatever is left out only makes it wider.
MAX_SUMMARY_CHARACTERS: Final = 8_000
MAX_TEXT_CHARACTERS: Final = 60


def open_table(name: str, table: str | None = None) -> SourceTable:
    """Return a table: a Parquet, CSV or SQLite file, or `duckdb:` and a query.

    `table` names one of several tables in a SQLite file.
    """
    if name.startswith(DUCKDB):
        return open_duckdb(name.removeprefix(DUCKDB))
    path = Path(name)
    if not path.exists():
        raise TamisError(f"there is no file {name}")
    if path.suffix.lower() in SQLITE_ENDINGS:
        return SqliteTable(path, table)
    if table is not None:
        raise TamisError("only a SQLite file has several tables, of which one can be named")
    ending = path.suffix.lower()
    if path.is_dir():
        ending = next((file.suffix.lower() for file in sorted(path.iterdir())), "")
    if ending in (".parquet", ".csv"):
        return open_files(path, ending[1:])
    raise TamisError(
        f"{name} is no table that can be served: it ends neither in .parquet, .csv, "
        f"{', '.join(SQLITE_ENDINGS)}, nor begins with {DUCKDB}"
    )


class TableSummary(NamedTuple):
    """A filter that every row of a table matches."""

    filter: Filter
    many: bool

    @classmethod
    def of(cls, table: SourceTable) -> TableSummary:
        """Return what is true of every row: ranges, small sets of values, and presence."""
        columns = table.columns()
        if columns is None:
            return cls(FALSE, table.many)
        parts: list[Filter] = []
        size = 0
        for name, column in columns.items():
            part = _described(name, column)
            if part is not None and size + len(str(part)) <= MAX_SUMMARY_CHARACTERS:
                size += len(str(part)) + 5
                parts.append(part)
        return cls(all_of(*parts), table.many)


def _described(name: str, column: ColumnSummary) -> Filter | None:
    if not column.is_known or not name:
        return None
    if column.lowest is None:
        return attr(name).is_absent()
    found = _range(name, column)
    return found if column.is_everywhere else any_of(attr(name).is_absent(), found)


def _range(name: str, column: ColumnSummary) -> Filter:
    values: tuple[Any, ...] = column.values or ()
    is_long = any(isinstance(v, str) and len(v) > MAX_TEXT_CHARACTERS for v in values)
    if values and not is_long:
        return attr(name).in_(*values)
    low, high = column.lowest, column.highest
    if isinstance(low, bool):
        return attr(name).is_present()
    if not isinstance(low, str):
        return attr(name).between(low, high)
    # The beginning of a text comes before it; there is no such short text after one.
    above = attr(name) >= low[:MAX_TEXT_CHARACTERS]
    return above & (attr(name) <= high) if len(high) <= MAX_TEXT_CHARACTERS else above
