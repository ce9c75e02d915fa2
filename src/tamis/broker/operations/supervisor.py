"""The supervisor: every task of a broker, and what happens when one fails.

A task that can go on without loss is started again, after a growing pause. One that cannot, such as
the matcher, ends the broker: a restart recovers from the log. Either way the failure is logged with
its cause, counted, and shown by `Health`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.metrics import Metrics
from tamis.errors import BrokerFailedError, TamisError

LOG: Final = get_logger("tamis.broker")

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 30.0
# A part that has run for this long again counts as sound.
SOUND_SECONDS: Final = 10.0

_CANCELLED: Final = RuntimeError("it was cancelled, though the broker does not close")

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, None]]


class Supervisor:
    """Runs the tasks of one broker."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closing = False
        self.failed: asyncio.Future[BrokerFailedError] = asyncio.get_running_loop().create_future()
        """Set once a part has failed that the broker cannot do without."""

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work once, which nobody need wait for; its failure is logged."""
        return self._start(name, work, self._log)

    def restart(self, name: str, work: Work) -> asyncio.Task[None]:
        """Run work, again and again after failures, until it ends by itself or is cancelled."""
        return self._start(name, self._repeat(name, work), self._log)

    def depend_on(self, name: str, work: Work) -> asyncio.Task[None]:
        """Run work without which the broker cannot go on: it ends if the work fails."""
        return self._start(name, work(), self.fail, may_be_cancelled=False)

    async def unless_failed(self, waiting: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
        """Return the result of waiting for a part; raise if one has failed or fails meanwhile."""
        task = asyncio.ensure_future(waiting)
        try:
            either: list[asyncio.Future[Any]] = [task, self.failed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self.failed.result()
            return await task
        finally:
            task.cancel()

    async def finish(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of work that is finished also if whoever waits gives up.

        A refusal goes to the caller who waits, and is not a failure.
        """
        task = self.start(name, _result_or_refusal(work))
        # It may be cancelled before it begins, and Python would warn that nobody awaited the work.
        task.add_done_callback(lambda _: work.close())
        result = await self.unless_failed(asyncio.shield(task))
        if isinstance(result, TamisError):
            raise result
        return result

    async def close(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        self._is_closing = True
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def fail(self, name: str, error: BaseException) -> None:
        """End the broker, because one of its parts has failed."""
        self._metrics.failures.labels(name).inc()
        self._health.report(f"the {name} has failed", repr(error))
        LOG.critical("a part of the broker has failed", part=name, exc_info=error)
        if not self.failed.done():
            failure = BrokerFailedError(name)
            failure.__cause__ = error
            self.failed.set_result(failure)

    async def _repeat(self, name: str, work: Work) -> None:
        pause, problem = FIRST_PAUSE_SECONDS, f"the {name} fails and is started again"
        while True:
            task = asyncio.create_task(work(), name=name)
            try:
                done, _ = await asyncio.wait([task], timeout=SOUND_SECONDS)
                if not done:
                    pause = FIRST_PAUSE_SECONDS
                    self._health.clear(problem)
                    await asyncio.wait([task])
            finally:
                task.cancel()
            error = _CANCELLED if task.cancelled() else task.exception()
            if error is None:
                self._health.clear(problem)
                return
            self._metrics.failures.labels(name).inc()
            self._health.warn(problem, repr(error))
            LOG.error("a task failed and is started again", part=name, exc_info=error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _start(
        self,
        name: str,
        work: Coroutine[Any, Any, T],
        on_failure: Callable[[str, BaseException], None],
        *,
        may_be_cancelled: bool = True,
    ) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)

        def note_end(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if not task.cancelled():
                error = task.exception()
            else:
                is_over = self._is_closing or self.failed.done()
                error = None if may_be_cancelled or is_over else _CANCELLED
            if error is not None:
                on_failure(name, error)

        task.add_done_callback(note_end)
        return task

    def _log(self, name: str, error: BaseException) -> None:
        self._metrics.failures.labels(name).inc()
        LOG.error("a task failed", part=name, exc_info=error)


async def _result_or_refusal(work: Coroutine[Any, Any, T]) -> T | TamisError:
    try:
        return await work
    except TamisError as error:
        return error
