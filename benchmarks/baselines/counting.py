"""The classical counting algorithm for conjunctions (Yan and Garcia-Molina 1994; Fabret 2001)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.counting_kernels import (
    Counting,
    build_postings,
    match_event,
    match_events,
)
from benchmarks.baselines.index_kernels import Leaves, build_index
from benchmarks.workloads.events import Field
from benchmarks.workloads.forms import Predicates, Programs, Rows


class CountingMatcher:
    """Conjunctions by counting, one event at a time."""

    def __init__(self, fields: Sequence[Field], predicates: Predicates, programs: Programs) -> None:
        count = len(predicates.op)
        leaves = Leaves(np.arange(count, dtype=np.int32), np.zeros(count, np.bool_))
        start, subscriptions = build_postings(programs, count)
        needed = (np.diff(programs.start) - 1).astype(np.uint8)
        index = build_index(predicates, leaves, value_base(fields))
        self._counting = Counting(index, start, subscriptions, needed, needed.copy())
        self._out = np.empty(len(programs), np.int32)

    @property
    def nbytes(self) -> int:
        """Return the memory of the whole structure."""
        return sum(array.nbytes for array in (*self._counting.by_value, *self._counting[1:]))

    def match(self, rows: Rows, event: int) -> NDArray[np.int32]:
        """Return the subscriptions that one event satisfies."""
        return self._out[: match_event(self._counting, rows, event, self._out)].copy()

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Match every event in turn, and return how many subscriptions each satisfied."""
        return match_events(self._counting, rows, self._out)


def value_base(fields: Sequence[Field]) -> NDArray[np.int64]:
    """Return where the values of each attribute begin when all are put in one row."""
    return np.cumsum([0, *(field.cardinality for field in fields)], dtype=np.int64)
