"""Random numbers with addresses: any number of a stream can be computed directly.

Philox turns a key and a counter into four words. The key is a hash of the seed and the stream's
name, and the counter is the address, so a range of subscriptions or events is the same wherever it
is drawn. We turn words into numbers ourselves, because NumPy guarantees the words of a bit
generator across versions, but not the results of its distributions.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

_WORDS: Final = 4
"""Words that Philox makes of one value of its counter."""
_ASIDE: Final = 1 << 192
"""The counter where continuations of rows begin, far beyond the rows themselves."""


class Stream:
    """An endless stream of rows of numbers from 0 up to below 1."""

    def __init__(self, seed: int, *name: str, width: int = 1) -> None:
        label = "\0".join((str(seed), *name)).encode()
        self._key: Final = int.from_bytes(blake2b(label, digest_size=16).digest(), "little")
        self._width: Final = width

    def rows(self, first: int, last: int) -> NDArray[np.float64]:
        """Return the rows from `first` up to below `last`."""
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
