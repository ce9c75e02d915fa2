"""What carries frames: a WebSocket, or two queues in one process."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

from websockets.asyncio.client import ClientConnection as WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from tamis.client.address import BrokerAddress
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol.codes import STATUS


class Transport(Protocol):
    """One connection; once it is lost, `send` and `receive` raise `DisconnectedError`."""

    async def send(self, frame: bytes) -> None:
        """Send a frame; wait while the other side is slow to read."""

    async def receive(self) -> bytes:
        """Return the next frame."""

    async def close(self) -> None:
        """Close the connection; never raise."""


Dial = Callable[[], Awaitable[Transport]]
"""Opens a connection, or raises `DisconnectedError` or `RefusedError`."""


# Larger frames are refused; a broker sends smaller ones unless it is set otherwise.
MAX_FRAME_BYTES: Final = 64 * 1024**2
_SECONDS_TO_CLOSE: Final = 2.0
_SECONDS_BETWEEN_PINGS: Final = 20.0

_CODES: Final = {status: code for code, status in STATUS.items()}


class WebSocketTransport:
    """A WebSocket that raises `DisconnectedError` whichever way it was lost."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, frame: bytes) -> None:
        """Send a frame as text."""
        try:
            await self._socket.send(frame, text=True)
        except ConnectionClosed as error:
            raise _disconnected(error) from None

    async def receive(self) -> bytes:
        """Return the next frame."""
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed as error:
            raise _disconnected(error) from None

    async def close(self) -> None:
        """Close the WebSocket, without waiting long for the broker's answer."""
        await self._socket.close()


def websocket_dial(
    address: BrokerAddress, *, timeout: float | None, tls: ssl.SSLContext | None
) -> Dial:
    """Return a function that connects to a broker over the network."""

    async def dial() -> Transport:
        try:
            return WebSocketTransport(
                await connect(
                    address.connect,
                    compression=None,
                    max_size=MAX_FRAME_BYTES,
                    open_timeout=timeout,
                    close_timeout=_SECONDS_TO_CLOSE,
                    ping_interval=_SECONDS_BETWEEN_PINGS,
                    proxy=None if address.is_loopback else True,
                    ssl=tls if address.is_secure else None,
                )
            )
        except InvalidStatus as error:
            raise _refused(address, error) from None
        except (OSError, TimeoutError, WebSocketException) as error:
            raise DisconnectedError(
                f"{address.web} cannot be reached: {failure_reason(error)}"
            ) from None

    return dial


def _refused(address: BrokerAddress, error: InvalidStatus) -> RefusedError:
    status = error.response.status_code
    code = _CODES.get(status)
    if code is None:
        return DisconnectedError(f"{address.web} answered with HTTP {status}: is it a broker?")
    return RefusedError(code, f"{address.web} refused the connection: {code.value}")


def _disconnected(error: ConnectionClosed) -> DisconnectedError:
    received = error.rcvd
    if received is None:
        return DisconnectedError("the connection was lost")
    reason = f": {received.reason}" if received.reason else ""
    return DisconnectedError(f"the broker closed the connection ({received.code}){reason}")


def failure_reason(error: BaseException) -> str:
    """Return why a connection failed; libraries wrap the error of the system in their own."""
    for cause in _chain(error):
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        if isinstance(cause, ConnectionError) and cause.errno:
            return os.strerror(cause.errno)
    return str(error) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
