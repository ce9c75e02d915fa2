"""Tables and views of SQLite. Any column may hold values of any type, so each test names one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tamis.errors import TamisError
from tamis.events import Kind
from tamis.filters import Filter
from tamis.filters.atoms import (
    COMPLEMENTS,
    Between,
    Compare,
    HasKind,
    In,
    Present,
    TextTest,
    ValueAtom,
)
from tamis.sources.arrow import MAX_VALUES
from tamis.sources.bounds import Bounds
from tamis.sources.table import ColumnSummary, SourceTable, TableRow, file_version, plain_row

# SQLite takes at most so many parts of a condition inside each other, and parameters.
MAX_PARAMETERS: Final = 500
LARGEST: Final = 1.7976931348623157e308

Condition = tuple[str, tuple[Any, ...]]
"""A condition in SQL, and its parameters."""


class SqliteBounds(Bounds[Condition]):
    """Filters as conditions of SQLite on the columns of a table."""

    def __init__(self, columns: Sequence[str]) -> None:
        super().__init__()
        self._columns = {*columns}

    def conjunction(self, parts: Sequence[Condition]) -> Condition:
        """Join by and."""
        return _joined(" AND ", parts)

    def disjunction(self, parts: Sequence[Condition]) -> Condition:
        """Join by or."""
        return _joined(" OR ", parts)

    def constant(self, value: bool) -> Condition:
        """Return 1 or 0."""
        return ("1" if value else "0"), ()

    def atom(self, atom: Filter, *, truth: bool) -> Condition | None:
        """Return the condition that an atom is true, or false."""
        if not isinstance(atom, Present | HasKind | ValueAtom):
            return None
        if atom.attribute not in self._columns:
            return self.constant(isinstance(atom, Present | HasKind) and not truth)
        name = sql_name(atom.attribute)
        match atom:
            case Present():
                return _negated_unless(truth, f"({_is_number(name)} OR {_is_text(name)})")
            case HasKind(kind=kind):
                return _negated_unless(truth, _is_kind(name, kind))
        passes = self._passes(name, atom, truth=truth)
        if passes is None:
            return None
        return f"({_is_kind(name, atom.kind)} AND {passes[0]})", passes[1]

    def _passes(self, name: str, atom: Filter, *, truth: bool) -> Condition | None:
        match atom:
            case ValueAtom(kind=kind) if kind not in (Kind.NUMBER, Kind.TEXT):
                # Booleans, timestamps and bits are of other kinds than what SQLite has.
                return "0", ()
            case Compare(op=op, value=value):
                return _compared(name, op if truth else COMPLEMENTS[op], value)
            case Between(low=low, high=high):
                ends = [
                    _compared(name, ">=" if truth else "<", low),
                    _compared(name, "<=" if truth else ">", high),
                ]
                return self.conjunction(ends) if truth else self.disjunction(ends)
            case In(values=values):
                marks = ", ".join("?" * len(values))
                word = "IN" if truth else "NOT IN"
                return f"(+{name}) COLLATE BINARY {word} ({marks})", tuple(values)
            case TextTest(op=op, text=text):
                return _text_tested(name, op, text.encode(), truth=truth)
        return None


def _joined(word: str, parts: Sequence[Condition]) -> Condition:
    return f"({word.join(sql for sql, _ in parts)})", tuple(p for _, some in parts for p in some)


def _negated_unless(truth: bool, sql: str) -> Condition:
    return (sql if truth else f"NOT {sql}"), ()


def _is_number(name: str) -> str:
    # Without infinity, which rows do not have.
    finite = f"{name} BETWEEN -{LARGEST} AND {LARGEST}"
    return f"(typeof({name}) = 'integer' OR (typeof({name}) = 'real' AND {finite}))"


def _is_text(name: str) -> str:
    return f"typeof({name}) = 'text'"


def _is_kind(name: str, kind: Kind) -> str:
    if kind is Kind.NUMBER:
        return _is_number(name)
    return _is_text(name) if kind is Kind.TEXT else "0"


def _compared(name: str, op: str, value: Any) -> Condition:
    # The plus takes the affinity away, by which SQLite would convert the parameter.
    return f"(+{name}) COLLATE BINARY {op} ?", (value,)


def _text_tested(name: str, op: str, text: bytes, *, truth: bool) -> Condition | None:
    """Compare bytes: SQLite's functions of text end at a zero character."""
    held = f"CAST({name} AS BLOB)"
    match op:
        case "contains":
            sql = f"instr({held}, ?) > 0"
        case "starts with":
            sql = f"substr({held}, 1, {len(text)}) = ?"
        case "ends with":
            sql = f"substr({held}, -{len(text)}) = ?"
        case _:
            return None
    if not text:
        return ("1" if truth else "0"), ()
    return (sql if truth else f"NOT ({sql})"), (text,)


