"""Random numbers with addresses: the n-th of a stream is found without those before it.

Philox turns a key and a counter into four words. The key is made of the seed and the stream's name,
and the counter is the address; so a range of subscriptions or events is the same whoever draws it.
Words are made into numbers here, because NumPy keeps the words of a bit generator the same for all
versions, but not what its distributions make of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

_WORDS: Final = 4
"""What Philox makes of one value of its counter."""
_ASIDE: Final = 1 << 192
"""Where the continuations of rows begin, far behind the rows themselves."""


class Stream:
    """Endless rows of numbers from 0 up to below 1, of one width."""

    def __init__(self, seed: int, *name: str, width: int = 1) -> None:
        said = "\0".join((str(seed), *name)).encode()
        self._key: Final = int.from_bytes(blake2b(said, digest_size=16).digest(), "little")
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
        """Yield what continues a row that was too short, without end."""
        start = _ASIDE + (row << 64)
        while True:
            yield from self._words(start, self._width).tolist()
            start += -(-self._width // _WORDS)

    def _words(self, counter: int, count: int) -> NDArray[np.float64]:
        words = np.random.Philox(key=self._key, counter=counter).random_raw(count)
        return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64)
