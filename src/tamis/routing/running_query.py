"""A query on its way: who still answers, what waits to be passed on, and what is known so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from tamis.filters import Filter
from tamis.routing.aggregates import Aggregate, AggregateState
from tamis.routing.query_messages import (
    MAX_REPORT_CHARACTERS,
    MAX_SENTENCE_CHARACTERS,
    MAX_SOURCES_NAMED,
    MAX_UNNAMED,
    QueryReport,
    RowSight,
    SightOfQuery,
)


class QueryBounds(NamedTuple):
    """What a router takes from peers and sources."""

    window: int = 1024 * 1024
    """Bytes of rows that wait at a broker for one query, shared by those who answer."""
    least_window: int = 16 * 1024
    """What each of them may send at least."""
    queries_per_peer: int = 1_000
    advertisements_per_peer: int = 1_000
    overdraft: int = 4 * 1024**2
    """How many bytes of rows may come beyond the credit: one frame."""
    largest_row: int = 256 * 1024
    """In bytes, of what peers send: they have limits of their own."""
    most_seconds: float = 600.0
    most_rows: int = 1_000_000
    """Of one query."""
    most_distinct: int = 100_000
    """Of one query with `union`, which remembers each."""


class PeerTerms(NamedTuple):
    """What a connected peer is called, and what it may see."""

    title: str = ""
    """For reports."""
    sight: SightOfQuery | None = None
    """Of rows; None: everything."""
    without_hidden: Callable[[Filter], Filter] | None = None
    """Makes of an advertisement a wider one that says nothing hidden; None: nothing is."""
    may_ask: Callable[[Filter], bool] = lambda _: True
    """Says whether a query mentions only what it may see: who is asked tells of values, too."""


ANY_PEER: Final = PeerTerms()


class LinkCounts(NamedTuple):
    """What has passed a link, and what need not."""

    queries_passed: int = 0
    queries_pruned: int = 0
    """Not sent, because nothing behind the link was advertised that they concern."""
    rows_passed: int = 0


class QueryTarget(NamedTuple):
    """Who is asked: a source here, or a peer."""

    source: int = 0
    peer: str = ""


class RunningQuery:
    """A query on its way."""

    def __init__(
        self,
        *,
        number: int,
        filter_: Filter,
        aggregate: Aggregate | None,
        limit: int | None,
        deadline: float,
        sight: RowSight | None,
        credit: int,
        asker: tuple[str, int] | None,
    ) -> None:
        self.number = number
        self.filter = filter_
        self.aggregate = aggregate
        self.limit = limit
        self.deadline = deadline
        self.sight = sight
        self.credit = credit
        self.asker = asker
        """The peer that asks and its number; None if somebody here does."""
        self.windows: dict[QueryTarget, int] = {}
        """Those who still answer, and how many more bytes each may send."""
        self.window = 0
        """What each of them was given first."""
        self.state: AggregateState | None = None
        self.seen: set[bytes] | None = None
        self.accepted = 0
        self.waiting: deque[tuple[QueryTarget, bytes]] = deque()
        """Rows for which there is no credit yet."""
        self.owed: dict[QueryTarget, int] = {}
        """Bytes that were taken of each, and for which it has no new credit yet."""
        self.answered: dict[str, None] = {}
        self.missing: dict[str, str] = {}
        self.unnamed = 0
        self._report_characters = 0
        self.cut = False
        self.is_closing = False
        """Whether all that is left to do is to pass on what waits."""

    def note_answered(self, name: str) -> None:
        """Note that a source has answered in full."""
        if name in self.answered:
            return
        if len(self.answered) < MAX_SOURCES_NAMED and self._has_room(len(name)):
            self.answered[name] = None
        else:
            self.note_unnamed(1)

    def note_missing(self, name: str, reason: str) -> None:
        """Note that a source, or all behind a peer, will not answer in full."""
        sentence = reason[:MAX_SENTENCE_CHARACTERS]
        is_named = name in self.missing or len(self.missing) < MAX_SOURCES_NAMED
        if is_named and self._has_room(len(name) + len(sentence)):
            self.missing[name] = sentence
        else:
            self.note_unnamed(1)

    def note_unnamed(self, count: int) -> None:
        """Note sources that the report does not name."""
        self.unnamed = min(self.unnamed + count, MAX_UNNAMED)

    def _has_room(self, characters: int) -> bool:
        """Return whether the report, which is one frame, can take so many more characters."""
        if self._report_characters + characters > MAX_REPORT_CHARACTERS:
            return False
        self._report_characters += characters
        return True

    def report(self) -> QueryReport:
        """Return who has answered and who has not."""
        answered = tuple(name for name in self.answered if name not in self.missing)
        return QueryReport(answered, self.missing, self.unnamed, self.cut)


def row_identity(row: bytes) -> bytes:
    """Return what equal rows share, however they are written."""
    value: Any = msgspec.json.decode(row)
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=16).digest()


def objects_of(rows: list[msgspec.Raw]) -> list[bytes]:
    """Return rows of a peer as texts; they are JSON, but each has to be an object."""
    texts = [bytes(row).lstrip() for row in rows]
    if not all(text.startswith(b"{") for text in texts):
        raise ValueError("a row is a JSON object")
    return texts
