"""The server process: how it starts, how it stops, and what it says."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from broker.fork_server import fork_server
from broker.frontend.sockets import Talk, raw, read_all
from broker.server import ServerProcess, make_certificate, running
from cli.commands import tamis
from clocks import Stopwatch
from tamis import connect_sync
from tamis.broker.frontend import server
from tamis.broker.operations.health import Health
from tamis.errors import DisconnectedError
from waiting import eventually


def serve(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `tamis serve` where it is not to start."""
    env = {**os.environ, **environment}
    return fork_server().run(["serve", *options], folder=folder, env=env, timeout=60)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def test_a_variable_that_is_no_setting_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    done = serve(tmp_path, "--data", "taken", "--port", "0", TAMIS_PROT="3")
    assert done.returncode == 2
    assert "TAMIS_PROT: there is no such setting; did you mean TAMIS_PORT?" in done.stderr


def test_it_prints_one_line_and_stops_with_code_0(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path).start()
    assert server.process is not None
    stdout = server.process.stdout
    assert stdout is not None
    server.process.send_signal(signal.SIGINT)
    assert stdout.read() == ""
    assert server.stop() == 0
    events = [json.loads(line)["event"] for line in server.log.splitlines()]
    # On a busy machine, loading takes as long as compiling does elsewhere.
    events = [event for event in events if event != "loading the kernels of the engine"]
    assert events == ["broker open", "listening", "stopping", "broker closed"]


def test_events_are_stored_while_the_kernels_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(server, "load_kernels", lambda **_: go_on.wait(60))

    async def load() -> None:
        health = Health()
        health.set_open(True)
        loading = asyncio.create_task(server._load_kernels(health))
        await asyncio.sleep(0)  # until it has begun
        assert health.ready
        assert "events are stored, and matched in a moment" in health.problems[0]
        go_on.set()
        await loading
        assert not health.problems

    asyncio.run(load())


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path).start()
    with server.client() as client:
        client.post("/v1/subscriptions", json={"id": "a", "filter": "true"})
        assert client.post("/v1/events", json={"n": 1}).status_code == 200
    server.kill()
    server.start()
    with server.client() as client:
        [event] = client.post("/v1/subscriptions/a/fetch", json={"wait": 5}).json()["events"]
    assert event["data"] == {"n": 1}
    assert server.stop() == 0


def test_when_it_stops_streams_end_and_publications_are_answered(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path).start()
    with server.client() as client, Talk(server) as talk:
        client.post("/v1/subscriptions", json={"id": "a", "filter": "true"})
        fetched: list[httpx.Response] = []
        fetching = threading.Thread(
            target=lambda: fetched.append(
                client.post("/v1/subscriptions/a/fetch", json={"wait": 60})
            )
        )
        with server.client() as reader, reader.stream("GET", "/v1/events?filter=false") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 2000"
            fetching.start()
            eventually(lambda: client_count(server) >= 4)
            for ref in range(100):
                talk.say("publish", ref=ref, events=[{"n": ref}])
            talk.say("ping", ref=1000)
            while talk.hear()["type"] != "pong":
                pass
            assert server.process is not None
            server.process.send_signal(signal.SIGTERM)
            rest = "\n".join(lines)
        assert "the broker stops" in rest
        assert "event: ended" in rest
        answers = hear_all(talk)
        fetching.join(20)
    assert server.stop() == 0, server.log
    assert [response.status_code for response in fetched] == [200]
    # All 100 were taken before the pong; each is answered, and what is answered is stored.
    assert answers["code"] == 1012
    server.start()
    with server.client() as client:
        log = client.get("/v1/status").json()["log"]
        assert log["next"] - log["first"] == 100
    assert server.stop() == 0
    assert server.errors == ""


def client_count(server: ServerProcess) -> int:
    with server.client() as client:
        count: int = client.get("/v1/status").json()["connections"]
        return count


def hear_all(talk: Talk) -> dict[str, Any]:
    frames = []
    try:
        while True:
            frames.append(talk.hear())
    except ConnectionClosed as closed:
        return {"frames": frames, "code": closed.rcvd.code if closed.rcvd else None}


@pytest.mark.timing
@pytest.mark.parametrize("wrong", ["x" * (4 * 1024**2 + 1), "{"])
def test_over_tls_the_end_of_a_connection_takes_no_time(
    tmp_path: Path, certificate: tuple[Path, Path], wrong: str
) -> None:
    path, key = certificate
    context = ssl.create_default_context(cafile=str(path))
    with running(tmp_path, tls_certificate=path, tls_key=key) as server:
        assert server.process is not None
        with Talk(server, ssl=context) as talk:
            watch = Stopwatch(server.process.pid)
            talk.socket.send(wrong)
            assert hear_all(talk)["code"] in (1009, 4400)
            refused_after = watch.seconds()
        with Talk(server, ssl=context) as talk:
            watch = Stopwatch(server.process.pid)
            talk.socket.close()
            closed_after = watch.seconds()
    assert max(refused_after, closed_after) < 1.0


