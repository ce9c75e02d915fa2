"""The tables of the state, and the checksum of each row.

SQLite checks the structure of its pages, not their content. A flipped bit in the number of a row
gives another number, and the event of one subscriber would go to another. So each row ends with a
CRC-32 of all its other columns.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

NEVER: Final = math.inf
"""The expiry of something that does not expire."""


class StoredSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A stored subscription; its number is assigned when it is added, and never reused."""

    number: int = 0
    owner: str
    name: str
    filter: str
    language: str
    mode: str
    created_at: float
    expires_at: float = NEVER
    start: int
    """The first sequence that it applies to."""
    policy: str
    durable: bool
    max_attempts: int
    extra: str = "{}"
    """Further properties, as JSON."""


class Pending(NamedTuple):
    """An event that is pending for a subscription."""

    sequence: int
    attempts: int
    due: float
    """The earliest time to send it; 0 for an event that was never sent."""


class Retry(NamedTuple):
    """An event to be delivered again."""

    number: int
    sequence: int
    attempts: int
    due: float


class DeadLetter(NamedTuple):
    """A dead letter, with its content: the log may remove the event before anyone looks."""

    number: int
    sequence: int
    died_at: float
    attempts: int
    reason: str
    time: float
    publisher: str
    publisher_sequence: int
    format: int
    payload: bytes


class DeadLetterUsage(NamedTuple):
    """How many dead letters a subscription has, and about how many bytes they take."""

    number: int
    letters: int
    bytes: int


class StoredToken(NamedTuple):
    """A token, of which only the hash is stored."""

    hash: bytes
    principal: str
    created_at: float
    expires_at: float = NEVER
    revoked_at: float = NEVER
    label: str = ""


class DroppedEvents(NamedTuple):
    """How many events a subscription did not get for a reason, and of how many it knows."""

    number: int
    reason: str
    events: int
    told: int = 0


class AuditEntry(NamedTuple):
    """An administrative act."""

    number: int
    time: float
    principal: str
    act: str
    detail: str


class DamagedRow(NamedTuple):
    """A damaged row of the state, which is left out."""

    table: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.table}{f', {self.key}' if self.key else ''}: {self.reason}"


Row = tuple[Any, ...]
_TYPES: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    int: ("INTEGER", int),
    # A 5 written to such a column is read as 5.0, which has another checksum.
    float: ("REAL", float),
    str: ("TEXT", str),
    bytes: ("BLOB", bytes),
    bool: ("INTEGER", int),
}


class ChecksummedTable:
    """A table with a column for each field of a class, and the checksum."""

    def __init__(self, name: str, fields: type, key: Sequence[str], *, by_key: bool) -> None:
        self.name: Final = name
        kinds = {column: _TYPES[kind] for column, kind in get_type_hints(fields).items()}
        self.columns: Final = tuple(kinds)
        self.key: Final = tuple(self.columns.index(column) for column in key)
        self._converters = [convert for _, convert in kinds.values()]
        columns = [f"{column} {kind}" for column, (kind, _) in kinds.items()]
        columns += ["crc INTEGER", f"PRIMARY KEY ({', '.join(key)})"]
        # Small rows are stored in key order; large ones use an index.
        end = " WITHOUT ROWID" if by_key else ""
        self.create: Final = f"CREATE TABLE {name} ({', '.join(columns)}){end}"
        into = f"INTO {name} VALUES ({', '.join('?' * (len(kinds) + 1))})"
        self.insert: Final = f"INSERT {into}"
        self.replace: Final = f"REPLACE {into}"
        self.insert_new: Final = f"INSERT OR IGNORE {into}"
        self.select: Final = f"SELECT {', '.join(self.columns)}, crc FROM {name}"  # noqa: S608

    def row(self, values: Sequence[Any]) -> Row:
        """Return a row to write."""
        row = tuple(
            [convert(value) for convert, value in zip(self._converters, values, strict=True)]
        )
        return with_checksum(row)

    def key_of(self, row: Row) -> str:
        """Return a phrase that names the row."""
        return ", ".join(f"{self.columns[place]} {row[place]!r}" for place in self.key)


def with_checksum(row: Row) -> Row:
    """Return a row to write, of values that are of the types of their columns."""
    return (*row, zlib.crc32(msgspec.msgpack.encode(row)))


def is_whole(row: Row) -> bool:
    """Return whether a row is what was written: its last column is the checksum of the others."""
    return bool(zlib.crc32(msgspec.msgpack.encode(row[:-1])) == row[-1])


class PendingRow(NamedTuple):
    """A pending event and its subscription."""

    number: int
    sequence: int
    attempts: int
    due: float


class Publisher(NamedTuple):
    """The last number of a publisher."""

    name: str
    sequence: int
    gaps: str
    """The numbers below it that are not stored."""
    time: float
    """When the last one was stored."""


class Counters(msgspec.Struct):
    """Positions, and the number of rows of each table; stored twice."""

    copy: int = 0
    changes: int = 0
    """The number of durable changes."""
    matched_up_to: int = 0
    last_number: int = 0
    """The number of the subscription added last; numbers are never reused."""
    subscriptions: int = 0
    pending: int = 0
    dead_letters: int = 0
    tokens: int = 0
    audit: int = 0
    dropped: int = 0


COUNTERS: Final = ChecksummedTable("counters", Counters, ["copy"], by_key=True)
SUBSCRIPTIONS: Final = ChecksummedTable(
    "subscriptions", StoredSubscription, ["number"], by_key=False
)
PENDING: Final = ChecksummedTable("pending", PendingRow, ["number", "sequence"], by_key=True)
DEAD_LETTERS: Final = ChecksummedTable(
    "dead_letters", DeadLetter, ["number", "sequence"], by_key=False
)
PUBLISHERS: Final = ChecksummedTable("publishers", Publisher, ["name"], by_key=True)
TOKENS: Final = ChecksummedTable("tokens", StoredToken, ["hash"], by_key=True)
AUDIT: Final = ChecksummedTable("audit", AuditEntry, ["number"], by_key=False)
DROPPED: Final = ChecksummedTable("dropped", DroppedEvents, ["number", "reason"], by_key=True)

COUNTED: Final = (SUBSCRIPTIONS, PENDING, DEAD_LETTERS, TOKENS, AUDIT, DROPPED)
SCHEMA: Final = (
    *(table.create for table in (COUNTERS, PUBLISHERS, *COUNTED)),
    "CREATE UNIQUE INDEX names ON subscriptions (owner, name)",
)
