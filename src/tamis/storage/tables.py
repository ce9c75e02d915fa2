"""The tables of the state, and the checksum that each of their rows carries.

SQLite checks the shape of its pages, not what stands in them. A bit that falls over in the number
of a row gives another number, and the event of one subscriber would go to another. So each row ends
with a CRC-32 of all its other columns.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

NEVER: Final = math.inf
"""The time of what does not come: when something expires that lasts."""


class StoredSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as it is kept; its number is given when it is added, and to no other."""

    number: int = 0
    owner: str
    name: str
    filter: str
    language: str
    mode: str
    created_at: float
    expires_at: float = NEVER
    start: int
    """Only events of this sequence and later ones are for it."""
    policy: str
    durable: bool
    max_attempts: int
    extra: str = "{}"
    """Whatever else there is to know about it, as JSON."""


class Pending(NamedTuple):
    """An event that waits for a subscriber."""

    sequence: int
    attempts: int
    due: float
    """Not to be sent before; 0 for an event that was never sent."""


class Retry(NamedTuple):
    """An event that is to be sent once more."""

    number: int
    sequence: int
    attempts: int
    due: float


class DeadLetter(NamedTuple):
    """An event that was given up, with all of it: the log may forget it before anyone looks."""

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


class StoredToken(NamedTuple):
    """A token, of which only the hash is known."""

    hash: bytes
    principal: str
    created_at: float
    expires_at: float = NEVER
    revoked_at: float = NEVER
    label: str = ""


class AuditEntry(NamedTuple):
    """An administrative act."""

    number: int
    time: float
    principal: str
    act: str
    detail: str


class DamagedRow(NamedTuple):
    """Something in the state that is not what was written; it is left out."""

    table: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.table}{f', {self.key}' if self.key else ''}: {self.reason}"


Row = tuple[Any, ...]
_TYPES: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    int: ("INTEGER", int),
    # What is written to such a column as 5 is read as 5.0, which has another checksum.
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
        # Small rows lie in the order of their key; large ones beside an index of it.
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
        return (*row, checksum(row))

    def key_of(self, row: Row) -> str:
        """Return in words which row it is."""
        return ", ".join(f"{self.columns[place]} {row[place]!r}" for place in self.key)


def checksum(values: Row) -> int:
    """Return what the other columns of a row add up to."""
    return zlib.crc32(msgspec.msgpack.encode(values))


def is_whole(row: Row) -> bool:
    """Return whether a row is what was written."""
    return bool(checksum(row[:-1]) == row[-1])


class PendingRow(NamedTuple):
    """An event that waits, and for whom."""

    number: int
    sequence: int
    attempts: int
    due: float


class Publisher(NamedTuple):
    """How far a publisher is."""

    name: str
    sequence: int


class Counters(msgspec.Struct):
    """How far everything is, and how many rows there must be; it is there twice."""

    copy: int = 0
    changes: int = 0
    """Changes that were promised to last."""
    matched_up_to: int = 0
    last_number: int = 0
    """The number of the subscription that was added last; none is given again."""
    subscriptions: int = 0
    pending: int = 0
    dead_letters: int = 0
    tokens: int = 0
    audit: int = 0


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

COUNTED: Final = (SUBSCRIPTIONS, PENDING, DEAD_LETTERS, TOKENS, AUDIT)
SCHEMA: Final = (
    *(table.create for table in (COUNTERS, PUBLISHERS, *COUNTED)),
    "CREATE UNIQUE INDEX names ON subscriptions (owner, name)",
    # Most rows were never sent; of those that were, the next to be sent again is asked for.
    "CREATE INDEX retries ON pending (number, due) WHERE attempts > 0",
)
