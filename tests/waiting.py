"""Waiting for conditions: a fixed time to sleep is too long most times, and once too short."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from clocks import Stopwatch

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 20.0
"""Long, because the machine may be busy with other tests."""
POLL_SECONDS: Final = 0.01

Message = str | Callable[[], str]
"""What to say if a condition does not become true, or what tells the state then."""


def eventually(
    condition: Callable[[], T], message: Message = "", *, timeout: float = TIMEOUT_SECONDS
) -> T:
    """Return the first true value of a condition; fail if there is none in time."""
    deadline, watch = time.monotonic() + timeout, Stopwatch()
    while not (value := condition()):
        in_time = time.monotonic() < deadline or watch.seconds() < timeout
        assert in_time, _sentence(message, value, timeout)
        time.sleep(POLL_SECONDS)
    return value


async def eventually_async(
    condition: Callable[[], object], message: Message = "", *, timeout: float = TIMEOUT_SECONDS
) -> Any:
    """Do as `eventually` does, while other tasks run; the condition may be a coroutine function."""
    deadline, watch = time.monotonic() + timeout, Stopwatch()
    while True:
        value: Any = condition()
        value = await value if inspect.isawaitable(value) else value
        if value:
            return value
        in_time = time.monotonic() < deadline or watch.seconds() < timeout
        assert in_time, _sentence(message, value, timeout)
        await asyncio.sleep(POLL_SECONDS)


def _sentence(message: Message, value: object, timeout: float) -> str:
    told = message() if callable(message) else message
    return told or f"still {value!r} after {timeout} seconds"


async def let_others_run(turns: int = 1) -> None:
    """Give every other task of the event loop a turn, or several."""
    for _ in range(turns):
        await asyncio.sleep(0)
