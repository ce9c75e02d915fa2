"""Rates: what is taken in the long run is what the rate allows, and memory is bounded."""

from __future__ import annotations

import math
from random import Random

import pytest

from tamis.access import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_bucket_holds_what_may_be_taken_in_a_second(clock: Clock) -> None:
    limiter = RateLimiter(clock)
    assert [limiter.take("ann", rate=4) for _ in range(4)] == [0.0] * 4
    assert limiter.take("ann", rate=4) == 0.25
    clock.now += 0.25
    assert limiter.take("ann", rate=4) == 0.0
    assert limiter.take("ann", rate=4) == 0.25


def test_keys_do_not_share(clock: Clock) -> None:
    limiter = RateLimiter(clock)
    assert limiter.take("ann", rate=1) == 0.0
    assert limiter.take("bob", rate=1) == 0.0
    assert limiter.take("ann", rate=1) == 1.0


def test_a_rate_below_one_admits_one(clock: Clock) -> None:
    limiter = RateLimiter(clock)
    assert limiter.take("ann", rate=0.1) == 0.0
    assert limiter.take("ann", rate=0.1) == 10.0


def test_what_is_larger_than_the_bucket_is_owed(clock: Clock) -> None:
    limiter = RateLimiter(clock)
    assert limiter.take("ann", rate=10, cost=30) == 0.0
    assert limiter.take("ann", rate=10, cost=1) == pytest.approx(2.1)
    clock.now += 2.1
    assert limiter.take("ann", rate=10, cost=1) == 0.0


def test_no_bound_and_no_right(clock: Clock) -> None:
    limiter = RateLimiter(clock)
    assert limiter.take("ann", rate=math.inf, cost=10**9) == 0.0
    assert limiter.take("ann", rate=0) == math.inf
    assert len(limiter) == 0


def test_nobody_takes_more_than_the_rate_in_the_long_run(clock: Clock) -> None:
    rng = Random(1)
    limiter = RateLimiter(clock)
    taken = 0.0
    begun = clock.now
    for _ in range(20_000):
        clock.now += rng.random() / 100
        cost = rng.choice((1, 1, 2, 5, 40))
        if limiter.take("ann", rate=50, cost=cost) == 0.0:
            taken += cost
        assert taken <= 50 * (clock.now - begun) + 50 + 40
    assert taken > 0.95 * 50 * (clock.now - begun)


def test_waiting_as_long_as_advised_is_enough(clock: Clock) -> None:
    rng = Random(2)
    limiter = RateLimiter(clock)
    for _ in range(2_000):
        clock.now += rng.random() / 10
        cost = rng.choice((1, 3, 30))
        wait = limiter.take("ann", rate=8, cost=cost)
        if wait:
            clock.now += wait + 1e-6
            assert limiter.take("ann", rate=8, cost=cost) == 0.0


def test_there_are_never_more_buckets_than_allowed_and_no_debt_is_forgotten(clock: Clock) -> None:
    limiter = RateLimiter(clock, most=100)
    for key in range(100):
        assert limiter.take(key, rate=1, cost=5) == 0.0
    for key in range(100, 200):
        assert limiter.take(key, rate=1) > 0.0
        assert len(limiter) == 100
    assert limiter.take(0, rate=1) == 5.0
    clock.now += 6.0
    assert limiter.take(200, rate=1) == 0.0
    assert len(limiter) == 1


def test_a_newcomer_does_not_make_it_look_through_all_buckets_again(clock: Clock) -> None:
    limiter = RateLimiter(clock, most=2)
    limiter.take("ann", rate=1)
    limiter.take("bob", rate=0.01)
    assert limiter.take("eve", rate=1) == 1.0
    clock.now += 0.5
    assert limiter.take("eve", rate=1) == 0.5
    clock.now += 0.5
    assert limiter.take("eve", rate=1) == 0.0
