"""What a task waits for that is to go on at once, without another turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, cast


class PromptWaiter:
    """Is awaited by one task, once, which goes on inside of `wake`.

    A future would have its task resumed in the next turn of the loop. That asks the system for news
    and begins with nothing in the caches of the processor, and the event that somebody waits for
    is here already.

    Tasks wait for whatever has the methods of a future and says so (`asyncio.isfuture`).
    """

    _asyncio_future_blocking = False
    """Asyncio's mark of a future; true while a task is told that it has to wait."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._resume: tuple[Callable[[PromptWaiter], object], Context | None] | None = None
        """How the task goes on, once it waits."""
        self._is_done = False
        self._cancelled: asyncio.CancelledError | None = None

    def __await__(self) -> Generator[Any, None, None]:
        self._asyncio_future_blocking = not self._is_done
        # No generator, which would be one more to go on; awaiting takes any iterator.
        return cast("Generator[Any, None, None]", iter(() if self._is_done else (self,)))

    def wake(self) -> None:
        """Let the task go on until it waits again; later, if this is called by another task."""
        resume, self._resume, self._is_done = self._resume, None, True
        if resume is None:
            return
        function, context = resume
        # One task cannot run inside of another.
        if context is None or asyncio.current_task(self._loop) is not None:
            self._loop.call_soon(function, self, context=context)
            return
        try:
            context.run(function, self)
        except RuntimeError:
            # Whoever wakes is in the context of the task, which cannot be entered twice.
            self._loop.call_soon(function, self, context=context)
        except (SystemExit, KeyboardInterrupt) as error:
            # It ends the loop, in its next turn: whoever wakes is in the middle of a read.
            self._loop.call_soon(_raise, error)

    def wake_later(self) -> None:
        """Let the task go on in the next turn, as for callers in the middle of something."""
        resume, self._resume, self._is_done = self._resume, None, True
        if resume is not None:
            self._loop.call_soon(resume[0], self, context=resume[1])

    # --- called by tasks, as for a future ---------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the task."""
        return self._loop

    def add_done_callback(
        self, function: Callable[[PromptWaiter], object], /, *, context: Context | None = None
    ) -> None:
        """Note how the task goes on."""
        self._resume = function, context

    def cancel(self, msg: object = None) -> bool:
        """Cancel the task that waits; return whether it had not been woken."""
        if self._is_done:
            return False
        self._cancelled = asyncio.CancelledError(*(() if msg is None else (msg,)))
        self.wake_later()
        return True

    def result(self) -> None:
        """Raise if it was cancelled."""
        if self._cancelled is not None:
            raise self._cancelled


def _raise(error: BaseException) -> None:
    raise error
