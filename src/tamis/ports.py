"""Ports: time and threads, which the broker reaches only through these.

A simulation replaces them by its own, and then decides what happens when (tests/simulation).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Clock(Protocol):
    """Tells the time."""

    def time(self) -> float:
        """Return the seconds since 1970; somebody may set this clock at any moment."""

    def monotonic(self) -> float:
        """Return the seconds since some moment; they never go back or jump."""


class SystemClock:
    """The clock of the machine."""

    def time(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds since some moment."""
        return time.monotonic()


class Executor(Protocol):
    """Runs functions that block or compute, beside the event loop."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function, without delaying the event loop."""

    def close(self) -> None:
        """Accept no more work."""


class ThreadExecutor:
    """A fixed number of threads of its own."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"tamis-{name}")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function that runs in one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(work, *args, **kwargs))

    def close(self) -> None:
        """Accept no more work; what runs is finished."""
        self._pool.shutdown(wait=False)
