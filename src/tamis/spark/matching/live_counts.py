"""Events and matches counted while a job runs, for who watches it."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam


class SoFar(NamedTuple):
    """What the tasks that have ended have counted."""

    events: int
    matches: int


class _Sums(AccumulatorParam[tuple[int, int]]):
    """Adds pairs of numbers."""

    def zero(self, value: tuple[int, int]) -> tuple[int, int]:  # noqa: ARG002
        """Return what changes nothing."""
        return (0, 0)

    def addInPlace(  # noqa: N802 - the name is Spark's
        self, value1: tuple[int, int], value2: tuple[int, int]
    ) -> tuple[int, int]:
        """Return the sum."""
        return (value1[0] + value2[0], value1[1] + value2[1])


class LiveCounts:
    """Counters that workers add to; a task that runs again counts again, unlike a `Tally`."""

    def __init__(self, context: SparkContext) -> None:
        self.accumulator: Accumulator[tuple[int, int]] = context.accumulator((0, 0), _Sums())
        self.copies = 1
        """In how many tasks an event is matched: in a grid, once for each group of shards."""

    def so_far(self) -> SoFar:
        """Return what the tasks that have ended have counted."""
        events, matches = self.accumulator.value
        return SoFar(events // self.copies, matches)
