"""Which events matched which subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.filters import Id
from tamis.matching.evaluate.evaluator import MAX_TILE_WORDS
from tamis.matching.evaluate.found import Bitmap, Found
from tamis.matching.match_kernels import (
    COUNTING_ROOM,
    PLANES,
    count_indexed,
    count_matches,
    list_indexed,
    list_matches,
    sort_lists,
)

if TYPE_CHECKING:
    import pyarrow as pa

# As a mask of subscriptions, none at all means every one.
_EVERYONE: Final = np.empty(0, np.bool_)


class Ids:
    """The ids of some subscriptions, as Python has them and as Arrow does."""

    def __init__(self, objects: NDArray[np.object_]) -> None:
        self.objects = objects

    def __len__(self) -> int:
        return len(self.objects)

    def taken(self, numbers: NDArray[np.int32]) -> list[Id]:
        """Return some of the ids; new integers are made faster than old ones are found."""
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
        """Return the ids as an Arrow array; both texts and integers have no type in common."""
        import pyarrow as pa  # noqa: PLC0415 - only who wants Arrow pays for its import

        kinds = set(map(type, self.objects))
        if len(kinds) > 1:
            raise TamisError(
                "some ids are texts and some are integers, which Arrow has no one type for; "
                "use pairs(), or ids of one type"
            )
        return pa.array(self.objects, pa.string() if kinds == {str} else pa.int64())


class Share(NamedTuple):
    """What one compiled set found: its subscriptions, those in force, and their matches."""

    ids: Ids
    in_force: NDArray[np.bool_] | None
    """None where all are, as mostly; millions of them need not be asked one by one then."""
    found: Found

    def bitmap(self) -> tuple[NDArray[np.int32], Bitmap]:
        """Return the subscriptions in force that have a row, and the rows, tile by tile."""
        if self.in_force is None:
            return self.found.unindexed, self.found.bitmap
        rows = self.in_force[self.found.unindexed]
        return self.found.unindexed[rows], self.found.bitmap[:, rows]

    def ids_in_force(self) -> NDArray[np.object_]:
        """Return the ids of those in force."""
        objects = self.ids.objects
        return objects if self.in_force is None else objects[self.in_force]

    def add_counts(self, counts: NDArray[np.int64]) -> None:
        """Add to each event's count what is in force."""
        _, bitmap = self.bitmap()
        words = bitmap.shape[2]
        for number, tile in enumerate(bitmap):
            planes = np.zeros((PLANES, words), np.uint64)
            room = np.zeros((COUNTING_ROOM, words), np.uint64)
            count_matches(tile, planes, room, counts[number * words * 64 :])
        waiting, ends = self.found.waiting, self.found.ends
        if self.in_force is None:
            counts[: len(ends)] += np.diff(ends, prepend=0)
        else:
            count_indexed(waiting, ends, self.in_force, counts)

    def add_lists(self, offset: int, places: NDArray[np.int64], members: NDArray[np.int32]) -> None:
        """Write what is in force into each event's list, in order, and move where that ends."""
        starts = places.copy()
        subscriptions, bitmap = self.bitmap()
        for number, tile in enumerate(bitmap):
            after = places[number * bitmap.shape[2] * 64 :]
            list_matches(subscriptions, tile, offset, after, members)
        waiting, ends = self.found.waiting, self.found.ends
        in_force = _EVERYONE if self.in_force is None else self.in_force
        list_indexed(waiting, ends, in_force, offset, places, members)
        if len(waiting) and len(self.found.unindexed):
            sort_lists(starts, places, members)


class Matches(Sequence[list[Id]]):
    """For each event of a batch the ids of the subscriptions that it satisfies, in order of adding.

    An event that was refused matches nothing; `errors` says why.
    """

    def __init__(
        self, length: int, shares: Sequence[Share], errors: Mapping[int, TamisError]
    ) -> None:
        self._length = length
        self._shares = shares
        self.errors = errors

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> list[Id]:  # type: ignore[override]
        if not -self._length <= number < self._length:
            raise IndexError(f"there are {self._length} events, and {number} is none of them")
        starts, ids = self._lists
        at = number % self._length
        return list(ids[starts[at] : starts[at + 1]])

    def __iter__(self) -> Iterator[list[Id]]:
        return (self[number] for number in range(self._length))

    def __repr__(self) -> str:
        refused = f", {len(self.errors):,} refused" if self.errors else ""
        return (
            f"<Matches: {self._length:,} events, {int(self.counts().sum()):,} matches of "
            f"{len(self.ids):,} subscriptions{refused}>"
        )

    @cached_property
    def ids(self) -> NDArray[np.object_]:
        """Return the ids of all subscriptions in force: the rows of the bitmap."""
        none = np.empty(0, np.object_)
        return np.concatenate([none, *(share.ids_in_force() for share in self._shares)])

    def counts(self) -> NDArray[np.int64]:
        """Return for each event how many subscriptions it satisfies."""
        return self._counts

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Return every match as the number of an event and the id of a subscription."""
        _, ids = self._lists
        return np.repeat(np.arange(self._length), self._counts), ids

    def numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return every match as the number of an event and that of a subscription.

        Subscriptions are counted from 0 in order of adding, those compiled but gone among them.
        """
        starts, numbers = self._numbers
        return np.repeat(np.arange(self._length), np.diff(starts)), numbers

    def bitmap(self) -> Bitmap:
        """Return a row of bits for each subscription: bit e % 64 of word e // 64 is event e."""
        words = -(-self._length // 64)
        parts = [np.empty((0, words), np.uint64)]
        for share in self._shares:
            whole = np.zeros((len(share.ids), words), np.uint64)
            whole[share.found.unindexed] = share.found.whole_rows()
            events, members = share.found.indexed_events(), share.found.waiting
            bits = np.uint64(1) << (events & 63).astype(np.uint64)
            np.bitwise_or.at(whole, (members, events >> 6), bits)
            parts.append(whole if share.in_force is None else whole[share.in_force])
        return np.concatenate(parts)

    def to_arrow(self) -> pa.ListArray[Any]:
        """Return for each event the list of ids, as an Arrow array."""
        import pyarrow as pa  # noqa: PLC0415 - only who wants Arrow pays for its import

        starts, numbers = self._numbers
        known = [share.ids.arrow for share in self._shares if len(share.ids)]
        ids = pa.chunked_array(known) if known else pa.chunked_array([], pa.int64())
        taken = ids.take(pa.array(numbers)).combine_chunks()
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), taken)

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        # Up to a tile longer than there are events.
        counts = np.zeros(self._length + 64 * MAX_TILE_WORDS, np.int64)
        for share in self._shares:
            share.add_counts(counts)
        return counts[: self._length]

    @cached_property
    def _numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where the list of each event begins, and the numbers of all lists."""
        starts = np.zeros(self._length + 1, np.int64)
        np.cumsum(self._counts, out=starts[1:])
        places, members = starts[:-1].copy(), np.empty(starts[-1], np.int32)
        offset = 0
        for share in self._shares:
            share.add_lists(offset, places, members)
            offset += len(share.ids)
        return starts, members

    @cached_property
    def _lists(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Return where the list of each event begins, and the ids of all lists."""
        starts, numbers = self._numbers
        none = np.empty(0, np.object_)
        return starts, np.concatenate([none, *(s.ids.objects for s in self._shares)])[numbers]
