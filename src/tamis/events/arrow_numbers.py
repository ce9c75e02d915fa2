"""The columns of numbers of a wide table, read together through the Arrow C data interface.

Python's view of a column takes longer to make than the few values of a sparse one take to read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.events.arrow_values import check_distinct
from tamis.events.batch import LIMITS, Projection
from tamis.events.column_kernels import FLOAT64, INT32, INT64, PackedNumbers, read_numbers
from tamis.events.kinds import Type
from tamis.events.packed import MAX_LAYOUTS, NumberColumns

_FORMS: Final = {pa.int64().id: INT64, pa.int32().id: INT32, pa.float64().id: FLOAT64}
_TYPE_OF_FORM: Final = {INT64: Type.INT, INT32: Type.INT, FLOAT64: Type.FLOAT}

# `struct ArrowArray` has ten words, of which the ninth is the function that releases it.
_ARRAY_WORDS: Final = 10
_RELEASE: Final = 8
_Release: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@contextmanager
def _exported(table: pa.RecordBatch) -> Iterator[int]:
    """Give the address of a table in the C data interface, for as long as the context lasts.

    The capsules of `__arrow_c_array__` would have the schema exported as well, every time.
    """
    struct = (ctypes.c_void_p * _ARRAY_WORDS)()
    address = ctypes.addressof(struct)
    table._export_to_c(address)  # noqa: SLF001 - Arrow documents it
    try:
        yield address
    finally:
        _Release(struct[_RELEASE] or 0)(address)


class TableLayout(NamedTuple):
    """How tables with one schema are read: plain numbers together, other columns by themselves."""

    schema: pa.Schema
    order: Mapping[str, int]
    """The number of each column that is read or checked."""
    places: Mapping[str, int]
    """The place of each column of numbers among those."""
    columns: NDArray[np.int32]
    """The number in the table of each of them."""
    forms: NDArray[np.int8]
    others: tuple[str, ...]

    def numbers(self, data: pa.RecordBatch | pa.Table) -> tuple[NumberColumns, tuple[str, ...]]:
        """Return the numbers, and which columns must be read by themselves, as ordered there."""
        table, columns = self._as_one(data)
        with _exported(table) as address:
            found = read_numbers(address, columns, self.forms)
        places, others = self.places, self.others
        if not found.are_exact.all():
            others += tuple(name for name, at in places.items() if not found.are_exact[at])
            others = tuple(sorted(others, key=self.order.__getitem__))
            found, places = _without_inexact(found, places)
        return NumberColumns(places, self.forms != FLOAT64, *found[:3]), others

    def _as_one(self, data: pa.RecordBatch | pa.Table) -> tuple[pa.RecordBatch, NDArray[np.int32]]:
        """Return the columns as one batch, and the number of each in it."""
        batches = data.to_batches() if isinstance(data, pa.Table) else [data]
        if len(batches) == 1:
            return batches[0], self.columns
        arrays = [data.column(number).combine_chunks() for number in self.columns.tolist()]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(self.places))
        return batch, np.arange(len(arrays), dtype=np.int32)


def _without_inexact(
    found: PackedNumbers, places: Mapping[str, int]
) -> tuple[PackedNumbers, dict[str, int]]:
    counts = np.diff(found.starts)
    kept = np.repeat(found.are_exact, counts)
    starts = np.zeros_like(found.starts)
    np.cumsum(np.where(found.are_exact, counts, 0), out=starts[1:])
    exact = {name: place for name, place in places.items() if found.are_exact[place]}
    events, values = found.events[kept], found.values[kept]
    return found._replace(starts=starts, events=events, values=values), exact


_last_layouts: Final = WeakKeyDictionary[Projection, tuple[TableLayout, ...]]()
"""Batch after batch comes from one of a few sources, with its own columns; the last comes first."""


def layout_of(
    schema: pa.Schema, projection: Projection, is_entered: Callable[[str], bool]
) -> TableLayout:
    """Return the layout for tables with a schema, whose columns are read if they are entered."""
    known = _last_layouts.get(projection, ())
    if known and known[0].schema.equals(schema):
        return known[0]
    found = [layout for layout in known[1:] if layout.schema.equals(schema)]
    layout = found[0] if found else _new_layout(schema, projection, is_entered)
    others = [other for other in known if other is not layout]
    _last_layouts[projection] = (layout, *others[: MAX_LAYOUTS - 1])
    return layout


def _new_layout(
    schema: pa.Schema, projection: Projection, is_entered: Callable[[str], bool]
) -> TableLayout:
    fields = [(number, field) for number, field in enumerate(schema) if is_entered(field.name)]
    check_distinct([field.name for _, field in fields])
    numbers, others = list[tuple[str, int, int]](), list[str]()
    for number, field in fields:
        name, form = field.name, _form_of(field, projection)
        if form is None:
            others.append(name)
        elif projection.wanted is None or name in projection.wanted:
            numbers.append((name, number, form))
    return TableLayout(
        schema,
        order={field.name: number for number, field in fields},
        places={name: place for place, (name, _, _) in enumerate(numbers)},
        columns=np.array([number for _, number, _ in numbers], np.int32),
        forms=np.array([form for _, _, form in numbers], np.int8),
        others=tuple(others),
    )


def _form_of(field: pa.Field[Any], projection: Projection) -> int | None:
    """Return the form of a column of numbers that need no further check, None for others."""
    form, declared = _FORMS.get(field.type.id), projection.schema
    if form is None or not 0 < len(field.name) <= LIMITS.name:
        return None
    if declared is None:
        # A name may be entered because it is that of a struct elsewhere.
        read = projection.wanted if projection.wanted is not None else projection.named
        is_read = read is None or field.name in read
        return form if is_read else None
    if field.name not in declared or declared[field.name].type is not _TYPE_OF_FORM[form]:
        return None
    return form
