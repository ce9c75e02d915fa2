"""Random values: a stream of numbers, ranks drawn from them, and the value of each rank.

Any number of a stream can be computed directly. Philox turns a key and a counter into four words.
The key is a hash of the seed and the stream's name, and the counter is the address, so a range of
subscriptions or events is the same wherever it is drawn. We turn words into numbers ourselves,
because NumPy guarantees the words of a bit generator across versions, but not the results of its
distributions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.events import Type
from tamis.events.kinds import TYPES
from tamis.filters.printing import show_value

_WORDS: Final = 4
"""Words that Philox makes of one value of its counter."""
_ASIDE: Final = 1 << 192
"""The counter where continuations of rows begin, far beyond the rows themselves."""


class RandomStream:
    """An endless stream of rows of numbers in [0, 1)."""

    def __init__(self, seed: int, *name: str, width: int = 1) -> None:
        label = "\0".join((str(seed), *name)).encode()
        self._key: Final = int.from_bytes(blake2b(label, digest_size=16).digest(), "little")
        self._width: Final = width

    def rows(self, first: int, last: int) -> NDArray[np.float64]:
        """Return the rows from `first` to `last`, exclusive."""
        start = first * self._width
        words = self._words(start // _WORDS, start % _WORDS + (last - first) * self._width)
        return words[start % _WORDS :].reshape(last - first, self._width)

    def column(self, first: int, last: int) -> NDArray[np.float64]:
        """Return the rows of a stream of width one as one array."""
        return self.rows(first, last).reshape(-1)

    def beyond(self, row: int) -> Iterator[float]:
        """Yield numbers that continue a row that was too short, endlessly."""
        start = _ASIDE + (row << 64)
        while True:
            yield from self._words(start, self._width).tolist()
            start += -(-self._width // _WORDS)

    def _words(self, counter: int, count: int) -> NDArray[np.float64]:
        words = np.random.Philox(key=self._key, counter=counter).random_raw(count)
        return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64)


# --- ranks and values -----------------------------------------------------------------------------


Uniforms = NDArray[np.float64]
Absent = NDArray[np.bool_] | None

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
RESOLUTION: Final = 2**53
"""How many different numbers in [0, 1) are drawn."""


def column_arrow_type(type_: Type) -> pa.DataType:
    """Return the Arrow type of a column; instants are in UTC."""
    usual = pa.type_for_alias(TYPES[type_].arrow[0])
    return pa.timestamp(usual.unit, "UTC") if pa.types.is_timestamp(usual) else usual


class EvenRanks(NamedTuple):
    """Ranks that are equally likely."""

    size: int

    def one(self, uniform: float) -> int:
        """Return the rank for one number."""
        return int(uniform * self.size)

    def many(self, uniforms: Uniforms) -> NDArray[np.int64]:
        """Return the ranks for many numbers."""
        return (uniforms * self.size).astype(np.int64)


class WeightedRanks:
    """Ranks with weights."""

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self.weights: Final = weights
        cumulated = np.cumsum(weights)
        # Without the last edge, which rounding could put below a number that is drawn.
        self._edges: Final = (cumulated / cumulated[-1])[:-1]
        self.size: Final = len(weights)

    def one(self, uniform: float) -> int:
        """Return the rank for one number."""
        return int(self._edges.searchsorted(uniform, side="right"))

    def many(self, uniforms: Uniforms) -> NDArray[np.int64]:
        """Return the ranks for many numbers."""
        return np.asarray(self._edges.searchsorted(uniforms, side="right"), np.int64)


Ranks = EvenRanks | WeightedRanks


def zipf(count: int, exponent: float) -> WeightedRanks:
    """Return ranks of which the r-th has a probability proportional to r ** -exponent."""
    return WeightedRanks(np.arange(1, count + 1, dtype=np.float64) ** -exponent)


class Grid(NamedTuple):
    """Numbers at equal distances, in units of the last decimal, or instants in microseconds."""

    type: Type
    low: int
    step: int
    digits: int = 0

    def text(self, rank: int) -> str:
        """Return a value as a constant of the Tamis language."""
        units = self.low + rank * self.step
        if self.type is Type.INT:
            return str(units)
        if self.type is Type.FLOAT:
            return repr(units / 10**self.digits)
        return show_value(EPOCH + timedelta(microseconds=units))

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return values, with nulls where they are absent."""
        units = ranks * self.step + self.low
        if self.type is Type.FLOAT:
            # One division of two whole numbers gives the float nearest to the decimal.
            return pa.array(units / 10**self.digits, pa.float64(), mask=absent)
        return pa.array(units, pa.int64(), mask=absent).cast(column_arrow_type(self.type))


class Reals(NamedTuple):
    """Floats of full precision between two ends, for ranks below RESOLUTION."""

    low: float
    high: float

    def text(self, rank: int) -> str:
        """Return a value as a constant of the Tamis language."""
        return repr(self.low + (self.high - self.low) * (rank / RESOLUTION))

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return values, with nulls where they are absent."""
        values = self.low + (self.high - self.low) * (ranks / RESOLUTION)
        return pa.array(values, pa.float64(), mask=absent)


class Listed:
    """Values from a list."""

    def __init__(self, values: Sequence[str] | Sequence[bool]) -> None:
        self.values: Final = values
        self._shown: Final = [show_value(value) for value in values]
        self._table: Final = pa.array(values)

    def text(self, rank: int) -> str:
        """Return a value as a constant of the Tamis language."""
        return self._shown[rank]

    def column(self, ranks: NDArray[np.int64], absent: Absent) -> pa.Array:
        """Return values, with nulls where they are absent."""
        return self._table.take(pa.array(ranks, pa.int64(), mask=absent))


class Distribution(NamedTuple):
    """Random values of one type."""

    type: Type
    ranks: Ranks
    values: Grid | Reals | Listed

    def text(self, uniform: float) -> str:
        """Return the value for one number, as a constant of the Tamis language."""
        return self.values.text(self.ranks.one(uniform))

    def column(self, uniforms: Uniforms, absent: Absent = None) -> pa.Array:
        """Return the values for many numbers, with nulls where they are absent."""
        return self.values.column(self.ranks.many(uniforms), absent)


class Window(NamedTuple):
    """Random pairs of ends for `between`, within the range of a distribution."""

    starts: Distribution
    narrowest: int
    widest: int

    def text(self, start: float, width: float) -> str:
        """Return both ends as `between` takes them."""
        wide = self.narrowest + int(width * (self.widest - self.narrowest + 1))
        rank = self._first(start, self.starts.ranks.size - wide + 1)
        return f"{self.starts.values.text(rank)} and {self.starts.values.text(rank + wide - 1)}"

    def _first(self, uniform: float, choices: int) -> int:
        if isinstance(self.starts.ranks, EvenRanks):
            return int(uniform * choices)
        return min(self.starts.ranks.one(uniform), choices - 1)
