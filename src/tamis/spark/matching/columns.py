"""The columns of a DataFrame that reach Python: kept columns, and attributes filters mention."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import SchemaError
from tamis.events import Schema, Type
from tamis.events.arrow_values import is_surely, type_of_arrow
from tamis.events.kinds import types_from
from tamis.events.schema import did_you_mean
from tamis.filters.any_text import text_attributes
from tamis.filters.printing import ANY, show_name
from tamis.spark.runtime.versions import arrow_type

_SHOWN: Final = 8


class AttributePath(NamedTuple):
    """Where a row holds an attribute: a column, then fields, possibly within arrays."""

    keys: tuple[str, ...]
    type: T.DataType
    arrays: int

    @property
    def column(self) -> Column:
        """Return the attribute as a column of its own."""
        return F.col(".".join(map(quoted, self.keys)))

    @property
    def is_flat(self) -> bool:
        """Return whether Spark can follow the path: through one array, not through two."""
        return self.arrays <= 1

    def arrow_type(self) -> pa.DataType | None:
        """Return the Arrow type of a single value, None if Spark cannot convert it."""
        type_ = self.type
        while isinstance(type_, T.ArrayType):
            type_ = type_.elementType
        try:
            return arrow_type(type_)
        except Exception:
            return None


class ColumnSelection(NamedTuple):
    """Columns to select, and the purpose of each."""

    columns: list[Column]
    kept: tuple[str, ...]
    """The names of the first columns, which the results repeat."""
    attributes: tuple[tuple[str, int], ...]
    """The name and the place of each column that is part of the event."""


def quoted(name: str) -> str:
    """Return a column name in backticks, safe for Spark whatever it contains.

    >>> quoted("unit price")
    '`unit price`'
    """
    return "`" + name.replace("`", "``") + "`"


def select_columns(
    events: DataFrame, keep: Sequence[str], wanted: Collection[str]
) -> ColumnSelection:
    """Return the kept columns and the wanted attributes, each under its dotted name."""
    columns = [F.col(quoted(name)) for name in keep]
    attributes: dict[str, int] = {}
    for name, column in _needed(events.schema, wanted).items():
        if name in keep and name in events.columns:
            attributes[name] = list(keep).index(name)
        else:
            attributes[name] = len(columns)
            columns.append(column)
    # Arrow cannot count rows without columns.
    columns = columns or [F.lit(0)]
    # Kept columns and attributes may share a name, which Arrow tables should not.
    named = [column.alias(f"c{place}") for place, column in enumerate(columns)]
    return ColumnSelection(named, tuple(keep), tuple(attributes.items()))


def _needed(schema: T.StructType, wanted: Collection[str]) -> dict[str, Column]:
    paths = {name: list(paths_to(schema, name)) for name in sorted(wanted)}
    # With two paths to one name, or one that Spark cannot follow, select the whole columns.
    whole = {path.keys[0] for found in paths.values() for path in found if not _is_plain(found)}
    needed = {name: F.col(quoted(name)) for name in sorted(whole)}
    for name, found in paths.items():
        if _is_plain(found) and found[0].keys[0] not in whole:
            needed[name] = found[0].column
    return needed


def _is_plain(paths: Sequence[AttributePath]) -> bool:
    return len(paths) == 1 and paths[0].is_flat


def paths_to(schema: T.StructType, name: str) -> Iterator[AttributePath]:
    """Yield the paths to an attribute; a field's own name may contain dots."""
    yield from _paths(schema, name, (), 0)


def _paths(
    struct: T.StructType, name: str, keys: tuple[str, ...], arrays: int
) -> Iterator[AttributePath]:
    for field in struct:
        inner, lists = field.dataType, 0
        while isinstance(inner, T.ArrayType):
            inner, lists = inner.elementType, lists + 1
        path = (*keys, field.name)
        if field.name == name and not isinstance(inner, T.StructType):
            yield AttributePath(path, field.dataType, arrays)
        elif isinstance(inner, T.StructType) and name.startswith(f"{field.name}."):
            rest = name.removeprefix(f"{field.name}.")
            yield from _paths(inner, rest, path, arrays + lists)


def text_names(struct: T.StructType, prefix: str = "") -> Iterator[str]:
    """Yield the attributes that hold texts, each under its dotted name."""
    for field in struct:
        inner, name = field.dataType, f"{prefix}{field.name}"
        while isinstance(inner, T.ArrayType):
            inner = inner.elementType
        if isinstance(inner, T.StructType):
            yield from text_names(inner, f"{name}.")
        elif isinstance(inner, T.StringType):
            yield name


# --- checked against the schema ----------------------------------------------------------------


def wanted_attributes(
    events: DataFrame, mentioned: Collection[str], schema: Schema | None, *, total: bool
) -> frozenset[str]:
    """Return the attributes that filters mention, and those that may contradict the schema.

    Filters that test any attribute mention all that have texts.
    """
    if ANY in mentioned:
        texts = text_names(events.schema) if schema is None else text_attributes(schema)
        mentioned = {*mentioned, *texts} - {ANY}
    check_columns(events, mentioned, schema, total=total)
    if schema is None:
        return frozenset(mentioned)
    doubtful = {
        name
        for name, declared in schema.items()
        if total
        or not all(_is_surely(path, declared.type) for path in paths_to(events.schema, name))
    }
    return frozenset(mentioned) | doubtful


def _is_surely(path: AttributePath, declared: Type) -> bool:
    if path.arrays or isinstance(path.type, T.ArrayType):
        return False
    type_ = path.arrow_type()
    return type_ is not None and is_surely(type_, declared)


def check_columns(
    events: DataFrame, mentioned: Collection[str], schema: Schema | None, *, total: bool
) -> None:
    """Raise if no filter mentions a column, or a column contradicts the schema."""
    known = {name for name in mentioned if any(paths_to(events.schema, name))}
    if mentioned and not known:
        raise SchemaError(
            f"the events have no attribute that a filter mentions: filters mention "
            f"{show_names(mentioned)}, and the columns are {show_names(events.columns)}"
        )
    for name, declared in (schema or {}).items():
        paths = list(paths_to(events.schema, name))
        if total and not paths:
            hint = did_you_mean(name, events.columns)
            raise SchemaError(
                f"the events lack {show_name(name)}, and in mode 'total' every event must have "
                f"every attribute of the schema{'; ' + hint if hint else ''}"
            )
        for path in paths:
            _check_type(name, path, declared.type)


def _check_type(name: str, path: AttributePath, declared: Type) -> None:
    type_ = path.arrow_type()
    actual = None if type_ is None else type_of_arrow(type_)
    if actual is not None and declared not in types_from(actual):
        raise SchemaError(
            f"{show_name(name)} has the type {path.type.simpleString()} in the events, and the "
            f"schema declares it as {declared.value!r}; cast the column"
        )


def show_names(names: Collection[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(show_name(name) for name in sorted(names)[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else shown


def empty_table(schema: T.StructType) -> Any:
    """Return an Arrow table with the columns of a DataFrame and no rows."""
    return pa.table({f.name: pa.array([], arrow_type(f.dataType)) for f in schema})
