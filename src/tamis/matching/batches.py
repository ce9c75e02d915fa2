"""Many events on their way through segments: batch by batch, segment by segment."""

from __future__ import annotations

from typing import NamedTuple

from tamis.errors import TamisError
from tamis.events.batch import EVENTS_PER_BATCH, EventBatch, EventSource, Projection
from tamis.matching.evaluate.metering import MatchingBudget
from tamis.matching.evaluate.segment_matches import SegmentMatches
from tamis.matching.matches import MatchedBatch, Matches
from tamis.matching.residuals import EventsAsGiven, ExactCheck, SegmentChecks
from tamis.matching.store.segments import Segment


class BatchMatcher(NamedTuple):
    """Matches events against the subscriptions that an engine had at one moment."""

    segments: tuple[Segment, ...]
    now: float
    threads: int
    check: ExactCheck
    budget: MatchingBudget | None = None

    def matches(self, source: EventSource, projection: Projection) -> Matches:
        """Return the matches of all events of a source."""
        most = min(
            (segment.evaluator.max_events for segment in self.segments), default=EVENTS_PER_BATCH
        )
        checks = [SegmentChecks.of(segment, self.now) for segment in self.segments]
        found: list[MatchedBatch] = []
        errors: dict[int, TamisError] = {}
        count = 0
        for batch in source.event_batches(projection):
            for first in range(0, batch.length, most):
                part = batch
                if batch.length > most:
                    part = batch.part(first, min(first + most, batch.length))
                # The bits of one batch are bounded; of many, they would not be.
                if len(found) == 1:
                    found[0] = found[0].condensed()
                given = EventsAsGiven(part, count, self.check)
                matched = MatchedBatch(
                    part.length,
                    [
                        self._matched(segment, left, part, count, given)
                        for segment, left in zip(self.segments, checks, strict=True)
                    ],
                )
                found.append(matched.condensed() if found else matched)
                errors.update((count + number, error) for number, error in part.errors.items())
                count += part.length
        segments = [segment.matched(self.now) for segment in self.segments]
        return Matches(count, segments, found, errors, self.check.undecided)

    def _matched(
        self,
        segment: Segment,
        left: SegmentChecks | None,
        part: EventBatch,
        first: int,
        given: EventsAsGiven,
    ) -> SegmentMatches:
        meter = None
        if self.budget is not None and segment.evaluator.is_metered:
            meter = segment.meter(self.budget, first)
        found = segment.evaluator.evaluate(part, self.threads, meter)
        return found if left is None else left.checked(found, given)
