"""What carries frames: a WebSocket, or two queues in one process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Transport(Protocol):
    """One connection; when it is gone, `send` and `receive` raise `DisconnectedError`."""

    async def send(self, frame: bytes) -> None:
        """Send a frame; waits while the other side is slow to take them."""

    async def receive(self) -> bytes:
        """Return the next frame."""

    async def close(self) -> None:
        """End the connection; never raises."""


Dial = Callable[[], Awaitable[Transport]]
"""Makes a connection, or raises `DisconnectedError` or `RefusedError`."""
