"""How long to wait before the next attempt: longer each time, and never in step with others."""

from __future__ import annotations

from collections.abc import Callable
from secrets import SystemRandom
from typing import Final

FIRST: Final = 0.1
MOST: Final = 30.0
# Sixty doublings are more than enough, and a float holds them.
_MOST_DOUBLINGS: Final = 60
_random: Final = SystemRandom().random


class Backoff:
    """Waits that double up to the longest, each between a half of it and all of it.

    >>> backoff = Backoff(first=1, most=5, random=lambda: 1.0)
    >>> [backoff.next() for _ in range(4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    def __init__(
        self,
        first: float = FIRST,
        most: float = MOST,
        *,
        random: Callable[[], float] = _random,
    ) -> None:
        self._first = first
        self._most = most
        self._random = random
        self._attempts = 0

    def next(self) -> float:
        """Return the seconds to wait now."""
        wait = min(self._most, self._first * 2.0 ** min(self._attempts, _MOST_DOUBLINGS))
        self._attempts += 1
        return wait * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._attempts = 0
