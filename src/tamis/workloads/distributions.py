"""Values by chance: a rank is drawn, evenly or by weight, and each rank stands for a value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.events import Type
from tamis.filters.printing import show_value

Uniforms = NDArray[np.float64]
Absent = NDArray[np.bool_] | None

ARROW_TYPES: Final = {
    Type.INT: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.STR: pa.string(),
    Type.BOOL: pa.bool_(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Ranks(Protocol):
    """How a number from 0 up to below 1 becomes one of `size` ranks."""

    @property
    def size(self) -> int:
        """Return how many there are."""

    def one(self, uniform: float) -> int:
        """Return the rank for one number."""

    def many(self, uniforms: Uniforms) -> NDArray[np.int64]:
        """Return the ranks for many numbers."""


class EvenRanks(NamedTuple):
    """Every rank is equally likely."""

    size: int

    def one(self, uniform: float) -> int:
        """Return the rank for one number."""
        return int(uniform * self.size)

    def many(self, uniforms: Uniforms) -> NDArray[np.int64]:
        """Return the ranks for many numbers."""
        return (uniforms * self.size).astype(np.int64)


class WeightedRanks:
    """Ranks have weights."""

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self.weights: Final = weights
        cumulated = np.cumsum(weights)
        # The last one is left out: rounding must not let a number pass it.
        self._edges: Final = (cumulated / cumulated[-1])[:-1]

    @property
    def size(self) -> int:
        """Return how many there are."""
        return len(self._edges) + 1

    def one(self, uniform: float) -> int:
        """Return the rank for one number."""
        return int(self._edges.searchsorted(uniform, side="right"))

    def many(self, uniforms: Uniforms) -> NDArray[np.int64]:
        """Return the ranks for many numbers."""
        return np.asarray(self._edges.searchsorted(uniforms, side="right"), np.int64)


def zipf(count: int, exponent: float) -> WeightedRanks:
    """Return ranks of which the r-th has a probability like r to the -exponent."""
    return WeightedRanks(np.arange(1, count + 1, dtype=np.float64) ** -exponent)


class Values(Protocol):
    """What the ranks stand for."""

    def text(self, rank: int) -> str:
        """Return one as a constant of the Tamis language."""

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return many, with nulls where they are absent."""


class Whole(NamedTuple):
    """Integers from `low` on."""

    low: int
    step: int

    def text(self, rank: int) -> str:
        """Return one as a constant of the Tamis language."""
        return str(self.low + rank * self.step)

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return many, with nulls where they are absent."""
        return pa.array(ranks * self.step + self.low, pa.int64(), mask=absent)


class Decimals(NamedTuple):
    """Floats with so many digits after the point, counted in units of the last one."""

    low: int
    step: int
    digits: int

    def text(self, rank: int) -> str:
        """Return one as a constant of the Tamis language."""
        return repr((self.low + rank * self.step) / 10**self.digits)

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return many, with nulls where they are absent."""
        # One division of two whole numbers gives the float that is nearest to the decimal.
        values = (ranks * self.step + self.low) / 10**self.digits
        return pa.array(values, pa.float64(), mask=absent)


class Reals(NamedTuple):
    """Floats of full precision from `low` to `high`; ranks are of RESOLUTION."""

    low: float
    high: float

    def text(self, rank: int) -> str:
        """Return one as a constant of the Tamis language."""
        return repr(self.low + (self.high - self.low) * (rank / RESOLUTION))

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return many, with nulls where they are absent."""
        values = self.low + (self.high - self.low) * (ranks / RESOLUTION)
        return pa.array(values, pa.float64(), mask=absent)


RESOLUTION: Final = 2**53


class Instants(NamedTuple):
    """Timestamps from `low` on, in microseconds."""

    low: int
    step: int

    def text(self, rank: int) -> str:
        """Return one as a constant of the Tamis language."""
        return show_value(EPOCH + timedelta(microseconds=self.low + rank * self.step))

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return many, with nulls where they are absent."""
        moments = pa.array(ranks * self.step + self.low, pa.int64(), mask=absent)
        return moments.cast(ARROW_TYPES[Type.TIMESTAMP])


class Listed:
    """Values one by one."""

    def __init__(self, values: Sequence[str] | Sequence[bool]) -> None:
        self.values: Final = values
        self._shown: Final = [show_value(value) for value in values]
        self._table: Final = pa.array(values)

    def text(self, rank: int) -> str:
        """Return one as a constant of the Tamis language."""
        return self._shown[rank]

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return many, with nulls where they are absent."""
        return self._table.take(pa.array(ranks, pa.int64(), mask=absent))


class Distribution(NamedTuple):
    """Values of one type, by chance."""

    type: Type
    ranks: Ranks
    values: Values

    def text(self, uniform: float) -> str:
        """Return the value for one number, as a constant of the Tamis language."""
        return self.values.text(self.ranks.one(uniform))

    def column(self, uniforms: Uniforms, absent: Absent = None) -> pa.Array:
        """Return the values for many numbers, with nulls where they are absent."""
        return self.values.column(self.ranks.many(uniforms), absent)


class Window(NamedTuple):
    """Ranges of values for `between`, inside of what a distribution draws."""

    starts: Distribution
    narrowest: int
    widest: int

    def text(self, start: float, width: float) -> str:
        """Return both ends as `between` takes them; a window keeps off the end of the range."""
        wide = self.narrowest + int(width * (self.widest - self.narrowest + 1))
        rank = self._first(start, self.starts.ranks.size - wide + 1)
        return f"{self.starts.values.text(rank)} and {self.starts.values.text(rank + wide - 1)}"

    def _first(self, uniform: float, choices: int) -> int:
        if isinstance(self.starts.ranks, EvenRanks):
            return int(uniform * choices)
        return min(self.starts.ranks.one(uniform), choices - 1)
