"""Frames over a WebSocket."""

from __future__ import annotations

import os
import ssl
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from tamis.client.address import Address
from tamis.client.transport import Dial, Transport
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol.codes import STATUS

# Frames of a broker are smaller unless it was told otherwise; more than this is not taken.
LARGEST_FRAME: Final = 64 * 1024**2
_SECONDS_TO_CLOSE: Final = 2.0
_SECONDS_BETWEEN_PINGS: Final = 20.0

_CODES: Final = {status: code for code, status in STATUS.items()}


class WebSocketTransport:
    """A WebSocket that says in one way that it is gone."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, frame: bytes) -> None:
        """Send a frame as text."""
        try:
            await self._socket.send(frame, text=True)
        except ConnectionClosed as error:
            raise _gone(error) from None

    async def receive(self) -> bytes:
        """Return the next frame."""
        try:
            return await self._socket.recv(decode=False)
        except ConnectionClosed as error:
            raise _gone(error) from None

    async def close(self) -> None:
        """Say goodbye, and do not wait long for the answer."""
        await self._socket.close()


def websocket_dial(address: Address, *, timeout: float | None, tls: ssl.SSLContext | None) -> Dial:
    """Return what connects to a broker over the network."""

    async def dial() -> Transport:
        try:
            return WebSocketTransport(
                await connect(
                    address.connect,
                    compression=None,
                    max_size=LARGEST_FRAME,
                    open_timeout=timeout,
                    close_timeout=_SECONDS_TO_CLOSE,
                    ping_interval=_SECONDS_BETWEEN_PINGS,
                    proxy=None if address.is_loopback else True,
                    ssl=tls if address.is_secure else None,
                )
            )
        except InvalidStatus as error:
            raise _turned_away(address, error) from None
        except (OSError, TimeoutError, WebSocketException) as error:
            raise DisconnectedError(f"{address.web} cannot be reached: {_reason(error)}") from None

    return dial


def _turned_away(address: Address, error: InvalidStatus) -> RefusedError:
    status = error.response.status_code
    code = _CODES.get(status)
    if code is None:
        return DisconnectedError(f"{address.web} answers with HTTP {status}: is it a broker?")
    return RefusedError(code, f"{address.web} turned the connection away: {code.value}")


def _gone(error: ConnectionClosed) -> DisconnectedError:
    received = error.rcvd
    if received is None:
        return DisconnectedError("the connection broke off")
    reason = f": {received.reason}" if received.reason else ""
    return DisconnectedError(f"the broker closed the connection ({received.code}){reason}")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "nobody answered in time"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
