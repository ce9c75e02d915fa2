"""What a table is to a data source: rows, a summary of them, and whether they have changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from tamis.events import Event
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.filters import Filter, Mode

TableRow = dict[str, Any]


class ColumnSummary(NamedTuple):
    """What is known of the values of a column, as rows have them."""

    lowest: Any = None
    highest: Any = None
    values: tuple[Any, ...] | None = None
    """All of them, if they are few."""
    is_known: bool = False
    """Whether the other fields say anything."""
    is_everywhere: bool = False
    """Whether every row has a value."""


class SourceTable:
    """Rows that can be asked for by a filter."""

    many = False
    """Whether attributes of a row may hold several values at once."""

    def candidates(self, filter_: Filter) -> tuple[Iterator[TableRow], bool]:
        """Return rows that include all that match, and whether they are exactly those."""
        raise NotImplementedError

    def columns(self) -> dict[str, ColumnSummary] | None:
        """Return what is known of each column; None if there are no rows."""
        raise NotImplementedError

    def version(self) -> object:
        """Return something that differs once the rows have changed."""
        raise NotImplementedError

    def rows(self, filter_: Filter) -> Iterator[TableRow]:
        """Yield the rows that match a filter, in mode `sql`, as brokers see them."""
        found, is_exact = self.candidates(filter_)
        for row in found:
            if is_exact or filter_.matches(as_event(row), Mode.SQL):
                yield row

    def close(self) -> None:
        """Release what it holds."""


def as_event(row: TableRow) -> Event:
    """Return a row as a broker reads it."""
    return Event(row)


def plain(value: Any) -> Any:
    """Return a value as rows have it: of JSON, or None.

    Times become texts, as in JSON; numbers that JSON does not have, and bytes, are left out.

    >>> [plain(v) for v in (1, float("nan"), date(2026, 1, 31), Decimal("1.5"), b"x")]
    [1, None, '2026-01-31', 1.5, None]
    """
    match value:
        case bool() | str() | None:
            return value
        case int():
            return value if INT64_MIN <= value <= INT64_MAX else float(value)
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return plain(float(value))
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case list() | tuple():
            return [kept for item in value if (kept := plain(item)) is not None]
        case dict():
            return plain_row(value)
    return None


def plain_row(row: dict[str, Any]) -> TableRow:
    """Return a row without what it has no value for."""
    return {name: kept for name, value in row.items() if (kept := plain(value)) is not None}


def file_version(*paths: Path) -> tuple[tuple[str, int, int], ...]:
    """Return what changes when files do."""
    found = []
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file():
                status = file.stat()
                found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(found)
