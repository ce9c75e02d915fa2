"""Changes of the subscriptions, which wait to be made between two batches of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tamis.broker.operations.health import storage_refusal
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.supervisor import Supervisor
from tamis.errors import StorageError

T = TypeVar("T")


class SubscriptionChange(NamedTuple):
    """A change of the subscriptions, and the future of its result."""

    make: Callable[[], Any]
    done: asyncio.Future[Any]
    payers: Sequence[str]
    """The principals who want it; empty if the broker itself does."""


class ChangeResult(NamedTuple):
    """The result of a change, or the error that prevented it."""

    done: asyncio.Future[Any]
    value: Any
    error: Exception | None

    def resolve(self) -> None:
        """Resolve the future, unless its owner has given up."""
        if self.done.done():
            return
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.value)


class Updater:
    """A bounded queue of changes."""

    def __init__(
        self,
        wake: Callable[[], None],
        metrics: Metrics,
        max_waiting: int,
        supervisor: Supervisor,
    ) -> None:
        self._wake = wake
        self._supervisor = supervisor
        self.waiting: asyncio.Queue[SubscriptionChange] = asyncio.Queue(max_waiting)
        metrics.watch_queue("update", self.waiting)

    async def do(self, make: Callable[[], T], payers: Sequence[str] = ()) -> T:
        """Make a change between two batches, and return its result; these principals pay for it."""
        return await self._supervisor.unless_failed(self._do(make, payers))

    async def _do(self, make: Callable[[], T], payers: Sequence[str]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        await self.waiting.put(SubscriptionChange(make, done, payers))
        self._wake()
        return await done

    def take(self, most: int) -> list[SubscriptionChange]:
        """Return waiting changes, as many as one step may make."""
        count = min(self.waiting.qsize(), most)
        return [self.waiting.get_nowait() for _ in range(count)]


def make_change(change: SubscriptionChange) -> ChangeResult:
    """Make a change; for a thread, between two batches."""
    try:
        return ChangeResult(change.done, change.make(), None)
    except StorageError as error:
        return ChangeResult(change.done, None, storage_refusal(error))
    except Exception as error:
        return ChangeResult(change.done, None, error)
