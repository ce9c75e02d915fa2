"""Servers that are killed and come back, and servers that are not there at all."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

import tamis
from broker.server import ServerProcess, make_token, running
from tamis.client import Missed
from tamis.client.connection import Backoff
from tamis.protocol import Code
from waiting import eventually_async, let_others_run

from .buses import events_of, run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path).start()
    # Clients come back to the same address.
    server.settings["port"] = server.port
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def quiet_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="tamis.client")


def test_nothing_is_lost_stored_twice_or_out_of_order_when_the_server_is_killed(
    server: ServerProcess,
) -> None:
    """A publisher and two subscribers that know nothing of it, while the server dies twice."""
    count = 450
    received: list[int] = []
    seen: list[int] = []

    async def publish(bus: tamis.Bus) -> None:
        for n in range(0, count, 3):
            await bus.publish({"n": n})
            await bus.publish_many([{"n": n + 1}, {"n": n + 2}])

    async def receive(bus: tamis.Bus) -> None:
        async for event in bus.subscribe("n >= 0", durable="laptop-7", start="earliest"):
            received.append(event["n"])
            if event["n"] == count - 1:
                return

    async def watch(bus: tamis.Bus) -> None:
        async for event in bus.subscribe("n >= 0", start="earliest"):
            seen.append(event["n"])
            if event["n"] == count - 1:
                return

    async def kill() -> None:
        for reached in (50, 250):
            await eventually_async(lambda: len(received) >= reached)  # noqa: B023
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

    async def main() -> None:
        async with (
            tamis.connect(server.url) as out,
            tamis.connect(server.url) as first,
            tamis.connect(server.url) as second,
        ):
            await asyncio.gather(publish(out), receive(first), watch(second), kill())
            subscription = out.subscribe("n >= 0", start="earliest")
            stored = [event["n"] for event in await events_of(subscription, count)]
            status = await out.status()
        assert stored == [*range(count)]
        assert status["log"]["next"] == count + 1
        # At least once: only events that were in hand when the server died may have come again.
        assert [n for i, n in enumerate(received) if n not in received[:i]] == [*range(count)]
        assert len(received) <= count + 3
        assert seen == [*range(count)]

    run(main())


def test_a_server_that_is_restarted_is_hardly_noticed(server: ServerProcess) -> None:
    missed: list[Missed] = []
    unknown: list[Missed] = []

    async def main() -> None:
        async with tamis.connect(server.url) as bus, tamis.connect(server.url) as other:
            some = await bus.subscribe("n >= 0")
            none = await bus.subscribe("n < 0", on_missed=unknown.append)
            brief = await bus.subscribe("m > 4", overflow="drop", on_missed=missed.append)
            await bus.publish_many([{"n": 1}, {"m": 5}])
            assert (await some.next(20))["n"] == 1
            assert (await brief.next(20))["m"] == 5
            # Others are to be faster when the server is back.
            bus._reconnector._backoff = Backoff(first=3, most=3)
            assert await asyncio.to_thread(server.stop) == 0
            waiting = asyncio.create_task(other.publish_many([{"n": 4}, {"n": 5}]))
            with pytest.raises(TimeoutError):
                await some.next(0.2)
            assert "connecting" in repr(bus)
            await asyncio.to_thread(server.start)
            async with tamis.connect(server.url) as quick:
                await quick.publish_many([{"n": 2}, {"n": -1}, {"n": 3}])
            assert (await waiting).duplicates == 0
            numbers = [event["n"] for event in await events_of(some, 4)]
            assert sorted(numbers) == [2, 3, 4, 5]
            await bus.flush()
            # Where no event had come before, none is left out either.
            await bus.publish({"n": -2})
            assert [event["n"] for event in await events_of(none, 2)] == [-1, -2]
            assert unknown == []
            # Where nothing waits on disk, nobody knows what there would have been meanwhile.
            assert missed == [Missed(None, "disconnected")]
            await bus.publish({"m": 6})
            assert (await brief.next(20))["m"] == 6

    run(main())


def test_without_a_server_nobody_waits_longer_than_they_want(server: ServerProcess) -> None:
    async def main() -> None:
        closing = await tamis.connect(server.url, timeout=0.5).open()
        once = await tamis.connect(server.url, reconnect=False).open()
        subscription = await once.subscribe("n = 1")
        waiting = asyncio.create_task(subscription.next())
        async with tamis.connect(server.url, timeout=0.3) as bus:
            await asyncio.to_thread(server.kill)
            with pytest.raises(tamis.DisconnectedError, match=r"did not acknowledge .* 0\.3 s"):
                await bus.publish({"n": 1})
            with pytest.raises(tamis.DisconnectedError, match="did not acknowledge"):
                await bus.publish_many({"n": n} for n in range(2000))
            with pytest.raises(tamis.DisconnectedError, match="did not confirm"):
                await bus.subscribe("n = 1")
            with pytest.raises(tamis.DisconnectedError, match="cannot be reached"):
                await bus.subscriptions()
        await _close_with_events_on_their_way(closing)
        with pytest.raises(tamis.DisconnectedError):
            await waiting
        with pytest.raises(tamis.DisconnectedError):
            await once.run()
        assert "failed" in repr(once)
        await once.close()

    run(main())


async def _close_with_events_on_their_way(bus: tamis.Bus) -> None:
    tasks = [asyncio.create_task(bus.publish({"n": n})) for n in range(3)]
    await let_others_run()
    await bus.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {tamis.DisconnectedError}


# --- no server -----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def test_where_nobody_listens_the_first_connection_fails_at_once() -> None:
    url = f"http://127.0.0.1:{free_port()}"

    async def main() -> None:
        with pytest.raises(tamis.DisconnectedError) as caught:
            async with tamis.connect(url):
                pass
        assert str(caught.value) == f"{url} cannot be reached: Connection refused"
        with pytest.raises(tamis.DisconnectedError, match="cannot be reached: Connection refused"):
            await tamis.connect(url).subscriptions()

    run(main())


def test_a_name_that_nobody_has_is_an_error_too() -> None:
    async def main() -> None:
        said = r"http://no\.invalid cannot be reached: no host of this name is known"
        with pytest.raises(tamis.DisconnectedError, match=said):
            await tamis.connect("http://no.invalid", timeout=20).open()

    run(main())


def test_something_else_than_a_broker_is_recognized() -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_error(418)

        def log_message(self, *_: object) -> None:
            pass

    async def main(url: str) -> None:
        with pytest.raises(tamis.DisconnectedError, match="HTTP 418: is it a broker"):
            await tamis.connect(url).open()
        with pytest.raises(tamis.RefusedError, match="the broker answered with HTTP 418"):
            await tamis.connect(url).subscriptions()

    with HTTPServer(("127.0.0.1", 0), Handler) as other:
        thread = Thread(target=other.serve_forever)
        thread.start()
        try:
            run(main(f"http://127.0.0.1:{other.server_port}"))
        finally:
            other.shutdown()
            thread.join()


def test_a_redirect_is_not_followed() -> None:
    """Otherwise the token would go to whoever the first server names."""
    visited: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            visited.append(self.path)
            self.send_response(307)
            self.send_header("Location", f"ws://user:secret@127.0.0.1:{other.server_port}/other")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    async def main(url: str) -> None:
        with pytest.raises(tamis.DisconnectedError) as caught:
            await tamis.connect(url, token="tamis_secret").open()  # noqa: S106
        assert (
            f"redirects to {url.replace('http', 'ws')}; if you trust it, use that address"
            in str(caught.value)
        )

    with HTTPServer(("127.0.0.1", 0), Handler) as other:
        thread = Thread(target=other.serve_forever)
        thread.start()
        try:
            run(main(f"http://127.0.0.1:{other.server_port}"))
        finally:
            other.shutdown()
            thread.join()
    assert visited == ["/v1/connect"]


def test_waiting_for_a_silent_server_ends() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(tamis.DisconnectedError, match="no answer in time"):
                await tamis.connect(url, timeout=0.2).open()

    run(main())


# --- credentials ---------------------------------------------------------------------------------


def test_a_connection_needs_a_valid_token(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[roles.reader]\nsee = true\n")

    async def main(url: str) -> None:
        for token in ("tamis_wrong", None):
            with pytest.raises(tamis.RefusedError) as caught:
                await tamis.connect(url, token=token).open()
            assert caught.value.code == Code.UNAUTHENTICATED
            with pytest.raises(tamis.RefusedError) as caught:
                await tamis.connect(url, token=token).subscriptions()
            assert caught.value.code == Code.UNAUTHENTICATED

    with running(tmp_path / "server", policy=policy) as server:
        run(main(server.url))


def test_the_environment_can_give_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[roles.reader]\nsee = true\n")
    token = make_token(tmp_path / "server", policy, "ann", "reader")

    async def main(url: str) -> None:
        monkeypatch.setenv("TAMIS_TOKEN", token)
        async with tamis.connect(url) as bus:
            assert bus.principal == "ann"
            assert await bus.subscriptions() == []
        # What the program says takes precedence.
        with pytest.raises(tamis.RefusedError, match="the token is not valid"):
            await tamis.connect(url, token="tamis_wrong").open()  # noqa: S106
        monkeypatch.setenv("TAMIS_TOKEN", "")
        with pytest.raises(tamis.RefusedError) as caught:
            await tamis.connect(url).open()
        assert caught.value.code == Code.UNAUTHENTICATED

    with running(tmp_path / "server", policy=policy) as server:
        run(main(server.url))


def test_a_function_can_give_the_token() -> None:
    asked: list[str] = []

    async def fetch() -> str:
        asked.append("token")
        return asked[-1]

    async def main() -> None:
        with pytest.raises(tamis.DisconnectedError):
            await tamis.connect(f"http://127.0.0.1:{free_port()}", token=fetch).status()

    run(main())
    assert asked == ["token"]


def test_a_flush_says_when_acknowledgements_may_be_lost(server: ServerProcess) -> None:
    async def main() -> None:
        async with tamis.connect(server.url) as bus:
            consumer = await bus.subscribe("true", durable="d", acknowledge="manual")
            await bus.publish({"a": 1})
            event = await consumer.next(20)
            await asyncio.to_thread(server.kill)
            await eventually_async(lambda: not bus.is_connected)
            await event.ack()
            with pytest.raises(tamis.DisconnectedError, match="sends their events again"):
                await consumer.flush()
            await asyncio.to_thread(server.start)
            await eventually_async(lambda: bus.is_connected)
            # It is told once; nothing was acknowledged since.
            await bus.flush()
            await consumer.close(delete=True)

    run(main())
