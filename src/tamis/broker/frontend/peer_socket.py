"""The WebSocket at /v1/peer: links that other brokers dial."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from tamis.broker.frontend.connection import ASGIMessage
from tamis.broker.frontend.http.operations import Frontend
from tamis.broker.frontend.http.problems import problem_response
from tamis.broker.frontend.http.reading import bearer_token
from tamis.broker.frontend.streams import make_known
from tamis.broker.frontend.websocket import DISCONNECTS
from tamis.broker.operations.logs import get_logger
from tamis.broker.sessions import Session
from tamis.client.transport import Transport
from tamis.errors import DisconnectedError, RefusedError, TamisError

LOG: Final = get_logger("tamis.peers")

NORMAL_CLOSURE: Final = 1000


class ASGITransport(Transport):
    """Carries frames over ASGI messages."""

    def __init__(
        self,
        receive: Callable[[], Awaitable[ASGIMessage]],
        send: Callable[[ASGIMessage], Awaitable[None]],
    ) -> None:
        self._receive = receive
        self._send = send

    async def send(self, frame: bytes) -> None:
        """Send a frame; wait while the peer does not take it."""
        try:
            await self._send({"type": "websocket.send", "bytes": frame})
        except OSError:
            raise DisconnectedError("the connection was lost") from None

    async def receive(self) -> bytes:
        """Return the next frame."""
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            reason = f": {message['reason']}" if message.get("reason") else ""
            raise DisconnectedError(f"the peer closed the connection{reason}")
        data: bytes = message["bytes"]
        return data

    async def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(*DISCONNECTS):
            await self._send({"type": "websocket.close", "code": NORMAL_CLOSURE, "reason": ""})


class PeerApp:
    """The ASGI application behind /v1/peer."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hold a link until its connection is lost."""
        broker, socket = self._frontend.broker, WebSocket(scope, receive, send)
        session: Session | None = None
        try:
            session = await broker.authenticate(bearer_token(socket))
            broker.overlay.require_peer(session.principal, session.rights)
        except RefusedError as error:
            broker.metrics.refused.labels(error.code).inc()
            LOG.warning("link refused", reason=str(error))
            if session is not None:
                await session.close()
            await socket.send_denial_response(problem_response(error, socket.url.path))
            return
        make_known(scope)
        try:
            await self._hold(socket, session, receive, send)
        finally:
            await session.close()

    async def _hold(
        self, socket: WebSocket, session: Session, receive: Receive, send: Send
    ) -> None:
        with self._frontend.streams.holding(_LinkStream(session)):
            with contextlib.suppress(*DISCONNECTS):
                await socket.accept()
            transport = ASGITransport(receive, send)
            overlay = self._frontend.broker.overlay
            reason: TamisError = await self._frontend.broker.supervisor.start(
                "link", overlay.hold_accepted(transport, session.principal, session.closed)
            )
            await transport.close()
        LOG.info("link closed", principal=session.principal.name, reason=str(reason))


class _LinkStream:
    """A link, as long as the broker does not stop."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def stop(self) -> None:
        self._session.revoke("the broker stops")
