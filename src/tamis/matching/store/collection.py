"""The subscriptions of an engine, in segments that are compiled together, oldest first.

New subscriptions stay uncompiled at first: a single event tries the few newest one by one, a batch
compiles them. Small segments are merged into larger ones while readers continue, so that there are
never many. All that readers use is in one immutable tuple, which the writer replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import RLock, Thread
from typing import Final, NamedTuple

import numpy as np

from tamis.errors import FilterError
from tamis.events import Event, Schema
from tamis.filters import Filter, Id
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.store.segments import CompiledSubscription, Segment

# This many of the newest are tried one by one, which takes some microseconds per event and
# subscription.
MAX_OPEN_SUBSCRIPTIONS: Final = 16
# Segments of up to this many subscriptions are recompiled with new ones, in milliseconds.
MAX_RECOMPILED_SUBSCRIPTIONS: Final = 256
# With more segments than this, the newest are merged in the background.
MAX_SEGMENTS: Final = 6


class OpenSubscription(NamedTuple):
    """A subscription that is in no segment yet."""

    entry: CompiledSubscription
    filter: Filter


class CollectionState(NamedTuple):
    """What a reader sees; it never changes."""

    segments: tuple[Segment, ...] = ()
    open: tuple[OpenSubscription, ...] = ()
    """The uncompiled subscriptions, if they are few."""
    is_whole: bool = True
    """Whether these are all; otherwise they must be compiled before reading."""

    def locate(self, id_: Id) -> tuple[int, int] | None:
        """Return the segment and the position of a compiled subscription."""
        for number, segment in enumerate(self.segments):
            place = segment.place(id_)
            if place is not None:
                return number, place
        return None

    def without_compiled(self, id_: Id) -> CollectionState:
        """Return a copy without one of the compiled subscriptions."""
        number, place = _located(self, id_)
        without = self.segments[number].without(place)
        segments = (*self.segments[:number], without, *self.segments[number + 1 :])
        return self._replace(segments=segments)

    def without_open(self, id_: Id) -> CollectionState:
        """Return a copy without one of the uncompiled subscriptions."""
        return self._replace(open=tuple(one for one in self.open if one.entry.id != id_))

    def with_open(self, one: OpenSubscription) -> CollectionState:
        """Return a copy with one more subscription."""
        if len(self.open) == MAX_OPEN_SUBSCRIPTIONS or not self.is_whole:
            return self._replace(is_whole=False)
        return self._replace(open=(*self.open, one))


class Collection:
    """The subscriptions; one thread at a time changes them, any number read."""

    def __init__(self, vocabulary: Vocabulary, segment: Segment | None = None) -> None:
        self.vocabulary: Final = vocabulary
        self.state = CollectionState(() if segment is None else (segment,))
        self.count = 0 if segment is None else segment.size
        self.changing: Final = RLock()
        # All uncompiled subscriptions; the state shows them while they are few.
        self._pending: dict[Id, CompiledSubscription] = {}
        self._joining: Thread | None = None

    def __contains__(self, id_: Id) -> bool:
        return id_ in self._pending or self.state.locate(id_) is not None

    def ids(self) -> list[Id]:
        """Return the ids of all subscriptions, in order of adding."""
        compiled = [id_ for segment in self.state.segments for id_ in segment.ids()]
        return [*compiled, *self._pending]

    # --- one by one --------------------------------------------------------------------------

    def add(self, entry: CompiledSubscription, filter_: Filter) -> None:
        """Add a subscription."""
        if entry.id in self:
            raise FilterError(
                f"there is a subscription {entry.id!r} already; remove it first, or replace it"
            )
        self._pending[entry.id] = entry
        self.state = self.state.with_open(OpenSubscription(entry, filter_))
        self.count += 1

    def remove(self, id_: Id) -> None:
        """Remove a subscription."""
        self.state = self._without(id_)
        self.count -= 1

    def replace(self, entry: CompiledSubscription, filter_: Filter) -> None:
        """Replace the subscription with this id; a reader sees either the old or the new one."""
        without = self._without(entry.id)
        self._pending[entry.id] = entry
        self.state = without.with_open(OpenSubscription(entry, filter_))

    def _without(self, id_: Id) -> CollectionState:
        if id_ in self._pending:
            del self._pending[id_]
            return self.state.without_open(id_)
        return self.state.without_compiled(id_)

    def find(self, id_: Id) -> CompiledSubscription:
        """Return a subscription."""
        pending = self._pending.get(id_)
        if pending is not None:
            return pending
        # Read once: segments may be merged meanwhile.
        state = self.state
        number, place = _located(state, id_)
        return state.segments[number].entry(place)

    # --- compiled together -------------------------------------------------------------------

    def whole(self) -> CollectionState:
        """Return all subscriptions; the newest may be uncompiled."""
        state = self.state
        return state if state.is_whole else CollectionState(self.compiled())

    def compiled(self) -> tuple[Segment, ...]:
        """Return all subscriptions, compiled."""
        state = self.state
        if state.is_whole and not state.open:
            return state.segments
        with self.changing:
            self._compile()
            segments = self.state.segments
        if len(segments) > MAX_SEGMENTS:
            self._join_in_background()
        return segments

    def compact(self) -> Segment:
        """Compile all subscriptions together, and return them as one segment."""
        with self.changing:
            segments = self.state.segments
            if self._pending or len(segments) != 1 or not segments[0].is_whole:
                living = [entry for segment in segments for entry in segment.living()]
                self._publish((), [*living, *self._pending.values()])
            return self.state.segments[0]

    def _compile(self) -> None:
        """Compile new subscriptions, together with the last segments if those are small."""
        entries, older = list(self._pending.values()), list(self.state.segments)
        while older and older[-1].size <= max(len(entries), MAX_RECOMPILED_SUBSCRIPTIONS):
            entries = older.pop().living() + entries
        self._publish(tuple(older), entries)

    def _publish(self, older: tuple[Segment, ...], entries: list[CompiledSubscription]) -> None:
        if entries or not older:
            older = (*older, Segment.of(entries, self.vocabulary))
        self.state = CollectionState(older)
        self._pending = {}

    def _join_in_background(self) -> None:
        with self.changing:
            if self._joining is not None and self._joining.is_alive():
                return
            self._joining = Thread(target=self._join, name="tamis-join", daemon=True)
            self._joining.start()

    def _join(self) -> None:
        """Merge the newest segments into one, without blocking readers or writers."""
        chosen = _to_join(self.state.segments)
        if len(chosen) < 2:
            return
        living = [segment.living() for segment in chosen]
        joined = Segment.of([entry for part in living for entry in part], self.vocabulary)
        with self.changing:
            segments, open_, is_whole = self.state
            now = _still_there(segments, chosen)
            if now is None:
                return
            alive = [after.alive[before.alive] for before, after in zip(chosen, now, strict=True)]
            left = np.concatenate(alive)
            joined = joined._replace(alive=left, is_whole=bool(left.all()))
            first = segments.index(now[0])
            rest = segments[first + len(now) :]
            self.state = CollectionState((*segments[:first], joined, *rest), open_, is_whole)


def _located(state: CollectionState, id_: Id) -> tuple[int, int]:
    located = state.locate(id_)
    if located is None:
        raise FilterError(f"there is no subscription {id_!r}")
    return located


def _to_join(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return the newest segments, up to one that is larger than all after it."""
    first, size = max(0, len(segments) - 2), sum(segment.size for segment in segments[-2:])
    while first > 0 and segments[first - 1].size <= size:
        first -= 1
        size += segments[first].size
    return segments[first:]


def _still_there(
    segments: tuple[Segment, ...], chosen: tuple[Segment, ...]
) -> tuple[Segment, ...] | None:
    """Return the current versions of some segments, or None if they were recompiled meanwhile."""
    evaluators = [segment.evaluator for segment in segments]
    if chosen[0].evaluator not in evaluators:
        return None
    first = evaluators.index(chosen[0].evaluator)
    now = segments[first : first + len(chosen)]
    same = [segment.evaluator for segment in now] == [segment.evaluator for segment in chosen]
    return now if same else None


def match_open(
    open_: tuple[OpenSubscription, ...], event: Event, now: float, schema: Schema | None
) -> Iterator[Id]:
    """Yield the uncompiled subscriptions that an event satisfies."""
    for entry, filter_ in open_:
        if entry.expires_at > now and filter_.matches(event, entry.mode, schema):
            yield entry.id
