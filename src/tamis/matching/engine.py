"""The engine: subscriptions come and go, events are matched against all of them.

One writer, many readers: all that a reader uses hangs on one tuple of segments, which is never
changed, only replaced. A reader takes it once and is not disturbed by what comes after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from tamis.errors import FilterError, TamisError
from tamis.events import Event, Schema
from tamis.events.batch import EventBatch
from tamis.filters import Filter, FilterLimits, Mode
from tamis.filters.modes import as_mode, require_schema
from tamis.languages import parse
from tamis.matching.matches import Id, Matches
from tamis.matching.programs import compile_filter, decompile
from tamis.matching.segments import Entry, Segment, joined_matches
from tamis.matching.vocabulary import Vocabulary

# Segments of up to this many subscriptions are compiled anew together, in the time of one add.
YOUNG: Final = 256

NEVER: Final = float("inf")


class Subscription(NamedTuple):
    """What `add_many` takes."""

    id: Id
    filter: Filter | str
    language: str = "tamis"
    mode: str | None = None
    expires_at: float | datetime | None = None


class Rejected(NamedTuple):
    """A subscription that could not be added: its row, counted from 1, and why."""

    row: int
    id: object
    reason: str


class Added(NamedTuple):
    """What came of `add_many`: rows in = added + rejected."""

    added: int
    rejected: tuple[Rejected, ...]


class Engine:
    """Finds for every event all subscriptions whose filter it satisfies.

    >>> engine = Engine()
    >>> engine.add("pc-watch", 'company in ("IBM", "Dell") and price <= 1000')
    >>> engine.add("any-price", "price is present")
    >>> engine.match({"company": "IBM", "price": 900})
    ['pc-watch', 'any-price']
    """

    def __init__(
        self,
        schema: Schema | None = None,
        mode: str = Mode.SQL,
        *,
        limits: FilterLimits | None = None,
        clock: Callable[[], float] = time.time,
        threads: int = 1,
    ) -> None:
        """Make an empty engine; `clock` tells the seconds since 1970 that expiry goes by."""
        self.schema: Final = schema
        self.mode: Final = as_mode(mode)
        require_schema(self.mode, schema)
        self._limits = limits or FilterLimits()
        self._clock = clock
        self._threads = threads
        self._vocabulary = Vocabulary(schema, total=self.mode is Mode.TOTAL)
        self._writing = Lock()
        self._segments: tuple[Segment, ...] = ()
        # What was added since the last match; a match compiles it.
        self._pending: dict[Id, Entry] = {}
        self._segment_of: dict[Id, int] = {}

    def __len__(self) -> int:
        return len(self._pending) + len(self._segment_of)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._pending or id_ in self._segment_of

    def __repr__(self) -> str:
        return f"<Engine: {len(self):,} subscriptions in {len(self._segments)} segments>"

    # --- subscriptions -----------------------------------------------------------------------

    def add(
        self,
        id_: Id,
        filter_: Filter | str,
        *,
        language: str = "tamis",
        mode: str | None = None,
        expires_at: float | datetime | None = None,
    ) -> None:
        """Add a subscription; it matches from the next event on."""
        given = Subscription(id_, filter_, language, mode, expires_at)
        with self._writing:
            self._admit(self._entry(given))

    def add_many(self, subscriptions: Iterable[Subscription | Mapping[str, object]]) -> Added:
        """Add subscriptions; one that cannot be added is told with its row and the reason.

        >>> engine = Engine()
        >>> engine.add_many([Subscription(1, "price < 5"), Subscription(2, "price <")]).rejected[0]
        Rejected(row=2, id=2, reason='a condition or value is missing at the end (line 1, ...
        """
        rejected: list[Rejected] = []
        row = 0
        with self._writing:
            for row, given in enumerate(subscriptions, start=1):
                try:
                    self._admit(self._entry(_subscription(given)))
                except TamisError as error:
                    rejected.append(Rejected(row, _id_of(given), str(error)))
        return Added(row - len(rejected), tuple(rejected))

    def remove(self, id_: Id) -> None:
        """Remove a subscription; no event matches it any more."""
        with self._writing:
            self._remove(id_)

    def replace(
        self,
        id_: Id,
        filter_: Filter | str,
        *,
        language: str = "tamis",
        mode: str | None = None,
        expires_at: float | datetime | None = None,
    ) -> None:
        """Put a new filter in the place of an old one; no event comes between the two."""
        given = Subscription(id_, filter_, language, mode, expires_at)
        with self._writing:
            entry = self._entry(given)
            self._remove(id_)
            self._admit(entry)

    def _entry(self, given: Subscription) -> Entry:
        if not isinstance(given.id, str | int) or isinstance(given.id, bool):
            raise FilterError(f"an id is a text or an integer, not {given.id!r:.60}")
        mode = self.mode if given.mode is None else as_mode(given.mode)
        if mode is Mode.TOTAL and self.mode is not Mode.TOTAL:
            raise FilterError(
                "mode 'total' is a promise about all events: give it to the engine, not to one "
                "subscription"
            )
        filter_ = self._filter(given)
        codes = compile_filter(filter_, mode, self._vocabulary)
        return Entry(given.id, np.array(codes, np.int32), mode, _seconds(given.expires_at))

    def _filter(self, given: Subscription) -> Filter:
        if isinstance(given.filter, Filter):
            filter_ = given.filter
            self._limits.check(filter_)
        else:
            filter_ = parse(given.filter, given.language, limits=self._limits)
        return filter_ if self.schema is None else filter_.bind(self.schema)

    def _admit(self, entry: Entry) -> None:
        if entry.id in self:
            raise FilterError(
                f"there is a subscription {entry.id!r} already; remove it first, or replace it"
            )
        self._pending[entry.id] = entry

    def _remove(self, id_: Id) -> None:
        if self._pending.pop(id_, None) is not None:
            return
        number = self._segment_number(id_)
        segments = list(self._segments)
        segments[number] = segments[number].without(id_)
        self._segments = tuple(segments)
        del self._segment_of[id_]

    def filter(self, id_: Id) -> tuple[Filter, Mode]:
        """Return a subscription's filter, as the schema made of it, and its mode."""
        entry = self._find(id_)
        return decompile(entry.program.tolist(), entry.mode, self._vocabulary), entry.mode

    def _find(self, id_: Id) -> Entry:
        if id_ in self._pending:
            return self._pending[id_]
        segment = self._segments[self._segment_number(id_)]
        return segment.entries[segment.places[id_]]

    def _segment_number(self, id_: Id) -> int:
        try:
            return self._segment_of[id_]
        except KeyError:
            raise FilterError(f"there is no subscription {id_!r}") from None

    # --- matching ----------------------------------------------------------------------------

    def match(self, event: Event | Mapping[str, object]) -> list[Id]:
        """Return the ids of the subscriptions that one event satisfies, in order of adding."""
        matches = self.match_batch([event])
        if matches.errors:
            raise matches.errors[0]
        return matches[0]

    def match_batch(self, events: EventBatch | Iterable[Event | Mapping[str, object]]) -> Matches:
        """Return for each event the subscriptions that it satisfies."""
        batch = events if isinstance(events, EventBatch) else self._batch(events)
        return joined_matches(self._compiled(), batch, self._clock(), self._threads)

    def _batch(self, events: Iterable[Event | Mapping[str, object]]) -> EventBatch:
        return EventBatch.of_events(events, self.schema, total=self.mode is Mode.TOTAL)

    def compact(self) -> None:
        """Compile all subscriptions together; matching is fastest after that."""
        with self._writing:
            self._compile(len(self))

    def _compiled(self) -> tuple[Segment, ...]:
        """Return all subscriptions compiled, the new ones among them."""
        if self._pending:
            with self._writing:
                self._compile(YOUNG)
        return self._segments

    def _compile(self, young: int) -> None:
        """Compile what is pending, together with the last segments that are no larger than it."""
        entries = list(self._pending.values())
        older = list(self._segments)
        while older and len(older[-1].entries) <= max(len(entries), young):
            entries = older.pop().living() + entries
        if entries:
            older.append(Segment.of(entries, self._vocabulary))
        self._segment_of |= dict.fromkeys((entry.id for entry in entries), len(older) - 1)
        self._segments = tuple(older)
        self._pending = {}


def _subscription(given: Subscription | Mapping[str, object]) -> Subscription:
    if isinstance(given, Subscription):
        return given
    try:
        return Subscription(**given)  # type: ignore[arg-type]
    except TypeError as error:
        raise FilterError(
            f"a subscription has id and filter, and may have language, mode and expires_at: {error}"
        ) from None


def _id_of(given: object) -> object:
    return given.get("id") if isinstance(given, Mapping) else getattr(given, "id", None)


def _seconds(moment: float | datetime | None) -> float:
    if moment is None:
        return NEVER
    return moment.timestamp() if isinstance(moment, datetime) else float(moment)
