"""A clock that a test sets by hand."""

from __future__ import annotations


class ManualClock:
    """A clock that is advanced by hand."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class SettableClock(ManualClock):
    """A clock on the wall that somebody sets, beside one that only advances."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        super().__init__(now)
        self.wrong_by = 0.0

    def time(self) -> float:
        return self.now + self.wrong_by
