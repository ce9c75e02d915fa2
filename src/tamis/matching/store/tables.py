"""Subscriptions in a table: Arrow in memory, or a Parquet file that is read in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as arrow_types

from tamis.errors import FilterError
from tamis.events import Type
from tamis.events.arrow_values import texts_of, type_of_arrow
from tamis.events.schema import did_you_mean

# Rows that are Python objects at a time: enough to amortize reading a batch.
SUBSCRIPTIONS_PER_READ: Final = 8_192

_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def rows_of(source: pa.RecordBatch | pa.Table | str | PathLike[str]) -> Iterator[dict[str, Any]]:
    """Return the subscriptions in a table as mappings; ignore unknown columns.

    Errors about the columns are raised at once, before the first row.

    >>> list(rows_of(pa.table({"id": [1], "filter": ["price < 5"], "mode": [None]})))
    [{'id': 1, 'filter': 'price < 5'}]
    """
    if isinstance(source, str | PathLike):
        return _rows_of_file(source)
    table = pa.table(source)
    _check(table.schema, "the table of subscriptions")
    chosen = table.select(_known(table.column_names))
    return _mappings(chosen.to_batches(max_chunksize=SUBSCRIPTIONS_PER_READ))


def _rows_of_file(path: str | PathLike[str]) -> Iterator[dict[str, Any]]:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise FilterError(f"{path} is not a Parquet file that can be read: {error}") from None
    _check(file.schema_arrow, str(path))
    columns = _known(file.schema_arrow.names)
    return _read(file.iter_batches(SUBSCRIPTIONS_PER_READ, columns=columns), path)


def _read(pieces: Iterable[pa.RecordBatch], path: str | PathLike[str]) -> Iterator[dict[str, Any]]:
    row = 0
    try:
        for mapping in _mappings(pieces):
            row += 1
            yield mapping
    except (pa.ArrowException, OSError) as error:
        raise FilterError(
            f"{path} cannot be read beyond row {row}; the rows up to it were read: {error}"
        ) from None


def _mappings(pieces: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for piece in pieces:
        columns = [_values(piece.column(name)) for name in piece.schema.names]
        for row in zip(*columns, strict=True):
            given = zip(piece.schema.names, row, strict=True)
            # A null means that the column is missing, except for required columns.
            yield {n: value for n, value in given if value is not None or n in _REQUIRED}


def _values(column: pa.Array) -> list[Any]:
    if type_of_arrow(column.type) is Type.TIMESTAMP:
        return seconds_of_column(column)
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return texts_of(column)


def seconds_of_column(moments: pa.Array) -> list[float | None]:
    """Return timestamps as seconds since 1970; without a zone they are UTC, dates at midnight."""
    if not arrow_types.is_timestamp(moments.type):
        moments = moments.cast(pa.timestamp("s"))
    counts = moments.cast(pa.int64()).to_pylist()
    unit = _UNITS[moments.type.unit]
    return [None if count is None else count / unit for count in counts]


# --- columns ---------------------------------------------------------------------------------

_REQUIRED: Final = ("id", "filter")
_COLUMNS: Final[dict[str, tuple[set[Type], str]]] = {
    "id": ({Type.STR, Type.INT}, "texts or integers"),
    "filter": ({Type.STR}, "texts"),
    "language": ({Type.STR}, "texts"),
    "mode": ({Type.STR}, "texts"),
    "expires_at": ({Type.TIMESTAMP, Type.FLOAT, Type.INT}, "timestamps, or seconds since 1970"),
}


def _known(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in _COLUMNS]


def _check(schema: pa.Schema, where: str) -> None:
    """Refuse a table that does not contain subscriptions."""
    for name in _REQUIRED:
        if name not in schema.names:
            hint = did_you_mean(name, schema.names)
            raise FilterError(
                f'{where} has no column "{name}"; such a table has id and filter, and may have '
                f"language, mode and expires_at{'; ' + hint if hint else ''}"
            )
    for name in _known(schema.names):
        if schema.names.count(name) > 1:
            raise FilterError(f'{where} has two columns "{name}"')
        types, what = _COLUMNS[name]
        type_ = schema.field(name).type
        if type_of_arrow(type_) not in types and not arrow_types.is_null(type_):
            raise FilterError(
                f'the column "{name}" of {where} should hold {what}, but has the Arrow type {type_}'
            )
