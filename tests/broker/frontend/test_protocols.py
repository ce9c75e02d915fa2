"""How a WebSocket is parsed: little at a time, so that nobody waits for one that sends much."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from seeds import in_volume
from tamis.broker.frontend.protocols import (
    MAX_FRAGMENTS,
    MAX_FRAMES_PER_PIECE,
    ServerConfig,
    WebSocketProtocol,
)
from tamis.broker.operations.settings import BrokerSettings
from tamis.protocol.websocket_frames import FrameFollower, text_header
from waiting import eventually_async
from websocket_streams import random_frames, random_reads

uvloop = pytest.importorskip("uvloop")

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TEXT = b'{"type":"ping"}'
FRAME = b"\x81" + bytes([0x80 | len(TEXT)]) + bytes(4) + TEXT
PONG = b"\x8a\x80" + bytes(4)
FRAMES = 4_000
TAKEN = 0.7
"""How many of the messages that are read one by one are taken at once."""
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

    async with connected(app) as (_, here):
        await asyncio.get_running_loop().sock_sendall(here, FRAME * FRAMES)
        await eventually_async(lambda: received == FRAMES)
    return received


@asynccontextmanager
async def connected(
    app: Any, early: bytes = b""
) -> AsyncIterator[tuple[WebSocketProtocol, socket.socket]]:
    """Shake hands with a protocol, and say more at once; yield it and the socket of its peer."""
    loop = asyncio.get_running_loop()
    config = ServerConfig(app, BrokerSettings(), loop="none", log_config=None)
    config.load()
    here, there = socket.socketpair()
    _, protocol = await loop.connect_accepted_socket(
        lambda: WebSocketProtocol(config, ServerState(), {}, loop), there
    )
    here.setblocking(False)
    await loop.sock_sendall(here, HANDSHAKE + early)
    assert (await loop.sock_recv(here, 1024)).startswith(b"HTTP/1.1 101")
    yield protocol, here
    here.close()


def test_messages_keep_their_order_however_they_are_read_and_whoever_takes_them() -> None:
    """A read that is one text is not parsed, wherever the reads before it have ended."""
    unparsed, count = 0, in_volume(40)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for seed in range(count):
            random = Random(seed)
            frames, messages = random_frames(random, 30)
            reads = random_reads(random, frames, mask=True)
            got, whole = runner.run(_taken(reads, random))
            assert got == messages, seed
            unparsed += whole
    assert unparsed > count


def test_a_part_of_a_message_is_not_a_message_even_if_it_looks_like_one() -> None:
    """What a client masks with zeros may look like anything."""
    message = b"begin" + FRAME
    whole = Frame(Opcode.TEXT, message).serialize(mask=True)
    zeros = whole[:2] + bytes(4) + message
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for cut in (1, 5, len(zeros) - len(FRAME)):
            got, _ = runner.run(_taken([zeros[:cut], zeros[cut:], FRAME], Random(1)))
            assert got == [message, TEXT]
        # So may its length, after the beginning of its header.
        message = bytes(int.from_bytes(FRAME[:2]))
        zeros = Frame(Opcode.TEXT, message).serialize(mask=True)[:4] + bytes(4) + message
        reads = [zeros[:2], zeros[2 : 2 + len(FRAME)], zeros[2 + len(FRAME) :]]
        got, _ = runner.run(_taken(reads, Random(1)))
        assert got == [message]


def test_a_message_within_the_fragments_of_another_ends_the_connection() -> None:
    begun = Frame(Opcode.TEXT, b"begin", fin=False).serialize(mask=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        got, _ = runner.run(_taken([begun, FRAME], Random(1)))
    assert got == []


def test_what_comes_after_the_end_is_discarded_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for frames in megabytes of it would keep others waiting."""
    followed = list[int]()
    follow = FrameFollower.follow

    def noted(self: FrameFollower, data: bytes, most: int) -> int:
        followed.append(len(data))
        return follow(self, data, most)

    monkeypatch.setattr(FrameFollower, "follow", noted)
    rubbish = b" " * 2_000
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(_taken([rubbish] * 5, Random(1))) == ([], 0)
    # The handshake, and the first of it.
    assert followed == [0, len(rubbish)]


