"""Quotas: how much a principal may do, and the token buckets that enforce rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

import msgspec


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds for one principal, infinite where there is none."""

    publications: float = math.inf
    """Events published in a second, over any longer time."""
    bytes: float = math.inf
    """Bytes published in a second, over any longer time."""
    event_size: float = math.inf
    """Bytes of one event."""
    subscriptions: float = math.inf
    """Subscriptions at a time, also while their owner is not connected."""
    connections: float = math.inf
    """Connections at a time."""

    @classmethod
    def united(
        cls, given: Iterable[Mapping[str, float]], default: Mapping[str, float] | None = None
    ) -> Quotas:
        """Return, of each bound, the widest that some role gives, or else the default's.

        A role that says nothing about a bound does not lift what another one sets.

        >>> Quotas.united([{"publications": 10}, {"connections": 2}, {"publications": 5}])
        Quotas(publications=10, bytes=inf, event_size=inf, subscriptions=inf, connections=2)
        """
        widest: dict[str, float] = {}
        for bounds in given:
            for name, bound in bounds.items():
                widest[name] = max(bound, widest.get(name, bound))
        return cls(**{**(default or {}), **widest})


# Seconds between two looks through all buckets for those that can be forgotten.
PATIENCE: Final = 1.0


class _Bucket(msgspec.Struct):
    level: float
    """What could be taken; below zero after something larger than the bucket."""
    at: float
    """When that was."""
    full_at: float
    """When nothing will be left to remember."""


class RateLimiter:
    """Token buckets, one for each key, never more than `most` of them.

    A bucket holds what may be taken in a second, at least 1, and fills at the rate it is asked
    with. It is forgotten only when it is full again, so that nobody sheds a debt by being pushed
    out; where `most` are in use, a newcomer waits. For one thread, such as that of an event loop.

    >>> limiter = RateLimiter(clock=lambda: 0.0)
    >>> [limiter.take("ann", rate=2) for _ in range(3)]
    [0.0, 0.0, 0.5]
    """

    def __init__(self, clock: Callable[[], float], *, most: int = 100_000) -> None:
        """Make a limiter; `clock` tells seconds that never go back."""
        self._clock: Final = clock
        self._most: Final = most
        self._buckets: Final[dict[Hashable, _Bucket]] = {}
        self._next_look = -math.inf

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, *, rate: float, cost: float = 1.0) -> float:
        """Take `cost` from a key's bucket and return 0, or return the seconds to wait for it.

        What costs more than a bucket holds passes when the bucket is full, and is owed.
        """
        if math.isinf(rate):
            return 0.0
        if rate <= 0:
            return math.inf
        now, size = self._clock(), max(rate, 1.0)
        bucket = self._buckets.get(key)
        if bucket is None:
            wait = self._make_room(now)
            if wait:
                return wait
            bucket = self._buckets[key] = _Bucket(size, now, now)
        level = min(size, bucket.level + (now - bucket.at) * rate)
        needed = min(cost, size)
        if level < needed:
            return (needed - level) / rate
        bucket.level, bucket.at = level - cost, now
        bucket.full_at = now + (size - bucket.level) / rate
        return 0.0

    def _make_room(self, now: float) -> float:
        """Return 0 once there is room for one more bucket, or the seconds to wait for it."""
        if len(self._buckets) < self._most:
            return 0.0
        if now < self._next_look:
            return self._next_look - now
        self._next_look = now + PATIENCE
        for key in [key for key, bucket in self._buckets.items() if bucket.full_at <= now]:
            del self._buckets[key]
        return 0.0 if len(self._buckets) < self._most else PATIENCE