def sql_name(name: str) -> str:
    """Return a name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


class SqliteTable(SourceTable):
    """A table or view of a SQLite file, opened for reading only."""

    def __init__(self, path: Path, table: str | None = None) -> None:
        self._path = path
        with closing(self._connect()) as connection:
            names = _table_names(connection, path)
            if table is None and len(names) != 1:
                shown = ", ".join(names[:20]) or "none"
                raise TamisError(f"{path} has several tables or none: name one of {shown}")
            self._table = table or names[0]
            if self._table not in names:
                raise TamisError(f"{path} has no table {self._table!r:.80}")
            described = connection.execute(f"PRAGMA table_info({sql_name(self._table)})")
            self._columns = [row[1] for row in described]

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode=ro"
        try:
            return sqlite3.connect(uri, uri=True)
        except sqlite3.Error as error:
            raise TamisError(f"{self._path} cannot be opened: {error}") from None

    def candidates(self, filter_: Filter) -> tuple[Iterator[TableRow], bool]:
        """Return rows that include all that match, and whether they are exactly those."""
        bounds = SqliteBounds(self._columns)
        condition = bounds.bound(filter_)
        if condition is not None and len(condition[1]) > MAX_PARAMETERS:
            return self._rows(None), False
        return self._rows(condition), bounds.is_exact

    def _rows(self, condition: Condition | None) -> Iterator[TableRow]:
        sql, parameters = ("1", ()) if condition is None else condition
        query = f"SELECT * FROM {sql_name(self._table)} WHERE {sql}"  # noqa: S608 - names are quoted
        with closing(self._connect()) as connection:
            for row in connection.execute(query, parameters):
                yield plain_row(dict(zip(self._columns, row, strict=True)))

    def version(self) -> object:
        """Return what changes when the file or its write-ahead log does."""
        return file_version(self._path, self._path.with_name(f"{self._path.name}-wal"))

    def columns(self) -> dict[str, ColumnSummary] | None:
        """Return what is known of each column whose values are all numbers, or all texts."""
        with closing(self._connect()) as connection:
            table = sql_name(self._table)
            [count] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
            if not count:
                return None
            return {name: self._summary(connection, name, count) for name in self._columns}

    def _summary(self, connection: sqlite3.Connection, name: str, count: int) -> ColumnSummary:
        column, table = sql_name(name), sql_name(self._table)
        ask = f"SELECT {{}} FROM {table} WHERE {{}}"  # noqa: S608 - names are quoted
        numbers, texts = (
            connection.execute(ask.format("count(*)", test(column))).fetchone()[0]
            for test in (_is_number, _is_text)
        )
        if numbers and texts:
            return ColumnSummary()
        test = _is_text(column) if texts else _is_number(column)
        ends = f"min({column} COLLATE BINARY), max({column} COLLATE BINARY)"
        low, high = connection.execute(ask.format(ends, test)).fetchone()
        distinct = f"DISTINCT {column} COLLATE BINARY"
        few = connection.execute(f"{ask.format(distinct, test)} LIMIT {MAX_VALUES + 1}").fetchall()
        values = tuple(sorted(one for [one] in few)) if len(few) <= MAX_VALUES else None
        is_everywhere = numbers + texts == count
        return ColumnSummary(low, high, values, is_known=True, is_everywhere=is_everywhere)


def _table_names(connection: sqlite3.Connection, path: Path) -> list[str]:
    try:
        found = connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        )
        return [name for [name] in found]
    except sqlite3.Error as error:
        raise TamisError(f"{path} is not a SQLite file: {error}") from None
