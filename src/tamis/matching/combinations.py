"""Conjunctions that wait under two or three cells at once, which together are rarer than each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.matching.combination_kernels import enter_combinations, find_rarest_keys

MOST: Final = 3

Programs = tuple[NDArray[np.int32], NDArray[np.int64]]


class Rarest:
    """Of every conjunction the three rarest cells of different attributes that it needs."""

    def __init__(
        self,
        programs: Programs,
        leaf_key: NDArray[np.int64],
        leaf_cost: NDArray[np.float64],
        leaf_block: NDArray[np.int32],
    ) -> None:
        count = len(programs[1]) - 1
        self.keys: Final = np.full((count, MOST), NONE, np.int64)
        """The rarest first; NONE where there are no more."""
        cost = np.ones((count, MOST), np.float64)
        find_rarest_keys(*programs, leaf_key, leaf_cost, leaf_block, self.keys, cost)
        self.cost: Final = np.cumprod(cost, axis=1)
        """The share of all events that the first, the first two, and all three are of."""
        self.cost[self.keys == NONE] = np.inf

    def rare_enough(self, most: float) -> NDArray[np.int64]:
        """Return how many cells it takes to be rare, 0 where none are enough."""
        enough = self.cost <= most
        return np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, 0)


class Combinations:
    """Which conjunctions wait under which cells together."""

    def __init__(self, rarest: Rarest) -> None:
        self._rarest = rarest
        self._members: list[NDArray[np.int64]] = []
        self._keys: list[NDArray[np.int64]] = []

    def take(self, members: NDArray[np.int64], cells: int, crowd: int) -> None:
        """Let conjunctions wait under so many cells, or one more where that would be a crowd."""
        keys = self._rarest.keys[members].copy()
        keys[:, cells:] = NONE
        if cells < MOST:
            _, number, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
            crowded = (count[number] > crowd) & (self._rarest.keys[members, cells] != NONE)
            self.take(members[crowded], cells + 1, crowd)
            members, keys = members[~crowded], keys[~crowded]
        self._members.append(members)
        # In the order of attributes, so that whoever looks need try one order only.
        ordered = np.sort(np.where(keys == NONE, np.iinfo(np.int64).max, keys), axis=1)
        self._keys.append(np.where(ordered == np.iinfo(np.int64).max, NONE, ordered))

    @property
    def members(self) -> NDArray[np.int32]:
        """Return the conjunctions that wait so."""
        return np.concatenate([np.empty(0, np.int32), *self._members]).astype(np.int32)

    @property
    def keys(self) -> NDArray[np.int64]:
        """Return for each of them its cells."""
        return np.concatenate([np.empty((0, MOST), np.int64), *self._keys])

    def postings(
        self, first_key: int, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
        """Return what each member waits under, and how events find that."""
        keys = self.keys
        different, under = np.unique(keys, axis=0, return_inverse=True)
        blocks = np.searchsorted(offsets, keys, side="right").astype(np.int32) - 1
        blocks[keys == NONE] = NONE
        kinds = np.unique(blocks, axis=0)
        table = np.zeros(1 << (2 * len(different) + 1).bit_length(), np.int32)
        enter_combinations(different, table)
        has_threes = np.array([(kinds[:, -1] != NONE).any()])
        meeting = (kinds, table, different, np.array([first_key]), has_threes)
        return first_key + under.reshape(-1), meeting
