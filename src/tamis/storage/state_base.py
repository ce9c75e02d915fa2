"""What every part of the state needs: transactions with counters, checked rows, damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

import msgspec

from tamis.errors import StorageError
from tamis.ports import SYSTEM_FILES, Files
from tamis.storage.counts import CountFile
from tamis.storage.database import Database
from tamis.storage.tables import (
    AUDIT,
    COUNTED,
    COUNTERS,
    DEAD_LETTERS,
    DEFERRED,
    DROPPED,
    PENDING,
    PUBLISHERS,
    ROUTES,
    SCHEMA,
    SUBSCRIPTIONS,
    TOKENS,
    ChecksummedTable,
    Counters,
    DamagedRow,
    Row,
    is_whole,
)

_COPIES: Final = (1, 2)
_NOT_NEW: Final = "NOT (attempts IS 0 AND due IS 0)"
_STRAY: Final = "number NOT IN (SELECT number FROM subscriptions) OR (sequence > 0) IS NOT TRUE"
_MOST_DAMAGE_KEPT: Final = 1_000
_ACCEPT: Final = (
    "put back state.db-wal and state.count if they were removed, or accept the loss with "
    "'tamis repair --accept-lost-changes' and check the tokens"
)


class StateTransaction(NamedTuple):
    """A transaction: its connection, and its effect on cached counters."""

    connection: sqlite3.Connection
    counters: Counters
    added: set[int]
    removed: set[int]
    """Numbers of subscriptions."""


class StateBase:
    """The file of the state: opened, checked, changed all or nothing."""

    def __init__(
        self,
        path: Path,
        *,
        files: Files = SYSTEM_FILES,
        accept_lost_changes: bool = False,
    ) -> None:
        self._path: Final = path
        self._writing = Lock()
        self._last_reserved = 0
        """The last number of a subscription that somebody may use."""
        self._damaged: dict[tuple[str, str], DamagedRow] = {}
        self._database = Database(path, SCHEMA, files)
        self.version_found: Final = self._database.version_found
        """The format of the file before it was opened; 0 if there was none."""
        try:
            self._counters = self._read_counters()
            self._numbers = {number for (number,) in self._rows("SELECT number FROM subscriptions")}
            self._check_rows()
            self._count = CountFile(path.with_suffix(".count"), files)
            try:
                self.lost_changes: Final = self._lost_changes(accept_lost_changes)
                """The number of durable changes that have been lost."""
            except BaseException:
                self._count.close()
                raise
        except BaseException:
            self._database.close()
            raise

    @property
    def damaged(self) -> tuple[DamagedRow, ...]:
        """Return the damage found since the state was opened."""
        return tuple(self._damaged.copy().values())

    def check_sequences(self, stop: int) -> None:
        """Report rows for events that the log never had: those from a sequence on."""
        with self._database.reading() as connection:
            for table in (PENDING, DEFERRED, DEAD_LETTERS):
                strays = count_rows(connection, table, "sequence >= ?", stop)
                if strays:
                    self._note(table.name, "ahead", f"{strays:,} rows are for events to come")

    def make_lasting(self) -> None:
        """Sync everything committed to disk; this needs no free space."""
        # What is not on disk yet is in the WAL.
        if self._database.has_failed:
            with self._writing:
                self._database.write_log_again()
        self._database.sync_log()

    def when_checkpoint_due(self, call: Callable[[], object] | None) -> None:
        """Call this, in any thread, when it is time for a `checkpoint`; None: make it then."""
        self._database.on_checkpoint_due = call

    def checkpoint(self) -> None:
        """Copy what was written to its place, while others write; for any thread."""
        self._database.checkpoint()

    def close(self) -> None:
        """Close; nothing is lost otherwise."""
        with self._writing:
            self._database.close()
            self._count.close()

    # --- opening -----------------------------------------------------------------------------

    def _read_counters(self) -> Counters:
        there = self._rows(COUNTERS.select)
        whole = self._whole(COUNTERS, there)
        if not whole and (there or self._rows(SUBSCRIPTIONS.select)):
            raise StorageError(
                self._path,
                "both rows of the counters are damaged, so the position of matching is unknown",
                advice="restore state.db from a backup",
            )
        if len(there) == 1:
            self._note(COUNTERS.name, "", "one of two rows is missing")
        return Counters(*whole[0][:-1]) if whole else Counters()

    def _check_rows(self) -> None:
        """Check all rows that might otherwise go unread for long, and look for missing ones."""
        with self._database.reading() as connection:
            for table in COUNTED:
                there, due = (
                    count_rows(connection, table, "TRUE"),
                    getattr(self._counters, table.name),
                )
                if there != due:
                    self._note(table.name, "", f"{there:,} rows are there, and {due:,} should be")
            # A valid key is checked together with the neighbouring rows.
            for table in (PENDING, DEAD_LETTERS):
                strays = count_rows(connection, table, _STRAY)
                if strays:
                    self._note(table.name, "", f"{strays:,} rows are for nobody or no event")
            for table in (SUBSCRIPTIONS, DEFERRED, PUBLISHERS, TOKENS, AUDIT, DROPPED, ROUTES):
                self._whole(table, connection.execute(table.select))
            self._whole(PENDING, connection.execute(f"{PENDING.select} WHERE {_NOT_NEW}"))

    def _lost_changes(self, accept: bool) -> int:
        """Compare the number of durable changes with the count; refuse if any may be missing."""
        promised, found = self._count.read(), self._counters.changes
        name, problem = self._count.path.name, ""
        lost = max(0, (promised or 0) - found)
        if lost:
            problem = f"the last {lost:,} changes of subscriptions, tokens and audit are missing"
        elif promised is None and (found or not self._count.is_new):
            what = "missing" if self._count.is_new else "damaged"
            problem = f"{name} is {what}, so nobody can tell whether the last changes are there"
            self._note(name, "", f"the file is {what}, and was written anew")
        if problem and not accept:
            raise StorageError(
                self._path, f"{problem}; a revoked token may be valid again", advice=_ACCEPT
            )
        self._count.begin(found)
        return lost

    # --- rows --------------------------------------------------------------------------------

    @contextmanager
    def _change(self, *, lasting: bool) -> Iterator[StateTransaction]:
        """Yield a connection and the counters that change with it, all or none."""
        database = self._database
        with self._writing:
            if database.is_lasting is not lasting or database.has_failed or database.is_closed:
                database.prepare_change(lasting=lasting)
            counters = msgspec.structs.replace(self._counters)
            counters.changes += lasting
            change = StateTransaction(database.writer, counters, set(), set())
            try:
                # SQLite commits at the end of the block, or rolls back.
                with database.writer as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    yield change
                    _, *values = msgspec.structs.astuple(counters)
                    rows = COUNTERS.rows((copy, *values) for copy in _COPIES)
                    connection.executemany(COUNTERS.replace, rows)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise database.failure(error) from error
            self._counters = counters
            self._numbers |= change.added
            self._numbers -= change.removed
            if lasting:
                self._count.write(counters.changes)
            database.transactions_left -= 1
            is_much = database.writer.total_changes >= database.last_row
            if is_much or database.transactions_left <= 0:
                database.begin_checkpoint()

    def _rows(self, question: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._database.reading() as connection:
            return connection.execute(question, values).fetchall()

    def _whole(self, table: ChecksummedTable, rows: Iterable[Row]) -> list[Row]:
        """Return the intact rows, and report the others."""
        found = []
        for row in rows:
            if is_whole(row):
                found.append(row)
            else:
                self._note(table.name, table.key_of(row), "the checksum of the row is wrong")
        return found

    def _note(self, table: str, key: str, reason: str) -> None:
        if len(self._damaged) < _MOST_DAMAGE_KEPT:
            self._damaged.setdefault((table, key), DamagedRow(table, key, reason))


def count_rows(
    connection: sqlite3.Connection, table: ChecksummedTable, condition: str, *values: object
) -> int:
    """Return how many rows of a table meet a condition."""
    question = f"SELECT count(*) FROM {table.name} WHERE {condition}"  # noqa: S608
    (number,) = connection.execute(question, values).fetchone()
    return int(number)


def delete_rows(
    connection: sqlite3.Connection,
    table: ChecksummedTable,
    condition: str,
    keys: Iterable[Sequence[Any]],
) -> int:
    """Delete the rows that meet a condition, for each of the keys; return how many."""
    return change_rows(connection, f"DELETE FROM {table.name} WHERE {condition}", keys)  # noqa: S608


def insert_rows(
    connection: sqlite3.Connection, table: ChecksummedTable, rows: Iterable[Row]
) -> int:
    """Insert rows; return how many were new."""
    return change_rows(connection, table.insert, table.rows(rows))


def change_rows(
    connection: sqlite3.Connection, statement: str, rows: Iterable[Sequence[Any]]
) -> int:
    """Run a statement for each row, and return how many rows it affected."""
    return max(0, connection.executemany(statement, rows).rowcount)
