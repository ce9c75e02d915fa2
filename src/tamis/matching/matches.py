"""Which events matched which subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.filters import Id
from tamis.matching.evaluate.evaluator import MAX_TILE_WORDS
from tamis.matching.evaluate.segment_matches import Bitmap, SegmentMatches
from tamis.matching.match_kernels import (
    COUNTING_ROWS,
    PLANES,
    count_indexed,
    count_matches,
    list_matches,
)
from tamis.units import count

if TYPE_CHECKING:
    import pyarrow as pa

# As a mask of subscriptions, an empty one means all of them.
_EVERYONE: Final = np.empty(0, np.bool_)
_NO_IDS: Final = np.empty(0, np.object_)


class Ids:
    """Ids of subscriptions, as Python objects and as an Arrow array."""

    def __init__(self, objects: NDArray[np.object_]) -> None:
        self.objects: Final = objects

    def taken(self, numbers: NDArray[np.int32]) -> list[Id]:
        """Return some of the ids; creating integers is faster than looking them up."""
        chosen = self.objects if self._integers is None else self._integers
        return cast("list[Id]", chosen[numbers].tolist())

    @cached_property
    def _integers(self) -> NDArray[np.int64] | None:
        if not all(type(id_) is int for id_ in self.objects):
            return None
        try:
            return self.objects.astype(np.int64)
        except OverflowError:
            return None

    @cached_property
    def arrow(self) -> pa.Array[Any]:
        """Return the ids as an Arrow array; texts and integers share no type."""
        import pyarrow as pa  # noqa: PLC0415 - imported only when Arrow is asked for

        kinds = set(map(type, self.objects))
        if len(kinds) > 1:
            raise TamisError(
                "some ids are texts and some are integers, but an Arrow array has one type; "
                "use pairs(), or ids of one type"
            )
        return pa.array(self.objects, pa.string() if kinds == {str} else pa.int64())


@dataclass(eq=False, repr=False)
class Matches(Sequence[list[Id]]):
    """The ids of the subscriptions that each event of a batch satisfies, in order of adding.

    A refused event matches nothing; `errors` says why it was refused.
    """

    _length: int
    _ids: Sequence[Ids]
    """The ids of each segment's subscriptions."""
    _segments: Sequence[SegmentMatches]
    errors: Mapping[int, TamisError]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> list[Id]:  # type: ignore[override]
        if not -self._length <= number < self._length:
            raise IndexError(f"event {number} is out of range: there are {self._length} events")
        starts, ids = self._lists
        at = number % self._length
        return list(ids[starts[at] : starts[at + 1]])

    def __iter__(self) -> Iterator[list[Id]]:
        return (self[number] for number in range(self._length))

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
            ids.objects if segment.in_force is None else ids.objects[segment.in_force]
            for ids, segment in zip(self._ids, self._segments, strict=True)
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
        parts = [np.empty((0, -(-self._length // 64)), np.uint64)]
        for ids, segment in zip(self._ids, self._segments, strict=True):
            whole = segment.whole_bitmap(len(ids.objects))
            parts.append(whole if segment.in_force is None else whole[segment.in_force])
        return np.concatenate(parts)

    def to_arrow(self) -> pa.ListArray[Any]:
        """Return the list of ids of each event, as an Arrow array."""
        import pyarrow as pa  # noqa: PLC0415 - imported only when Arrow is asked for

        starts, numbers = self._numbers
        known = [ids.arrow for ids in self._ids if len(ids.objects)]
        ids = pa.chunked_array(known) if known else pa.chunked_array([], pa.int64())
        taken = ids.take(pa.array(numbers)).combine_chunks()
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), taken)

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        # The last tile may extend beyond the events.
        counts = np.zeros(self._length + 64 * MAX_TILE_WORDS, np.int64)
        for segment in self._segments:
            bitmap, in_force = segment.bitmap, segment.in_force
            if in_force is not None:
                _, bitmap = segment.rows_in_force()
                count_indexed(segment.indexed, segment.ends, in_force, counts)
            else:
                counts[: self._length] += np.diff(segment.ends, prepend=0)
            workspace = np.zeros((PLANES + COUNTING_ROWS, bitmap.shape[2]), np.uint64)
            count_matches(bitmap, workspace, counts)
        return counts[: self._length]

    @cached_property
    def _numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where the list of each event begins, and the numbers of all lists."""
        starts = np.zeros(self._length + 1, np.int64)
        np.cumsum(self._counts, out=starts[1:])
        places, members = starts[:-1].copy(), np.empty(starts[-1], np.int32)
        offset = 0
        for ids, segment in zip(self._ids, self._segments, strict=True):
            rows, mask = (segment.unindexed, segment.bitmap), _EVERYONE
            if segment.in_force is not None:
                rows, mask = segment.rows_in_force(), segment.in_force
            list_matches(*rows, segment.indexed, segment.ends, mask, offset, places, members)
            offset += len(ids.objects)
        return starts, members

    @cached_property
    def _lists(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Return where the list of each event begins, and the ids of all lists."""
        starts, numbers = self._numbers
        return starts, np.concatenate([_NO_IDS, *(ids.objects for ids in self._ids)])[numbers]
