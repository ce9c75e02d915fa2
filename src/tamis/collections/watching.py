"""Watches: a function is called with each member that comes, until the watch is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

from tamis.client.cancellation import cancellations, is_cancelled
from tamis.client.messages import Message
from tamis.client.object_consumer import ObjectConsumer
from tamis.collections.members import Distinct
from tamis.errors import OptionError, RefusedError, TamisError

logger: Final = logging.getLogger("tamis.collections")

WAITS_FOR_ITSELF: Final = (
    "was called by the function of the watch itself, whose end would never come: cancel the watch "
    "instead, or wait for it elsewhere"
)


class Watch:
    """Members of a collection that come from now on; made by `contains`."""

    def __init__(
        self,
        consumer: ObjectConsumer,
        callback: Callable[[Any], object],
        distinct: Distinct | None,
    ) -> None:
        self._consumer: Final = consumer
        self._callback: Final = callback
        self._distinct: Final = distinct
        self._calling: Final = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._forgets = False

    @property
    def name(self) -> str | None:
        """Return the name under which the broker keeps members, None if it keeps none."""
        return self._consumer.checked.durable

    @property
    def missed(self) -> int:
        """Return how many members are known to be missing."""
        return self._consumer.missed

    @property
    def refused(self) -> int:
        """Return how many members could not be read."""
        return self._consumer.refused

    @property
    def refusals(self) -> list[str]:
        """Return why the last ones of these could not be read."""
        return self._consumer.refusals

    @property
    def is_over(self) -> bool:
        """Return whether no more members will come."""
        return self._task is not None and self._task.done()

    def __repr__(self) -> str:
        return f"<Watch {self._consumer.filter!r}, {'over' if self.is_over else 'active'}>"

    async def start(self) -> None:
        """Subscribe, and begin to call the function."""
        await self._consumer.start()
        self._task = asyncio.create_task(self._run(), name=f"tamis {self!r}")
        self._task.add_done_callback(self._log_error)

    async def _run(self) -> None:
        async for member, received in self._consumer.messages():
            async with self._calling:
                await self._handle(member, received)
            if self._is_cancelled:
                await self._close()
                return

    async def _handle(self, member: object, received: Message) -> None:
        if self._distinct is not None and not self._distinct.is_new(member, received.text):
            return
        before = cancellations()
        try:
            result = self._callback(member)
            if inspect.isawaitable(result):
                await result
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled(error, before):
                raise
            logger.exception("%r: the function failed on event %d", self, received.sequence)
            await received.nack(reason=f"{type(error).__name__}: {error}")
        else:
            await received.ack()

    async def cancel(self, *, forget: bool = False) -> None:
        """Call the function no more, once a call that is under way has returned.

        What is kept for this name, or for all who share a queue, stays unless you `forget` it.
        """
        self._is_cancelled, self._forgets = True, forget
        if self._task is None or self._task.done() or self._task is asyncio.current_task():
            return
        async with self._calling:
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, TamisError):
            await self._task
        await self._close()

    async def cancel_after_call(self, *, forget: bool = False) -> None:
        """Call the function no more, once this call of it has returned."""
        self._is_cancelled, self._forgets = True, forget

    async def _close(self) -> None:
        # What is acknowledged and not stored comes again, which certified collections may do.
        with contextlib.suppress(RefusedError):
            await self._consumer.flush()
        await self._consumer.close(delete=self._forgets)

    async def wait(self) -> None:
        """Wait until it is over; raise the error that ended it, if one did."""
        if self._task is not None and self._task is asyncio.current_task():
            raise OptionError("wait", WAITS_FOR_ITSELF)
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._task)

    def _log_error(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("%r gets no more members: %s", self, error)
