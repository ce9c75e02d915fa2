"""Open streams: connections, event streams and long polls, which a stopping broker must end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

from starlette.types import Receive, Scope

T = TypeVar("T")


class OpenStream(Protocol):
    """Something that stays open until it is stopped."""

    def stop(self) -> None:
        """Finish the work in progress, then end."""


class OpenStreams:
    """All streams that are open now."""

    def __init__(self) -> None:
        self._open: set[OpenStream] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.is_stopping = False

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def holding(self, stream: OpenStream) -> Iterator[None]:
        """Register a stream for as long as the block runs."""
        self._open.add(stream)
        self._empty.clear()
        if self.is_stopping:
            stream.stop()
        try:
            yield
        finally:
            self._open.discard(stream)
            if not self._open:
                self._empty.set()

    async def stop(self) -> None:
        """Stop all streams, and return when they have ended."""
        self.is_stopping = True
        for stream in [*self._open]:
            stream.stop()
        await self._empty.wait()


class _LongPoll:
    """A request that waits for a result until the broker stops."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        self.stopped.set()


async def long_poll(
    streams: OpenStreams, receive: Receive, waiting: Coroutine[Any, Any, T]
) -> T | None:
    """Return the result, or None as soon as the client disconnects or the broker stops."""
    poll = _LongPoll()
    with streams.holding(poll):
        work = asyncio.create_task(waiting)
        others = [
            asyncio.create_task(disconnected(receive)),
            asyncio.create_task(poll.stopped.wait()),
        ]
        try:
            await asyncio.wait([work, *others], return_when=asyncio.FIRST_COMPLETED)
            has_gone = others[0].done()
            return await work if work.done() and not has_gone else None
        finally:
            await cancel_all([work, *others])


def make_known(scope: Scope) -> None:
    """Note for the server that the client of a connection is authenticated."""
    ticket = scope.get("state", {}).get("ticket")
    if ticket is not None:
        ticket.make_known()


@runtime_checkable
class DirectSocket(Protocol):
    """A socket that takes frames at once while its peer keeps up."""

    def send_now(self, data: bytes) -> bool:
        """Send a frame if it need not wait; return whether it was sent."""

    def hand_on(self, handler: Callable[[bytes], bool]) -> None:
        """Call a function with each frame where it is read; it returns whether it has taken it."""


def direct_socket(scope: Scope) -> DirectSocket | None:
    """Return the WebSocket of a connection itself, if the server is ours."""
    socket: DirectSocket | None = scope.get("state", {}).get("ticket")
    return socket


async def disconnected(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_all(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and return when they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
