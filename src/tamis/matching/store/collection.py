"""The subscriptions of an engine, in segments that are compiled together, oldest first.

New subscriptions stay uncompiled at first: a single event tries the newest one by one, and a batch
compiles them. If they are more than a few, they are compiled in the background, and small segments
are merged into larger ones, so that there are never many; readers continue. All that readers use is
in one immutable tuple, which the writer replaces.

Leaves that only removed subscriptions had leave the vocabulary when it has doubled, and whenever
all are compiled together. Segments that are mostly removed are recompiled in the background.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Mapping, Sequence
from itertools import repeat, takewhile
from threading import RLock, Thread
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.errors import FilterError
from tamis.events.values import brief
from tamis.filters import Filter, Id, Mode
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Caseless, Like, Regex
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.store.segments import CompiledSubscription, Segment, UncompiledColumns

# More of the newest than this are compiled in the background.
MAX_TRIED_SUBSCRIPTIONS: Final = 16
# If all of them have no more tests than this, a single event tries them even if they are compiled:
# one takes 20 µs while caches are cold, as those of a broker with some hundred events a second are,
# and the segments take 50.
MAX_FEW_TESTS: Final = 8
# Until then, up to this many are tried one by one, which takes some microseconds per event and
# subscription. An event that meets more waits until they are compiled.
MAX_OPEN_SUBSCRIPTIONS: Final = 128
# Segments of up to this many subscriptions are recompiled with new ones, in milliseconds.
MAX_RECOMPILED_SUBSCRIPTIONS: Final = 256
# With more segments than this, the newest are merged in the background.
MAX_SEGMENTS: Final = 6
# A vocabulary up to this size is not searched for leaves that nothing uses.
MIN_COLLECTED_LEAVES: Final = 1_024


class OpenSubscription(NamedTuple):
    """A subscription that is in no segment yet."""

    entry: CompiledSubscription
    filter: Filter
    """Bound to the schema."""


class CollectionState(NamedTuple):
    """What a reader sees; it never changes."""

    vocabulary: Vocabulary
    """The leaves of the segments."""
    segments: tuple[Segment, ...] = ()
    open: tuple[OpenSubscription, ...] = ()
    """The uncompiled subscriptions, if they are few."""
    is_whole: bool = True
    """Whether these are all; otherwise they must be compiled before reading."""
    is_metered: bool = False
    """Whether an uncompiled subscription may have tests that an event can make slow."""
    few: tuple[OpenSubscription, ...] = ()
    """Those in the segments, if they are so few that a single event had better try them."""

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
        return self._replace(segments=segments, few=())

    def without_open(self, id_: Id) -> CollectionState:
        """Return a copy without one of the uncompiled subscriptions."""
        return self._replace(open=tuple(one for one in self.open if one.entry.id != id_))

    def with_compiled(
        self, segment: Segment, replaced: int, open_ids: Container[Id]
    ) -> CollectionState:
        """Return a copy with a segment in place of the last ones and of open subscriptions."""
        left = tuple(one for one in self.open if one.entry.id in open_ids)
        return self._replace(
            segments=(*self.segments[: len(self.segments) - replaced], segment),
            open=left,
            is_metered=any(_may_be_slow(atom) for one in left for atom in one.filter.atoms()),
            few=(),
        )

    def with_open(self, entry: CompiledSubscription, filter_: Filter) -> CollectionState:
        """Return a copy with one more subscription."""
        if not self.is_whole:
            return self
        if len(self.open) == MAX_OPEN_SUBSCRIPTIONS:
            return self._replace(is_whole=False)
        schema = self.vocabulary.schema
        bound = filter_ if schema is None else filter_.bind(schema)
        return self._replace(
            open=(*self.open, OpenSubscription(entry, bound)),
            is_metered=self.is_metered or any(map(_may_be_slow, bound.atoms())),
        )


def _may_be_slow(atom: Filter) -> bool:
    """Return whether an event can make a test slow: it has many texts, or long ones."""
    test = atom.test if isinstance(atom, Caseless) else atom
    return isinstance(test, Regex | Like | Relation | AnyText)


class _Uncompiled(NamedTuple):
    """All uncompiled subscriptions; the state shows them while they are few."""

    vocabulary: Vocabulary
    entries: dict[Id, CompiledSubscription]


class Collection:
    """The subscriptions; one thread at a time changes them, any number read."""

    def __init__(self, vocabulary: Vocabulary, segment: Segment | None = None) -> None:
        self.state = CollectionState(vocabulary, () if segment is None else (segment,))
        self.count = 0 if segment is None else segment.size - segment.removed
        self.changing: Final = RLock()
        self._pending = _Uncompiled(vocabulary, {})
        self._tidying: Thread | None = None
        self._max_leaves = max(MIN_COLLECTED_LEAVES, 2 * vocabulary.size)

    def __contains__(self, id_: Id) -> bool:
        return id_ in self._pending.entries or self.state.locate(id_) is not None

    def ids(self) -> list[Id]:
        """Return the ids of all subscriptions, in order of adding."""
        compiled = [id_ for segment in self.state.segments for id_ in segment.ids()]
        return [*compiled, *self._pending.entries]

    @property
    def vocabulary(self) -> Vocabulary:
        """Return the leaves of all subscriptions."""
        return self.state.vocabulary

    def vocabulary_to_extend(self) -> Vocabulary:
        """Return the vocabulary for one more filter, without needless leaves if it is large.

        Whoever extends it is changing the subscriptions, or else the filter was refused.
        """
        # Tidying reads programs in terms of the vocabulary, and ends soon.
        if self.vocabulary.size > self._max_leaves and not self._is_tidying:
            self._collect()
        return self.vocabulary

    # --- one by one --------------------------------------------------------------------------

    def add(self, entry: CompiledSubscription, filter_: Filter) -> None:
        """Add a subscription."""
        self.add_unseen(entry)
        self.state = self.state.with_open(entry, filter_)
        if len(self.state.open) > MAX_TRIED_SUBSCRIPTIONS:
            self.tidy_if_worthwhile()

    def expect_unseen(self) -> None:
        """Note that there will be subscriptions that the state does not show before compiling."""
        self.state = self.state._replace(is_whole=False)

    def add_unseen(self, entry: CompiledSubscription) -> None:
        """Add a subscription that the state does not show: one of many."""
        id_, pending = entry.id, self._pending.entries
        if id_ in pending or (self.state.segments and id_ in self):
            raise _known_already(id_)
        pending[id_] = entry
        self.count += 1

    def add_all_unseen(
        self, ids: Sequence[Id], programs: Sequence[NDArray[np.int32] | None], mode: Mode
    ) -> bool:
        """Add subscriptions that never expire; none if one has no program, or a known id."""
        pending, known = self._pending.entries, set(ids)
        if len(known) < len(ids) or self.state.segments or not pending.keys().isdisjoint(known):
            return False
        if any(program is None for program in programs):
            return False
        never = repeat(math.inf)
        entries = map(CompiledSubscription, ids, programs, repeat(mode), never)  # type: ignore[arg-type]
        pending.update(zip(ids, entries, strict=True))
        self.count += len(ids)
        return True

    def extend(self, entries: Mapping[Id, CompiledSubscription]) -> None:
        """Add subscriptions that the state does not show before compiling; none if one is known."""
        if not entries:
            return
        self._require_new([*entries])
        self.expect_unseen()
        self._pending.entries.update(entries)
        self.count += len(entries)

    def append(self, segment: Segment, ids: Sequence[Id]) -> None:
        """Add the subscriptions of a segment that are not removed; none if one is known."""
        if not ids:
            return
        self._require_new(ids)
        if self._pending.entries:
            # They came first.
            self._compile()
        self.state = self.state._replace(segments=(*self.state.segments, segment), few=())
        self.count += len(ids)

    def _require_new(self, ids: Sequence[Id]) -> None:
        is_pending = not self._pending.entries.keys().isdisjoint(ids)
        if is_pending or any(segment.has_any(ids) for segment in self.state.segments):
            raise _known_already(next(id_ for id_ in ids if id_ in self))

    def remove(self, id_: Id) -> None:
        """Remove a subscription."""
        self.state = self._without(id_)
        self.count -= 1
        self.tidy_if_worthwhile()

    def replace(self, entry: CompiledSubscription, filter_: Filter) -> None:
        """Replace the subscription with this id; a reader sees either the old or the new one."""
        without = self._without(entry.id)
        self._pending.entries[entry.id] = entry
        self.state = without.with_open(entry, filter_)
        self.tidy_if_worthwhile()

    def _without(self, id_: Id) -> CollectionState:
        _require_id(id_)
        if id_ in self._pending.entries:
            del self._pending.entries[id_]
            return self.state.without_open(id_)
        return self.state.without_compiled(id_)

    def find(self, id_: Id) -> tuple[CompiledSubscription, Vocabulary]:
        """Return a subscription, and the vocabulary of its program."""
        _require_id(id_)
        # Read once: segments may be merged, and leaves renumbered, meanwhile.
        vocabulary, entries = self._pending
        pending = entries.get(id_)
        if pending is not None:
            return pending, vocabulary
        state = self.state
        number, place = _located(state, id_)
        return state.segments[number].entry(place), state.vocabulary

    # --- compiled together -------------------------------------------------------------------

    def whole(self) -> CollectionState:
        """Return all subscriptions; the newest may be uncompiled."""
        state = self.state
        return state if state.is_whole else CollectionState(state.vocabulary, self.compiled())

    def compiled(self) -> tuple[Segment, ...]:
        """Return all subscriptions, compiled."""
        state = self.state
        if state.is_whole and not state.open:
            return state.segments
        with self.changing:
            self._compile()
            segments = self.state.segments
        self.tidy_if_worthwhile()
        return segments

    def compact(self) -> Segment:
        """Compile all subscriptions together, and return them as one segment."""
        with self.changing:
            segments, pending = self.state.segments, self._pending.entries
            if pending or len(segments) != 1 or segments[0].removed:
                new = UncompiledColumns.of([*pending.values()])
                living = [segment.living() for segment in segments]
                self._publish((), UncompiledColumns.joined([*living, new]))
            self._collect()
            return self.state.segments[0]

    def _compile(self) -> None:
        """Compile new subscriptions, together with the last segments if those are small."""
        few = self._few()
        older, parts = list(self.state.segments), deque[UncompiledColumns]()
        parts.append(UncompiledColumns.of([*self._pending.entries.values()]))
        size = len(parts[0].ids)
        while older and older[-1].size <= max(size, MAX_RECOMPILED_SUBSCRIPTIONS):
            parts.appendleft(older.pop().living())
            size += len(parts[0].ids)
        self._publish(tuple(older), UncompiledColumns.joined([*parts]))
        self.state = self.state._replace(few=few)

    def _few(self) -> tuple[OpenSubscription, ...]:
        """Return all subscriptions if they are few, none can be slow, and all are known."""
        state = self.state
        all_ = (*state.few, *state.open)
        if state.is_metered or not state.is_whole or not len(all_) == self.count <= MAX_FEW_TESTS:
            return ()
        return all_ if sum(len([*one.filter.atoms()]) for one in all_) <= MAX_FEW_TESTS else ()

    def _publish(self, older: tuple[Segment, ...], columns: UncompiledColumns) -> None:
        vocabulary = self.vocabulary
        if len(columns.ids) or not older:
            older = (*older, Segment.of(columns, vocabulary))
        self.state = CollectionState(vocabulary, older)
        self._pending = _Uncompiled(vocabulary, {})

    # --- leaves and segments that nothing needs any more -------------------------------------

    def attributes(self) -> set[str]:
        """Return the attributes that subscriptions ask for."""
        atoms = map(self.vocabulary.atom_of, self._used_leaves().tolist())
        return {name for atom in atoms for name in atom.attributes()}

    def _used_leaves(self) -> NDArray[np.int32]:
        state = self.state
        programs = [entry.program for entry in self._pending.entries.values()]
        leaves = [segment.used_leaves() for segment in state.segments]
        codes = np.concatenate([np.empty(0, np.int32), *leaves, *programs])
        is_used = np.zeros(len(state.vocabulary), np.bool_)
        is_used[codes[codes > 1]] = True
        return np.flatnonzero(is_used).astype(np.int32)

    def _collect(self) -> None:
        """Replace the vocabulary by one that has only the leaves of these subscriptions."""
        state, pending = self.state, self._pending.entries
        used = self._used_leaves()
        if len(used) + 2 == state.vocabulary.size:
            # Nothing is there in vain.
            self._max_leaves = max(MIN_COLLECTED_LEAVES, 2 * state.vocabulary.size)
            return
        vocabulary = state.vocabulary.some(used)
        numbers = np.full(len(state.vocabulary), NONE, np.int32)
        numbers[:2] = 0, 1
        numbers[used] = np.arange(2, len(vocabulary))
        entries = {id_: entry.renumbered(numbers) for id_, entry in pending.items()}
        self._pending = _Uncompiled(vocabulary, entries)
        self.state = CollectionState(
            vocabulary,
            tuple(segment.renumbered(numbers) for segment in state.segments),
            tuple(one._replace(entry=entries[one.entry.id]) for one in state.open),
            state.is_whole,
            state.is_metered,
        )
        self._max_leaves = max(MIN_COLLECTED_LEAVES, 2 * vocabulary.size)

    @property
    def _is_tidying(self) -> bool:
        return self._tidying is not None and self._tidying.is_alive()

    def tidy_if_worthwhile(self) -> None:
        """In the background, compile the newest if they are many, and merge segments likewise."""
        if not self._is_untidy or self._is_tidying:
            return
        with self.changing:
            if not self._is_tidying:
                self._tidying = Thread(target=self._tidy, name="tamis-tidy", daemon=True)
                self._tidying.start()

    @property
    def _is_untidy(self) -> bool:
        return len(self.state.open) > MAX_TRIED_SUBSCRIPTIONS or self._has_too_many

    @property
    def _has_too_many(self) -> bool:
        segments = self.state.segments
        return len(segments) > MAX_SEGMENTS or any(map(_is_mostly_removed, segments))

    def _tidy(self) -> None:
        """Compile and merge until there is little: more may come meanwhile."""
        while self._compile_open() or self._join():
            with self.changing:
                if not self._is_untidy:
                    # Whoever adds the next begins anew.
                    self._tidying = None
                    return

    def _compile_open(self) -> bool:
        """Compile the newest, and the last segments if those are small, beside everybody else.

        Return whether they were many; they may have changed meanwhile.
        """
        vocabulary, segments, open_, *_ = self.state
        if len(open_) <= MAX_TRIED_SUBSCRIPTIONS:
            return False
        entries = [one.entry for one in open_]
        chosen = segments[len(segments) - _count_small(segments) :]
        parts = [*(segment.living() for segment in chosen), UncompiledColumns.of(entries)]
        compiled = Segment.of(UncompiledColumns.joined(parts), vocabulary)
        with self.changing:
            state, pending = self.state, self._pending.entries
            now = state.segments[len(state.segments) - len(chosen) :]
            if state.vocabulary is not vocabulary or not _are_same(now, chosen):
                return True
            is_new = [pending.get(entry.id) is entry for entry in entries]
            if not any(is_new):
                return True
            alive = [after.alive[before.alive] for before, after in zip(chosen, now, strict=True)]
            compiled = compiled.with_alive(np.concatenate([*alive, np.array(is_new, np.bool_)]))
            for entry, is_there in zip(entries, is_new, strict=True):
                if is_there:
                    del pending[entry.id]
            self.state = state.with_compiled(compiled, len(chosen), {*pending})
        return True

    def _join(self) -> bool:
        """Merge the newest segments into one, without blocking readers or writers.

        Return whether there was something to merge; it may have changed meanwhile.
        """
        vocabulary, all_, *_ = self.state
        chosen = _to_join(all_)
        if not chosen:
            return False
        living = UncompiledColumns.joined([segment.living() for segment in chosen])
        joined = Segment.of(living, vocabulary)
        with self.changing:
            state = self.state
            segments = state.segments
            now = _still_there(segments, chosen)
            if now is None or state.vocabulary is not vocabulary:
                return True
            alive = [after.alive[before.alive] for before, after in zip(chosen, now, strict=True)]
            joined = joined.with_alive(np.concatenate(alive))
            first = segments.index(now[0])
            rest = segments[first + len(now) :]
            self.state = state._replace(segments=(*segments[:first], joined, *rest), few=())
        return True


def _known_already(id_: Id) -> FilterError:
    return FilterError(f"there is a subscription {id_!r} already; remove it first, or replace it")


def _require_id(id_: object) -> None:
    if not isinstance(id_, str | int):
        raise FilterError(f"an id is a text or an integer, not {brief(id_)}")


def _located(state: CollectionState, id_: Id) -> tuple[int, int]:
    located = state.locate(id_)
    if located is None:
        raise FilterError(f"there is no subscription {id_!r}")
    return located


def _to_join(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return one that is mostly removed, or the newest, up to one larger than all after it."""
    for segment in segments:
        if _is_mostly_removed(segment):
            return (segment,)
    if len(segments) < 2:
        return ()
    first, size = max(0, len(segments) - 2), sum(segment.size for segment in segments[-2:])
    while first > 0 and segments[first - 1].size <= size:
        first -= 1
        size += segments[first].size
    return segments[first:]


def _is_mostly_removed(segment: Segment) -> bool:
    # Small ones are recompiled with new subscriptions anyway.
    return segment.removed > max(segment.size // 2, MAX_RECOMPILED_SUBSCRIPTIONS)


def _still_there(
    segments: tuple[Segment, ...], chosen: tuple[Segment, ...]
) -> tuple[Segment, ...] | None:
    """Return the current versions of some segments, or None if they were recompiled meanwhile."""
    evaluators = [segment.evaluator for segment in segments]
    if chosen[0].evaluator not in evaluators:
        return None
    first = evaluators.index(chosen[0].evaluator)
    now = segments[first : first + len(chosen)]
    return now if _are_same(now, chosen) else None


def _are_same(some: tuple[Segment, ...], others: tuple[Segment, ...]) -> bool:
    """Return whether segments hold the same subscriptions, removed or not."""
    return [one.evaluator for one in some] == [one.evaluator for one in others]


def _count_small(segments: tuple[Segment, ...]) -> int:
    """Return how many of the last segments are recompiled together with new subscriptions."""
    small = takewhile(lambda one: one.size <= MAX_RECOMPILED_SUBSCRIPTIONS, reversed(segments))
    return len([*small])
