"""Executors without threads: work is done in one step, at a moment that the seed decides."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from simulation.loop import LIFE, SimulationLoop

THREADS = {"deliver": 2, "client": 2}
"""Threads of each executor, as `Executors.threads` has them; one for the others."""

# How long work waits before it is done, and how long its result takes to arrive.
COMMON_SECONDS = 0.002
RARE_SECONDS = 0.4
RARE_SHARE = 0.03


class SimulatedExecutor:
    """A fixed number of simulated threads, each doing one thing at a time."""

    def __init__(
        self,
        name: str,
        loop: SimulationLoop,
        random: Random,
        before: Callable[[str], None],
        after: Callable[[str], None],
    ) -> None:
        self.name = name
        self._loop = loop
        self._random = random
        self._before = before
        self._after = after
        self._free = THREADS.get(name, 1)
        self._waiting: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self.stall_until = 0.0
        """Nothing begins before this moment: the disk or the machine is busy."""

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.submit(work, *args, **kwargs)

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        done = self._loop.create_future()
        self._waiting.append((done, partial(work, *args, **kwargs)))
        self._begin()
        return done

    begin = submit

    def close(self) -> None:
        """Do nothing: there are no threads to end."""

    def _begin(self) -> None:
        while self._free and self._waiting:
            done, work = self._waiting.popleft()
            if done.cancelled():
                continue
            self._free -= 1
            at = max(self._loop.time() + self._delay(), self.stall_until)
            self._loop.call_exactly(at, self._do, done, work)

    def _do(self, done: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        result, error = None, None
        if not done.cancelled():
            try:
                self._before(self.name)
                result = work()
            except Exception as raised:
                error = raised
            self._after(self.name)
        life = LIFE.get()
        if life is not None and life.is_over:
            return
        at = self._loop.time() + self._delay()
        self._loop.call_exactly(at, self._finish, done, result, error)

    def _finish(self, done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._free += 1
        if not done.done():
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)
        self._begin()

    def _delay(self) -> float:
        most = RARE_SECONDS if self._random.random() < RARE_SHARE else COMMON_SECONDS
        return self._random.random() * most
