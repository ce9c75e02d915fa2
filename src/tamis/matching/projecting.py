"""What the subscriptions of an engine want of events, found again only when they have changed."""

from __future__ import annotations

from typing import Final

from tamis.events import Schema
from tamis.events.batch import Projection
from tamis.filters.any_text import text_attributes
from tamis.filters.element_bounds import ElementResidual
from tamis.filters.printing import ANY
from tamis.matching.store.collection import CollectionState, OpenSubscription
from tamis.matching.store.segments import Segment


class ProjectionCache:
    """What segments want of events; for all but new segments, it is at hand."""

    def __init__(self, schema: Schema | None, *, total: bool) -> None:
        self._schema: Final = schema
        self._total: Final = total
        nothing = Projection(frozenset(), schema, total=total)
        self.known: tuple[tuple[Segment, ...], Projection] = (), nothing
        """Segments, and what they want of events: replaced as a whole."""

    def of(self, segments: tuple[Segment, ...]) -> Projection:
        """Return what segments want of events; the same object unless that differs."""
        known, projection = self.known
        if known is segments:
            return projection
        asked = (segment.evaluator.compiled.variables.attributes for segment in segments)
        left = (s.columns.left.attributes for s in segments if s.columns.left is not None)
        mentioned = frozenset[str]().union(*asked, *left)
        wanted: frozenset[str] | None = mentioned
        named = None
        tests_any = any(s.evaluator.compiled.variables.tests_any for s in segments)
        if tests_any or ANY in mentioned:
            mentioned -= {ANY}
            if self._schema is None:
                wanted, named = None, mentioned
            else:
                wanted = mentioned.union(text_attributes(self._schema))
        if (wanted, named) != (projection.wanted, projection.named):
            projection = Projection(wanted, self._schema, total=self._total, named=named)
        self.known = segments, projection
        return projection

    def wanted(self, state: CollectionState) -> frozenset[str] | None:
        """Return the attributes that subscriptions want, those that are not compiled included."""
        wanted = self.of(state.segments).wanted
        if wanted is None or not (state.open or self._schema):
            return wanted
        wanted = wanted.union(*map(_asked, state.open), self._schema or ())
        return None if ANY in wanted else wanted


def _asked(one: OpenSubscription) -> frozenset[str]:
    residual = one.entry.residual
    asked = one.filter.attributes()
    return asked | residual.filter.attributes() if isinstance(residual, ElementResidual) else asked
