"""Turns, and a queue in which nobody overtakes: asyncio's lock and queue, with fewer calls.

Every publication passes both. At low rates a processor has forgotten the code by the next event,
and each of some thirty calls that asyncio makes takes a few microseconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Generic, TypeVar

from tamis.prompt_waiter import PromptWaiter

T = TypeVar("T")


class Turns:
    """Lets one do something at a time, like a lock of asyncio.

    But whoever meets nobody else need not call anything, which matters on the way of every
    publication: `if turns.is_taken: await turns.take()`, or else set `is_taken`; in the end,
    `if turns.waiting: turns.end()`, or else reset it.
    """

    __slots__ = ("is_taken", "waiting")

    def __init__(self) -> None:
        self.is_taken = False
        self.waiting: deque[asyncio.Future[None]] = deque()
        """Those whose turns come next; some may be cancelled."""

    async def take(self) -> None:
        """Return when it is the caller's turn."""
        if not self.is_taken:
            self.is_taken = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # If it was its turn already; otherwise `end` passes it over.
            if not turn.cancelled():
                self.end()
            raise

    def end(self) -> None:
        """End the caller's turn; the next one begins at once."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.is_taken = False


class TurnQueue(Generic[T]):
    """A queue for one reader; those who wait for room get it in the order in which they came.

    A full queue of asyncio's lets newcomers overtake, but publications of one publisher must not.
    """

    def __init__(self, max_waiting: int) -> None:
        self.waiting: deque[T] = deque()
        self._max_waiting: float = max_waiting
        self._turns = Turns()
        """Of those who wait for room."""
        self._has_room = asyncio.Event()
        self._reader: PromptWaiter | None = None
        """What the reader waits for."""
        self._unfinished = 0
        self._is_finished = asyncio.Event()
        self._is_finished.set()

    def qsize(self) -> int:
        """Return how much waits."""
        return len(self.waiting)

    def put_now(self, item: T, *, has_turn: bool = False, is_urgent: bool = False) -> bool:
        """Add something if there is room, and nobody else waits for it; return whether it did.

        The reader takes it in the next turn of the event loop, so that more can come; if it is
        urgent, at once, unless a task calls.
        """
        if len(self.waiting) >= self._max_waiting or (self._turns.is_taken and not has_turn):
            return False
        self.waiting.append(item)
        self._unfinished += 1
        if (reader := self._reader) is not None:
            self._reader = None
            if is_urgent:
                reader.wake()
            else:
                reader.wake_later()
        return True

    async def put(self, item: T) -> None:
        """Add something once there is room."""
        await self._turns.take()
        try:
            while not self.put_now(item, has_turn=True):
                self._has_room.clear()
                await self._has_room.wait()
        finally:
            self._turns.end()

    async def get(self) -> T:
        """Return the next one, once there is one."""
        while not self.waiting:
            self._reader = PromptWaiter()
            await self._reader
        if self._turns.is_taken:
            self._has_room.set()
        return self.waiting.popleft()

    def close(self) -> list[T]:
        """Return what waits; whoever adds something from now on does not wait for room."""
        left = [*self.waiting]
        self.waiting.clear()
        self._max_waiting = inf
        self._has_room.set()
        return left

    def finish(self, count: int) -> None:
        """Note that so much of what was returned is done."""
        self._unfinished -= count
        if not self._unfinished:
            self._is_finished.set()

    async def join(self) -> None:
        """Return when nothing waits, and all that was returned is done."""
        while self._unfinished:
            self._is_finished.clear()
            await self._is_finished.wait()
