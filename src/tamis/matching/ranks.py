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

_NONE: Final = np.empty(0, np.int32)


class Ranker:
    """Finds cells of one scale."""

    def __init__(self, scale: Scale) -> None:
        keys: dict[Segment, list[Any]] = {segment: [] for segment in Segment}
        for cut in scale.cuts:
            if len(cut) == 2:
                keys[Segment(cut[0])].append(cut[1])
        self._base: Final = {segment: bisect_right(scale.cuts, (segment,)) for segment in Segment}
        self._booleans = len(keys[Segment.BOOLEAN])
        self._floats, self._residues = split_numbers(keys[Segment.NUMBER])
        self._instants = np.array([microseconds(k) for k in keys[Segment.TIMESTAMP]], np.int64)
        self._texts: Sequence[str] = keys[Segment.TEXT]

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
                return self._numbers(entries)
            case Kind.TIMESTAMP:
                return np.searchsorted(self._instants, entries.values, side="right")
            case Kind.TEXT:
                of_text = [bisect_right(self._texts, text) for text in entries.texts]
                return np.array(of_text, np.int32)[entries.values]
            case Kind.BOOLEAN:
                # There is one cut inside at most, the one under true.
                return np.multiply(entries.values, self._booleans)
            case _:
                return np.zeros(len(entries.events), np.int32)

    def _numbers(self, entries: Entries) -> Any:
        if self._residues is None and entries.residues is None:
            return np.searchsorted(self._floats, entries.values, side="right")
        return self._exactly(entries)

    def _exactly(self, entries: Entries) -> Any:
        """Rank large integers: by their floats first, then among cuts of one float by residue."""
        cuts = list(zip(self._floats, _residues_of(self._floats, self._residues), strict=True))
        values = zip(entries.values, _residues_of(entries.values, entries.residues), strict=True)
        return np.array([bisect_right(cuts, value) for value in values], np.int32)


def _residues_of(values: NDArray[Any], residues: NDArray[np.int16] | None) -> NDArray[np.int16]:
    return np.zeros(len(values), np.int16) if residues is None else residues
