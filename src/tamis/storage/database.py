"""An SQLite file: one writer at a time, concurrent readers, errors as sentences."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import quote

from tamis.errors import StorageError, StorageFullError
from tamis.ports import Files
from tamis.storage.files import is_full, refusal, write_all
from tamis.storage.migrations import MIGRATIONS

APPLICATION: Final = int.from_bytes(b"Tams")
VERSION: Final = 3
_WAL_MODE: Final = b"\2\2"
_BUSY_SECONDS: Final = 30
_LEVELS: Final = {False: "NORMAL", True: "FULL"}
# The WAL is copied to the file after this many transactions, or rows.
CHECKPOINT_TRANSACTIONS: Final = 100
CHECKPOINT_ROWS: Final = 10_000
# If that is done beside the work and falls this many times behind, the writer does it.
MAX_CHECKPOINTS_BEHIND: Final = 5
_COPY_BYTES: Final = 1 << 20
# sqlite3 has the name since Python 3.12, like the function that takes it.
_NO_CHECKPOINT_ON_CLOSE: Final = 1006
_ADVICE: Final = (
    "restore state.db from a backup, or move state.db, state.db-wal and state.count away to begin "
    "without subscriptions; the log stays"
)


class Database:
    """An SQLite file in WAL mode; the caller ensures that only one thread uses the writer.

    A durable change is synced to disk before it is committed; SQLite syncs other changes later. All
    of them survive the end of the process. A power failure loses only the last of the others.

    After a failed sync of the WAL nobody knows which parts of it are on disk, and a later sync
    would not write them: the system takes them for written. What follows in the WAL depends on
    them. So it is written again, as it is, before the next durable change.
    """

    def __init__(self, path: Path, schema: Sequence[str], files: Files) -> None:
        self._path: Final = path
        self._files = files
        # Protects the fields below, not the file: nobody holds it while waiting for the disk.
        self._lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self.version_found = VERSION
        """The format of the file before it was opened; 0 if there was none."""
        self.on_checkpoint_due: Callable[[], object] | None = None
        """Called in the writer's thread, if somebody calls `checkpoint` then."""
        self.is_closed = False
        self.is_lasting = True
        """Whether changes are synced to disk before they are committed."""
        self.transactions_left, self.last_row = CHECKPOINT_TRANSACTIONS, CHECKPOINT_ROWS
        """How many transactions, and which of the changed rows, it takes for a checkpoint."""
        self._behind = 0
        with self._sentences():
            self._check_mode()
            # Other users of the machine must not read the hashes of tokens.
            files.close(files.open(path, os.O_RDWR | os.O_CREAT))
            # The process before may have died after a failed sync.
            self.has_failed = True
            """Whether parts of the WAL may be missing on disk."""
            self._is_log_on_disk()
            self.writer = self._connect()
            try:
                self._prepare(schema)
            except BaseException:
                self.writer.close()
                raise

    def prepare_change(self, *, lasting: bool) -> None:
        """Make the following changes durable or not; durable ones need a WAL that is on disk."""
        if self.is_closed:
            raise StorageError(self._path, "the state is closed")
        if lasting and self.has_failed:
            self.write_log_again()
        if lasting is not self.is_lasting:
            with self._sentences():
                self.writer.execute(f"PRAGMA synchronous = {_LEVELS[lasting]}")
            self.is_lasting = lasting

    def failure(self, error: sqlite3.Error | UnicodeDecodeError) -> StorageError:
        """Return why a change was not made."""
        self._note_failure(error)
        return self._refusal(error)

    def begin_checkpoint(self) -> None:
        """Have the WAL copied beside the work, or copy it now."""
        self.transactions_left = CHECKPOINT_TRANSACTIONS
        self.last_row = self.writer.total_changes + CHECKPOINT_ROWS
        self._behind += 1
        announce = self.on_checkpoint_due
        if announce is None or self._behind > MAX_CHECKPOINTS_BEHIND:
            self._checkpoint()
        else:
            # The change is made, whatever becomes of this; the writer makes up for it.
            with suppress(Exception):
                announce()

    def checkpoint(self) -> None:
        """Copy the WAL to the file while others write; for any thread.

        What they write meanwhile stays in the WAL, so it grows. It begins anew when all of it is
        copied, which the writer does if this does not keep up. SQLite syncs the WAL first: if a
        later sync fails, what was copied is whole nevertheless.
        """
        if self.has_failed:
            # It must be written again first, by the writer.
            return
        changes = self.writer.total_changes
        with suppress(StorageError), self.reading() as connection:
            # SQLite counts what was there when it began.
            if self._copy_log(connection) and self.writer.total_changes == changes:
                self._behind = 0

    def _checkpoint(self) -> None:
        """Copy all of the WAL to the file, unless somebody is at it."""
        if not self._is_log_on_disk():
            # Half a checkpoint and a WAL with holes would make no state at all.
            return
        # The WAL still has everything after an error, and the next checkpoint copies it again.
        with suppress(sqlite3.Error):
            if self._copy_log(self.writer):
                self._behind = 0

    def _copy_log(self, connection: sqlite3.Connection) -> bool:
        """Copy the WAL to the file; return whether all of it was."""
        try:
            [result] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            # SQLite by itself would not say that its sync failed.
            self._note_failure(error)
            raise
        is_busy, in_log, copied = result
        return not is_busy and bool(in_log == copied)

    def _is_log_on_disk(self) -> bool:
        """Write the WAL again if its sync has failed; return whether that worked."""
        if self.has_failed:
            with suppress(StorageError):
                self.write_log_again()
        return not self.has_failed

    def _note_failure(self, error: Exception) -> None:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        self.has_failed = self.has_failed or code == sqlite3.SQLITE_IOERR

    def sync_log(self) -> None:
        """Sync the WAL to disk; this needs no free space."""
        # SQLite holds no locks on that file, which closing it would release.
        try:
            file = self._files.open(self._log_path, os.O_RDONLY)
            try:
                self._files.sync(file)
            finally:
                self._files.close(file)
        except FileNotFoundError:
            return
        except OSError as error:
            self.has_failed = True
            raise refusal(self._log_path, "syncing it to disk", error) from error

    def write_log_again(self) -> None:
        """Write the whole WAL as it is, and sync it; nobody else may write meanwhile."""
        try:
            if not self._log_path.exists():
                self.has_failed = False
                return
            file = self._files.open(self._log_path, os.O_RDWR)
            try:
                offset = 0
                while data := self._files.pread(file, _COPY_BYTES, offset):
                    write_all(self._files, file, data, offset)
                    offset += len(data)
                self._files.sync(file)
            finally:
                self._files.close(file)
        except OSError as error:
            raise refusal(self._log_path, "writing it again after an error", error) from error
        self.has_failed = False

    @property
    def _log_path(self) -> Path:
        return self._path.with_name(f"{self._path.name}-wal")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for reading."""
        with self._sentences():
            connection = self._take()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._give_back(connection)

    def close(self) -> None:
        """Close all connections; a reader closes its own when it has finished."""
        with self._lock:
            self.is_closed = True
            if not self._is_log_on_disk() and hasattr(self.writer, "setconfig"):
                self.writer.setconfig(_NO_CHECKPOINT_ON_CLOSE, True)
            for connection in (*self._idle, self.writer):
                with suppress(sqlite3.Error):
                    connection.close()
            self._idle.clear()

    # --- opening -----------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        vfs = f"?vfs={self._files.vfs}" if self._files.vfs else ""
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}{vfs}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        # Bytes that are not text still form a row, whose checksum shows that it is damaged.
        connection.text_factory = _text
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def _check_mode(self) -> None:
        """Refuse a file whose header no longer mentions a WAL: SQLite would discard the WAL."""
        log = self._log_path
        if not log.exists() or not log.stat().st_size:
            return
        if not self._path.exists() or not self._path.stat().st_size:
            # SQLite would take the WAL for one of another file, and remove it.
            raise StorageError(
                self._path, f"the file is missing, although {log.name} is there", advice=_ADVICE
            )
        file = self._files.open(self._path, os.O_RDONLY)
        try:
            mode = self._files.pread(file, 20, 0)[18:]
        finally:
            self._files.close(file)
        if mode not in {_WAL_MODE, b""}:
            raise StorageError(self._path, "the header of the file is damaged", advice=_ADVICE)

    def _prepare(self, schema: Sequence[str]) -> None:
        connection = self.writer
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        if _number(connection, "PRAGMA application_id") == 0 and not _names(connection):
            self._create(schema)
            self.version_found = 0
            return
        self.version_found = version = _number(connection, "PRAGMA user_version")
        is_ours = _number(connection, "PRAGMA application_id") == APPLICATION
        if not is_ours or not (version == VERSION or version in MIGRATIONS):
            raise StorageError(self._path, "the file was not written by this version of Tamis")
        # An index that development versions made and nothing uses.
        connection.execute("DROP INDEX IF EXISTS retries")
        expected = schema if version == VERSION else MIGRATIONS[version].schema
        if _names(connection) != sorted(expected):
            raise StorageError(self._path, "the list of tables is damaged", advice=_ADVICE)
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise _damaged(self._path, found)
        for number in range(version, VERSION):
            self._migrate(number)

    def _migrate(self, version: int) -> None:
        self.prepare_change(lasting=True)
        with self.writer as connection:
            connection.execute("BEGIN IMMEDIATE")
            MIGRATIONS[version].apply(connection)
            connection.execute(f"PRAGMA user_version = {version + 1}")

    def _create(self, schema: Sequence[str]) -> None:
        with self.writer as connection:
            connection.execute("BEGIN IMMEDIATE")
            for name, value in _IDENTITY.items():
                connection.execute(f"PRAGMA {name} = {value}")
            for statement in schema:
                connection.execute(statement)

    # --- connections -------------------------------------------------------------------------

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self.is_closed:
                raise StorageError(self._path, "the state is closed")
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if self.is_closed:
                connection.close()
            else:
                self._idle.append(connection)

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._refusal(error) from error

    def _refusal(self, error: sqlite3.Error | UnicodeDecodeError) -> StorageError:
        if isinstance(error, UnicodeDecodeError):
            # Python could not even decode what SQLite says is wrong.
            return _damaged(self._path, "names in it are not text")
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # Where SQLite shares memory through a file, it does not say that the disk is full.
        is_vague = code == sqlite3.SQLITE_IOERR and is_full(self._path.parent)
        if code == sqlite3.SQLITE_FULL or is_vague:
            advice = "free space on the disk; no restart is needed"
            return StorageFullError(self._path, "the disk is full", advice=advice)
        if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            return _damaged(self._path, str(error))
        return StorageError(self._path, f"SQLite refused: {error}")


_IDENTITY: Final = {"application_id": APPLICATION, "user_version": VERSION}


def _damaged(path: Path, found: str) -> StorageError:
    reason = f"the file is damaged ({' '.join(found.split())})"
    return StorageError(path, reason, advice=_ADVICE)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _number(connection: sqlite3.Connection, question: str) -> int:
    (number,) = connection.execute(question).fetchone()
    return int(number)


def _names(connection: sqlite3.Connection) -> list[str]:
    """Return the statements that created the tables in the file."""
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return sorted(str(sql) for (sql,) in found)
