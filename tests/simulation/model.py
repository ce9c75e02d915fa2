"""What the simulation knows: events, publications, the log, subscriptions and their progress."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple

import msgspec

from simulation.credentials import Document, parsed
from tamis.events import Event
from tamis.filters.element_bounds import upper_bound

MATCHED_SECONDS = 6.0
"""How long an event may wait to be matched, in the worst case."""
NO, MAYBE, YES = "no", "maybe", "yes"


class SimulatedEvent:
    """An event, which no other is equal to."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.text = msgspec.json.encode(document)
        self._matches: dict[str, bool] = {}

    @property
    def id(self) -> int:
        return int(self.document["id"])

    def matches(self, filter_: str) -> bool:
        """Return whether a filter matches, by its own definition."""
        if filter_ not in self._matches:
            self._matches[filter_] = parsed(filter_).matches(self.event)
        return self._matches[filter_]

    def may_be_found(self, filter_: str) -> bool:
        """Return whether the engine finds it: whether it matches is checked when it is sent."""
        return upper_bound(parsed(filter_)).matches(self.event)

    @cached_property
    def event(self) -> Event:
        return Event(self.document)


@dataclass(eq=False)
class PublicationModel:
    """Events that are stored all or none."""

    publisher: str
    sequence: int
    """The number of the first event; 0: they are not numbered."""
    events: list[SimulatedEvent]
    is_acknowledged: bool = False
    is_refused: bool = False
    """Refused, and never sent again."""


class LogEntry(NamedTuple):
    """An event in the log."""

    sequence: int
    event: SimulatedEvent
    stored_at: float
    """When the simulation first saw it there."""


@dataclass
class Progress:
    """How far one event has come with one subscription."""

    deliveries: int = 0
    attempt: int = 0
    """The last attempt that was told."""
    attempt_written: int = 0
    """The last attempt that was found in the state."""
    attempt_synced: int = 0
    attempt_floor: int = 0
    """The next attempt must be greater."""
    acknowledged: str = NO
    acknowledged_at: float = inf
    survives: str = ""
    """Which crash the acknowledgement survives: none, a kill, or also a power cut."""
    rejected: bool = False
    """It was rejected, or lent and perhaps not acknowledged in time."""
    is_last_chance_over: bool = False
    """It may be a dead letter."""


@dataclass(eq=False)
class SubscriptionModel:
    """A subscription, and what its consumers got."""

    owner: str
    name: str
    filter: str
    start: int
    """The first event that it covers, as the broker told."""
    known_since: float
    """When the first answer about it was sent."""
    durable: bool = True
    overflow: str = "wait"
    max_attempts: int = 0
    expires_from: float = inf
    expires_by: float = inf
    """When it expires, by the monotonic clock, as far as that is known."""
    doubts: list[tuple[float, float]] = field(default_factory=list)
    """When it may have been expired, before it was renewed."""
    perhaps_anew_since: float = inf
    """When somebody without an answer may have made it anew, after it had ended or expired."""
    is_ended: str = NO
    ended_at: float = inf
    roles: set[tuple[str, ...]] = field(default_factory=set)
    """The roles of all credentials that used it."""
    progress: dict[int, Progress] = field(default_factory=dict)
    last_first: int = 0
    """The last event that was delivered for the first time."""
    has_rivals: bool = False
    """Whether several consumers take its events at the same time."""
    told_lost: int = 0
    """Events that its consumers were told to be lost by retention."""
    removed: list[int] = field(default_factory=list)
    """Events that retention has removed while they were pending."""
    most_lost: int = 0
    """How many it may have removed."""
    unseen_fetches: int = 0
    """Requests for events whose answers were lost; each event may have been lent to each."""
    told_slow: int = 0
    ordering_key: str | None = None
    """Of a group: the attribute by which it is ordered; empty: none."""
    holders: dict[int, object] = field(default_factory=dict)
    """Of a group: who was sent each event last; None: it was fetched."""
    is_replay_over_at: int = 0
    """From here on all events were stored after it was made."""

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    def of(self, sequence: int) -> Progress:
        return self.progress.setdefault(sequence, Progress())

    def wants(self, entry: LogEntry) -> bool:
        return entry.sequence >= self.start and entry.event.matches(self.filter)

    def may_find(self, entry: LogEntry) -> bool:
        return entry.sequence >= self.start and entry.event.may_be_found(self.filter)

    def may_be_dead(self, sequence: int) -> bool:
        """Return whether an event may have been sent as often as it may."""
        progress = self.of(sequence)
        unseen = self.unseen_fetches > 0 and (
            progress.attempt + self.unseen_fetches >= self.max_attempts
        )
        return progress.is_last_chance_over or unseen

    def settle(self, sequence: int, now: float, how: str = YES) -> None:
        """Note that an event was acknowledged."""
        progress = self.of(sequence)
        if progress.acknowledged == YES:
            return
        # What was perhaps acknowledged before is surely acknowledged only now.
        progress.acknowledged_at = now if how == YES else min(progress.acknowledged_at, now)
        progress.acknowledged = how

    def least_lost(self, dead: Collection[int]) -> int:
        """Return how many events are lost: some were still in memory, or are dead letters."""
        lost = (sequence for sequence in self.removed if sequence not in dead)
        return sum(self.of(sequence).acknowledged == NO for sequence in lost)

    def was_in_force(self, stored_at: float, now: float) -> bool:
        """Return whether an event was surely matched before the subscription could expire."""
        doubts = self.doubts
        if now >= self.expires_from:
            doubts = [*doubts, (self.expires_from, inf)]
        if self.perhaps_anew_since < inf:
            doubts = [*doubts, (-inf, self.perhaps_anew_since)]
        return not any(start - MATCHED_SECONDS <= stored_at <= end for start, end in doubts)

    def delivered(self) -> Iterator[tuple[int, Progress]]:
        return ((s, one) for s, one in self.progress.items() if one.deliveries)


class LogModel:
    """The log as it was seen: what was there once must stay, until retention removes it."""

    def __init__(self) -> None:
        self.entries: dict[int, LogEntry] = {}
        self.first = 1
        self.next = 1
        self.by_event: dict[int, int] = {}
        """The sequence of each event, by its id."""
        self.numbers: dict[str, int] = {}
        """The last number of each publisher."""

    def add(self, entry: LogEntry) -> None:
        self.entries[entry.sequence] = entry
        self.by_event[entry.event.id] = entry.sequence
        self.next = entry.sequence + 1
