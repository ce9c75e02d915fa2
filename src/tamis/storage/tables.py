"""The tables of the state, and the checksum of each row.

SQLite checks the structure of its pages, not their content. A flipped bit in the number of a row
gives another number, and the event of one subscriber would go to another. So each row ends with a
CRC-32 of all its other columns.
"""

from __future__ import annotations

import math
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

NEVER: Final = math.inf
"""The expiry of something that does not expire."""
MAX_DEFERRED_PER_ROW: Final = 100


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
    overflow: str = msgspec.field(name="policy")  # as it was called before
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


class StoredRoute(NamedTuple):
    """A filter that a neighbour has forwarded to this broker."""

    number: int
    """As of a subscription; no two have the same."""
    link: int
    """The number of the subscription in whose queue its events wait."""
    digest: str
    """Names the filter on the link."""
    structure: bytes
    """The filter."""


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
_TYPES: Final[dict[type, tuple[str, type]]] = {
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
        stored = _stored_names(fields)
        self.key: Final = tuple(self.columns.index(column) for column in key)
        self._classes = tuple(cls for _, cls in kinds.values())
        columns = [f"{stored.get(one, one)} {kind}" for one, (kind, _) in kinds.items()]
        columns += ["crc INTEGER", f"PRIMARY KEY ({', '.join(key)})"]
        # Small rows are stored in key order; large ones use an index.
        end = " WITHOUT ROWID" if by_key else ""
        self.create: Final = f"CREATE TABLE {name} ({', '.join(columns)}){end}"
        into = f"INTO {name} VALUES ({', '.join('?' * (len(kinds) + 1))})"
        self.insert: Final = f"INSERT {into}"
        self.replace: Final = f"REPLACE {into}"
        self.insert_new: Final = f"INSERT OR IGNORE {into}"
        selected = ", ".join(stored.get(one, one) for one in self.columns)
        self.select: Final = f"SELECT {selected}, crc FROM {name}"  # noqa: S608

    def row(self, values: Row) -> Row:
        """Return a row to write."""
        [row] = self.rows([values])
        return row

    def rows(self, values: Iterable[Row], *, are_exact: bool = False) -> list[Row]:
        """Return rows to write, with their checksums.

        If the values `are_exact`, their classes are those of the columns: nothing is converted.
        """
        if not are_exact:
            values = [
                tuple([cls(value) for cls, value in zip(self._classes, one, strict=True)])
                for one in values
            ]
        return [(*row, zlib.crc32(msgspec.msgpack.encode(row))) for row in values]

    def key_of(self, row: Row) -> str:
        """Return a phrase that names the row."""
        return ", ".join(f"{self.columns[place]} {row[place]!r}" for place in self.key)


def _stored_names(fields: type) -> dict[str, str]:
    """Return the names of the columns whose fields have other names."""
    if not issubclass(fields, msgspec.Struct):
        return {}
    return {one.name: one.encode_name for one in msgspec.structs.fields(fields)}


def is_whole(row: Row) -> bool:
    """Return whether a row is what was written: its last column is the checksum of the others."""
    return bool(zlib.crc32(msgspec.msgpack.encode(row[:-1])) == row[-1])


class PendingRow(NamedTuple):
    """A pending event and its subscription."""

    number: int
    sequence: int
    attempts: int
    due: float


class DeferredMatches(NamedTuple):
    """Subscriptions of one owner that get an event for which they have no pending rows yet."""

    owner: str
    sequence: int
    part: int
    """There are several rows if there are many subscriptions."""
    numbers: bytes
    """Of the subscriptions, eight bytes each."""

    @classmethod
    def parts(cls, owner: str, sequence: int, numbers: Sequence[int]) -> list[DeferredMatches]:
        """Return rows with the numbers of subscriptions."""
        starts = range(0, len(numbers), MAX_DEFERRED_PER_ROW)
        return [
            cls(owner, sequence, part, array("q", numbers[n : n + MAX_DEFERRED_PER_ROW]).tobytes())
            for part, n in enumerate(starts)
        ]

    def subscriptions(self) -> array[int]:
        """Return the numbers of the subscriptions."""
        return array("q", self.numbers)


class WrittenMatches(NamedTuple):
    """Deferred matches that were made pending, and those that are damaged."""

    pairs: list[tuple[int, int]]
    """Numbers of subscriptions, and sequences."""
    lost: dict[int, int]
    """How many events each subscription has lost, by number; any might have got them."""


class Publisher(NamedTuple):
    """The last number of a publisher."""

    name: str
    sequence: int
    gaps: str
    """The numbers below it that are not stored."""
    time: float
    """When the last one was stored."""


class Counters(msgspec.Struct):
    """Positions, the number of rows of each table, and a time; stored twice."""

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
    deferred: int = 0
    seen_at: float = 0.0
    """When the broker was certainly there, if the times of the log do not tell; else 0."""
    routes: int = 0
    broker_id: str = ""
    """Names the broker in the overlay, for good."""


COUNTERS: Final = ChecksummedTable("counters", Counters, ["copy"], by_key=True)
SUBSCRIPTIONS: Final = ChecksummedTable(
    "subscriptions", StoredSubscription, ["number"], by_key=False
)
PENDING: Final = ChecksummedTable("pending", PendingRow, ["number", "sequence"], by_key=True)
DEFERRED: Final = ChecksummedTable(
    "deferred", DeferredMatches, ["owner", "sequence", "part"], by_key=False
)
DEAD_LETTERS: Final = ChecksummedTable(
    "dead_letters", DeadLetter, ["number", "sequence"], by_key=False
)
PUBLISHERS: Final = ChecksummedTable("publishers", Publisher, ["name"], by_key=True)
TOKENS: Final = ChecksummedTable("tokens", StoredToken, ["hash"], by_key=True)
AUDIT: Final = ChecksummedTable("audit", AuditEntry, ["number"], by_key=False)
DROPPED: Final = ChecksummedTable("dropped", DroppedEvents, ["number", "reason"], by_key=True)
ROUTES: Final = ChecksummedTable("routes", StoredRoute, ["number"], by_key=False)

COUNTED: Final = (SUBSCRIPTIONS, PENDING, DEFERRED, DEAD_LETTERS, TOKENS, AUDIT, DROPPED, ROUTES)
SCHEMA: Final = (
    *(table.create for table in (COUNTERS, PUBLISHERS, *COUNTED)),
    "CREATE UNIQUE INDEX names ON subscriptions (owner, name)",
)


# --- what is known of a publisher, of which the state stores a part -------------------------------

Gaps = tuple[tuple[int, int], ...]
"""Ranges of numbers, each from the first to the one after the last."""

MAX_GAPS: Final = 100
MAX_CHECKSUMS: Final = 1_000


class PublisherTail(NamedTuple):
    """The numbers of a publisher up to the last one stored."""

    last: int = 0
    """The last number stored; 0 if none is."""
    gaps: Gaps = ()
    """Numbers below it that are not stored, or of which nobody knows any more."""
    time: float = 0.0
    """When the last one was stored."""
    recent: array[int] = array("q")
    """The latest numbers stored, up to the last; after a restart, those in the end of the log."""
    checksums: array[int] = array("I")
    """The CRC-32 of the events with these numbers: of the payload, beginning with the format."""

    def append(self, first: int, checksums: array[int], time: float) -> PublisherTail:
        """Return the tail after more events; numbers before `first` may be left out."""
        gaps = self.gaps
        if first > self.last + 1:
            gaps = _fewer((*gaps, (self.last + 1, first)))
        last = first + len(checksums) - 1
        recent = self.recent + array("q", range(first, last + 1))
        known = self.checksums + checksums
        return PublisherTail(last, gaps, time, recent[-MAX_CHECKSUMS:], known[-MAX_CHECKSUMS:])

    def followed_by(self, numbers: array[int], checksums: array[int]) -> PublisherTail:
        """Return the tail after events of another broker, of which most never come here."""
        recent, known = self.recent + numbers, self.checksums + checksums
        return PublisherTail(
            numbers[-1], (), self.time, recent[-MAX_CHECKSUMS:], known[-MAX_CHECKSUMS:]
        )

    def is_other(self, number: int, checksum: int) -> bool:
        """Return whether a number up to the last is known not to be stored with this content."""
        place = bisect_left(self.recent, number)
        if place == len(self.recent) or number < self.recent[0]:
            return False
        return self.recent[place] != number or self.checksums[place] != checksum

    def missing(self, numbers: range) -> int | None:
        """Return the first of some numbers that is in a gap."""
        found = [
            max(start, numbers.start) for start, stop in self.gaps if _meets(numbers, start, stop)
        ]
        return min(found, default=None)

    def differing(self, first: int, checksums: array[int]) -> int | None:
        """Return the first of some numbers whose event is stored with other content."""
        for number, checksum in enumerate(checksums, start=first):
            place = bisect_left(self.recent, number)
            is_known = place < len(self.recent) and self.recent[place] == number
            if is_known and self.checksums[place] != checksum:
                return number
        return None


def _meets(numbers: range, start: int, stop: int) -> bool:
    return numbers.start < stop and start < numbers.stop


def _fewer(gaps: Gaps) -> Gaps:
    """Join the two oldest gaps if there are too many, with what is stored between them.

    A number there is refused when it is sent again, which loses nothing.
    """
    if len(gaps) <= MAX_GAPS:
        return gaps
    (start, _), (_, stop), *rest = gaps
    return ((start, stop), *rest)


def print_gaps(gaps: Gaps) -> str:
    """Return gaps as text.

    >>> print_gaps(((1, 10), (13, 20)))
    '1-9,13-19'
    """
    return ",".join(f"{start}-{stop - 1}" for start, stop in gaps)


def parse_gaps(text: str) -> Gaps:
    """Return gaps from text.

    >>> parse_gaps("1-9,13-19")
    ((1, 10), (13, 20))
    """
    pairs = (part.split("-") for part in text.split(",") if part)
    return tuple((int(first), int(last) + 1) for first, last in pairs)
