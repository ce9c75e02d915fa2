"""Whatever a client sends, the broker answers in frames, lets go of everything, and goes on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from broker.log_lines import log_lines
from broker.server import ServerProcess, running
from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.frontend.connection import Connection
from tamis.errors import DisconnectedError
from tamis.protocol import Pong, Refused, decode_reply
from tamis.protocol.frames import Reply
from tamis.protocol.views import Receipt

from . import fuzzing
from .sockets import raw, read_all

HELLO = b'{"type":"hello"}'
PING = b'{"type":"ping","ref":4711}'
# Refusals of what is no frame, is too large, or comes from nobody.
CODES = {4400, 4401, 4413}


class Script:
    """A transport that brings what was written down, and keeps what is sent."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages[::-1]
        self.replies: list[Reply] = []
        self.code: int | None = None

    @property
    def unread(self) -> int:
        return len(self._messages)

    async def receive(self) -> bytes:
        if not self._messages:
            raise DisconnectedError("there is no more")
        return self._messages.pop()

    async def send(self, frame: bytes) -> None:
        if not self._messages and self.code is not None:
            raise DisconnectedError("it is closed")
        self.replies.append(decode_reply(frame))

    async def close(self, code: int, reason: str) -> None:
        assert len(reason) < 10_000
        self.code = code


async def speak(broker: Broker, messages: list[bytes]) -> Script:
    """Run a connection to its end; any exception fails the test."""
    script = Script(messages)
    await asyncio.wait_for(Connection.over(broker, script).run(), 30)
    assert script.code is None or script.code in CODES, (messages, script.code)
    assert (script.code is None) is not any(
        isinstance(reply, Refused) and reply.ref is None for reply in script.replies
    ), messages
    return script


async def check_it_works(broker: Broker) -> None:
    assert broker.status()["connections"] == 0
    script = await speak(broker, [HELLO, b'{"type":"publish","ref":1,"events":[{"a":1}]}', PING])
    assert Pong(ref=4711) in script.replies
    assert broker.health.ready
    await _forget_subscriptions(broker)


async def _forget_subscriptions(broker: Broker) -> None:
    session = await broker.authenticate(None)
    for view in await session.subscriptions():
        assert view.durable
        await session.delete(view.id)
    await session.close()


async def fuzz(folder: Path, count: int) -> None:
    draw = random.Random(fuzzing.seed())
    mishaps: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: mishaps.append(context))
    with log_lines() as logs:
        done = await _fuzz(folder, count, draw)
    assert mishaps == []
    assert [line for line in logs if line.levelno >= logging.ERROR] == []
    print(f"\nwebsocket fuzz: {done:,} inputs, 0 crashes")


async def _fuzz(folder: Path, count: int, draw: random.Random) -> int:
    async with await Broker.open(BrokerSettings(data=folder)) as broker:
        done = 0
        while done < count:
            messages = [fuzzing.text(draw) for _ in range(draw.randrange(1, 12))]
            if draw.random() < 0.9:
                messages.insert(0, HELLO)
            script = await speak(broker, messages)
            done += len(messages) - script.unread
            if draw.random() < 0.002:
                await check_it_works(broker)
        await check_it_works(broker)
    return done


def test_frames_right_and_wrong_do_no_harm(tmp_path: Path) -> None:
    asyncio.run(fuzz(tmp_path, 5_000))


@pytest.mark.slow
def test_half_a_million_frames_right_and_wrong_do_no_harm(tmp_path: Path) -> None:
    asyncio.run(fuzz(tmp_path, 500_000))


@pytest.mark.slow
def test_a_crash_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: one number that is too much for it."""
    real = Session.publish

    async def publish(self: Session, events: Any, *, sequence: int = 0, **options: Any) -> Receipt:
        if sequence > 2**62:
            raise ZeroDivisionError
        return await real(self, events, sequence=sequence, **options)

    monkeypatch.setattr(Session, "publish", publish)
    with pytest.raises(AssertionError, match="internal error"):
        asyncio.run(fuzz(tmp_path, 20_000))


# --- through a real socket -----------------------------------------------------------------------


def handshake(server: ServerProcess) -> socket.socket:
    """Return a connection on which WebSocket frames can be sent."""
    connection = raw(server)
    key = base64.b64encode(os.urandom(16))
    connection.sendall(
        b"GET /v1/connect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n" % key
    )
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        part = connection.recv(4096)
        assert part, answer
        answer += part
    assert answer.startswith(b"HTTP/1.1 101"), answer
    return connection


def fuzz_socket(server: ServerProcess, count: int) -> None:
    draw = random.Random(fuzzing.seed())
    done = 0
    with server.client() as client:
        while done < count:
            with handshake(server) as connection:
                connection.settimeout(10)
                done += _send_some(connection, draw)
                if draw.random() < 0.8:
                    # Otherwise it is closed without a word.
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_WR)
                    read_all(connection)
            if draw.random() < 0.01:
                assert client.get("/health").status_code == 200
        assert server.is_running
        assert client.post("/v1/events", json={"a": 1}).status_code == 200
    assert server.errors == "", server.errors[:5000]
    print(f"\nwebsocket fuzz: {done:,} inputs through a socket, 0 crashes")


def _send_some(connection: socket.socket, draw: random.Random) -> int:
    sent = 0
    try:
        if draw.random() < 0.9:
            connection.sendall(fuzzing.websocket_frame(HELLO, draw))
        for _ in range(draw.randrange(1, 5)):
            for piece in fuzzing.websocket_bytes(draw):
                connection.sendall(piece)
            sent += 1
    except ConnectionError:
        pass
    return sent


def test_bytes_right_and_wrong_do_no_harm(server: ServerProcess) -> None:
    fuzz_socket(server, 500)


@pytest.mark.slow
def test_many_bytes_right_and_wrong_do_no_harm(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        fuzz_socket(server, 20_000)
