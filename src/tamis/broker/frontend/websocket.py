"""The WebSocket at /v1/connect: frames as text messages."""

from __future__ import annotations

import contextlib
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from tamis.broker.frontend.connection import Connection
from tamis.broker.frontend.http.operations import Frontend
from tamis.broker.frontend.http.problems import problem_response
from tamis.broker.frontend.http.reading import bearer_token
from tamis.broker.operations.logs import get_logger
from tamis.errors import DisconnectedError, RefusedError

LOG: Final = get_logger("tamis.websocket")

# Raised by a WebSocket when the peer has disconnected, depending on the operation.
GONE: Final = (WebSocketDisconnect, WebSocketDisconnected, OSError)
# A close frame holds no more than this.
LONGEST_REASON: Final = 123


class SocketTransport:
    """Carries frames over a WebSocket."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> bytes:
        """Return the next message, text or not: our protocol class passes all on as bytes."""
        try:
            message = await self._socket.receive()
        except GONE:
            raise DisconnectedError("the client has gone") from None
        if message["type"] == "websocket.disconnect":
            raise DisconnectedError("the client has gone")
        return message["bytes"]  # type: ignore[no-any-return]

    async def send(self, frame: bytes) -> None:
        """Send a text message; wait while the peer does not read."""
        try:
            await self._socket.send_text(frame.decode())
        except GONE:
            raise DisconnectedError("the client has gone") from None

    async def close(self, code: int, reason: str) -> None:
        """Close the WebSocket."""
        short = reason.encode()[:LONGEST_REASON].decode(errors="ignore")
        with contextlib.suppress(*GONE):
            await self._socket.close(code, short)


async def connect(frontend: Frontend, socket: WebSocket) -> None:
    """Serve a client until it disconnects."""
    broker = frontend.broker
    try:
        token = bearer_token(socket)
        session = None if token is None else await broker.authenticate(token)
    except RefusedError as error:
        broker.metrics.refused.labels(error.code).inc()
        await socket.send_denial_response(problem_response(error, socket.url.path))
        return
    connection = Connection(broker, SocketTransport(socket), session=session)
    with frontend.streams.holding(connection):
        with contextlib.suppress(*GONE):
            await socket.accept()
        await connection.run()
    LOG.info("disconnected", principal=connection.principal, reason=connection.end_reason)
