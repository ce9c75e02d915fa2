"""Pacing: while the event loop is late, a principal with very many requests waits for others.

Every request takes the event loop's time, also a refused one. A client that asks as fast as it can
over many connections would fill each turn of the loop, and everybody else waits for the turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

LOOK_SECONDS: Final = 0.02
LATE_SECONDS: Final = 0.005
WINDOW_SECONDS: Final = 0.5
REQUESTS_PER_WINDOW: Final = 20


class RequestPacing:
    """Counts the requests of principals, and measures how late the event loop is."""

    def __init__(self, others: Callable[[str], bool]) -> None:
        """Pace requests; `others` says whether anybody else than a principal is there."""
        self._others = others
        self._requests: Counter[str] = Counter()
        self._is_late = False
        self._was_late = False
        self._window_ends = 0.0
        self._next_look: asyncio.TimerHandle | None = None

    async def wait_for_turn(self, principal: str, closed: asyncio.Future[str]) -> None:
        """Return when the next request of a principal may be handled, or its session has ended."""
        loop = asyncio.get_running_loop()
        if self._next_look is None:
            self._window_ends = loop.time() + WINDOW_SECONDS
            self._look_later(loop)
        while (
            self._is_late
            and self._requests[principal] >= REQUESTS_PER_WINDOW
            and self._others(principal)
            and not closed.done()
        ):
            await asyncio.wait([closed], timeout=max(0.0, self._window_ends - loop.time()))
            # The timer that begins the next window may come a moment later.
            await asyncio.sleep(LOOK_SECONDS)
        self._requests[principal] += 1

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + LOOK_SECONDS
        self._next_look = loop.call_at(due, self._look, loop, due)

    def _look(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Measure how late this call is; stop looking once nobody asks."""
        self._was_late |= loop.time() - due > LATE_SECONDS
        if loop.time() >= self._window_ends:
            self._is_late, self._was_late = self._was_late, False
            is_idle = not self._requests
            self._requests.clear()
            self._window_ends = loop.time() + WINDOW_SECONDS
            if is_idle:
                self._is_late, self._next_look = False, None
                return
        self._is_late |= self._was_late
        self._look_later(loop)
