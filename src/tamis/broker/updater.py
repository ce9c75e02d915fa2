"""The subscription updater: changes wait until the matcher has a moment between two batches.

So a change falls between two events, and all know between which: an event is matched either against
the subscriptions before the change or after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from tamis.broker.metrics import Metrics

MOST_TOGETHER: Final = 256

T = TypeVar("T")


class Change(NamedTuple):
    """Something to do with the subscriptions, and where its result is awaited."""

    make: Callable[[], Any]
    done: asyncio.Future[Any]


class Result(NamedTuple):
    """What came of a change."""

    done: asyncio.Future[Any]
    value: Any
    error: Exception | None

    def tell(self) -> None:
        """Wake whoever waits for it."""
        if self.done.done():
            return
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.value)


class Updater:
    """A bounded queue of changes."""

    def __init__(self, wake: Callable[[], None], metrics: Metrics, most_waiting: int) -> None:
        self._wake = wake
        self._waiting: asyncio.Queue[Change] = asyncio.Queue(most_waiting)
        metrics.watch_queue("update", self._waiting)

    async def do(self, make: Callable[[], T]) -> T:
        """Return the result of a change once it is in force."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        await self._waiting.put(Change(make, done))
        self._wake()
        return await done

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing waits."""
        return self._waiting.empty()

    def take(self) -> list[Change]:
        """Return changes that wait."""
        count = min(self._waiting.qsize(), MOST_TOGETHER)
        return [self._waiting.get_nowait() for _ in range(count)]


def make_all(changes: list[Change]) -> list[Result]:
    """Make changes; one that fails does not keep the others."""
    return [_made(change) for change in changes]


def _made(change: Change) -> Result:
    try:
        return Result(change.done, change.make(), None)
    except Exception as error:
        return Result(change.done, None, error)
