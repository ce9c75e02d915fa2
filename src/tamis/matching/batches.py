"""Many events on their way through segments: batch by batch, segment by segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tamis.errors import TamisError
from tamis.events.batch import EVENTS_PER_BATCH, EventSource, Projection
from tamis.matching.evaluate.metering import MatchingBudget
from tamis.matching.matches import MatchedBatch, Matches
from tamis.matching.residuals import EventsAsGiven, ExactCheck, SegmentChecks
from tamis.matching.store.segments import Segment


class BatchMatcher(NamedTuple):
    """Matches events against the subscriptions that an engine had at one moment."""

    segments: tuple[Segment, ...]
    now: float
    threads: int
    check: ExactCheck | None
    """None: nothing is left to check."""
    budget: MatchingBudget | None = None

    def matches(self, source: EventSource, projection: Projection) -> Matches:
        """Return the matches of all events of a source."""
        most = min(
            (segment.evaluator.max_events for segment in self.segments), default=EVENTS_PER_BATCH
        )
        left: Sequence[SegmentChecks | None] = [None] * len(self.segments)
        if self.check is not None:
            left = [SegmentChecks.of(segment, self.now) for segment in self.segments]
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
                given = None if self.check is None else EventsAsGiven(part, count, self.check)
                matches = []
                for segment, checks in zip(self.segments, left, strict=True):
                    meter = None
                    if self.budget is not None and segment.evaluator.is_metered:
                        meter = segment.meter(self.budget, count)
                    rows = segment.evaluator.evaluate(part, self.threads, meter)
                    if given is not None and checks is not None:
                        rows = checks.checked(rows, given)
                    matches.append(rows)
                matched = MatchedBatch(part.length, matches)
                found.append(matched.condensed() if found else matched)
                errors.update((count + number, error) for number, error in part.errors.items())
                count += part.length
        segments = [segment.matched(self.now) for segment in self.segments]
        undecided = {} if self.check is None else self.check.undecided
        return Matches(count, segments, found, errors, undecided)
