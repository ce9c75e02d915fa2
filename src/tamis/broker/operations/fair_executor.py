"""The fair executor: principals share threads, and nobody gets more than one at a time.

Long work is a generator that yields between pieces. After each piece the thread is free for others
for at least as long as the piece took: Python runs one thread at a time, so work that never pauses
would slow down everything else in the process, not only the executor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple, ParamSpec, TypeVar

from tamis.errors import RefusedError
from tamis.ports import Executor
from tamis.protocol import Code

P = ParamSpec("P")
T = TypeVar("T")

Slices = Generator[None, None, T]
"""Work that yields between pieces, and returns its result."""

SLICE_SECONDS: Final = 0.0005
# A piece seems to have taken longer if the machine slept meanwhile.
MAX_PAUSE_SECONDS: Final = 1.0
MAX_WAITING: Final = 16
MAX_WAITING_IN_ALL: Final = 2_000
RETRY_AFTER_SECONDS: Final = 1.0
MAX_KNOWN: Final = 1_000


class _Turn:
    """The lock of a principal, and how much of its work runs or waits."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.count = 0


class _SliceResult(NamedTuple):
    seconds: float
    processor_seconds: float
    """Without what it waited for, which delays nobody else."""
    is_last: bool
    result: object = None
    error: Exception | None = None


class FairExecutor:
    """Runs one piece of work of each principal at a time, in the threads of an executor."""

    def __init__(
        self,
        executor: Executor,
        clock: Callable[[], float],
        pause_after: Callable[[str, float], float],
        *,
        charge: Callable[[str, float], None] = lambda _principal, _seconds: None,
        thread_time: Callable[[], float] = time.thread_time,
        max_waiting: float = MAX_WAITING,
        max_waiting_in_all: float = MAX_WAITING_IN_ALL,
    ) -> None:
        """Share an executor; `clock` is monotonic, and more work than the limits is refused.

        `charge` makes a principal pay for the processor time of a piece of work, by `thread_time`,
        and `pause_after` says for how long it then pauses.
        """
        self._charge = charge
        self._thread_time = thread_time
        self._executor = executor
        self._clock = clock
        self._pause_after = pause_after
        self._max_waiting = max_waiting
        self._max_waiting_in_all = max_waiting_in_all
        self._turns: dict[str, _Turn] = {}
        self._count = 0
        self._free_at: dict[str, float] = {}
        """When each principal has paused long enough after its last piece of work."""

    async def run(
        self, principal: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the result of a function that takes a few milliseconds."""
        return await self.run_slices(principal, _whole(partial(work, *args, **kwargs)))

    async def run_slices(self, principal: str, slices: Slices[T]) -> T:
        """Return the result of longer work, done piece by piece."""
        async with self._turn(principal):
            while True:
                piece = await self._run_piece(principal, slices)
                if piece.is_last:
                    return piece.result  # type: ignore[return-value]

    async def _run_piece(self, principal: str, slices: Slices[T]) -> _SliceResult:
        """Do a piece of work, once the principal has paused long enough after the last one."""
        now = self._clock()
        await asyncio.sleep(max(0.0, self._free_at.get(principal, now) - now))
        running = asyncio.ensure_future(self._executor.run(self._advance, slices))
        try:
            piece = await asyncio.shield(running)
        except asyncio.CancelledError:
            # A thread cannot be interrupted: until it has finished, it is this principal's turn.
            await asyncio.wait([running])
            # The executor may have failed, or closed; who gives up need not know.
            if not running.cancelled() and running.exception() is None:
                self._note_pause(principal, running.result())
            raise
        self._note_pause(principal, piece)
        if piece.error is not None:
            raise piece.error
        return piece

    def _note_pause(self, principal: str, piece: _SliceResult) -> None:
        self._charge(principal, piece.processor_seconds)
        pause, now = self._pause_after(principal, piece.seconds), self._clock()
        self._free_at[principal] = now + min(pause, MAX_PAUSE_SECONDS)
        if len(self._free_at) > MAX_KNOWN:
            self._free_at = {name: at for name, at in self._free_at.items() if at > now}

    def _advance(self, slices: Slices[T]) -> _SliceResult:
        started, used, seconds = self._clock(), self._thread_time(), 0.0
        is_last, result, failure = False, None, None
        try:
            while seconds < SLICE_SECONDS:
                next(slices)
                seconds = self._clock() - started
        except StopIteration as end:
            is_last, result = True, end.value
        except Exception as error:
            # It has taken its time, too.
            is_last, failure = True, error
        seconds, used = self._clock() - started, self._thread_time() - used
        return _SliceResult(seconds, used, is_last, result, failure)

    @asynccontextmanager
    async def _turn(self, principal: str) -> AsyncIterator[None]:
        turn = self._turns.get(principal) or _Turn()
        if turn.count > self._max_waiting:
            raise too_many_at_once(f"{principal} asks for more than {self._max_waiting} things")
        if self._count > self._max_waiting_in_all:
            raise too_many_at_once("clients ask the broker for more than it can answer")
        self._turns[principal] = turn
        turn.count += 1
        self._count += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.count -= 1
            self._count -= 1
            if not turn.count:
                del self._turns[principal]


def too_many_at_once(why: str) -> RefusedError:
    """Return the refusal of work beyond a limit; `why` says who asks for more than what."""
    message = f"{why} at once; try again in {RETRY_AFTER_SECONDS:.0f} s"
    return RefusedError(Code.TOO_MANY, message, retry_after=RETRY_AFTER_SECONDS)


def _whole(work: Callable[[], T]) -> Slices[T]:
    """Return work as one piece."""
    yield from ()
    return work()
