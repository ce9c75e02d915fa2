"""The WebSocket at /v1/connect: frames as text messages."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from tamis.broker.frontend.connection import Connection
from tamis.broker.frontend.http.operations import Frontend
from tamis.broker.frontend.http.problems import problem_response
from tamis.broker.frontend.http.reading import bearer_token
from tamis.broker.frontend.streams import direct_socket, make_known
from tamis.broker.operations.logs import get_logger
from tamis.errors import RefusedError

LOG: Final = get_logger("tamis.websocket")

# What a WebSocket raises when the peer has gone, depending on the operation.
DISCONNECTS: Final = (WebSocketDisconnect, WebSocketDisconnected, OSError)


class WebSocketApp:
    """The ASGI application behind /v1/connect."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a client until it goes."""
        broker, socket = self._frontend.broker, WebSocket(scope, receive, send)
        try:
            token = bearer_token(socket)
            session = None if token is None else await broker.authenticate(token)
        except RefusedError as error:
            broker.metrics.refused.labels(error.code).inc()
            await socket.send_denial_response(problem_response(error, socket.url.path))
            return
        if session is not None:
            make_known(scope)
        # Past the handshake it speaks to the server directly.
        connection = Connection(
            broker,
            receive,
            send,
            session=session,
            on_welcome=partial(make_known, scope),
            direct=direct_socket(scope),
        )
        with self._frontend.streams.holding(connection):
            with contextlib.suppress(*DISCONNECTS):
                await socket.accept()
            # A task of its own, by whose name debuggers show what the connection waits for.
            await broker.supervisor.start("connection", connection.run())
        LOG.info("disconnected", principal=connection.principal, reason=connection.end_reason)
