"""Who is active: how often each principal has asked for something lately, and what that took."""

from __future__ import annotations

from bisect import bisect_left
from math import exp, inf
from typing import Final

RATE_SECONDS: Final = 1.0
"""Over about how long rates are averaged."""
USE_SECONDS: Final = 2.0
"""Over about how long use is averaged; longer, as pieces of work differ."""
PEAK_SECONDS: Final = 10.0
"""Over about how long it is remembered that a principal used more.

Otherwise two that do alike would make each other use less and less, each waiting for the other.
"""
MIN_RATE: Final = 4.0
"""Requests or frames a second of a principal that is active.

Who asks less often meets the work of others in passing, and must not hold them up for it.
"""
REFRESH_SECONDS: Final = 0.05
MAX_KNOWN: Final = 1_000


class _Activity:
    """Averages that fade."""

    __slots__ = ("_peak", "_peak_at", "_rate", "_rate_at", "_use", "_use_at")

    def __init__(self) -> None:
        self._rate = self._use = self._peak = 0.0
        self._rate_at = self._use_at = self._peak_at = -inf

    def rate(self, now: float) -> float:
        """Return how many times a second the principal asks."""
        return self._rate * exp((self._rate_at - now) / RATE_SECONDS)

    def use(self, now: float) -> float:
        """Return the part of a processor that it uses."""
        return self._use * exp((self._use_at - now) / USE_SECONDS)

    def peak(self, now: float) -> float:
        """Return the part that it uses, or has used if that was more; that is forgotten slowly."""
        return max(self.use(now), self._peak * exp((self._peak_at - now) / PEAK_SECONDS))

    def note(self, now: float) -> None:
        self._rate, self._rate_at = self.rate(now) + 1 / RATE_SECONDS, now

    def note_use(self, now: float, seconds: float) -> None:
        self._use, self._use_at = self.use(now) + seconds / USE_SECONDS, now
        self._peak, self._peak_at = self.peak(now), now


class PrincipalActivity:
    """The activity of all principals."""

    def __init__(self) -> None:
        self._known: dict[str, _Activity] = {}
        self._active: set[str] = set()
        self._use_of_active: dict[str, float] = {}
        self._uses: list[float] = []
        """What those that are active use, or have used lately, when last looked at; in order."""
        self._refreshed_at = -inf

    def note(self, principal: str, now: float) -> None:
        """Note that a principal asks for something."""
        activity = self._of(principal, now)
        activity.note(now)
        if principal not in self._active and activity.rate(now) >= MIN_RATE:
            self._active.add(principal)

    def note_use(self, principal: str, now: float, seconds: float) -> None:
        """Note the processor time that something has taken."""
        self._of(principal, now).note_use(now, seconds)

    def has_others(self, principal: str, now: float) -> bool:
        """Return whether anybody else is active."""
        self._refresh(now)
        return len(self._active) > (principal in self._active)

    def use_of_others(self, principal: str, now: float) -> float:
        """Return what others that are active use, half of them no more than that."""
        self._refresh(now)
        uses = self._uses
        own = self._use_of_active.get(principal)
        count = len(uses) - (own is not None)
        if count < 1:
            return 0.0
        middle = (count - 1) // 2
        if own is not None:
            # Without its own, which lies where it would be inserted.
            middle += bisect_left(uses, own) <= middle
        return uses[min(middle, len(uses) - 1)]

    def _of(self, principal: str, now: float) -> _Activity:
        activity = self._known.get(principal)
        if activity is None:
            if len(self._known) >= MAX_KNOWN:
                self._known = {one: own for one, own in self._known.items() if own.rate(now) > 1}
            activity = self._known[principal] = _Activity()
        return activity

    def _refresh(self, now: float) -> None:
        if now - self._refreshed_at < REFRESH_SECONDS:
            return
        self._refreshed_at = now
        self._use_of_active = {
            one: own.peak(now) for one, own in self._known.items() if own.rate(now) >= MIN_RATE
        }
        self._active = {*self._use_of_active}
        self._uses = sorted(self._use_of_active.values())
