"""Which events matched which subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.matching.evaluation import Bitmap, Found
from tamis.matching.evaluation_kernels import count_matches, list_matches

if TYPE_CHECKING:
    import pyarrow as pa

Id = str | int
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


class Share(NamedTuple):
    """What one compiled set found: its subscriptions, those in force, and their matches."""

    ids: NDArray[np.object_]
    in_force: NDArray[np.bool_]
    found: Found

    def bitmap(self) -> tuple[NDArray[np.int32], Bitmap]:
        """Return the subscriptions in force that have a row, and the rows."""
        rows = self.in_force[self.found.everyday]
        if rows.all():
            return self.found.everyday, self.found.bitmap
        return self.found.everyday[rows], self.found.bitmap[rows]

    def waiting(self) -> Pairs:
        """Return the matches of subscriptions in force that have no row."""
        kept = self.in_force[self.found.waiting]
        return self.found.waiting_events()[kept], self.found.waiting[kept].astype(np.int64)


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
        return np.concatenate([none, *(share.ids[share.in_force] for share in self._shares)])

    def counts(self) -> NDArray[np.int64]:
        """Return for each event how many subscriptions it satisfies."""
        return self._counts

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Return every match as the number of an event and the id of a subscription."""
        _, ids = self._lists
        return np.repeat(np.arange(self._length), self._counts), ids

    def bitmap(self) -> Bitmap:
        """Return a row of bits for each subscription: bit e % 64 of word e // 64 is event e."""
        words = -(-self._length // 64)
        parts = [np.empty((0, words), np.uint64)]
        for share in self._shares:
            whole = np.zeros((len(share.ids), words), np.uint64)
            whole[share.found.everyday] = share.found.bitmap
            events, members = share.found.waiting_events(), share.found.waiting
            bits = np.uint64(1) << (events & 63).astype(np.uint64)
            np.bitwise_or.at(whole, (members, events >> 6), bits)
            parts.append(whole[share.in_force])
        return np.concatenate(parts)

    def to_arrow(self) -> pa.ListArray[Any]:
        """Return for each event the list of ids, as an Arrow array."""
        import pyarrow as pa  # noqa: PLC0415 - only who wants Arrow pays for its import

        starts, ids = self._lists
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(ids))

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        counts = np.zeros(-(-self._length // 64) * 64, np.int64)
        for share in self._shares:
            _, bitmap = share.bitmap()
            count_matches(bitmap, counts)
            counts += np.bincount(share.waiting()[0], minlength=len(counts))
        return counts[: self._length]

    @cached_property
    def _lists(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Return where the list of each event begins, and the ids of all lists."""
        starts = np.zeros(self._length + 1, np.int64)
        np.cumsum(self._counts, out=starts[1:])
        ids = np.concatenate([np.empty(0, np.object_), *(share.ids for share in self._shares)])
        events, numbers = self._all_pairs()
        return starts, ids[numbers[np.lexsort((numbers, events))]]

    def _all_pairs(self) -> Pairs:
        events, numbers, offset = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        for share in self._shares:
            for held, members in (_pairs_of(*share.bitmap()), share.waiting()):
                events.append(held)
                numbers.append(members + offset)
            offset += len(share.ids)
        return np.concatenate(events), np.concatenate(numbers)


def _pairs_of(subscriptions: NDArray[np.int32], bitmap: Bitmap) -> Pairs:
    """Return the bits that are set as pairs of an event and a subscription."""
    counts = np.zeros(bitmap.shape[1] * 64, np.int64)
    count_matches(bitmap, counts)
    starts = np.cumsum(counts) - counts
    members = np.empty(int(counts.sum()), np.int32)
    list_matches(bitmap, starts, members)
    return np.repeat(np.arange(len(counts)), counts), subscriptions[members].astype(np.int64)
