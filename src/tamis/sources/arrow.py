"""Parquet and CSV files, and DuckDB queries, read with Arrow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tamis.errors import MissingExtraError, TamisError
from tamis.events import Kind
from tamis.filters import Filter
from tamis.filters.atoms import (
    COMPARISONS,
    COMPLEMENTS,
    Between,
    Compare,
    HasKind,
    In,
    Present,
    TextTest,
    ValueAtom,
)
from tamis.sources.bounds import Bounds
from tamis.sources.table import ColumnSummary, SourceTable, TableRow, file_version, plain_row

MAX_VALUES: Final = 16
_TEXT_TESTS: Final = {
    "contains": pc.match_substring,
    "starts with": pc.starts_with,
    "ends with": pc.ends_with,
}

ArrowExpression = Any
"""An expression of Arrow, or of its datasets."""


def simple_kind(type_: Any) -> Kind | None:
    """Return the kind of the values of a column, None if they are not compared as Arrow does."""
    if pa.types.is_boolean(type_):
        return Kind.BOOLEAN
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return Kind.TEXT
    if pa.types.is_float64(type_) or (pa.types.is_integer(type_) and type_ != pa.uint64()):
        return Kind.NUMBER
    return None


class ArrowBounds(Bounds[ArrowExpression]):
    """Filters as expressions of Arrow on the columns of a schema."""

    def __init__(self, schema: Any) -> None:
        super().__init__()
        self._types: Final = {field.name: field.type for field in schema}

    def conjunction(self, parts: Sequence[ArrowExpression]) -> ArrowExpression:
        """Join by and."""
        return reduce(and_, parts)

    def disjunction(self, parts: Sequence[ArrowExpression]) -> ArrowExpression:
        """Join by or."""
        return reduce(or_, parts)

    def constant(self, value: bool) -> ArrowExpression:
        """Return a literal."""
        return pc.scalar(value)

    def atom(self, atom: Filter, *, truth: bool) -> ArrowExpression | None:
        """Return the condition that an atom is true, or false."""
        if not isinstance(atom, Present | HasKind | ValueAtom):
            return None
        type_ = self._types.get(atom.attribute)
        if type_ is None:
            inside = any(atom.attribute.startswith(f"{name}.") for name in self._types)
            # Without the column, presence is false and everything else unknown.
            is_false = isinstance(atom, Present | HasKind) and not truth
            return None if inside else self.constant(is_false)
        kind = simple_kind(type_)
        if kind is None:
            return None
        known = self._known(atom.attribute, type_)
        match atom:
            case Present():
                return known if truth else ~known
            case HasKind(kind=wanted):
                if wanted is not kind:
                    return self.constant(not truth)
                return known if truth else ~known
            case ValueAtom(kind=wanted) if wanted is not kind:
                return self.constant(False)
        passes = self._passes(atom, type_, truth=truth)
        return None if passes is None else known & passes

    def _known(self, name: str, type_: Any) -> ArrowExpression:
        column = pc.field((name,))
        known = column.is_valid()
        # Without NaN and infinity, which rows do not have; NaN would make the test null.
        return known & pc.is_finite(column) if pa.types.is_floating(type_) else known

    def _passes(self, atom: Filter, type_: Any, *, truth: bool) -> ArrowExpression | None:
        column = pc.field((atom.attribute,)) if isinstance(atom, ValueAtom) else None
        match atom:
            case Compare(op=op, value=value):
                return self._compare(column, type_, op if truth else COMPLEMENTS[op], value)
            case Between(low=low, high=high):
                ends = [
                    self._compare(column, type_, ">=" if truth else "<", low),
                    self._compare(column, type_, "<=" if truth else ">", high),
                ]
                return self.conjunction(ends) if truth else self.disjunction(ends)
            case In(values=values):
                op = "=" if truth else "!="
                tests = [self._compare(column, type_, op, value) for value in values]
                return self.disjunction(tests) if truth else self.conjunction(tests)
            case TextTest(op=op, text=text) if op in _TEXT_TESTS:
                found = _TEXT_TESTS[op](column, text)
                return found if truth else ~found
        return None

    def _compare(self, column: ArrowExpression, type_: Any, op: str, value: Any) -> ArrowExpression:
        if pa.types.is_integer(type_):
            return self._compare_integers(column, op, value)
        if pa.types.is_floating(type_):
            return self._compare_floats(column, op, value)
        return COMPARISONS[op](column, pa.scalar(value))

    def _compare_integers(self, column: ArrowExpression, op: str, value: float) -> ArrowExpression:
        """Compare exactly: Arrow would convert integers to floats, which loses digits."""
        if isinstance(value, int):
            return COMPARISONS[op](column.cast(pa.int64()), pa.scalar(value, pa.int64()))
        if not -(2.0**63) <= value < 2.0**63:
            return self.constant(COMPARISONS[op](0, value))
        if value != math.floor(value) and op in ("=", "!="):
            return self.constant(op == "!=")
        nearest = math.ceil(value) if op in ("<", ">=") else math.floor(value)
        return self._compare_integers(column, op, nearest)

    def _compare_floats(self, column: ArrowExpression, op: str, value: float) -> ArrowExpression:
        """Compare exactly with an integer that no float equals: with its two neighbours."""
        nearest = float(value)
        if nearest == value:
            return COMPARISONS[op](column, pa.scalar(nearest))
        if op in ("=", "!="):
            return self.constant(op == "!=")
        is_below = nearest < value
        low = nearest if is_below else math.nextafter(nearest, -math.inf)
        high = math.nextafter(nearest, math.inf) if is_below else nearest
        return column <= pa.scalar(low) if op in ("<", "<=") else column >= pa.scalar(high)


class ArrowTable(SourceTable):
    """Whatever can be read as batches of Arrow."""

    def __init__(
        self,
        schema: Any,
        read: Callable[[ArrowExpression | None], Iterator[Any]],
        version: Callable[[], object],
    ) -> None:
        self._schema = schema
        self._read = read
        self._version = version
        names = list(schema.names)
        if len(names) != len(set(names)):
            raise TamisError("two columns of the table have the same name")
        self.many = any(map(_holds_lists, schema.types))

    def candidates(self, filter_: Filter) -> tuple[Iterator[TableRow], bool]:
        """Return rows that include all that match, and whether they are exactly those."""
        bounds = ArrowBounds(self._schema)
        condition = bounds.bound(filter_)
        return self._rows(condition), bounds.is_exact

    def _rows(self, condition: ArrowExpression | None) -> Iterator[TableRow]:
        for batch in self._read(condition):
            for row in batch.to_pylist():
                yield plain_row(row)

    def version(self) -> object:
        """Return what changes when the files do."""
        return self._version()

    def columns(self) -> dict[str, ColumnSummary] | None:
        """Return what is known of each column, by reading all of it once."""
        states = {f.name: _ColumnState(f.type) for f in self._schema}
        count = 0
        for batch in self._read(None):
            count += batch.num_rows
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                states[name].add(column)
        return {name: state.summary() for name, state in states.items()} if count else None


class _ColumnState:
    """The lowest and highest value of a column so far, and all of them while they are few."""

    def __init__(self, type_: Any) -> None:
        self._is_simple = simple_kind(type_) is not None
        self._is_float = pa.types.is_floating(type_)
        self._is_everywhere = True
        self._values: set[Any] | None = set()
        self._lowest: Any = None
        self._highest: Any = None

    def add(self, column: Any) -> None:
        if not self._is_simple:
            return
        valid = column.drop_null()
        if self._is_float:
            valid = valid.filter(pc.is_finite(valid))
        self._is_everywhere &= len(valid) == len(column)
        if not len(valid):
            return
        ends = pc.min_max(valid)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        self._lowest = low if self._lowest is None else min(self._lowest, low)
        self._highest = high if self._highest is None else max(self._highest, high)
        if self._values is not None:
            self._values.update(pc.unique(valid).to_pylist())
            if len(self._values) > MAX_VALUES:
                self._values = None

    def summary(self) -> ColumnSummary:
        if not self._is_simple:
            return ColumnSummary()
        values = None if self._values is None else tuple(sorted(self._values))
        return ColumnSummary(
            self._lowest, self._highest, values, is_known=True, is_everywhere=self._is_everywhere
        )


def _holds_lists(type_: Any) -> bool:
    nested = [type_.field(n).type for n in range(type_.num_fields)] if type_.num_fields else []
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    return is_list or pa.types.is_fixed_size_list(type_) or any(map(_holds_lists, nested))


def open_files(path: Path, format_: str) -> ArrowTable:
    """Return the table in a Parquet or CSV file, or in a folder of them."""
    try:
        schema = ds.dataset(path, format=format_).schema
    except (OSError, pa.ArrowException) as error:
        raise TamisError(f"{path} cannot be read as {format_}: {error}") from None

    def read(condition: ArrowExpression | None) -> Iterator[Any]:
        # Opened anew, since files come and go.
        dataset = ds.dataset(path, format=format_, schema=schema)
        yield from dataset.to_batches(filter=condition)

    return ArrowTable(schema, read, lambda: file_version(path))


def open_duckdb(query: str) -> ArrowTable:
    """Return the result of a DuckDB query, which runs anew for each question."""
    try:
        import duckdb  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise MissingExtraError("duckdb", ["duckdb"]) from None

    def batches(connection: Any) -> Any:
        return connection.sql(query).to_arrow_reader()

    try:
        with duckdb.connect() as connection:
            schema = batches(connection).schema
    except duckdb.Error as error:
        raise TamisError(f"DuckDB cannot run the query: {error}") from None

    def read(condition: ArrowExpression | None) -> Iterator[Any]:
        with duckdb.connect() as connection:
            for batch in batches(connection):
                if condition is None:
                    yield batch
                else:
                    yield from pa.Table.from_batches([batch]).filter(condition).to_batches()

    # What the query reads is not known, so it may have changed at any time.
    return ArrowTable(schema, read, object)
