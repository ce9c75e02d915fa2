"""Ports: the clock that requests hold tells the time of the earliest that waits."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clocks import ManualClock
from tamis.ports import HeldClock, SteadyClock

WAITING = 20_000
MOST_SECONDS = 1.0
"""Many times what holding takes, and a part of what it takes if each looks at all others."""


@given(st.lists(st.integers(0, 5), max_size=30))
def test_a_held_clock_tells_the_time_of_the_earliest_request_that_waits(steps: list[int]) -> None:
    clock = ManualClock()
    steady = SteadyClock(clock)
    held, waiting = HeldClock(steady), list[tuple[float, ExitStack]]()
    for step in steps:
        clock.now += 1.0
        if step < len(waiting):
            waiting.pop(step)[1].close()
        else:
            waiting.append((steady.time(), ExitStack()))
            waiting[-1][1].enter_context(held.hold())
        clock.now += 1.0
        assert held.time() == min([steady.time(), *(since for since, _ in waiting)])


@pytest.mark.timing
def test_many_requests_hold_the_clock_without_looking_at_each_other() -> None:
    held = HeldClock(SteadyClock(ManualClock()))
    begun = time.thread_time()
    stacks = [ExitStack() for _ in range(WAITING)]
    for stack in stacks:
        stack.enter_context(held.hold())
    # The matcher answers them in this order.
    for stack in stacks:
        stack.close()
    assert time.thread_time() - begun < MOST_SECONDS
