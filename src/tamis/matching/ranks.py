"""Events on the lines: for every value of an attribute, the number of the cell it lies in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.alphabet import Scale
from tamis.diagrams.lines import SEGMENT_OF_KIND, Segment
from tamis.events import Kind
from tamis.events.batch import Column, Entries, microseconds, split_numbers
from tamis.matching.rank_kernels import RankTable, look_up

_NONE: Final = np.empty(0, np.int32)

# A binary search among fewer cuts is as fast as a table.
FEW_CUTS: Final = 16
LONGEST_TABLE: Final = 1 << 16
MOST_NEGATIVE: Final = -float(2**50)


class Ranker:
    """Finds cells of one scale."""

    def __init__(self, scale: Scale) -> None:
        keys: dict[Segment, list[Any]] = {segment: [] for segment in Segment}
        for cut in scale.cuts:
            if len(cut) == 2:
                keys[Segment(cut[0])].append(cut[1])
        self._base: Final = {segment: bisect_right(scale.cuts, (segment,)) for segment in Segment}
        self._booleans: Final = len(keys[Segment.BOOLEAN])
        self._numbers: Final = _NumberCuts(keys[Segment.NUMBER])
        self._instants: Final = np.array(
            [microseconds(k) for k in keys[Segment.TIMESTAMP]], np.int64
        )
        self._texts: Final[Sequence[str]] = keys[Segment.TEXT]
        self._passed_at: Final = {text: passed for passed, text in enumerate(self._texts, 1)}

    def rank(self, column: Column) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the event and the cell of every value; what is absent has none."""
        found = [(e.events, self._cells(kind, e)) for kind, e in column.entries.items()]
        if len(found) == 1:
            return found[0]
        events, cells = zip((_NONE, _NONE), *found, strict=True)
        return np.concatenate(events), np.concatenate(cells)

    def _cells(self, kind: Kind | None, entries: Entries) -> NDArray[np.int32]:
        segment = Segment.OTHER if kind is None else SEGMENT_OF_KIND[kind]
        return np.asarray(self._base[segment] + self._passed(kind, entries), np.int32)

    def _passed(self, kind: Kind | None, entries: Entries) -> Any:
        """Return how many cuts of its segment every value has passed."""
        match kind:
            case Kind.NUMBER:
                return self._numbers.passed(entries)
            case Kind.TIMESTAMP:
                return np.searchsorted(self._instants, entries.values, side="right")
            case Kind.TEXT:
                return self._passed_by_texts(entries.texts)[entries.values]
            case Kind.BOOLEAN:
                # There is one cut inside at most, the one under true.
                return np.multiply(entries.values, self._booleans)
            case _:
                return np.zeros(len(entries.events), np.int32)

    def _passed_by_texts(self, texts: Sequence[str]) -> NDArray[np.int32]:
        # A text that some filter names is itself a cut, and found five times as fast as its place.
        cuts, passed_at = self._texts, self._passed_at.get
        return np.array([passed_at(text) or bisect_right(cuts, text) for text in texts], np.int32)


class _NumberCuts:
    """The cuts of a line that are numbers, ascending."""

    def __init__(self, cuts: Sequence[int | float]) -> None:
        self._floats, self._residues = split_numbers(cuts)
        self._groups: Final = np.unique(self._floats)
        """Large integers that are different may have one float; those are a group."""
        self._keys: Final = self._key(self._floats, self._residues)
        self._table: Final = None if self._residues is not None else _table(self._floats)

    def passed(self, entries: Entries) -> NDArray[np.integer]:
        """Return how many of the cuts every number has passed."""
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


def _table(cuts: NDArray[np.float64]) -> RankTable | None:
    """Return what tells the ranks of cuts at whole numbers, or None if it is not worth it.

    A test of equality with a whole number has a cut under it and one right over it. Then all that
    lies between two whole numbers has passed the same.
    """
    if len(cuts) < FEW_CUTS or not MOST_NEGATIVE < cuts[0] <= cuts[-1] < -MOST_NEGATIVE:
        return None
    whole = np.floor(cuts)
    low, high = int(whole[0]), int(whole[-1])
    right_over = np.nextafter(whole, np.inf)
    if high - low >= LONGEST_TABLE or not ((cuts == whole) | (cuts == right_over)).all():
        return None
    numbers = np.arange(low, high + 1, dtype=np.float64)
    return RankTable(
        low=np.array([low], np.float64),
        at=np.searchsorted(cuts, numbers, side="right").astype(np.int32),
        over=np.searchsorted(cuts, np.nextafter(numbers, np.inf), side="right").astype(np.int32),
    )