def test_a_turn_of_the_loop_parses_few_frames_however_quick_those_before_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of large frames, much is parsed in a turn, and then the next may be thousands of pongs."""
    parsed, pongs = list[bytes](), PONG * 5_000
    parse = WebSocketsSansIOProtocol.data_received

    def noted(self: WebSocketsSansIOProtocol, data: bytes) -> None:
        parsed.append(data)
        parse(self, data)

    monkeypatch.setattr(WebSocketsSansIOProtocol, "data_received", noted)
    large = Frame(Opcode.BINARY, bytes(30_000)).serialize(mask=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        got, _ = runner.run(_taken([large] * 20 + [pongs, FRAME], Random(1)))
    assert len(got) == 21
    assert max(map(len, parsed)) > 8 * MAX_FRAMES_PER_PIECE * len(PONG)
    assert max(data.count(PONG) for data in parsed) <= MAX_FRAMES_PER_PIECE


def test_fragments_take_no_more_memory_than_their_bytes() -> None:
    begin = Frame(Opcode.TEXT, b"begin", fin=False).serialize(mask=True)
    empty = Frame(Opcode.CONT, b"", fin=False).serialize(mask=True)
    end = Frame(Opcode.CONT, b" end").serialize(mask=True)
    kept = list[int]()

    async def main() -> list[bytes]:
        reads = [begin, *[empty * 500] * 10]
        got, _ = await _taken([*reads, end], Random(1), lambda one: kept.append(len(one.frames)))
        return got

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == [b"begin end"]
    assert max(kept) <= MAX_FRAGMENTS


def test_a_message_may_begin_with_the_handshake() -> None:
    """Uvicorn passes only the head on, today; if it did not, the rest would not be a message."""
    message = b"begin" + FRAME
    zeros = Frame(Opcode.TEXT, message).serialize(mask=True)[:2] + bytes(4) + message
    early, late = zeros[: -len(FRAME)], zeros[-len(FRAME) :]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        got, _ = runner.run(_taken([late, FRAME], Random(1), early=early))
    assert got == [message, TEXT]


async def _taken(
    reads: Sequence[bytes],
    random: Random,
    look: Callable[[WebSocketProtocol], object] = lambda _: None,
    *,
    early: bytes = b"",
) -> tuple[list[bytes], int]:
    """Let a protocol read; return what it has brought, and how many reads were not parsed."""
    got = list[bytes]()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            got.append(message["bytes"])

    def handler(message: bytes) -> bool:
        is_taken = random.random() < TAKEN
        if is_taken:
            got.append(message)
        return is_taken

    async with connected(app, early) as (protocol, _):
        protocol.make_known()
        protocol.hand_on(handler)
        whole = 0
        for read in reads:
            while not protocol.transport.is_reading():
                await asyncio.sleep(0)  # until what was read is handled
            with patch.object(protocol.conn, "receive_data", wraps=protocol.conn.receive_data) as p:
                protocol.data_received(read)
                whole += not p.called
            look(protocol)
        await eventually_async(lambda: protocol.queue.empty() and not protocol._unparsed)
    return got, whole


def test_of_two_that_wait_to_send_neither_is_taken_for_disconnected() -> None:
    """What the first one sends may fill the buffer again before the second has its turn."""
    with asyncio.Runner() as runner:
        assert runner.run(_sent_by_two()) == [b"first", b"second"]


async def _sent_by_two() -> list[bytes]:
    """Let two wait for a socket that takes one message at a time; return what was sent."""
    loop, sent = asyncio.get_running_loop(), list[bytes]()
    config = ServerConfig(None, BrokerSettings(), loop="none", log_config=None)
    protocol = WebSocketProtocol(config, ServerState(), {}, loop)
    protocol.conn = MagicMock(state=State.OPEN)

    def write(data: bytes) -> None:
        sent.append(data.removeprefix(text_header(len(data) - 2)))
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
    return sent
