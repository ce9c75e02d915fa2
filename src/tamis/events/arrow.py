"""Arrow's columns as a batch of events: structs become dotted names, lists several values.

Columns are checked whole. Only an event with something wrong in it becomes a mapping, so that its
error reads like that of any mapping.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as arrow_types

from tamis.errors import EventError, LimitError, TamisError
from tamis.events import places
from tamis.events.arrow_numbers import TableLayout, layout_of
from tamis.events.arrow_values import (
    EventNumbers,
    check_distinct,
    find_values,
    fixed_width,
    is_not_null,
    is_surely,
    is_text,
    refuse_type,
    texts_of,
    to_microseconds,
    type_of_arrow,
)
from tamis.events.batch import LIMITS, Admission, EventBatch, Projection
from tamis.events.columns import Column
from tamis.events.event import EventLimits
from tamis.events.kinds import Type
from tamis.events.packed import NumberColumns, PackedColumns
from tamis.events.schema import Attribute, Schema
from tamis.events.values import RejectedValue

# --- nested arrays taken apart -------------------------------------------------------------


KeyPath = tuple[str, ...]

# Fewer columns are read one by one: that needs no kernel, which takes time to load.
MIN_PACKED_COLUMNS: Final = 32

# Fewer would be slower where columns are few, more would take more memory.
ROWS_PER_BATCH: Final = 16_384

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NESTED: Final = {
    pa.struct([]).id,
    pa.list_(pa.null()).id,
    pa.large_list(pa.null()).id,
    pa.list_(pa.null(), 1).id,
    pa.list_view(pa.null()).id,
    pa.large_list_view(pa.null()).id,
}
_ENCODED: Final = {
    pa.dictionary(pa.int32(), pa.null()).id,
    pa.run_end_encoded(pa.int32(), pa.null()).id,
}


class AttributeSelection(NamedTuple):
    """Which attributes are read: some, or all."""

    names: frozenset[str] | None
    ways: frozenset[str]
    """These names, and those of all structs that they are nested in."""
    named: frozenset[str] | None = None
    """If all are selected: those of which other values than texts are read, too; None for all."""

    def reads(self, name: str, type_: pa.DataType) -> bool:
        """Return whether an attribute is read from an array of this type."""
        if self.names is not None:
            return name in self.names
        return self.named is None or name in self.named or type_of_arrow(type_) is Type.STR

    def enters(self, name: str) -> bool:
        """Return whether an attribute is read, or one that is nested in it."""
        return self.names is None or name in self.ways


@lru_cache(maxsize=64)
def selection_of(
    names: frozenset[str] | None, named: frozenset[str] | None = None
) -> AttributeSelection:
    """Return the selection of some attributes, or of all; batch after batch wants the same."""
    ways = {way for name in names or () for way in accumulate(name.split("."), "{}.{}".format)}
    return AttributeSelection(names, frozenset(ways), named)


class FlatArray(NamedTuple):
    """The values of an attribute in one chunk of the table: a flat array, and the event of each."""

    array: pa.Array
    events: EventNumbers
    repeated: bool
    """Whether it is inside a list, so that an event may hold several values."""


class FlatArrays(NamedTuple):
    """The flat arrays of a table, found by descending into nested ones."""

    selection: AttributeSelection
    limits: EventLimits
    found: dict[KeyPath, list[FlatArray]]
    too_deep: list[EventNumbers]
    """The events with deeper nesting than the limit."""

    def walk(
        self,
        keys: KeyPath,
        array: pa.Array,
        events: EventNumbers,
        *,
        depth: int = 1,
        repeated: bool = False,
    ) -> None:
        """Descend into an array that is `depth` steps below the event."""
        name = ".".join(keys)
        read, ways, _ = self.selection
        if read is not None and name not in ways:
            return
        if not keys[-1] or len(name) > self.limits.name:
            raise self._refuse_name(keys, name)
        if arrow_types.is_null(array.type):
            return
        if array.type.id in _ENCODED:
            array = unpacked(array)
        if array.type.id in _NESTED:
            if depth >= self.limits.depth:
                self.too_deep.append(events[is_not_null(array)])
            elif arrow_types.is_struct(array.type):
                for key, field in struct_fields(array, keys):
                    self.walk((*keys, key), field, events, depth=depth + 1, repeated=repeated)
            else:
                items, parents = items_of(array)
                self.walk(keys, items, events[parents], depth=depth + 1, repeated=True)
        elif name in read if read is not None else self.selection.reads(name, array.type):
            if type_of_arrow(array.type) is None:
                raise refuse_type(array.type, places.path(keys))
            self.found.setdefault(keys, []).append(FlatArray(array, events, repeated))

    def _refuse_name(self, keys: KeyPath, name: str) -> EventError | LimitError:
        if not keys[-1]:
            return EventError("'' is not an attribute name: a name is a text, and not empty")
        what = f"{places.path(keys)}: characters of the name"
        return LimitError(what, actual=len(name), limit=self.limits.name)


def joined_chunks(flats: list[FlatArray]) -> FlatArray:
    """Return the chunks of an attribute as one array."""
    arrays = [_decoded(flat.array) for flat in flats]
    if is_text(arrays[0].type):
        # Together they may exceed 32-bit offsets.
        arrays = [array.cast(pa.large_string()) for array in arrays]
    events = np.concatenate([flat.events for flat in flats])
    return FlatArray(pa.concat_arrays(arrays), events, flats[0].repeated)


# --- steps into an array ---------------------------------------------------------------------


def unpacked(array: pa.Array) -> pa.Array:
    """Return an array decoded; texts stay dictionary-encoded unless a code can mean null."""
    while arrow_types.is_run_end_encoded(array.type) or arrow_types.is_dictionary(array.type):
        if arrow_types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif is_text(array.type.value_type) and not array.dictionary.null_count:
            return array
        else:
            array = _decoded(array)
    return array


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if arrow_types.is_dictionary(array.type) else array


def struct_fields(array: pa.Array, keys: KeyPath) -> list[tuple[str, pa.Array]]:
    """Return the fields of a struct, null where it is null itself."""
    names = [field.name for field in array.type]
    check_distinct(names, keys)
    return list(zip(names, array.flatten(), strict=True))


def items_of(array: pa.Array) -> tuple[pa.Array, NDArray[np.int32]]:
    """Return the items of all lists, and the list of each."""
    # Not `list_parent_indices`: it counts what a null list hides, and `list_flatten` does not.
    everyone = np.arange(len(array), dtype=np.int32)
    lengths, lists = fixed_width(pc.list_value_length(array), everyone)
    return pc.list_flatten(array), np.repeat(lists, lengths)


# --- Python's values -------------------------------------------------------------------------


def to_python(
    keys: KeyPath, array: pa.Array, selection: AttributeSelection, *, depth: int
) -> list[Any]:
    """Return the values of an array, `RejectedValue` for those that Python cannot hold.

    Nesting below `depth` is cut off: it is enough to see that there is some.
    """
    name = ".".join(keys)
    if not selection.enters(name) or arrow_types.is_null(array.type):
        return [None] * len(array)
    array = unpacked(array)
    if arrow_types.is_struct(array.type):
        return _mappings(keys, array, selection, depth=depth)
    if array.type.id in _NESTED:
        return _lists(keys, array, selection, depth=depth)
    return _flat(array) if selection.reads(name, array.type) else [None] * len(array)


def _mappings(
    keys: KeyPath, array: pa.Array, selection: AttributeSelection, *, depth: int
) -> list[Any]:
    mappings: list[Any] = [{} if present else None for present in is_not_null(array)]
    for key, field in struct_fields(array, keys) if depth > 1 else ():
        values = to_python((*keys, key), field, selection, depth=depth - 1)
        for mapping, value in zip(mappings, values, strict=True):
            if mapping is not None:
                mapping[key] = value
    return mappings


def _lists(
    keys: KeyPath, array: pa.Array, selection: AttributeSelection, *, depth: int
) -> list[Any]:
    lists: list[Any] = [[] if present else None for present in is_not_null(array)]
    items, parents = items_of(array)
    values = to_python(keys, items, selection, depth=depth - 1) if depth > 1 else []
    for value, parent in zip(values, parents.tolist(), strict=depth > 1):
        lists[parent].append(value)
    return lists


def _flat(array: pa.Array) -> list[Any]:
    match type_of_arrow(array.type):
        case Type.TIMESTAMP:
            return _moments(array)
        case Type.STR:
            return texts_of(array)
        case _:
            return array.to_pylist()  # type: ignore[no-any-return]


def _moments(array: pa.Array) -> list[Any]:
    moments: list[Any] = [None] * len(array)
    values, present = fixed_width(array, np.arange(len(array), dtype=np.int32))
    instants, outside = to_microseconds(values, array.type)
    for place, instant, out, value in zip(present, instants, outside, values, strict=True):
        moments[place] = (
            RejectedValue(f"{value} of type {array.type} lies outside of the years 1 to 9999")
            if out
            else _EPOCH + timedelta(microseconds=int(instant))
        )
    return moments


# --- batches -------------------------------------------------------------------------------


def batch_of_arrow(
    data: pa.RecordBatch | pa.Table,
    schema: Schema | None = None,
    *,
    total: bool = False,
    wanted: Collection[str] | None = None,
) -> EventBatch:
    """Make a batch from the rows of a table; an invalid row is an error of its own.

    With a schema, the batch holds only the attributes it declares; with `wanted`, only those. The
    schema is checked for every attribute it declares, wanted or not; other columns are ignored.

    >>> batch = batch_of_arrow(pa.table({"price": [5, None], "by": [{"name": "a"}, {"name": "b"}]}))
    >>> batch.event(0), batch.event(1)
    (Event({'price': 5, 'by.name': 'a'}), Event({'by.name': 'b'}))
    """
    names = None if wanted is None else frozenset(wanted)
    source = ArrowEvents(data, rows_per_batch=sys.maxsize)
    [batch] = source.event_batches(Projection(names, schema, total))
    return batch


class ArrowEvents(NamedTuple):
    """The rows of a table, or of another library's data that offers Arrow's columns."""

    data: Any
    rows_per_batch: int = ROWS_PER_BATCH

    def event_batches(self, projection: Projection) -> Iterator[EventBatch]:
        """Yield the rows, some thousands at a time; nothing is copied that need not be."""
        table = self.data
        if not isinstance(table, pa.Table | pa.RecordBatch):
            table = pa.table(table)
        names = projection.wanted if projection.schema is None else frozenset(projection.schema)
        selection = selection_of(names, projection.named)
        read, ways, _ = selection
        for first in range(0, max(table.num_rows, 1), self.rows_per_batch):
            data, numbers, layout = table, None, None
            if table.num_rows > self.rows_per_batch:
                data = table.slice(first, self.rows_per_batch)
            entered: Sequence[str]
            if data.num_columns >= MIN_PACKED_COLUMNS and not projection.total:
                layout = layout_of(data.schema, projection, selection.enters)
                numbers, entered = layout.numbers(data)
            else:
                entered = [name for name in data.column_names if read is None or name in ways]
                if len(set(entered)) < len(entered):
                    check_distinct(entered)
            # All columns are found many times as fast as each by its name.
            has_all = len(entered) == data.num_columns
            columns = data.columns if has_all else [data.column(name) for name in entered]
            if isinstance(data, pa.RecordBatch):
                chunks = {name: [found] for name, found in zip(entered, columns, strict=True)}
            else:
                chunks = {
                    name: found.chunks or [found.combine_chunks()]
                    for name, found in zip(entered, columns, strict=True)
                }
            wrong = np.zeros(data.num_rows, np.bool_)
            yield _Conversion(data, projection, selection, layout, numbers, chunks, wrong).batch()


@dataclass(slots=True)
class _Conversion:
    """The conversion of a table to a batch, which also finds the invalid rows."""

    data: pa.RecordBatch | pa.Table
    projection: Projection
    selection: AttributeSelection
    layout: TableLayout | None
    """How the table is read, if it is wide."""
    numbers: NumberColumns | None
    chunks: Mapping[str, list[pa.Array]]
    """All other columns."""
    wrong: NDArray[np.bool_]

    def batch(self) -> EventBatch:
        numbers, wanted = self.numbers, self.projection.wanted
        flats = FlatArrays(self.selection, LIMITS, {}, [])
        for name, chunks in self.chunks.items():
            first = 0
            for chunk in chunks:
                events = np.arange(first, first + len(chunk), dtype=np.int32)
                flats.walk((name,), chunk, events)
                first += len(chunk)
        by_name = {".".join(keys): parts for keys, parts in flats.found.items()}
        packed: Mapping[str, int] = {} if numbers is None else numbers.places
        if len(by_name) < len(flats.found) or not by_name.keys().isdisjoint(packed):
            return self._row_by_row()
        for events in flats.too_deep:
            self.wrong[events] = True
        columns = {
            name: self._column(name, parts[0] if len(parts) == 1 else joined_chunks(parts))
            for name, parts in by_name.items()
        }
        attributes = len(columns) + len(packed)
        if attributes > LIMITS.attributes or any(p[0].repeated for p in by_name.values()):
            self._hold_against_limits(columns.values(), numbers)
        if self.projection.total:
            self._require_all(by_name)
        filled: Mapping[str, Column] = {
            name: column
            for name, column in columns.items()
            if column.entries and (wanted is None or name in wanted)
        }
        if self.layout is not None and numbers is not None:
            order = self.layout.order
            if filled:
                order = {**order, **{".".join(keys): order[keys[0]] for keys in flats.found}}
            filled = PackedColumns(numbers, filled, order)
        errors: dict[int, TamisError] = {}
        if self.wrong.any():
            errors = self._errors()
            right = {name: column.without(self.wrong) for name, column in filled.items()}
            filled = {name: column for name, column in right.items() if column.entries}
        return EventBatch(len(self.wrong), filled, errors, self._row)

    def _column(self, name: str, flat: FlatArray) -> Column:
        schema = self.projection.schema
        declared = None if schema is None else schema[name]
        if declared and not self._keeps(name) and _is_surely_right(flat, declared):
            return Column({})
        found = find_values(flat.array, flat.events, declared and declared.type)
        if found.wrong is not None:
            self.wrong[found.wrong] = True
        filled = {kind: e for kind, e in found.entries.items() if len(e.events)}
        column = Column(filled, is_single=not flat.repeated)
        if declared and flat.repeated and not declared.many:
            self.wrong[column.multivalued(len(self.wrong))] = True
        return column

    def _hold_against_limits(
        self, columns: Collection[Column], numbers: NumberColumns | None
    ) -> None:
        # Counting every column costs as much as reading them, and hardly any event is near.
        repeated = np.zeros(len(self.wrong), np.int64)
        for column in columns:
            if not column.is_single:
                repeated += column.counts(len(self.wrong))
        held = len(columns) + (len(numbers.places) if numbers else 0)
        most = held + int(repeated.max(initial=0))
        if held <= LIMITS.attributes and most <= LIMITS.values:
            return
        packed = numbers.events if numbers else np.empty(0, np.int32)
        values = np.bincount(packed, minlength=len(self.wrong))
        attributes = values.copy()
        for column in columns:
            counts = column.counts(len(self.wrong))
            values += counts
            attributes += counts > 0
        self.wrong[(attributes > LIMITS.attributes) | (values > LIMITS.values)] = True

    def _keeps(self, name: str) -> bool:
        wanted = self.projection.wanted
        return wanted is None or name in wanted

    def _require_all(self, flats: Mapping[str, list[FlatArray]]) -> None:
        for name in self.projection.schema or ():
            lacking = np.ones(len(self.wrong), np.bool_)
            for flat in flats.get(name, ()):
                lacking[flat.events[is_not_null(flat.array)]] = False
            self.wrong[lacking] = True

    # --- single rows -------------------------------------------------------------------------

    def _errors(self) -> dict[int, TamisError]:
        numbers = np.flatnonzero(self.wrong).tolist()
        return {
            number: self._error(row)
            for number, row in zip(numbers, self._rows(self.wrong), strict=True)
        }

    def _error(self, row: Mapping[str, object]) -> TamisError:
        try:
            admitted = Admission(self.projection.schema, total=self.projection.total).admit(row)
        except TamisError as error:
            return error
        raise AssertionError(f"{admitted} was rejected, but it is valid")

    def _row_by_row(self) -> EventBatch:
        """Make the batch from mappings, which detect a name that is given twice."""
        rows = self._rows(np.ones(len(self.wrong), np.bool_))
        batch = EventBatch.of_events(rows, self.projection.schema, total=self.projection.total)
        kept = {name: column for name, column in batch.columns.items() if self._keeps(name)}
        return EventBatch(batch.length, kept, batch.errors, rows.__getitem__)

    def _row(self, number: int) -> dict[str, Any]:
        chosen = np.zeros(len(self.wrong), np.bool_)
        chosen[number] = True
        return self._rows(chosen)[0]

    def _all_chunks(self) -> Mapping[str, list[pa.Array]]:
        if self.layout is None:
            return self.chunks
        columns = {name: self.data.column(number) for name, number in self.layout.order.items()}
        return {
            name: column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            for name, column in columns.items()
        }

    def _rows(self, chosen: NDArray[np.bool_]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{} for _ in range(int(chosen.sum()))]
        for name, chunks in self._all_chunks().items():
            values: list[Any] = []
            first = 0
            for chunk in chunks:
                for begin, end in _runs(chosen[first : first + len(chunk)]):
                    part = chunk.slice(begin, end - begin)
                    values += to_python((name,), part, self.selection, depth=LIMITS.depth)
                first += len(chunk)
            for row, value in zip(rows, values, strict=True):
                row[name] = value
        return rows


def _is_surely_right(flat: FlatArray, declared: Attribute) -> bool:
    return not flat.repeated and is_surely(flat.array.type, declared.type)


def _runs(chosen: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the start and end of each run of chosen rows, to be sliced.

    Slices work for all types; `filter` and `take` do not: Arrow 26 takes the wrong items of nested
    fixed-size lists with an offset, and fails on string views.
    """
    edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