@pytest.mark.timing
def test_silent_tls_handshakes_end_soon_and_keep_nobody_out(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    path, key = certificate
    context = ssl.create_default_context(cafile=str(path))
    settings = {"tls_certificate": path, "tls_key": key, "connections": 20, "hello_timeout": 1}
    with running(tmp_path, **settings) as server, ExitStack() as exits:
        silent = [exits.enter_context(raw(server)) for _ in range(60)]
        with server.client(verify=context) as client:
            assert client.get("/v1/status").status_code == 200
        began = time.monotonic()
        # All but the latest have made room for others at once.
        assert [read_all(connection) for connection in silent] == [b""] * 60
        assert time.monotonic() - began < 10


def test_the_client_trusts_what_the_system_trusts(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = certificate
    with running(tmp_path, tls_certificate=path, tls_key=key) as server:
        refused = connect_sync(server.url, timeout=2)
        with pytest.raises(DisconnectedError, match="certificate"), refused:
            pass
        # Where OpenSSL looks for the certificates of the system.
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        with connect_sync(server.url) as bus:
            assert bus.publish({"a": 1}).count == 1


def test_tls_and_websockets_over_it(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    path, key = certificate
    context = ssl.create_default_context(cafile=str(path))
    with running(tmp_path, tls_certificate=path, tls_key=key) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with server.client(verify=context) as client:
            assert client.post("/v1/events", json={"a": 1}).status_code == 200
            too_large = client.post(
                "/v1/events",
                headers={"Content-Type": "application/json"},
                content=b" " * 5_000_000,
            )
            assert too_large.status_code == 413
        with Talk(server, ssl=context) as talk:
            talk.ask("subscribe", "subscribed", filter="true", credit=1, start="earliest")
            assert talk.events(1)[0]["data"] == {"a": 1}
        with pytest.raises(httpx.HTTPError), httpx.Client() as plain:
            plain.get(server.url.replace("https", "http"))
        # Also here it is seen what has arrived.
        with server.client(verify=context) as client:
            client.post("/v1/subscriptions", json={"id": "t", "filter": "true"})
            client.post("/v1/events", json={"a": 2})
            headers = {"Tamis-Request": "1"}
            with client.stream("GET", "/v1/subscriptions/t/events", headers=headers) as stream:
                lines = stream.iter_lines()
                assert any("data" in line for line in lines)
                with server.client(verify=context) as other:
                    eventually(lambda: not other.get("/v1/subscriptions/t").json()["pending"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host=0.0.0.0"], ["TLS", "tls_certificate", 'allow_plain_text = "yes, I know"']),
        (
            ["--host=0.0.0.0", "--allow-plain-text=yes, I know"],
            ["policy", 'allow_anonymous = "yes, I know"'],
        ),
        (["--allow-plain-text=yes"], ["--allow-plain-text", "'yes, I know'"]),
        (["--port=99999"], ["--port", "65535", "99999"]),
        (["--tls-key=key.pem"], ["tls_certificate and tls_key go together"]),
        (["--config=nowhere.toml"], ["nowhere.toml cannot be read"]),
        (["--host=no.such.host.invalid", "--allow-plain-text=yes, I know"], ["policy"]),
        (["--set", "ack_timeout"], ["--set takes name=value"]),
        (["--set", "ack_timout=5"], ["ack_timout", "did you mean ack_timeout?"]),
        (["--set", "largest_event=8MiB"], ["largest_event", "largest_frame"]),
    ],
)
def test_an_unusable_setting_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = tamis("serve", "--port=0", *options)
    assert (done.code, done.out) == (2, "")
    sentence = done.err.replace("\n", " ")
    assert "error: " in sentence
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tls-key=key.pem", "--tls-certificate=c.pem"], ["c.pem", "No such file"]),
        (["--policy=nowhere.toml"], ["nowhere.toml"]),
        (["--schema=nowhere.json"], ["nowhere.json"]),
        (["--mode=total"], ["schema"]),
    ],
)
def test_an_unusable_file_is_reported_in_one_sentence(
    tmp_path: Path, options: list[str], words: list[str]
) -> None:
    done = serve(tmp_path, "--port=0", *options)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    sentence = done.stderr.replace("\n", " ")
    assert "error: " in sentence
    for word in words:
        assert word in sentence


def test_a_port_that_is_taken_and_a_folder_that_is_in_use(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        taken = serve(tmp_path, f"--port={server.port}", "--data=other")
        assert taken.returncode == 2
        assert f"port {server.port}" in taken.stderr
        in_use = serve(tmp_path, "--port=0", f"--data={server.data}")
        assert in_use.returncode == 2
        assert "Traceback" not in in_use.stderr
