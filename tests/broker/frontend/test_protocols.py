"""How a WebSocket is parsed: little at a time, so that nobody waits for one that sends much."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from unittest.mock import MagicMock

import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from tamis.broker.frontend.protocols import ServerConfig, WebSocketProtocol
from tamis.broker.operations.settings import BrokerSettings
from waiting import eventually_async

uvloop = pytest.importorskip("uvloop")

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TEXT = b'{"type":"ping"}'
FRAME = b"\x81" + bytes([0x80 | len(TEXT)]) + bytes(4) + TEXT
FRAMES = 4_000
MAX_SMALL_PIECE_BYTES = 16 * 1024
"""Some seven hundred such frames: far more than are parsed in 0.3 ms."""


def test_a_turn_of_the_loop_parses_few_small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of uvloop counts milliseconds, so it cannot tell how long parsing takes."""
    sizes: list[int] = []
    parse = WebSocketsSansIOProtocol.data_received

    def parsed(self: WebSocketsSansIOProtocol, data: bytes) -> None:
        sizes.append(len(data))
        parse(self, data)

    monkeypatch.setattr(WebSocketsSansIOProtocol, "data_received", parsed)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_received()) == FRAMES
    assert max(sizes) < MAX_SMALL_PIECE_BYTES


async def _received() -> int:
    """Send small frames over a WebSocket; return how many have come."""
    received = 0

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        nonlocal received
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] == "websocket.receive":
            received += 1

    loop = asyncio.get_running_loop()
    config = ServerConfig(app, BrokerSettings(), loop="none", log_config=None)
    config.load()
    here, there = socket.socketpair()
    await loop.connect_accepted_socket(
        lambda: WebSocketProtocol(config, ServerState(), {}, loop), there
    )
    here.setblocking(False)
    await loop.sock_sendall(here, HANDSHAKE)
    assert (await loop.sock_recv(here, 1024)).startswith(b"HTTP/1.1 101")
    await loop.sock_sendall(here, FRAME * FRAMES)
    await eventually_async(lambda: received == FRAMES)
    here.close()
    return received


def test_of_two_that_wait_to_send_neither_is_taken_for_disconnected() -> None:
    """What the first one sends may fill the buffer again before the second has its turn."""
    with asyncio.Runner() as runner:
        assert runner.run(_sent_by_two()) == [b"first", b"second"]


async def _sent_by_two() -> list[bytes]:
    """Let two wait for a socket that takes one message at a time; return what was sent."""
    loop, sent = asyncio.get_running_loop(), list[bytes]()
    config = ServerConfig(None, BrokerSettings(), loop="none", log_config=None)
    protocol = WebSocketProtocol(config, ServerState(), {}, loop)
    protocol.conn = MagicMock(data_to_send=lambda: [sent.pop()])
    protocol.conn.send_text.side_effect = sent.append
    written = list[bytes]()

    def write(data: bytes) -> None:
        written.append(data)
        protocol.pause_writing()

    protocol.transport = MagicMock(write=write)
    protocol.handshake_complete = True
    protocol.pause_writing()
    both = [
        asyncio.create_task(protocol.send({"type": "websocket.send", "bytes": data}))
        for data in (b"first", b"second")
    ]
    while not all(task.done() for task in both):
        await asyncio.sleep(0)  # so that both wait
        protocol.resume_writing()
    await asyncio.gather(*both)
    return written
