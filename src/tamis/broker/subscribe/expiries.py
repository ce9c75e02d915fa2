"""When subscriptions expire: one entry for each, however often it is renewed."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, inf


class ExpiryCalendar:
    """The subscriptions that expire, by the second in which they do."""

    def __init__(self) -> None:
        self._seconds: dict[int, dict[int, float]] = {}
        """The times by the number of the subscription, by second."""
        self._second_of: dict[int, int] = {}
        self._looked_until: float = -inf
        """Earlier seconds are empty."""

    def __len__(self) -> int:
        return len(self._second_of)

    def put(self, number: int, expires_at: float) -> None:
        """Set when a subscription expires; infinity: never."""
        self.discard(number)
        if expires_at == inf:
            return
        second = floor(expires_at)
        # The clock may have been set back.
        self._looked_until = min(self._looked_until, second)
        self._seconds.setdefault(second, {})[number] = expires_at
        self._second_of[number] = second

    def discard(self, number: int) -> None:
        """Forget a subscription."""
        second = self._second_of.pop(number, None)
        if second is None:
            return
        entries = self._seconds[second]
        del entries[number]
        if not entries:
            del self._seconds[second]

    def take_expired(self, now: float) -> list[int]:
        """Remove the subscriptions that have expired, and return their numbers."""
        expired = [
            number
            for second in self._seconds_until(now)
            for number, expires_at in self._seconds[second].items()
            if expires_at <= now
        ]
        for number in expired:
            self.discard(number)
        self._looked_until = max(self._looked_until, floor(now))
        return expired

    def _seconds_until(self, now: float) -> Iterable[int]:
        """Return the seconds with entries that may have passed, at the cost of the smaller set."""
        if now - self._looked_until < len(self._seconds):
            passed = range(int(self._looked_until), floor(now) + 1)
            return [second for second in passed if second in self._seconds]
        return [second for second in self._seconds if second <= now]
