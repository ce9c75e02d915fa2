"""Waiting for conditions: a fixed time to sleep is too long most times, and once too short."""

from __future__ import annotations

import asyncio
import inspect
import time
import types
from collections.abc import Callable, Coroutine, Generator
from itertools import count
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


@types.coroutine
def _cancelling(
    coroutine: Coroutine[Any, Any, T], wait: int, *, ready: bool
) -> Generator[Any, Any, T]:
    task, error = asyncio.current_task(), None
    assert task is not None
    for number in count():
        try:
            awaited = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        if number == wait:
            if ready and awaited is not None:
                awaited.add_done_callback(lambda _: task.cancel())
            else:
                task.cancel()
        error = None
        try:
            yield awaited
        except BaseException as raised:
            error = raised
    raise AssertionError("unreachable")


async def cancelled_in(
    coroutine: Coroutine[Any, Any, T], wait: int, *, ready: bool = False
) -> T | None:
    """Run a coroutine in a task that is cancelled in the n-th time it waits; None: it was.

    With `ready`, it is cancelled when what it waits for has happened, before it hears of that.
    """

    async def run() -> T:
        return await _cancelling(coroutine, wait, ready=ready)

    try:
        return await asyncio.create_task(run())
    except asyncio.CancelledError:
        return None
