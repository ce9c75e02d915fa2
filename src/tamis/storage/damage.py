"""What is damaged in a log, and which events are lost with it."""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock
from typing import Final, NamedTuple

_MOST_KEPT: Final = 10_000


class Damage(NamedTuple):
    """A damaged place in the log, and the sequences lost with it."""

    segment: str
    offset: int
    size: int
    lost: range
    reason: str

    def __str__(self) -> str:
        where = f"{self.segment}, offset {self.offset:,}"
        return f"{where}: {self.reason}{_sequences(self.lost)}"


def _sequences(lost: range) -> str:
    """Return a phrase that names the lost sequences, if there are any."""
    if not lost:
        return ""
    return f"; lost: {lost[0]:,}" if len(lost) == 1 else f"; lost: {lost[0]:,} to {lost[-1]:,}"


class DamageRegister:
    """Damage that was found, each place once, and the lost sequences; for any thread."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], Damage] = {}
        self._lost: tuple[range, ...] = ()
        self._lock = Lock()

    @property
    def places(self) -> tuple[Damage, ...]:
        """Return the damaged places in the order in which they were found."""
        return tuple(self._places.copy().values())

    @property
    def lost_events(self) -> int:
        """Return the number of lost events."""
        return sum(map(len, self._lost))

    def add(self, damage: Damage) -> None:
        """Add a place, unless it is known."""
        key = (damage.segment, damage.offset)
        with self._lock:
            known = self._places.get(key)
            if known is not None and len(known.lost) >= len(damage.lost):
                return
            if len(self._places) < _MOST_KEPT or known is not None:
                # A place that has grown comes last, as a new one does.
                self._places.pop(key, None)
                self._places[key] = damage
            self._lost = _union(self._lost, damage.lost)

    def lost_in(self, start: int, stop: int) -> int:
        """Return the number of lost events from a sequence up to, but without, another."""
        lost = self._lost
        if not lost or start >= stop:
            return 0
        first = max(0, bisect_right(lost, start, key=lambda one: one.start) - 1)
        total = 0
        for one in lost[first:]:
            if one.start >= stop:
                break
            total += len(range(max(one.start, start), min(one.stop, stop)))
        return total


def _union(lost: tuple[range, ...], more: range) -> tuple[range, ...]:
    """Return disjoint ranges in order."""
    if not more:
        return lost
    joined: list[range] = []
    for one in sorted((*lost, more), key=lambda one: one.start):
        if joined and one.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, one.stop))
        else:
            joined.append(one)
    return tuple(joined)
