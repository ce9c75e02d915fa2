"""What of the bytes that were sent has arrived at the other machine, as far as this one knows."""

from __future__ import annotations

import asyncio
import struct

try:
    import fcntl
    import termios
except ImportError:  # pragma: no cover - where it cannot be asked, leaving this machine must do
    fcntl = None  # type: ignore[assignment]


def has_all_arrived(transport: asyncio.Transport) -> bool:
    """Tell whether the peer has confirmed every byte; false for a connection that is closing."""
    if transport.is_closing() or transport.get_write_buffer_size():
        return False
    return not _unconfirmed(transport)


def _unconfirmed(transport: asyncio.Transport) -> int:
    socket = transport.get_extra_info("socket")
    if fcntl is None or socket is None:
        return 0
    try:
        answer = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        # Not every system knows this of its sockets.
        return 0
    return int(struct.unpack("i", answer)[0])


class Arrivals:
    """Events on their way to a client, acknowledged when all that was sent has arrived."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self._transport = transport
        self._on_the_way = 0
        """The last event that was sent."""
        self._arrived = 0

    @property
    def is_something_on_the_way(self) -> bool:
        """Tell whether events have been sent that have not arrived."""
        return self._on_the_way > self._arrived

    def sent(self, sequence: int) -> None:
        """Note an event that has been handed to the system."""
        self._on_the_way = max(self._on_the_way, sequence)

    def take(self) -> int:
        """Return the event up to which all have arrived since the last time, or 0."""
        if not self.is_something_on_the_way or not self._is_quiet():
            return 0
        self._arrived = self._on_the_way
        return self._arrived

    def _is_quiet(self) -> bool:
        return self._transport is None or has_all_arrived(self._transport)
