"""An event loop with virtual time: it never waits, and decides by a seed what takes how long."""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable
from contextvars import Context, ContextVar
from random import Random
from typing import Any

# A timer may always fire a little late; how late decides which of two fires first.
MAX_TIMER_DELAY_SECONDS = 0.003
MAX_STEPS = 400_000


class Life:
    """Whether a simulated process still runs; what belongs to a dead one never happens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False
        self.tasks: list[asyncio.Task[Any]] = []


LIFE: ContextVar[Life | None] = ContextVar("LIFE", default=None)
"""The process that a task or a callback belongs to; it is inherited."""


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class StuckError(Exception):
    """Nothing can ever happen again, or things happen without end in no time."""


class SimulationLoop(asyncio.BaseEventLoop):
    """Runs what is ready, in order, then jumps to the next timer.

    Callbacks that are ready run first come, first served, as asyncio promises. The order of timers,
    and so of everything that the executors and the network do, is up to the seed.
    """

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now = 0.0
        self.steps = 0
        self.made = 0
        """The number of tasks so far."""
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks ever made, which keeps abandoned ones from being collected halfway."""
        self.set_task_factory(_remember)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        when += self._random.random() * MAX_TIMER_DELAY_SECONDS
        return super().call_at(when, callback, *args, context=context)

    def call_exactly(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """Call at a moment that was already chosen by the seed."""
        super().call_at(when, callback, *args)

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if not ready:
            self._advance(ready)
        for _ in range(len(ready)):
            handle = ready.popleft()
            life = handle._context.get(LIFE)
            if not handle._cancelled and (life is None or not life.is_over):
                self.steps += 1
                handle._run()
        if self.steps > MAX_STEPS:
            raise StuckError(f"{self.steps:,} steps, and no end")

    def _advance(self, ready: Any) -> None:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and not ready:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if not timer._cancelled:
                self._now = max(self._now, timer._when)
                ready.append(timer)
        if not ready:
            raise StuckError("nothing is left that could happen")

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps."""


def _remember(loop: SimulationLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    task = NumberedTask(coro, loop=loop, **options)
    loop.made += 1
    task.number = loop.made
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    context = options.get("context")
    life = LIFE.get() if context is None else context.get(LIFE)
    (loop.tasks if life is None else life.tasks).append(task)
    return task


def run_in(loop: SimulationLoop, main: Any) -> Any:
    """Run a coroutine to its end in a loop."""
    try:
        return loop.run_until_complete(main)
    finally:
        events.set_event_loop(None)


def bury(tasks: list[asyncio.Task[Any]]) -> None:
    """Close the coroutines of abandoned tasks now, rather than whenever they are collected."""
    for task in tasks:
        coro: Any = task.get_coro()
        for _ in range(5):
            try:
                coro.close()
            except BaseException:  # noqa: S112 - it is dead, whatever it would still do
                continue
            break
    tasks.clear()
