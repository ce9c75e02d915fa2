"""Functions that are called with the events of a subscription."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tamis.client.message import Message
from tamis.client.subscription import Subscription
from tamis.errors import TamisError

Handler = Callable[[Message], Awaitable[object] | object]

logger: Final = logging.getLogger("tamis.client")


class Handling:
    """A subscription whose events go to a function, one after the other."""

    def __init__(self, subscription: Subscription, function: Handler) -> None:
        self.subscription = subscription
        self._function = function
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Begin to call the function."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"tamis {self._name}")
            self._task.add_done_callback(self._say_error)
        return self._task

    async def _run(self) -> None:
        async for message in self.subscription:
            try:
                result = self._function(message)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                logger.exception("%s failed on event %d", self._name, message.sequence)
                await message.nack(reason=f"{type(error).__name__}: {error}")

    @property
    def _name(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def _say_error(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        # `run` raises it too, but perhaps nobody calls that.
        if isinstance(error, TamisError):
            logger.error("%s gets no more events: %s", self._name, error)
        else:
            logger.error("%s gets no more events", self._name, exc_info=error)
