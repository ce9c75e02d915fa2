"""Closing a connection so that the peer can read what it was told last.

A system that closes a connection with bytes in it that nobody has read tells the peer so at once,
and the peer's system throws away what it had received: of the answer "this is too large" nothing
arrives. So the sending half is closed first, and what still comes is thrown away for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

SECONDS: Final = 2.0


def linger(transport: asyncio.Transport) -> asyncio.TimerHandle:
    """Say that no more comes, and close soon; the protocol must ignore what it receives."""
    transport.resume_reading()
    if transport.can_write_eof():
        transport.write_eof()
    return asyncio.get_running_loop().call_later(SECONDS, transport.close)


class LingeringTransport:
    """A transport whose `close` lingers if the peer is still sending, but not for ever."""

    def __init__(
        self, transport: asyncio.Transport, is_peer_sending: Callable[[], bool], patience: float
    ) -> None:
        self._transport = transport
        self._is_peer_sending = is_peer_sending
        self._patience = patience
        self._is_lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Tell whether nothing more can be sent."""
        return self._is_lingering or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send, unless it is too late."""
        if not self._is_lingering:
            self._transport.write(data)

    def close(self) -> None:
        """Close, now or soon."""
        if self.is_closing():
            return
        if self._is_peer_sending():
            self._is_lingering = True
            linger(self._transport)
        else:
            self._transport.close()
        if self._transport.get_write_buffer_size():
            # A peer that never reads would keep the connection as long as it likes.
            asyncio.get_running_loop().call_later(self._patience, self._transport.abort)
