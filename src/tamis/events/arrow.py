"""Arrow's columns as a batch of events: structs become dotted names, lists several values.

Values are looked at a column at a time. Only an event in which something is wrong is made into a
mapping, so that it is told the same as any mapping.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.events.arrow_nesting import (
    AttributeSelection,
    FlatArray,
    FlatArrays,
    check_distinct,
    joined,
    to_python,
)
from tamis.events.arrow_values import find_values, is_present, is_surely
from tamis.events.batch import EventBatch
from tamis.events.columns import Column
from tamis.events.gathering import LIMITS, Admission
from tamis.events.schema import Attribute, Schema


def batch_of_arrow(
    data: pa.RecordBatch | pa.Table,
    schema: Schema | None = None,
    *,
    total: bool = False,
    wanted: Collection[str] | None = None,
) -> EventBatch:
    """Make a batch of the rows of a table; one that is wrong is an error for itself alone.

    With a schema, only what it declares comes into the batch; with `wanted`, only these
    attributes. The schema is held against all that it declares, wanted or not; other columns are
    not looked at.

    >>> batch = batch_of_arrow(pa.table({"price": [5, None], "by": [{"name": "a"}, {"name": "b"}]}))
    >>> batch.event(0), batch.event(1)
    (Event({'price': 5, 'by.name': 'a'}), Event({'by.name': 'b'}))
    """
    if not isinstance(data, pa.RecordBatch | pa.Table):
        # Another library's table, which offers its columns in Arrow's layout.
        data = pa.table(data)
    return _Conversion(data, Admission(schema, total=total), wanted).batch()


class _Conversion:
    """A table on its way to a batch: which of its rows are wrong is found on the way."""

    def __init__(
        self,
        data: pa.RecordBatch | pa.Table,
        admission: Admission,
        wanted: Collection[str] | None,
    ) -> None:
        self._admission = admission
        self._schema = admission.schema
        self._selection = AttributeSelection(wanted if self._schema is None else self._schema)
        self._wanted = wanted
        entered = [name for name in data.column_names if self._selection.enters(name)]
        check_distinct(entered)
        self._chunks = {name: _chunks(data.column(name)) for name in entered}
        self._length: Final[int] = data.num_rows
        self._wrong: Final = np.zeros(self._length, np.bool_)

    def batch(self) -> EventBatch:
        flats = self._flats()
        if flats is None:
            return self._row_by_row()
        columns = {name: self._column(name, flat) for name, flat in flats.items()}
        self._hold_against_limits(flats, columns)
        if self._admission.total:
            self._require_all(flats)
        kept = {name: column for name, column in columns.items() if self._keeps(name)}
        if self._wrong.any():
            kept = {name: column.without(self._wrong) for name, column in kept.items()}
        filled = {name: column for name, column in kept.items() if column.entries}
        return EventBatch(self._length, filled, self._errors())

    def _keeps(self, name: str) -> bool:
        return self._wanted is None or name in self._wanted

    def _flats(self) -> dict[str, FlatArray] | None:
        """Return the flat values of each attribute, or None if two places have one name."""
        walk = FlatArrays(self._selection, LIMITS)
        everyone = np.arange(self._length, dtype=np.int32)
        for name, chunks in self._chunks.items():
            first = 0
            for chunk in chunks:
                walk.walk((name,), chunk, everyone[first : first + len(chunk)])
                first += len(chunk)
        for events in walk.too_deep:
            self._wrong[events] = True
        flats = {".".join(keys): joined(parts) for keys, parts in walk.found.items()}
        return flats if len(flats) == len(walk.found) else None

    def _column(self, name: str, flat: FlatArray) -> Column:
        declared = None if self._schema is None else self._schema[name]
        if declared and not self._keeps(name) and _is_surely_right(flat, declared):
            return Column({})
        found = find_values(flat.array, flat.events, declared and declared.type)
        if found.wrong is not None:
            self._wrong[found.wrong] = True
        column = Column({kind: e for kind, e in found.entries.items() if len(e.events)})
        if declared and flat.repeated and not declared.many:
            self._wrong[column.several(self._length)] = True
        return column

    def _hold_against_limits(
        self, flats: Mapping[str, FlatArray], columns: Mapping[str, Column]
    ) -> None:
        if len(flats) <= LIMITS.attributes and not any(flat.repeated for flat in flats.values()):
            return
        attributes, values = np.zeros((2, self._length), np.int64)
        for column in columns.values():
            counts = column.counts(self._length)
            values += counts
            attributes += counts > 0
        self._wrong[(attributes > LIMITS.attributes) | (values > LIMITS.values)] = True

    def _require_all(self, flats: Mapping[str, FlatArray]) -> None:
        for name in self._schema or ():
            lacking = np.ones(self._length, np.bool_)
            if name in flats:
                flat = flats[name]
                lacking[flat.events[is_present(flat.array)]] = False
            self._wrong[lacking] = True

    # --- single rows -------------------------------------------------------------------------

    def _errors(self) -> dict[int, TamisError]:
        if not self._wrong.any():
            return {}
        numbers = np.flatnonzero(self._wrong).tolist()
        return {
            number: self._error(row)
            for number, row in zip(numbers, self._rows(self._wrong), strict=True)
        }

    def _error(self, row: Mapping[str, object]) -> TamisError:
        try:
            admitted = self._admission.admit(row)
        except TamisError as error:
            return error
        raise AssertionError(f"{admitted} was refused, and nothing is wrong with it")

    def _row_by_row(self) -> EventBatch:
        """Make the batch of mappings: they know what to do about a name that is given twice."""
        rows = self._rows(np.ones(self._length, np.bool_))
        batch = EventBatch.of_events(rows, self._schema, total=self._admission.total)
        kept = {name: column for name, column in batch.columns.items() if self._keeps(name)}
        return EventBatch(self._length, kept, batch.errors)

    def _rows(self, chosen: NDArray[np.bool_]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{} for _ in range(int(chosen.sum()))]
        for name, chunks in self._chunks.items():
            values: list[Any] = []
            first = 0
            for chunk in chunks:
                for begin, end in _runs(chosen[first : first + len(chunk)]):
                    part = chunk.slice(begin, end - begin)
                    values += to_python((name,), part, self._selection, depth=LIMITS.depth)
                first += len(chunk)
            for row, value in zip(rows, values, strict=True):
                row[name] = value
        return rows


def _is_surely_right(flat: FlatArray, declared: Attribute) -> bool:
    return not flat.repeated and is_surely(flat.array.type, declared.type)


def _runs(chosen: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where the chosen rows begin and end. Slices are right for all types.

    `filter` and `take` are not: of lists of fixed size inside each other, with an offset, Arrow 26
    takes the wrong ones, and of string views none.
    """
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    if isinstance(column, pa.Array):
        return [column]
    return column.chunks or [column.combine_chunks()]
