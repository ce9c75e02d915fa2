"""Which events matched which subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import IS_COMPILED
from tamis.errors import TamisError
from tamis.filters import Id
from tamis.html_text import html_code, html_escaped, html_table
from tamis.matching.evaluate.evaluator import MAX_TILE_WORDS
from tamis.matching.evaluate.segment_matches import Bitmap, SegmentMatches
from tamis.matching.match_kernels import (
    COUNTING_ROWS,
    PLANES,
    count_indexed,
    count_matches,
    list_matches,
    prefetch_objects,
)
from tamis.units import count

if TYPE_CHECKING:
    import pyarrow as pa

# As a mask of subscriptions, an empty one means all of them.
_EVERYONE: Final = np.empty(0, np.bool_)
# With so many ids at once, it is worthwhile to call a kernel first.
_MANY_IDS: Final = 128
MAX_SHOWN_IDS: Final = 20
"""Ids of one event that notebooks show."""
_NO_IDS: Final = np.empty(0, np.object_)
_LIST_BYTES: Final = 4
"""What a match takes in a list."""
_TWO_TYPES: Final = (
    "some ids are texts and some are integers, but an Arrow array has one type; "
    "use pairs(), or ids of one type"
)


class Ids:
    """Ids of subscriptions, as Python objects and as an Arrow array."""

    def __init__(self, objects: NDArray[np.object_]) -> None:
        self.objects: Final = np.ascontiguousarray(objects)
        self._address: Final = int(self.objects.ctypes.data)

    def taken(self, numbers: NDArray[np.int32]) -> list[Id]:
        """Return some of the ids."""
        if len(numbers) >= _MANY_IDS and IS_COMPILED:
            # To count a reference to each is to wait for the memory each time, unless it is near.
            prefetch_objects(self._address, len(self.objects), numbers)
        # `take` is faster than an index, and new integers would take memory of their own.
        return cast("list[Id]", self.objects.take(numbers).tolist())

    @cached_property
    def arrow(self) -> pa.Array[Any]:
        """Return the ids as an Arrow array; texts and integers share no type."""
        import pyarrow as pa  # noqa: PLC0415 - imported only when Arrow is asked for

        kinds = set(map(type, self.objects))
        if len(kinds) > 1:
            raise TamisError(_TWO_TYPES)
        return pa.array(self.objects, pa.string() if kinds == {str} else pa.int64())


class MatchedSegment(NamedTuple):
    """The subscriptions of one segment."""

    ids: Ids
    in_force: NDArray[np.bool_] | None
    """Which are in force; None, the usual case, means all."""


class MatchedBatch(NamedTuple):
    """The matches of some consecutive events, segment by segment."""

    length: int
    segments: Sequence[SegmentMatches]

    def condensed(self) -> MatchedBatch:
        """Return the same with lists instead of bits where those take less memory."""
        return MatchedBatch(self.length, [_condensed(segment) for segment in self.segments])


@dataclass(eq=False, repr=False)
class Matches(Sequence[list[Id]]):
    """The ids of the subscriptions that each event of a batch satisfies, in order of adding.

    A refused event matches nothing; `errors` says why it was refused.
    """

    _length: int
    _segments: Sequence[MatchedSegment]
    _batches: Sequence[MatchedBatch]
    errors: Mapping[int, TamisError]
    undecided: Mapping[int, Sequence[Id]]
    """The queries that were too much work on an event, and do not match it, by its number."""

    def __len__(self) -> int:
        return self._length

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        rows = ((str(number), self._shown(number)) for number in range(self._length))
        return html_table(("event", "subscriptions"), rows, self._length, "events")

    def _shown(self, number: int) -> str:
        if number in self.errors:
            return f"<i>refused: {html_escaped(self.errors[number])}</i>"
        ids = self[number]
        more = f" and {len(ids) - MAX_SHOWN_IDS:,} more" if len(ids) > MAX_SHOWN_IDS else ""
        return ", ".join(html_code(repr(id_)) for id_ in ids[:MAX_SHOWN_IDS]) + more

    def __getitem__(self, number: int) -> list[Id]:  # type: ignore[override]
        if not -self._length <= number < self._length:
            raise IndexError(f"event {number} is out of range: there are {self._length} events")
        starts, ids = self._lists
        at = number % self._length
        return list(ids[starts[at] : starts[at + 1]])

    def __iter__(self) -> Iterator[list[Id]]:
        starts, ids = (array.tolist() for array in self._lists)
        return (ids[start:end] for start, end in pairwise(starts))

    def __repr__(self) -> str:
        refused = f", {len(self.errors):,} refused" if self.errors else ""
        return (
            f"<Matches: {count(self._length, 'event')}, "
            f"{count(int(self.counts().sum()), 'match')} of "
            f"{count(len(self.ids), 'subscription')}{refused}>"
        )

    @cached_property
    def ids(self) -> NDArray[np.object_]:
        """Return the ids of all subscriptions in force: the rows of the bitmap."""
        parts = [
            ids.objects if in_force is None else ids.objects[in_force]
            for ids, in_force in self._segments
        ]
        return np.concatenate([_NO_IDS, *parts])

    def counts(self) -> NDArray[np.int64]:
        """Return the number of subscriptions that each event satisfies."""
        return self._counts

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Return every match as the index of an event and the id of a subscription."""
        _, ids = self._lists
        return np.repeat(np.arange(self._length), self._counts), ids

    def numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return every match as the index of an event and the number of a subscription.

        Subscriptions are numbered from 0 in order of adding, including those removed since they
        were compiled.
        """
        starts, numbers = self._numbers
        return np.repeat(np.arange(self._length), np.diff(starts)), numbers

    def bitmap(self) -> Bitmap:
        """Return a row of bits for each subscription: bit e % 64 of word e // 64 is event e."""
        whole = np.zeros((len(self.ids), -(-self._length // 64)), np.uint64)
        first = 0
        for batch in self._batches:
            _add_bits(whole, first, self._bitmap_of(batch))
            first += batch.length
        return whole

    def _bitmap_of(self, batch: MatchedBatch) -> Bitmap:
        parts = [np.empty((0, -(-batch.length // 64)), np.uint64)]
        for (ids, in_force), found in zip(self._segments, batch.segments, strict=True):
            whole = found.whole_bitmap(len(ids.objects))
            parts.append(whole if in_force is None else whole[in_force])
        return np.concatenate(parts)

    def to_arrow(self) -> pa.ListArray[Any]:
        """Return the list of ids of each event, as an Arrow array."""
        import pyarrow as pa  # noqa: PLC0415 - imported only when Arrow is asked for

        starts, numbers = self._numbers
        known = [ids.arrow for ids, _ in self._segments if len(ids.objects)]
        if len({each.type for each in known}) > 1:
            raise TamisError(_TWO_TYPES)
        if len(known) == 1:
            taken = known[0].take(pa.array(numbers))
        else:
            # Taking from several chunks joins them first, however few are taken.
            places, parts = (
                [np.empty(0, np.int64)],
                [pa.array([], known[0].type if known else None)],
            )
            for ids, own, chosen in self._by_segment():
                places.append(own)
                parts.append(ids.arrow.take(pa.array(chosen)))
            order = np.argsort(np.concatenate(places))
            taken = pa.concat_arrays(parts).take(pa.array(order))
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), taken)

    def with_lines(self, lines: NDArray[np.int64]) -> LineMatches:
        """Return the same matches with the number of each event's line."""
        return LineMatches(
            self._length, self._segments, self._batches, self.errors, self.undecided, lines
        )

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        # The last tile may extend beyond the events.
        counts = np.zeros(self._length + 64 * MAX_TILE_WORDS, np.int64)
        first = 0
        for batch in self._batches:
            own = counts[first:]
            for (_, in_force), found in zip(self._segments, batch.segments, strict=True):
                bitmap = found.bitmap
                if in_force is not None:
                    _, bitmap = found.rows_in_force(in_force)
                    count_indexed(found.indexed, found.ends, in_force, own)
                else:
                    own[: batch.length] += np.diff(found.ends, prepend=0)
                workspace = np.zeros((PLANES + COUNTING_ROWS, bitmap.shape[2]), np.uint64)
                count_matches(bitmap, workspace, own)
            first += batch.length
        return counts[: self._length]

    @cached_property
    def _numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where the list of each event begins, and the numbers of all lists."""
        starts = np.zeros(self._length + 1, np.int64)
        np.cumsum(self._counts, out=starts[1:])
        places, members = starts[:-1].copy(), np.empty(starts[-1], np.int32)
        first = 0
        for batch in self._batches:
            own, offset = places[first : first + batch.length], 0
            for (ids, in_force), found in zip(self._segments, batch.segments, strict=True):
                rows, mask = (found.unindexed, found.bitmap), _EVERYONE
                if in_force is not None:
                    rows, mask = found.rows_in_force(in_force), in_force
                list_matches(*rows, found.indexed, found.ends, mask, offset, own, members)
                offset += len(ids.objects)
            first += batch.length
        return starts, members

    @cached_property
    def _lists(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Return where the list of each event begins, and the ids of all lists."""
        starts, numbers = self._numbers
        if len(self._segments) == 1:
            return starts, self._segments[0].ids.objects[numbers]
        ids = np.empty(len(numbers), np.object_)
        for segment_ids, own, chosen in self._by_segment():
            ids[own] = segment_ids.objects[chosen]
        return starts, ids

    def _by_segment(self) -> Iterator[tuple[Ids, NDArray[np.int64], NDArray[np.int32]]]:
        """Yield the ids of each segment, the places of its matches, and their numbers in it."""
        _, numbers = self._numbers
        first = 0
        for ids, _ in self._segments:
            last = first + len(ids.objects)
            own = np.flatnonzero((first <= numbers) & (numbers < last))
            if len(own):
                yield ids, own, numbers[own] - np.int32(first)
            first = last


@dataclass(eq=False, repr=False)
class LineMatches(Matches):
    """The matches of events that stand in lines."""

    lines: NDArray[np.int64]
    """The number of each event's line, from 1; blank lines count, but hold no event."""


def _condensed(found: SegmentMatches) -> SegmentMatches:
    """Return matches as lists, if those take less memory than the bits."""
    counts = np.zeros(len(found.ends) + 64 * MAX_TILE_WORDS, np.int64)
    workspace = np.zeros((PLANES + COUNTING_ROWS, found.bitmap.shape[2]), np.uint64)
    count_matches(found.bitmap, workspace, counts)
    ends = np.cumsum(counts[: len(found.ends)]) + found.ends
    size = int(ends[-1]) if len(ends) else 0
    if _LIST_BYTES * (size - len(found.indexed)) >= found.bitmap.nbytes:
        return found
    places, members = np.concatenate(([0], ends[:-1])), np.empty(size, np.int32)
    rows = found.unindexed, found.bitmap
    list_matches(*rows, found.indexed, found.ends, _EVERYONE, 0, places, members)
    tiles, _, width = found.bitmap.shape
    return SegmentMatches(
        found.unindexed[:0], np.empty((tiles, 0, width), np.uint64), ends, members
    )


def _add_bits(whole: Bitmap, first: int, bits: Bitmap) -> None:
    """Set the bits of events from `first` on."""
    word, shift = divmod(first, 64)
    if not shift:
        whole[:, word : word + bits.shape[1]] |= bits
        return
    whole[:, word : word + bits.shape[1]] |= bits << np.uint64(shift)
    over = whole[:, word + 1 : word + 1 + bits.shape[1]]
    over |= (bits >> np.uint64(64 - shift))[:, : over.shape[1]]
