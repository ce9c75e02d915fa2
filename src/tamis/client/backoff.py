"""Exponential backoff with jitter."""

from __future__ import annotations

from collections.abc import Callable
from secrets import SystemRandom
from typing import Final

FIRST_SECONDS: Final = 0.1
MAX_SECONDS: Final = 30.0
# Enough doublings for any wait, and few enough for a float.
_MAX_DOUBLINGS: Final = 60
_random: Final = SystemRandom().random


class Backoff:
    """Waits that double up to a maximum, each shortened at random by up to a half.

    >>> backoff = Backoff(first=1, most=5, random=lambda: 1.0)
    >>> [backoff.next() for _ in range(4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        most: float = MAX_SECONDS,
        *,
        random: Callable[[], float] = _random,
    ) -> None:
        self._first = first
        self._most = most
        self._random = random
        self._attempts = 0

    def next(self) -> float:
        """Return the next wait in seconds."""
        wait = min(self._most, self._first * 2.0 ** min(self._attempts, _MAX_DOUBLINGS))
        self._attempts += 1
        return wait * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """Start again with the shortest wait."""
        self._attempts = 0
