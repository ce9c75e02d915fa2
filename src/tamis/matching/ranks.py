"""For every value of an attribute, the number of the cell of its value order that it lies in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.value_order import BRACKET_OF_KIND, Bracket, Partition
from tamis.events import Kind
from tamis.events.batch import Column, Entries, microseconds, split_numbers
from tamis.matching.rank_kernels import RankTable, look_up

_NONE: Final = np.empty(0, np.int32)

# A binary search among fewer breakpoints is as fast as a table.
FEW_BREAKPOINTS: Final = 16
LONGEST_TABLE: Final = 1 << 16
MOST_NEGATIVE: Final = -float(2**50)


class Ranker:
    """Finds cells of one partition."""

    def __init__(self, partition: Partition) -> None:
        keys: dict[Bracket, list[Any]] = {bracket: [] for bracket in Bracket}
        for point in partition.breakpoints:
            if len(point) == 2:
                keys[Bracket(point[0])].append(point[1])
        self._base: Final = {
            bracket: bisect_right(partition.breakpoints, (bracket,)) for bracket in Bracket
        }
        self._booleans: Final = len(keys[Bracket.BOOLEAN])
        self._numbers: Final = _NumberBreakpoints(keys[Bracket.NUMBER])
        self._instants: Final = np.array(
            [microseconds(k) for k in keys[Bracket.TIMESTAMP]], np.int64
        )
        self._texts: Final[Sequence[str]] = keys[Bracket.TEXT]
        self._passed_at: Final = {text: passed for passed, text in enumerate(self._texts, 1)}

    def rank(self, column: Column) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the event and the cell of every value; what is absent has none."""
        found = [(e.events, self._cells(kind, e)) for kind, e in column.entries.items()]
        if len(found) == 1:
            return found[0]
        events, cells = zip((_NONE, _NONE), *found, strict=True)
        return np.concatenate(events), np.concatenate(cells)

    def _cells(self, kind: Kind | None, entries: Entries) -> NDArray[np.int32]:
        bracket = Bracket.OTHER if kind is None else BRACKET_OF_KIND[kind]
        return np.asarray(self._base[bracket] + self._passed(kind, entries), np.int32)

    def _passed(self, kind: Kind | None, entries: Entries) -> Any:
        """Return how many breakpoints of its bracket every value has passed."""
        match kind:
            case Kind.NUMBER:
                return self._numbers.passed(entries)
            case Kind.TIMESTAMP:
                return np.searchsorted(self._instants, entries.values, side="right")
            case Kind.TEXT:
                return self._passed_by_texts(entries.texts)[entries.values]
            case Kind.BOOLEAN:
                # There is one breakpoint inside at most, the one under true.
                return np.multiply(entries.values, self._booleans)
            case _:
                return np.zeros(len(entries.events), np.int32)

    def _passed_by_texts(self, texts: Sequence[str]) -> NDArray[np.int32]:
        # A text that some filter names is a breakpoint itself, and found five times as fast.
        breakpoints, passed_at = self._texts, self._passed_at.get
        return np.array(
            [passed_at(text) or bisect_right(breakpoints, text) for text in texts], np.int32
        )


class _NumberBreakpoints:
    """The breakpoints of a value order that are numbers, ascending."""

    def __init__(self, breakpoints: Sequence[int | float]) -> None:
        self._floats, self._residues = split_numbers(breakpoints)
        self._groups: Final = np.unique(self._floats)
        """Large integers that are different may have one float; those are a group."""
        self._keys: Final = self._key(self._floats, self._residues)
        self._table: Final = None if self._residues is not None else _table(self._floats)

    def passed(self, entries: Entries) -> NDArray[np.integer]:
        """Return how many of the breakpoints every number has passed."""
        if self._residues is None and entries.residues is None:
            if self._table is None:
                return np.searchsorted(self._floats, entries.values, side="right")
            passed = np.empty(len(entries.values), np.int32)
            look_up(self._table, entries.values, passed)
            return passed
        keys = self._key(entries.values, entries.residues)
        return np.searchsorted(self._keys, keys, side="right")

    def _key(
        self, floats: NDArray[np.float64], residues: NDArray[np.int16] | None
    ) -> NDArray[np.int64]:
        """Return integers in the order of the numbers: by the group, then by the residue.

        A number between two groups has the key under all of the second, for residues are more
        than -(2**15), that of no number.
        """
        groups = np.searchsorted(self._groups, floats)
        inside = groups < np.searchsorted(self._groups, floats, side="right")
        offsets = np.where(inside, 0 if residues is None else residues, -(2**15))
        return groups * 2**16 + offsets


def _table(breakpoints: NDArray[np.float64]) -> RankTable | None:
    """Return what tells the ranks of breakpoints at whole numbers, or None if it is not worth it.

    A test of equality with a whole number has a breakpoint under it and one right over it. Then all
    that lies between two whole numbers has passed the same.
    """
    if (
        len(breakpoints) < FEW_BREAKPOINTS
        or not MOST_NEGATIVE < breakpoints[0] <= breakpoints[-1] < -MOST_NEGATIVE
    ):
        return None
    whole = np.floor(breakpoints)
    low, high = int(whole[0]), int(whole[-1])
    right_over = np.nextafter(whole, np.inf)
    if (
        high - low >= LONGEST_TABLE
        or not ((breakpoints == whole) | (breakpoints == right_over)).all()
    ):
        return None
    numbers = np.arange(low, high + 1, dtype=np.float64)
    return RankTable(
        low=np.array([low], np.float64),
        at=np.searchsorted(breakpoints, numbers, side="right").astype(np.int32),
        over=np.searchsorted(breakpoints, np.nextafter(numbers, np.inf), side="right").astype(
            np.int32
        ),
    )
