"""Quotas: how much a principal may do, and the token buckets that enforce rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds for one principal, infinite by default."""

    publications: float = math.inf
    """Events per second, on average."""
    bytes: float = math.inf
    """Bytes per second, on average."""
    event_size: float = math.inf
    """Bytes of one event."""
    subscriptions: float = math.inf
    """Concurrent subscriptions, including those of disconnected owners."""
    connections: float = math.inf
    """Concurrent connections."""
    queries: float = math.inf
    """Concurrent queries."""

    @property
    def largest_batch(self) -> float:
        """Return how many events may be published at once: those of a second, at least 1."""
        return max(1.0, self.publications)

    @classmethod
    def united(
        cls, given: Iterable[Mapping[str, float]], default: Mapping[str, float] | None = None
    ) -> Quotas:
        """Return for each bound the highest of all roles, or the default if no role sets it.

        A role without a bound does not lift that of another role.

        >>> united = Quotas.united([{"publications": 10}, {"queries": 2}, {"publications": 5}])
        >>> united.publications, united.queries, united.connections
        (10, 2, inf)
        """
        widest: dict[str, float] = {}
        for bounds in given:
            for name, bound in bounds.items():
                widest[name] = max(bound, widest.get(name, bound))
        return cls(**{**(default or {}), **widest})


# Seconds between two sweeps for full buckets, which can be dropped.
SWEEP_SECONDS: Final = 1.0


class Cost(NamedTuple):
    """What is to be taken from a bucket that fills at a rate."""

    key: Hashable
    rate: float
    """Tokens per second."""
    amount: float

    @property
    def bucket_size(self) -> float:
        """Return how many tokens the bucket holds: those of a second, at least 1."""
        return max(self.rate, 1.0)


class _Bucket(msgspec.Struct):
    level: float
    """The tokens left; negative after a cost larger than the bucket."""
    at: float
    """The time of that count."""
    full_at: float
    """The time at which it will be full."""

    def level_at(self, now: float, cost: Cost) -> float:
        return min(cost.bucket_size, self.level + (now - self.at) * cost.rate)


class RateLimiter:
    """Token buckets, one per key, at most `most` of them.

    A bucket holds the tokens of one second, at least 1, and fills at the given rate. It is dropped
    only when it is full, so that eviction forgives no debt; if `most` are in use, a new key has to
    wait. Not thread-safe: use it from one thread, such as that of an event loop.

    >>> limiter = RateLimiter(clock=lambda: 0.0)
    >>> [limiter.take("ann", rate=2) for _ in range(3)]
    [0.0, 0.0, 0.5]
    """

    def __init__(self, clock: Callable[[], float], *, most: int = 100_000) -> None:
        """Make a limiter; `clock` is monotonic, in seconds."""
        self._clock: Final = clock
        self._most: Final = most
        self._buckets: Final[dict[Hashable, _Bucket]] = {}
        self._next_look = -math.inf

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, *, rate: float, cost: float = 1.0) -> float:
        """Take `cost` from a key's bucket and return 0, or return the seconds to wait.

        A cost larger than the bucket passes when the bucket is full, and leaves a debt.
        """
        return self.take_all([Cost(key, rate, cost)])

    def take_all(self, costs: Sequence[Cost]) -> float:
        """Take each cost from its bucket and return 0, or take nothing and return the wait."""
        now = self._clock()
        wait = max(self._wait(cost, now) for cost in costs)
        if wait == 0:
            for cost in costs:
                self._pay(cost, now)
        return wait

    def wait_for(self, costs: Sequence[Cost]) -> float:
        """Return 0 if all costs could be paid now, or the seconds until they can; take nothing."""
        now = self._clock()
        return max(self._wait(cost, now) for cost in costs)

    def _wait(self, cost: Cost, now: float) -> float:
        """Return 0 if the cost can be paid now, or the seconds until it can."""
        if math.isinf(cost.rate):
            return 0.0
        if cost.rate <= 0:
            return math.inf
        bucket = self._buckets.get(cost.key)
        if bucket is None:
            wait = self._make_room(now)
            if wait:
                return wait
            bucket = self._buckets[cost.key] = _Bucket(cost.bucket_size, now, now)
        missing = min(cost.amount, cost.bucket_size) - bucket.level_at(now, cost)
        return max(0.0, missing / cost.rate)

    def _pay(self, cost: Cost, now: float) -> None:
        if math.isinf(cost.rate):
            return
        bucket = self._buckets[cost.key]
        bucket.level, bucket.at = bucket.level_at(now, cost) - cost.amount, now
        bucket.full_at = now + (cost.bucket_size - bucket.level) / cost.rate

    def _make_room(self, now: float) -> float:
        """Return 0 if there is room for another bucket, or the seconds to wait."""
        if len(self._buckets) < self._most:
            return 0.0
        if now < self._next_look:
            return self._next_look - now
        self._next_look = now + SWEEP_SECONDS
        for key in [key for key, bucket in self._buckets.items() if bucket.full_at <= now]:
            del self._buckets[key]
        return 0.0 if len(self._buckets) < self._most else SWEEP_SECONDS
