"""Large bodies and frames: refused before they cost anything, and split in little time."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from socket import socket
from statistics import median
from threading import Event

import pytest

import tamis
from broker.server import ServerProcess, make_token, running
from tamis.broker.frontend.protocols import LINGER_SECONDS

from .sockets import Talk, raw, read_all
from .test_http import check_problem

SIZE = 4 * 1024**2 - 1000
MAX_CPU_SECONDS = 0.12
POLICY = """
[roles.reader]
see = true
[roles.slow]
publish = true
see = true
quotas = { publications = 0.001, bytes = 1000000 }
[roles.all]
publish = true
see = true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    (folder / "policy.toml").write_text(POLICY)
    return folder


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, str]:
    policy = folder / "policy.toml"
    return {role: make_token(folder, policy, role, role) for role in ("reader", "slow", "all")}


@pytest.fixture(scope="module")
def server(folder: Path, tokens: dict[str, str]) -> Iterator[ServerProcess]:
    assert tokens
    with running(folder, policy=folder / "policy.toml") as server:
        yield server


def cpu_seconds(server: ServerProcess) -> float:
    """Return the processor time that a server has used."""
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def filled(piece: bytes, separator: bytes = b",") -> bytes:
    return separator.join([piece] * (SIZE // (len(piece) + 1)))


BODIES = {
    "objects": ("application/json", b"[" + filled(b"{}") + b"]"),
    "numbers": ("application/json", b"[" + filled(b"1") + b"]"),
    "cloudevents": ("application/cloudevents-batch+json", b"[" + filled(b"{}") + b"]"),
    "lines": ("application/x-ndjson", filled(b"{}", b"\n")),
    "empty lines": ("application/x-ndjson", b"\n" * SIZE),
}


@pytest.mark.parametrize(("kind", "body"), BODIES.values(), ids=BODIES)
def test_many_small_events_are_refused_in_little_time(
    server: ServerProcess, tokens: dict[str, str], kind: str, body: bytes
) -> None:
    with server.client(tokens["all"]) as client:
        client.post("/v1/events", json={})
        before = cpu_seconds(server)
        response = client.post("/v1/events", headers={"Content-Type": kind}, content=body)
        used = cpu_seconds(server) - before
    check_problem(response, 413, "too_large", "limit of 1,000")
    assert used < MAX_CPU_SECONDS


def test_a_frame_of_many_small_events_is_refused_alone_and_in_little_time(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    with Talk(server, hello=False) as talk:
        talk.say("hello", token=tokens["all"])
        talk.hear("welcome")
        for events in (b"{}", b"1"):
            before = cpu_seconds(server)
            talk.socket.send(
                b'{"type":"publish","ref":7,"events":[%s]}' % filled(events), text=True
            )
            refused = talk.hear("refused")
            assert cpu_seconds(server) - before < MAX_CPU_SECONDS
            assert (refused["ref"], refused["code"]) == (7, "too_large")
        large = [{"text": "x" * 4000}] * 1000
        assert talk.ask("publish", "published", events=large)["count"] == 1000


def test_a_frame_that_acknowledges_too_many_is_refused(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    with Talk(server, hello=False) as talk:
        talk.say("hello", token=tokens["all"])
        talk.hear("welcome")
        talk.say("ack", subscription="s", sequences=[1] * 20_000)
        assert talk.hear("refused")["code"] == "bad_request"


def head_of(token: str, size: int) -> bytes:
    """Return the head of a request that announces a body."""
    return (
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (token.encode(), size)
    )


def announce(server: ServerProcess, token: str, size: int) -> tuple[bytes, str]:
    """Announce a body, send none of it, and return the status and code of the answer."""
    with raw(server) as connection:
        connection.sendall(head_of(token, size))
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    return head.split()[1], json.loads(body)["code"]


def test_who_may_not_publish_is_refused_before_the_body_is_read(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    assert announce(server, tokens["reader"], SIZE) == (b"403", "forbidden")


def test_who_is_over_the_quota_is_refused_before_the_body_is_read(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    with server.client(tokens["slow"]) as client:
        assert client.post("/v1/events", json={}).status_code == 200
    assert announce(server, tokens["slow"], SIZE) == (b"429", "too_many")


def status_of(connection: socket) -> int:
    """Read an answer; return its status."""
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def test_after_a_body_that_was_refused_unread_the_next_one_may_be_slow(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    event = b'{"n": 1}'
    with raw(server) as connection:
        connection.sendall(head_of(tokens["reader"], SIZE))
        assert status_of(connection) == 403
        connection.sendall(b" " * SIZE)
        connection.sendall(head_of(tokens["all"], len(event)) + event[:4])
        time.sleep(LINGER_SECONDS + 0.5)  # longer than the rest of the first body might take
        connection.sendall(event[4:])
        assert status_of(connection) == 200


BATCH = json.dumps([{"n": n, "text": "x" * 980} for n in range(1_000)]).encode()
BATCHES = 8
QUIET_SECONDS = 0.4


def publish_batches(server: ServerProcess, token: str) -> list[float]:
    """Publish a large batch now and then; return how long each took."""
    times = []
    with server.client(token) as client:
        for _ in range(BATCHES):
            begun = time.monotonic()
            response = client.post(
                "/v1/events", headers={"Content-Type": "application/json"}, content=BATCH
            )
            times.append(time.monotonic() - begun)
            assert response.status_code == 200
            time.sleep(QUIET_SECONDS)  # as a publisher collects its next batch
    return times


@pytest.mark.timing
def test_a_publisher_of_large_batches_does_not_wait_because_somebody_else_is_there(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    """Both together use a few hundredths of a processor."""
    publish_batches(server, tokens["all"])
    alone = median(publish_batches(server, tokens["all"]))
    with somebody_looking(server, tokens["reader"]):
        beside = median(publish_batches(server, tokens["all"]))
    assert beside < 3 * alone + 0.1


@contextmanager
def somebody_looking(server: ServerProcess, token: str) -> Iterator[None]:
    """Let a client ask for something ten times a second."""
    over = Event()

    def look() -> None:
        with server.client(token) as client:
            while not over.wait(0.1):
                assert client.get("/v1/subscriptions").status_code == 200

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield
        finally:
            over.set()
        looking.result()


@pytest.mark.timing
def test_a_publisher_at_full_speed_leaves_time_to_somebody_else_however_small_its_events_are(
    server: ServerProcess, tokens: dict[str, str]
) -> None:
    """Their bytes are few, but each of them is stored and matched."""

    def published() -> float:
        with tamis.connect_sync(server.url, token=tokens["all"]) as bus:
            begun = time.monotonic()
            bus.publish_many({"n": n} for n in range(40_000))
            return time.monotonic() - begun

    alone = min(published() for _ in range(3))
    with somebody_looking(server, tokens["reader"]):
        time.sleep(1)  # until the broker knows that somebody else is active
        beside = published()
    assert beside > 3 * alone
