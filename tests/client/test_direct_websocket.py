"""Frames are handed on where they are read, and mean what the library says they mean."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from socket import SHUT_WR
from socket import socket as Socket  # noqa: N812 - a class

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol
from websockets.sync.server import ServerConnection as SyncConnection
from websockets.sync.server import serve as serve_sync

import tamis
from broker.server import make_certificate
from seeds import in_volume
from tamis.client import direct_websocket
from tamis.client.direct_websocket import DirectWebSocket
from tamis.client.transport import Transport, WebSocketTransport, parse_address, websocket_dial
from tamis.errors import DisconnectedError, ProtocolError
from tamis.protocol import (
    Deliver,
    Delivery,
    Ended,
    Subscribe,
    Subscribed,
    Welcome,
    decode_request,
    encode_frame,
)
from waiting import eventually_async, let_others_run
from websocket_streams import random_frames, random_reads

from .buses import run

Speak = Callable[[ServerConnection], Awaitable[None]]
LARGEST = 70_000


@asynccontextmanager
async def served(speak: Speak | None = None) -> AsyncIterator[str]:
    """Serve WebSockets, silent ones unless told otherwise; yield the URL."""

    async def stay_silent(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with serve(
        speak or stay_silent, "127.0.0.1", 0, compression=None, max_size=None
    ) as server:
        [listening] = server.sockets
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@asynccontextmanager
async def dialled(url: str) -> AsyncIterator[WebSocketTransport]:
    address = parse_address(url)
    dial = websocket_dial(address, timeout=20, tls=None, path="/", largest_frame=LARGEST)
    transport = await dial()
    assert isinstance(transport, WebSocketTransport)
    try:
        yield transport
    finally:
        await transport.close()


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[WebSocketTransport, DirectWebSocket]]:
    """Connect to a server that says nothing, so that a test can say what is read."""
    async with served() as url, dialled(url) as transport:
        yield transport, transport._socket


@asynccontextmanager
async def receiving(
    transport: Transport, handler: Callable[[bytes], None]
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(transport.receive_all(handler))
    await let_others_run(2)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


def bytes_of(*frames: Frame) -> bytes:
    return b"".join(frame.serialize(mask=False) for frame in frames)


def bring(socket: DirectWebSocket, data: bytes) -> None:
    """Give it what one read brings, as asyncio does."""
    socket.get_buffer(len(data))[: len(data)] = data
    socket.buffer_updated(len(data))


def text(message: bytes, *, fin: bool = True) -> Frame:
    return Frame(Opcode.TEXT, message, fin)


def rest(message: bytes, *, fin: bool = True) -> Frame:
    return Frame(Opcode.CONT, message, fin)


# --- what is handed on ---------------------------------------------------------------------------


def test_a_message_is_handed_on_where_it_is_read() -> None:
    async def main() -> None:
        got: list[bytes] = []
        async with silent() as (transport, socket), receiving(transport, got.append):
            for size in (0, 1, 125, 126, 65_535, 65_536, LARGEST):
                bring(socket, bytes_of(text(bytes(size))))
                # No other task had a turn.
                assert got == [bytes(size)]
                got.clear()
            bring(socket, bytes_of(Frame(Opcode.BINARY, b"a"), text(b"b"), text(b"c")))
            assert got == [b"a", b"b", b"c"]

    run(main())


@pytest.mark.parametrize("size", [0, 5, 125, 126, 300])
def test_a_message_in_two_reads_is_handed_on_with_the_second(size: int) -> None:
    message = bytes(size)
    read = bytes_of(text(message))

    async def main() -> None:
        got: list[bytes] = []
        async with silent() as (transport, socket), receiving(transport, got.append):
            for place in range(1, len(read)):
                bring(socket, read[:place])
                assert got == []
                # The second brings the beginning of another one.
                bring(socket, read[place:] + read[:1])
                assert got == [message]
                bring(socket, read[1:])
                assert got == [message, message]
                got.clear()

    run(main(), strictly=False)


def test_messages_keep_their_order_however_they_are_read_and_whenever_they_are_handed_on() -> None:
    async def main() -> None:
        random, ways = Random(1), set()
        async with silent() as (transport, socket):
            for _ in range(in_volume(60)):
                frames, messages = random_frames(random, random.choice([1, 3, 30]))
                reads = random_reads(random, frames, mask=False)
                before = random.choice([0, random.randint(0, len(reads))])
                got: list[bytes] = []
                direct = 0
                for read in reads[:before]:
                    bring(socket, read)
                async with receiving(transport, got.append):
                    for read in reads[before:]:
                        had = len(got)
                        bring(socket, read)
                        direct += len(got) - had
                        if random.random() < 0.3:
                            await let_others_run(random.randint(1, 3))
                    await eventually_async(lambda: len(got) >= len(messages))  # noqa: B023
                assert got == messages
                ways.add((direct > 0, direct < len(messages)))
        # Some went all one way or all the other, and some went both.
        assert ways == {(True, False), (False, True), (True, True)}

    run(main(), strictly=False)


def test_over_tls_all_that_arrived_before_the_end_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end, asyncio asks once more where to put what it has decrypted."""
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=certificate)
    messages = [b"%06d" % number + bytes(1_500) for number in range(340)]
    has_ended = threading.Event()

    def speak(socket: SyncConnection) -> None:
        socket.recv()
        for message in messages:
            socket.send(message, text=True)
        socket.protocol.send_close(1012, "the broker stops")
        socket.socket.sendall(b"".join(socket.protocol.data_to_send()))
        with Socket(fileno=os.dup(socket.socket.fileno())) as same:
            same.shutdown(SHUT_WR)
        has_ended.set()
        socket.socket.recv(1)

    async def main(port: int) -> list[bytes]:
        got: list[bytes] = []
        address = parse_address(f"https://localhost:{port}")
        transport = await websocket_dial(address, timeout=20, tls=trusting, path="/")()
        receiving = asyncio.create_task(transport.receive_all(got.append))
        await let_others_run(2)
        await transport.send(b"begin")
        # Busy until everything has come.
        assert has_ended.wait(20)
        time.sleep(0.1)  # until the machine has handed it over
        with pytest.raises(DisconnectedError, match="the broker stops"):
            await receiving
        await transport.close()
        return got

    monkeypatch.setattr(direct_websocket, "_READ_BYTES", 64 * 1024)
    with serve_sync(speak, "localhost", 0, ssl=context, compression=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert asyncio.run(main(server.socket.getsockname()[1])) == messages
        server.shutdown()


def test_a_server_may_send_in_fragments() -> None:
    messages = [b"%d:%s" % (number, bytes(number * 100)) for number in range(50)]

    async def speak(socket: ServerConnection) -> None:
        for number, message in enumerate(messages):
            parts = [message[:3], message[3:7], message[7:]]
            await socket.send(message if number % 3 else parts, text=True)
        await socket.wait_closed()

    async def main() -> None:
        got: list[bytes] = []
        async with served(speak) as url, dialled(url) as transport:
            # This one was read before anybody asked for all.
            assert await transport.receive() == messages[0]
            async with receiving(transport, got.append):
                await eventually_async(lambda: len(got) >= len(messages) - 1)
        assert got == messages[1:]

    run(main())


@pytest.mark.parametrize("earlier", [[], [b"first"]])
def test_a_server_may_speak_with_its_answer(earlier: list[bytes]) -> None:
    messages = [*earlier, b"-" + bytes_of(text(b"trap")), b"last"]

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = ServerProtocol()
        while not (events := protocol.events_received()):
            protocol.receive_data(await reader.read(10_000))
        protocol.send_response(protocol.accept(events[0]))  # type: ignore[arg-type]
        # The read that ends the answer brings more: the beginning of a frame whose end looks whole.
        begin, end = bytes_of(*map(text, earlier)) + b"\x81\x07-", bytes_of(text(b"trap"))
        writer.write(b"".join(protocol.data_to_send()) + begin)
        await reader.read(10_000)
        writer.write(end + bytes_of(text(b"last")))
        await reader.read(10_000)
        writer.close()

    async def main() -> None:
        got: list[bytes] = []
        async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with (
                dialled(f"http://127.0.0.1:{port}") as transport,
                receiving(transport, got.append),
            ):
                await transport.send(b"go on")
                await eventually_async(lambda: len(got) == len(messages))
        assert got == messages

    run(main())


# --- how it ends ---------------------------------------------------------------------------------


async def how_it_ends(read: bytes, *, directly: bool) -> tuple[list[bytes], str]:
    """Return the messages and the error, where frames are handed on or as the library has them."""
    got: list[bytes] = []
    async with silent() as (transport, socket):
        if not directly:
            socket.hand_on = lambda *_: None  # type: ignore[method-assign]
        async with receiving(transport, got.append) as task:
            bring(socket, read)
            with pytest.raises(DisconnectedError) as caught:
                await asyncio.wait_for(task, 20)
    return got, str(caught.value)


CLOSE = Frame(Opcode.CLOSE, b"\x03\xe9going away")


GONE = "the broker closed the connection (1001): going away"
LOST = "the connection was lost"


@pytest.mark.parametrize(
    ("read", "messages", "words"),
    [
        pytest.param(bytes_of(text(b"a"), CLOSE, text(b"b")), [b"a"], GONE, id="close"),
        pytest.param(bytes_of(text(b"a", fin=False), CLOSE), [], GONE, id="close in a message"),
        pytest.param(text(b"a").serialize(mask=True), [], LOST, id="masked"),
        pytest.param(b"\xc1" + bytes_of(text(b"a"))[1:], [], LOST, id="reserved bits"),
        pytest.param(
            bytes_of(text(b"a", fin=False), text(b"b")), [], LOST, id="a message in a message"
        ),
        pytest.param(bytes_of(text(b"a"), rest(b"b")), [b"a"], LOST, id="the rest of nothing"),
        pytest.param(
            bytes_of(text(b"a"), text(bytes(LARGEST + 1))), [b"a"], LOST, id="a byte too large"
        ),
        pytest.param(b"\x81\x7f" + b"\xff" * 8, [], LOST, id="far too large"),
        pytest.param(b"\x83\x00", [], LOST, id="an unknown opcode"),
        pytest.param(b"\x81\x00\x89\x7e\x01\x00" + bytes(256), [b""], LOST, id="a large ping"),
    ],
)
def test_it_ends_as_the_library_ends_it(read: bytes, messages: list[bytes], words: str) -> None:
    async def main() -> None:
        assert await how_it_ends(read, directly=True) == (messages, words)
        assert await how_it_ends(read, directly=False) == (messages, words)

    run(main())


@pytest.mark.parametrize("is_queued", [False, True])
def test_what_the_handler_raises_ends_it_and_nothing_is_handed_on_after_it(
    is_queued: bool,
) -> None:
    got: list[bytes] = []

    def handle(frame: bytes) -> None:
        got.append(frame)
        if frame == b"bad":
            raise ProtocolError("this is bad")

    async def main() -> None:
        read = bytes_of(text(b"good"), text(b"bad"), text(b"late"))
        async with silent() as (transport, socket):
            if is_queued:
                bring(socket, read)
            async with receiving(transport, handle) as task:
                if not is_queued:
                    bring(socket, read)
                bring(socket, bytes_of(text(b"later")))
                with pytest.raises(ProtocolError, match="this is bad"):
                    await asyncio.wait_for(task, 20)
                bring(socket, bytes_of(text(b"latest")))
        assert got == [b"good", b"bad"]

    run(main())


def test_nothing_is_handed_on_after_whoever_receives_has_gone() -> None:
    async def main() -> None:
        got: list[bytes] = []
        async with silent() as (transport, socket):
            async with receiving(transport, got.append):
                bring(socket, bytes_of(text(b"a")))
            bring(socket, bytes_of(text(b"b")))
            assert got == [b"a"]
            # It waits for whoever receives next.
            assert await transport.receive() == b"b"
            async with receiving(transport, got.append):
                bring(socket, bytes_of(text(b"c")))
        assert got == [b"a", b"c"]

    run(main())


async def speak_as_broker(socket: ServerConnection) -> None:
    """Welcome a client, send its subscription events, some in fragments, and welcome it again."""
    welcome = encode_frame(Welcome("me", "1", largest_frame=10**6, largest_event=10**6))
    decode_request(await socket.recv(decode=False))
    await socket.send(welcome, text=True)
    request = decode_request(await socket.recv(decode=False))
    assert isinstance(request, Subscribe)
    await socket.send(encode_frame(Subscribed(ref=request.ref, subscription="s")), text=True)
    for n in range(1, 101):
        event = Delivery(sequence=n, time=0.0, publisher="p", data=msgspec.Raw(b'{"n": %d}' % n))
        frame = encode_frame(Deliver(subscription="s", events=[event]))
        await socket.send(frame if n % 3 else [frame[:20], frame[20:]], text=True)
    # The first of these is a mistake, and the second comes too late.
    await socket.send(welcome, text=True)
    await socket.send(encode_frame(Ended(subscription="s", reason="expired")), text=True)
    await socket.wait_closed()


def test_a_bus_has_the_events_before_a_mistake_of_its_broker_and_then_the_mistake() -> None:
    async def main() -> None:
        got: list[int] = []
        async with served(speak_as_broker) as url, tamis.connect(url, reconnect=False) as bus:

            async def listen() -> None:
                async for event in bus.subscribe("true", window=1000):
                    got.append(event["n"])  # noqa: PERF401

            with pytest.raises(DisconnectedError, match="the broker said `welcome` twice"):
                await listen()
            # Those that had arrived and were not asked for yet are gone.
            assert got == [*range(1, len(got) + 1)]
            with pytest.raises(DisconnectedError, match="the broker said `welcome` twice"):
                await bus.publish({"n": 1})

    run(main())


# --- floods --------------------------------------------------------------------------------------


def test_a_flood_waits_in_the_network_while_nobody_receives() -> None:
    flood = [b"%d" % number for number in range(5000)]

    async def main() -> None:
        got: list[bytes] = []
        async with silent() as (transport, socket):
            bring(socket, bytes_of(*map(text, flood)))
            assert not socket.transport.is_reading()
            async with receiving(transport, got.append):
                await eventually_async(lambda: len(got) == len(flood))
                assert socket.transport.is_reading()
                bring(socket, bytes_of(*map(text, flood)))
                assert got == flood + flood
                assert socket.transport.is_reading()

    run(main(), strictly=False)


# --- sending -------------------------------------------------------------------------------------


def test_what_is_sent_now_does_not_overtake_what_waits() -> None:
    got: list[str | bytes] = []
    large = "x" * 5_000_000

    def never() -> bytes:
        raise AssertionError("it would have to wait")

    async def speak(socket: ServerConnection) -> None:
        got.extend([message async for message in socket])

    async def main() -> None:
        async with served(speak) as url:
            async with dialled(url) as transport:
                assert transport.send_now(iter([b"1", b"2", None]).__next__)
                sending = asyncio.create_task(transport.send(large.encode()))
                await let_others_run()
                assert not transport.send_now(never)
                await sending
                await eventually_async(lambda: transport.send_now(iter([b"3", None]).__next__))
            assert not transport.send_now(never)
            await eventually_async(lambda: len(got) == 4)
        assert got == ["1", "2", large, "3"]

    run(main(), strictly=False)
