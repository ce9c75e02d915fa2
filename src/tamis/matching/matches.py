"""Which events matched which subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.matching.kernels import count_matches, list_matches

if TYPE_CHECKING:
    import pyarrow as pa

Id = str | int


class Matches(Sequence[list[Id]]):
    """For each event of a batch the ids of the subscriptions that it satisfies, in order of adding.

    An event that was refused matches nothing; `errors` says why.
    """

    def __init__(
        self,
        length: int,
        ids: NDArray[np.object_],
        bitmap: NDArray[np.uint64],
        errors: Mapping[int, TamisError],
    ) -> None:
        self._length = length
        self._ids = ids
        self._bitmap = bitmap
        self.errors = errors

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> list[Id]:  # type: ignore[override]
        if not -self._length <= number < self._length:
            raise IndexError(f"there are {self._length} events, and {number} is none of them")
        starts, members = self._lists
        at = number % self._length
        return list(self._ids[members[starts[at] : starts[at + 1]]])

    def __iter__(self) -> Iterator[list[Id]]:
        return (self[number] for number in range(self._length))

    def __repr__(self) -> str:
        refused = f", {len(self.errors):,} refused" if self.errors else ""
        return (
            f"<Matches: {self._length:,} events, {int(self.counts().sum()):,} matches of "
            f"{len(self._ids):,} subscriptions{refused}>"
        )

    @property
    def ids(self) -> NDArray[np.object_]:
        """Return the ids of all subscriptions: the rows of the bitmap."""
        return self._ids

    def counts(self) -> NDArray[np.int64]:
        """Return for each event how many subscriptions it satisfies."""
        return self._counts

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
        """Return every match as the number of an event and the id of a subscription."""
        _, members = self._lists
        return np.repeat(np.arange(self._length), self._counts), self._ids[members]

    def bitmap(self) -> NDArray[np.uint64]:
        """Return a row of bits for each subscription: bit e % 64 of word e // 64 is event e."""
        return self._bitmap

    def to_arrow(self) -> pa.ListArray[Any]:
        """Return for each event the list of ids, as an Arrow array."""
        import pyarrow as pa  # noqa: PLC0415 - only who wants Arrow pays for its import

        starts, members = self._lists
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(self._ids[members]))

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        counts = np.zeros(self._bitmap.shape[1] * 64, np.int64)
        count_matches(self._bitmap, counts)
        return counts[: self._length]

    @cached_property
    def _lists(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return where each event's list begins, and the rows in all lists."""
        starts = np.zeros(self._bitmap.shape[1] * 64 + 1, np.int64)
        np.cumsum(self._counts, out=starts[1 : self._length + 1])
        members = np.empty(int(self._counts.sum()), np.int32)
        list_matches(self._bitmap, starts[:-1].copy(), members)
        return starts[: self._length + 1], members
