"""Speaking with a broker in frames, and in raw bytes."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

from broker.server import ServerProcess

WAIT = 20.0


class Talk:
    """A WebSocket to a broker; what is sent and received are dictionaries."""

    def __init__(self, server: ServerProcess, *, hello: bool = True, **options: Any) -> None:
        self._exits = ExitStack()
        self.socket: ClientConnection = self._exits.enter_context(
            connect(server.websocket_url, compression=None, proxy=None, **options)
        )
        if hello:
            self.say("hello")
            assert self.hear("welcome")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def say(self, type_: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type_, **fields}))

    def hear(self, *types: str) -> dict[str, Any]:
        """Return the next frame, which must be of one of these types."""
        frame: dict[str, Any] = json.loads(self.socket.recv(timeout=WAIT))
        assert not types or frame["type"] in types, frame
        return frame

    def ask(self, type_: str, *answers: str, **fields: Any) -> dict[str, Any]:
        """Send a request, and return the answer to it; what else comes is passed over."""
        self.say(type_, ref=77, **fields)
        while (frame := self.hear()).get("ref") != 77:
            pass
        assert not answers or frame["type"] in answers, frame
        return frame

    def events(self, count: int) -> list[dict[str, Any]]:
        """Return this many events."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            frame = self.hear()
            if frame["type"] == "deliver":
                found += frame["events"]
        assert len(found) == count
        return found


def raw(server: ServerProcess, *, buffer: int | None = None) -> socket.socket:
    """Return a TCP connection to a server."""
    connection = socket.socket()
    if buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(WAIT)
    connection.connect(("127.0.0.1", server.port))
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Return what comes until the server closes; a reset is an end as well."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
