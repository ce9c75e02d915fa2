"""Residuals: what is left to check of the matches of filters that are translated approximately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events import Event
from tamis.events.batch import EventBatch
from tamis.filters import Id
from tamis.filters.element_bounds import ElementResidual
from tamis.filters.translations import Residual
from tamis.matching.evaluate.segment_matches import SegmentMatches
from tamis.matching.store.segments import Segment


class EventsAsGiven:
    """The events of a batch, to check what is left of filters."""

    def __init__(self, batch: EventBatch) -> None:
        self._batch = batch
        self._events: dict[int, Event] = {}

    def satisfies(self, residual: Residual, number: int) -> bool:
        """Return whether an event satisfies what is left to check; refused ones are not asked."""
        return residual.holds(
            self._event(residual, number)
            if isinstance(residual, ElementResidual)
            else self._given(number)
        )

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


class SegmentResiduals(NamedTuple):
    """The residuals of one segment's subscriptions."""

    has_residual: NDArray[np.bool_]
    by_place: Mapping[int, Residual]

    @classmethod
    def of(cls, segment: Segment, residuals: Mapping[Id, Residual]) -> SegmentResiduals:
        """Find the subscriptions of a segment that have residuals."""
        places = {segment.place(id_): residual for id_, residual in residuals.items()}
        by_place = {place: residual for place, residual in places.items() if place is not None}
        has_residual = np.zeros(segment.size, np.bool_)
        has_residual[[*by_place]] = True
        return cls(has_residual, by_place)

    def checked(self, found: SegmentMatches, events: EventsAsGiven) -> SegmentMatches:
        """Return the matches whose residual holds, or that have none."""
        if not self.by_place:
            return found
        self._check_rows(found, events)
        return self._checked_lists(found, events)

    def _check_rows(self, found: SegmentMatches, events: EventsAsGiven) -> None:
        nothing = np.zeros(1, np.bool_)
        for row in np.flatnonzero(self.has_residual[found.unindexed]).tolist():
            residual = self.by_place[int(found.unindexed[row])]
            words = np.ascontiguousarray(found.bitmap[:, row, :]).view(np.uint8)
            bits = np.unpackbits(words.ravel(), bitorder="little", count=None)
            for event in np.flatnonzero(bits[: len(found.ends)]).tolist():
                if not events.satisfies(residual, event):
                    found.set_bits(event, np.array([row]), nothing)

    def _checked_lists(self, found: SegmentMatches, given: EventsAsGiven) -> SegmentMatches:
        candidates = np.flatnonzero(self.has_residual[found.indexed])
        if not len(candidates):
            return found
        events, kept = found.events(), np.ones(len(found.indexed), np.bool_)
        for place in candidates.tolist():
            residual = self.by_place[int(found.indexed[place])]
            kept[place] = given.satisfies(residual, int(events[place]))
        counts = np.bincount(events[kept], minlength=len(found.ends))
        return found._replace(ends=np.cumsum(counts), indexed=found.indexed[kept])


class ResidualIndex:
    """The residuals of all segments, found again only when either has changed."""

    def __init__(self) -> None:
        self._known: tuple[object, object, Sequence[SegmentResiduals]] = ((), {}, ())

    def of(
        self, segments: tuple[Segment, ...], residuals: Mapping[Id, Residual]
    ) -> Sequence[SegmentResiduals]:
        """Return the residuals of some segments."""
        known_segments, known_residuals, found = self._known
        if known_segments is not segments or known_residuals is not residuals:
            found = [SegmentResiduals.of(segment, residuals) for segment in segments]
            self._known = segments, residuals, found
        return found
