"""What is left to check of the matches of filters that are translated approximately.

A query may turn out to be too much work on a document. It is then undecided for this document: it
does not match, nobody gets what it might not ask for, and it is noted. All others are answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError, WorkLimitError
from tamis.events import Event
from tamis.events.batch import EventBatch
from tamis.filters import Id
from tamis.filters.element_bounds import ElementResidual
from tamis.filters.translations import OnceResidual, Residual, SettledResidual
from tamis.matching.evaluate.metering import MatchingBudget
from tamis.matching.evaluate.segment_matches import SegmentMatches
from tamis.matching.store.residual_columns import ResidualColumn
from tamis.matching.store.segments import Segment


class UndecidedQuery(NamedTuple):
    """A subscription whose exact check was too much work, or whose own functions failed."""

    times: int
    """For how many events, each time that they were matched."""
    reason: str
    """Why, the last time."""


class UndecidedQueries:
    """The subscriptions of an engine that were undecided; any number of threads note some."""

    def __init__(self) -> None:
        self._known: dict[Id, UndecidedQuery] = {}
        self._changing: Final = Lock()

    def note(self, id_: Id, error: Exception) -> None:
        """Note that a subscription was undecided once more."""
        is_ours = isinstance(error, TamisError)
        reason = str(error) if is_ours else f"{type(error).__name__}: {error!s:.200}"
        with self._changing:
            before = self._known[id_].times if id_ in self._known else 0
            self._known[id_] = UndecidedQuery(before + 1, reason)

    def forget(self, id_: Id) -> None:
        """Forget a subscription that is no more, or another."""
        if id_ in self._known:
            with self._changing:
                self._known.pop(id_, None)

    def known(self) -> dict[Id, UndecidedQuery]:
        """Return those that were undecided."""
        with self._changing:
            return dict(self._known)


@lru_cache(maxsize=64)
def _abilities_of(cls: type[Residual]) -> tuple[bool, bool]:
    """Return what residuals of a class can: asking each would take longer than many checks."""
    return issubclass(cls, SettledResidual), issubclass(cls, OnceResidual)


class ExactCheck:
    """Checks what is left, and notes where that was too much work."""

    def __init__(
        self,
        queries: UndecidedQueries,
        budget: MatchingBudget | None,
        once: object = None,
    ) -> None:
        self._queries = queries
        self._once = once
        """What was read of objects, for residuals that ask for it."""
        self._budget = budget
        self.undecided: dict[int, list[Id]] = {}
        """The subscriptions that are undecided, by the number of the event."""

    def holds(self, id_: Id, residual: Residual, given: object, number: int) -> bool:
        """Return whether what is left of a subscription holds; False if it is undecided."""
        try:
            settles, reads = _abilities_of(type(residual))
            if reads and self._once is not None:
                return bool(residual.holds_once(given, self._once))  # type: ignore[attr-defined]
            if settles and residual.is_settled(given):  # type: ignore[attr-defined]
                return True
            return residual.holds(given)
        except WorkLimitError as error:
            self._note(id_, number, error)
        except TamisError:
            # It is the event that cannot be checked.
            raise
        except Exception as error:
            # The user's own functions may raise anything, and nobody else is to miss a match.
            self._note(id_, number, error)
        return False

    def _note(self, id_: Id, number: int, error: Exception) -> None:
        self._queries.note(id_, error)
        self.undecided.setdefault(number, []).append(id_)
        if self._budget is not None:
            self._budget.undecided.setdefault(id_, number)


class EventAsGiven(NamedTuple):
    """One event, to check what is left of filters."""

    given: object
    event: object
    """The same with its nested data, found once for all tests of elements."""
    check: ExactCheck
    number: int = 0

    def satisfies(self, id_: Id, residual: Residual) -> bool:
        """Return whether the event satisfies what is left."""
        given = self.event if isinstance(residual, ElementResidual) else self.given
        return self.check.holds(id_, residual, given, self.number)


class EventsAsGiven:
    """The events of a batch, to check what is left of filters."""

    def __init__(self, batch: EventBatch, first: int, check: ExactCheck) -> None:
        self._batch = batch
        self._first = first
        self._check = check
        self._events: dict[int, Event] = {}

    def satisfies(self, id_: Id, residual: Residual, number: int) -> bool:
        """Return whether an event satisfies what is left to check; refused ones are not asked."""
        given = (
            self._event(residual, number)
            if isinstance(residual, ElementResidual)
            else self._given(number)
        )
        return self._check.holds(id_, residual, given, self._first + number)

    def _given(self, number: int) -> object:
        batch = self._batch
        return batch.event(number) if batch.given is None else batch.given(number)

    def _event(self, residual: ElementResidual, number: int) -> Event:
        """Return an event that keeps its elements for all filters that ask for them."""
        event = self._events.get(number)
        if event is None:
            given = self._given(number)
            # Of what is neither a mapping nor JSON, only attributes are known.
            is_nested = isinstance(given, Mapping)
            event = residual.event_of(given) if is_nested else self._batch.event(number)
            self._events[number] = event
        return event


class SegmentChecks(NamedTuple):
    """What is left to check of one segment's subscriptions."""

    ids: NDArray[np.object_]
    left: ResidualColumn
    is_left: NDArray[np.bool_]
    """Of those in force."""

    @classmethod
    def of(cls, segment: Segment, now: float) -> SegmentChecks | None:
        """Return what is left of the subscriptions in force; None if nothing is."""
        left = segment.columns.left
        if left is None:
            return None
        ids, in_force = segment.matched(now)
        is_left = left.is_left if in_force is None else left.is_left & in_force
        return cls(ids.objects, left, is_left)

    def checked(self, found: SegmentMatches, events: EventsAsGiven) -> SegmentMatches:
        """Return the matches of which nothing is left, or what is left holds."""
        self._check_rows(found, events)
        return self._checked_lists(found, events)

    def _satisfies(self, place: int, events: EventsAsGiven, number: int) -> bool:
        return events.satisfies(self.ids[place], self.left.objects[place], number)

    def _check_rows(self, found: SegmentMatches, events: EventsAsGiven) -> None:
        nothing = np.zeros(1, np.bool_)
        for row in np.flatnonzero(self.is_left[found.unindexed]).tolist():
            words = np.ascontiguousarray(found.bitmap[:, row, :]).view(np.uint8)
            bits = np.unpackbits(words.ravel(), bitorder="little", count=None)
            for event in np.flatnonzero(bits[: len(found.ends)]).tolist():
                if not self._satisfies(found.unindexed[row], events, event):
                    found.set_bits(event, np.array([row]), nothing)

    def _checked_lists(self, found: SegmentMatches, given: EventsAsGiven) -> SegmentMatches:
        candidates = np.flatnonzero(self.is_left[found.indexed])
        if not len(candidates):
            return found
        events, kept = found.events(), np.ones(len(found.indexed), np.bool_)
        for place in candidates.tolist():
            kept[place] = self._satisfies(found.indexed[place], given, int(events[place]))
        counts = np.bincount(events[kept], minlength=len(found.ends))
        return found._replace(ends=np.cumsum(counts), indexed=found.indexed[kept])
