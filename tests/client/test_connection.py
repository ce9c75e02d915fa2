"""Waiting between attempts."""

from __future__ import annotations

import pytest

from tamis.client.connection import Backoff


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, most=3, random=lambda: 1.0)
    assert [backoff.next() for _ in range(5)] == [0.5, 1, 2, 3, 3]


def test_after_a_reset_they_begin_anew() -> None:
    backoff = Backoff(first=0.5, most=3, random=lambda: 1.0)
    backoff.next()
    backoff.reset()
    assert backoff.next() == 0.5


def test_no_two_clients_wait_in_step() -> None:
    first, second = Backoff(), Backoff()
    assert [first.next() for _ in range(5)] != [second.next() for _ in range(5)]


@pytest.mark.parametrize("luck", [0.0, 0.3, 0.999])
def test_a_wait_is_at_least_half_of_what_it_could_be(luck: float) -> None:
    backoff = Backoff(first=1, most=30, random=lambda: luck)
    for longest in (1, 2, 4, 8, 16, 30, 30):
        assert longest / 2 <= backoff.next() <= longest


def test_even_the_ten_thousandth_wait_is_a_number() -> None:
    backoff = Backoff()
    assert all(backoff.next() <= 30 for _ in range(10_000))
