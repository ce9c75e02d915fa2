"""Earlier formats of the state, and how each becomes the next."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from tamis.storage.tables import (
    AUDIT,
    COUNTERS,
    DEAD_LETTERS,
    DEFERRED,
    DROPPED,
    PENDING,
    PUBLISHERS,
    ROUTES,
    SUBSCRIPTIONS,
    TOKENS,
    ChecksummedTable,
    Counters,
    is_whole,
)


class Migration(NamedTuple):
    """An earlier format, and what makes it the next one."""

    schema: Sequence[str]
    apply: Callable[[sqlite3.Connection], None]


class CountersOfVersion1(msgspec.Struct):
    """The counters before dropped events and deferred matches were counted."""

    copy: int = 0
    changes: int = 0
    matched_up_to: int = 0
    last_number: int = 0
    subscriptions: int = 0
    pending: int = 0
    dead_letters: int = 0
    tokens: int = 0
    audit: int = 0


class CountersOfVersion2(msgspec.Struct):
    """The counters before a broker had an id, and routes."""

    copy: int = 0
    changes: int = 0
    matched_up_to: int = 0
    last_number: int = 0
    subscriptions: int = 0
    pending: int = 0
    dead_letters: int = 0
    tokens: int = 0
    audit: int = 0
    dropped: int = 0
    deferred: int = 0
    seen_at: float = 0.0


class PublisherOfVersion1(NamedTuple):
    """The last number of a publisher, before others could be left out."""

    name: str
    sequence: int


_PUBLISHERS_1: Final = ChecksummedTable("publishers", PublisherOfVersion1, ["name"], by_key=True)
_COUNTERS_1: Final = ChecksummedTable("counters", CountersOfVersion1, ["copy"], by_key=True)
_COUNTERS_2: Final = ChecksummedTable("counters", CountersOfVersion2, ["copy"], by_key=True)
_NAMES: Final = "CREATE UNIQUE INDEX names ON subscriptions (owner, name)"


def _from_1(connection: sqlite3.Connection) -> None:
    # A damaged row stays out: the other copy is enough, and without either opening is refused.
    rows = [row for row in connection.execute(_COUNTERS_1.select).fetchall() if is_whole(row)]
    connection.execute("DROP TABLE counters")
    connection.execute(_COUNTERS_2.create)
    connection.execute(DROPPED.create)
    connection.execute(DEFERRED.create)
    for row in rows:
        counters = CountersOfVersion2(*row[:-1])
        connection.execute(_COUNTERS_2.insert, _COUNTERS_2.row(msgspec.structs.astuple(counters)))
    publishers = connection.execute(_PUBLISHERS_1.select).fetchall()
    connection.execute("DROP TABLE publishers")
    connection.execute(PUBLISHERS.create)
    for row in publishers:
        whole = PUBLISHERS.row((*row[:-1], "", 0.0))
        # A damaged row stays one that is damaged.
        connection.execute(PUBLISHERS.insert, whole if is_whole(row) else (*whole[:-1], -1))


def _from_2(connection: sqlite3.Connection) -> None:
    rows = [row for row in connection.execute(_COUNTERS_2.select).fetchall() if is_whole(row)]
    connection.execute("DROP TABLE counters")
    connection.execute(COUNTERS.create)
    connection.execute(ROUTES.create)
    for row in rows:
        counters = Counters(*row[:-1])
        connection.execute(COUNTERS.insert, COUNTERS.row(msgspec.structs.astuple(counters)))


_KEPT_2: Final = (
    PUBLISHERS,
    SUBSCRIPTIONS,
    PENDING,
    DEFERRED,
    DEAD_LETTERS,
    TOKENS,
    AUDIT,
    DROPPED,
)

MIGRATIONS: Final = {
    1: Migration(
        (
            *(
                table.create
                for table in (
                    _COUNTERS_1,
                    _PUBLISHERS_1,
                    SUBSCRIPTIONS,
                    PENDING,
                    DEAD_LETTERS,
                    TOKENS,
                    AUDIT,
                )
            ),
            _NAMES,
        ),
        _from_1,
    ),
    2: Migration((*(table.create for table in (_COUNTERS_2, *_KEPT_2)), _NAMES), _from_2),
}
"""By the version of the earlier format."""
