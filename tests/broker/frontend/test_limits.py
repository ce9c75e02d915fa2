"""Peers that send too much, too slowly, or do not read."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.server import ServerProcess, running
from waiting import eventually

from .sockets import Talk, raw, read_all
from .test_http import check_problem, make, publish

HEAD = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LIMIT = 4 * 1024**2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without patience."""
    with running(
        tmp_path_factory.mktemp("limits"),
        hello_timeout=0.5,
        body_timeout=0.5,
        send_timeout=0.5,
        connections=60,
        connections_per_principal=30,
    ) as server:
        yield server


def check_answer(answer: bytes, status: int, code: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"application/problem+json" in head
    assert json.loads(body)["code"] == code


def memory(server: ServerProcess) -> int:
    """Return how many bytes of memory the server has."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def open_files(server: ServerProcess) -> int:
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_a_body_that_is_announced_too_large_is_not_read(server: ServerProcess) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1))
        check_answer(read_all(connection), 413, "too_large")


def test_a_body_that_does_not_end_is_cut(server: ServerProcess) -> None:
    before = memory(server)
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    deadline = time.monotonic() + 20
    with raw(server) as connection, pytest.raises(ConnectionError):  # noqa: PT012
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while time.monotonic() < deadline:
            connection.sendall(chunk)
    assert memory(server) < before + 10 * LIMIT


def test_a_body_that_gets_too_large_is_cut_at_once(server: ServerProcess) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b"%x\r\n" % (LIMIT + 100_000) + b" " * (LIMIT + 50_000))
        check_answer(read_all(connection), 413, "too_large")


def test_an_answer_arrives_although_the_rest_of_the_body_was_not_read(
    server: ServerProcess,
) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1) + b" " * 500_000)
        time.sleep(0.3)  # so that the server has answered and closed before it is read
        check_answer(read_all(connection), 413, "too_large")


def test_a_client_that_is_still_sending_can_read_why_it_was_cut_off(client: httpx.Client) -> None:
    response = client.post(
        "/v1/events", headers={"Content-Type": "application/json"}, content=b" " * (LIMIT + 1)
    )
    check_problem(response, 413, "too_large", "4,194,304")


@pytest.mark.timing
@pytest.mark.parametrize("pieces", [[b""], [b" "] * 20], ids=["nothing", "a byte now and then"])
def test_a_slow_body_is_cut(server: ServerProcess, pieces: list[bytes]) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        begun = time.monotonic()
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:
                break
            time.sleep(0.05 if piece else 0)  # a slow client
        check_answer(read_all(connection), 408, "bad_request")
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"])
def test_who_sends_no_whole_request_is_cut_off(server: ServerProcess, sent: bytes) -> None:
    with raw(server) as connection:
        connection.sendall(sent)
        check_answer(read_all(connection), 408, "bad_request")


@pytest.mark.timing
def test_who_sends_a_request_byte_by_byte_is_cut_off(server: ServerProcess) -> None:
    with raw(server) as connection:
        begun = time.monotonic()
        try:
            for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1000:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)  # a slow client
        except OSError:
            pass
        assert time.monotonic() - begun < 5


def test_the_second_request_of_a_connection_must_be_whole_in_time_as_well(
    server: ServerProcess,
) -> None:
    with raw(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = connection.recv(65536)
        while b"alive" not in answer:
            answer += connection.recv(65536)
        connection.sendall(b"GET /health HT")
        check_answer(read_all(connection), 408, "bad_request")


def test_a_request_in_pieces_is_a_request(server: ServerProcess) -> None:
    with raw(server) as connection:
        for piece in (b"GET /health HT", b"TP/1.1\r\nHost: local", b"host\r\n\r", b"\n"):
            connection.sendall(piece)
            time.sleep(0.05)  # so that each piece is a packet of its own
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET /health HTTP/1.1\r\nX: " + b"a" * 100_000, 431, "too_large"),
        (b"GET /" + b"a" * 100_000, 431, "too_large"),
        # Whole headers that arrive at once.
        (HEAD + b"X: " + b"a" * 16_400 + b"\r\n\r\n", 431, "too_large"),
        (HEAD + b"X: y\r\n" * 3_000 + b"\r\n", 431, "too_large"),
        (
            b"GET /health?" + b"a" * 16_400 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            431,
            "too_large",
        ),
        (b"hello\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_request"),
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400, "bad_request"),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, "bad_request"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "bad_request"),
    ],
)
def test_what_is_no_http_gets_a_problem(
    server: ServerProcess, sent: bytes, status: int, code: str
) -> None:
    with raw(server) as connection:
        connection.sendall(sent)
        answer = read_all(connection)
        check_answer(answer, status, code)


CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODY = b"\r\n2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + CHUNKED + b"Content-Length: 2\r\n" + BODY,
        HEAD + b"Content-Length: 12\r\n" + CHUNKED + BODY,
        HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNKED + BODY,
    ],
)
def test_a_body_whose_end_is_ambiguous_is_refused_with_all_that_follows(
    server: ServerProcess, sent: bytes
) -> None:
    with raw(server) as connection:
        connection.sendall(sent + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = read_all(connection)
        check_answer(answer, 400, "bad_request")
        assert b"Transfer-Encoding" in answer


UPGRADE = b"GET /v1/connect HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"Upgrade: websocket",
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short",
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 7\r\nSec-WebSocket-Key: "
        + b"A" * 22
        + b"==",
        b"Upgrade: websocket\r\n" + b"\r\n".join(b"X-%d: 1" % n for n in range(300)),
        b"Upgrade: websocket\r\nX: " + b"\xff" * 100,
        b"Upgrade: h2c",
        b"Upgrade: websocket, websocket",
    ],
)
def test_what_is_no_handshake_is_refused(server: ServerProcess, headers: bytes) -> None:
    with raw(server) as connection:
        connection.sendall(UPGRADE + headers + b"\r\n\r\n")
        answer = connection.recv(65536)
        assert b" 101 " not in answer
        assert not answer or answer.startswith(b"HTTP/1.1 4")


def test_who_does_not_read_a_stream_is_cut_off_and_holds_little(
    server: ServerProcess, client: httpx.Client
) -> None:
    make(client, "stalled", "kind = 'stalled'")
    for _ in range(20):
        publish(client, *({"kind": "stalled", "text": "x" * 100_000} for _ in range(20)))
    before = memory(server)
    with raw(server, buffer=4096) as connection:
        connection.sendall(
            b"GET /v1/subscriptions/stalled/events HTTP/1.1\r\nHost: localhost\r\n"
            b"Tamis-Request: 1\r\n\r\n"
        )
        path = "/v1/subscriptions/stalled"
        eventually(lambda: client.get(path).json()["connected"])
        eventually(lambda: not client.get(path).json()["connected"])
    assert memory(server) < before + 100_000_000
    view = client.get(path).json()
    assert view["pending"] > 350, "what was not received still waits"


def test_who_does_not_read_a_websocket_is_cut_off(
    server: ServerProcess, client: httpx.Client
) -> None:
    with Talk(server, max_queue=1, close_timeout=0.1) as talk:
        wanted = {"filter": "kind = 'deaf'", "durable": "deaf", "credit": 100_000}
        talk.ask("subscribe", "subscribed", **wanted)
        for _ in range(20):
            publish(client, *({"kind": "deaf", "text": "x" * 100_000} for _ in range(20)))
        eventually(lambda: not client.get("/v1/subscriptions/deaf").json()["connected"])


def test_there_are_no_more_connections_than_the_limit(server: ServerProcess) -> None:
    connections = [raw(server) for _ in range(70)]
    try:
        answers = [read_all(connection)[:12] for connection in connections]
    finally:
        for connection in connections:
            connection.close()
    assert answers.count(b"HTTP/1.1 503") >= 70 - 60
    assert set(answers) == {b"HTTP/1.1 503", b"HTTP/1.1 408"}


def test_there_are_no_more_connections_of_one_principal_than_the_limit(
    server: ServerProcess,
) -> None:
    talks = [Talk(server) for _ in range(30)]
    try:
        with Talk(server, hello=False) as talk:
            talk.say("hello")
            assert talk.hear("refused")["code"] == "too_many"
        with server.client() as client:
            check_problem(client.get("/v1/status"), 429, "too_many")
            assert client.get("/health").status_code == 200
    finally:
        for one in talks:
            one.__exit__()


def test_all_is_as_before(server: ServerProcess, client: httpx.Client) -> None:
    """Runs last: nothing of what came before is still held, and nothing went wrong."""
    eventually(lambda: open_files(server) <= 40, "too many files are open")
    assert client.get("/ready").status_code == 200
    assert server.errors == ""
