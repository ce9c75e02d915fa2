"""Long requests: they end when the client goes or the broker stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tamis.broker.frontend.operations import Call

T = TypeVar("T")


class _Wait:
    """A stream that is over when it is told to stop."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        self.stopped.set()


async def while_wanted(call: Call, asked: Coroutine[Any, Any, T]) -> T | None:
    """Return what is asked for, or None as soon as nobody waits for it any more."""
    waiting = _Wait()
    with call.frontend.streams.holding(waiting):
        work = asyncio.create_task(asked)
        others = [
            asyncio.create_task(gone(call)),
            asyncio.create_task(waiting.stopped.wait()),
        ]
        try:
            await asyncio.wait([work, *others], return_when=asyncio.FIRST_COMPLETED)
            return await work if work.done() else None
        finally:
            await end_all([work, *others])


async def gone(call: Call) -> None:
    """Return when the client has closed the connection."""
    while (await call.request.receive())["type"] != "http.disconnect":
        pass


async def end_all(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and return when they are over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
