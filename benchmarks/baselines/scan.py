"""No index: every subscription is evaluated on every event, with short circuits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.scan_kernels import Code, Values, compile_programs, match_event
from benchmarks.workloads.events import Field
from benchmarks.workloads.forms import Predicates, Programs, Rows


class ScanMatcher:
    """Any subscriptions in mode `sql`, one event at a time."""

    def __init__(self, fields: Sequence[Field], predicates: Predicates, programs: Programs) -> None:
        longest = int(np.diff(programs.start).max())
        self._code = Code(predicates, *compile_programs(programs, longest))
        self._values = Values(
            np.zeros(len(fields)), np.full(len(fields), -1), np.empty(longest, np.uint8)
        )
        self._out = np.empty(len(programs), np.int32)
        self._now = 0

    def match(self, rows: Rows, event: int) -> NDArray[np.int32]:
        """Return the subscriptions that one event satisfies."""
        return self._out[: self._match(rows, event)].copy()

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Match every event in turn, and return how many subscriptions each satisfied."""
        return np.array([self._match(rows, event) for event in range(len(rows.start) - 1)])

    def _match(self, rows: Rows, event: int) -> int:
        self._now += 1
        return match_event(self._code, rows, event, self._values, self._now, self._out)
