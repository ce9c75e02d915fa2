"""Peers that have not said who they are: bounded in time, memory and number."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.server import ServerProcess, make_token, running
from clocks import Stopwatch
from waiting import eventually

from .conftest import POLICY
from .sockets import Talk, raw

CONNECTIONS = 40
HELLO_SECONDS = 3.0
UPGRADE = (
    b"GET /v1/connect HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ANNOUNCED = b"Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
# Each is answered before its body is read.
ANSWERED = {
    "without a token": b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\n" + ANNOUNCED,
    "no such path": b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n" + ANNOUNCED,
    "no body needed": b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + ANNOUNCED,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Numbered: a worker that steals tests of this module sets it up again.
    folder = tmp_path_factory.mktemp("strangers")
    (folder / "policy.toml").write_text(POLICY)
    return folder


@pytest.fixture(scope="module")
def token(folder: Path) -> str:
    return make_token(folder, folder / "policy.toml", "root", "admin")


@pytest.fixture(scope="module")
def server(folder: Path, token: str) -> Iterator[ServerProcess]:
    assert token
    with running(
        folder,
        policy=folder / "policy.toml",
        hello_timeout=HELLO_SECONDS,
        connections=CONNECTIONS,
    ) as server:
        yield server


def is_open(connection: socket.socket) -> bool:
    """Return whether the server still holds a connection, after sending a byte to it."""
    try:
        connection.sendall(b" ")
        connection.setblocking(False)
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


@pytest.mark.parametrize("request_", ANSWERED.values(), ids=ANSWERED)
def test_a_body_that_drips_after_the_answer_holds_no_connection(
    server: ServerProcess, request_: bytes
) -> None:
    with raw(server) as connection:
        connection.sendall(request_)
        assert connection.recv(65536).startswith(b"HTTP/1.1 ")
        # Each look drips a byte.
        eventually(lambda: not is_open(connection), "still open", timeout=20)


@pytest.mark.timing
@pytest.mark.parametrize("size", [100_000, 4_000_000])
def test_a_large_frame_before_hello_is_refused_by_its_first_bytes(
    server: ServerProcess, size: int
) -> None:
    with raw(server) as connection:
        connection.sendall(UPGRADE)
        assert b" 101 " in connection.recv(65536)
        connection.sendall(b"\x81\xff" + struct.pack("!Q", size) + bytes(4) + b" " * 1000)
        assert server.process is not None
        watch = Stopwatch(server.process.pid)
        closing = connection.recv(65536)
        assert closing[:1] == b"\x88"
        assert int.from_bytes(closing[2:4], "big") == 1009
        assert watch.seconds() < HELLO_SECONDS / 2


def test_fragments_before_hello_add_up(server: ServerProcess) -> None:
    with raw(server) as connection:
        connection.sendall(UPGRADE)
        assert b" 101 " in connection.recv(65536)
        for first in (b"\x01", *[b"\x00"] * 4):
            connection.sendall(first + b"\xfe" + struct.pack("!H", 6000) + bytes(4) + b" " * 6000)
        assert connection.recv(65536)[2:4] == (1009).to_bytes(2, "big")


def test_after_the_welcome_frames_may_be_large(server: ServerProcess, token: str) -> None:
    large = [{"x": "y" * 200_000}] * 10
    with Talk(server, hello=False) as talk:
        talk.say("hello", token=token)
        talk.hear("welcome")
        assert talk.ask("publish", "published", events=large)["count"] == 10
    headers = {"Authorization": f"Bearer {token}"}
    with Talk(server, hello=False, additional_headers=headers) as talk:
        talk.hear("welcome")
        assert talk.ask("publish", "published", events=large)["count"] == 10


@pytest.mark.parametrize("said", [b"", b"GET /health HT", UPGRADE, ANSWERED["without a token"]])
def test_strangers_make_room_for_those_who_are_known(
    server: ServerProcess, token: str, said: bytes
) -> None:
    with ExitStack() as exits:
        strangers = []
        for _ in range(3 * CONNECTIONS):
            strangers.append(exits.enter_context(raw(server)))
            strangers[-1].sendall(said)
        with server.client(token) as client, Talk(server, hello=False) as talk:
            talk.say("hello", token=token)
            talk.hear("welcome")
            assert client.get("/v1/status").status_code == 200
            # Newcomers do not displace who is known.
            for _ in range(2 * CONNECTIONS):
                strangers.append(exits.enter_context(raw(server)))
                strangers[-1].sendall(said)
            talk.ask("ping", "pong")
        eventually(lambda: not any(map(is_open, strangers)), "still open", timeout=20)


def test_no_more_connections_are_held_than_the_setting_says(
    server: ServerProcess, token: str
) -> None:
    with ExitStack() as exits:
        known = []
        for _ in range(CONNECTIONS):
            talk = exits.enter_context(Talk(server, hello=False))
            talk.say("hello", token=token)
            talk.hear("welcome")
            known.append(talk)
        with raw(server) as connection:
            assert b" 503 " in connection.recv(65536)
        for talk in known:
            talk.ask("ping", "pong")
