"""Events as rows, NumPy columns, Arrow and dicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.workloads.forms import Rows
from tamis.events import Schema

DTYPES: dict[type, type[Any]] = {int: np.int64, float: np.float64, str: np.str_}
ARROW_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string()}


class Field(NamedTuple):
    """An attribute of the events of a workload; numbers from 0 up to below its cardinality."""

    name: str
    type: type[int | float | str]
    cardinality: int


class Column(NamedTuple):
    """The values of one attribute, and which events have it."""

    values: NDArray[Any]
    present: NDArray[np.bool_]


class Events:
    """Events drawn for a workload."""

    def __init__(self, fields: Sequence[Field], rows: Rows, texts: Sequence[str] = ()) -> None:
        self.fields = fields
        self.rows = rows
        self.texts = np.array(texts, dtype=np.str_)

    def __len__(self) -> int:
        return len(self.rows.start) - 1

    def part(self, first: int, last: int) -> Events:
        """Return some of the events."""
        return Events(self.fields, self.rows.part(first, last), self.texts.tolist())

    def columns(self) -> dict[str, Column]:
        """Return the attributes that some event has, as NumPy columns."""
        event = np.repeat(np.arange(len(self)), np.diff(self.rows.start))
        order = np.argsort(self.rows.attribute, kind="stable")
        edges = np.searchsorted(self.rows.attribute[order], np.arange(len(self.fields) + 1))
        return {
            field.name: self._column(field, event[cells], self.rows.value[cells])
            for number, field in enumerate(self.fields)
            if len(cells := order[edges[number] : edges[number + 1]])
        }

    def record_batch(self) -> pa.RecordBatch:
        """Return the attributes that some event has, as Arrow columns with nulls."""
        types = {field.name: ARROW_TYPES[field.type] for field in self.fields}
        columns = self.columns()
        arrays = [
            pa.array(column.values, types[name], mask=~column.present)
            for name, column in columns.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def dicts(self) -> list[dict[str, int | float | str]]:
        """Return the events as dicts without absent attributes."""
        names = [field.name for field in self.fields]
        start = self.rows.start.tolist()
        attributes = self.rows.attribute.tolist()
        values = [
            self._plain(self.fields[attribute], value)
            for attribute, value in zip(attributes, self.rows.value.tolist(), strict=True)
        ]
        return [
            {names[attributes[i]]: values[i] for i in range(first, last)}
            for first, last in pairwise(start)
        ]

    def _column(self, field: Field, event: NDArray[np.int64], found: NDArray[np.float64]) -> Column:
        present = np.zeros(len(self), np.bool_)
        present[event] = True
        if field.type is str:
            values: NDArray[Any] = np.full(len(self), "", self.texts.dtype)
            values[event] = self.texts[found.astype(np.int64)]
        else:
            values = np.zeros(len(self), DTYPES[field.type])
            values[event] = found
        return Column(values, present)

    def _plain(self, field: Field, value: float) -> int | float | str:
        return str(self.texts[int(value)]) if field.type is str else field.type(value)


def schema_of(fields: Sequence[Field]) -> Schema:
    """Return the schema that declares the attributes."""
    return Schema({field.name: field.type for field in fields})
