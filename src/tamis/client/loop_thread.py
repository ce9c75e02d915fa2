"""An event loop in a thread of its own, for those who have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from tamis.errors import DisconnectedError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tamis client", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Tell whether coroutines can still be run."""
        return not self._loop.is_closed()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns; Ctrl-C cancels it."""
        future = self.start(coroutine)
        try:
            return future.result()
        except CancelledError:
            raise DisconnectedError("the bus is closed") from None
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Let a coroutine run."""
        if not self.is_running:
            coroutine.close()
            raise DisconnectedError("the bus is closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Let a function be called in the loop; after its end nothing happens."""
        if self.is_running:
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """End the loop and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
