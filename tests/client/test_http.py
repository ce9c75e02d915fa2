"""Management calls over connections that a server closes, and to servers that redirect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tamis.client import http
from tamis.client.http import HTTPManagement
from tamis.client.transport import parse_address
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import Code
from tamis.protocol.management import (
    DeleteDeadLetters,
    DeleteSubscription,
    ManagementCall,
    ReadStatus,
)

from .buses import run

STATUS = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + b'{"state": "up"}'
DELETED = b"HTTP/1.1 204 No Content\r\n\r\n"


class ScriptedServer:
    """Sends one response per request, and closes the connection in place of an empty one."""

    def __init__(self, respond: Callable[[int, int], bytes]) -> None:
        self._respond = respond
        self.connections = 0
        self.requests: list[bytes] = []
        self._serving: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        self.connections += 1
        connection, request = self.connections, 0
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                request += 1
                response = self._respond(connection, request)
                if not response:
                    return
                writer.write(response)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def management(self, token: str | None = None) -> AsyncIterator[HTTPManagement]:
        listening = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        management = HTTPManagement(
            parse_address(f"http://{host}:{port}"), token, timeout=10, tls=None
        )
        async with listening:
            yield management
            await management.close()
            await asyncio.gather(*filter(None, self._serving))


def run_with(
    server: ScriptedServer,
    test: Callable[[HTTPManagement], Awaitable[None]],
    token: str | None = None,
) -> None:
    async def main() -> None:
        async with server.management(token) as management:
            await test(management)

    run(main())


def test_a_read_is_repeated_when_the_server_closes_the_idle_connection() -> None:
    server = ScriptedServer(lambda _, request: STATUS if request == 1 else b"")

    async def test(management: HTTPManagement) -> None:
        for _ in range(2):
            status = await management.call(ReadStatus(), keep_alive=True)
            assert status == {"state": "up"}

    run_with(server, test)
    assert len(server.requests) == 3
    assert server.connections == 2


def test_a_read_is_repeated_only_once() -> None:
    server = ScriptedServer(lambda *_: b"")

    async def test(management: HTTPManagement) -> None:
        with pytest.raises(DisconnectedError, match="cannot be reached"):
            await management.call(ReadStatus(), keep_alive=True)

    run_with(server, test)
    assert len(server.requests) == 2


def test_a_change_is_never_repeated() -> None:
    server = ScriptedServer(lambda *_: b"")

    async def test(management: HTTPManagement) -> None:
        with pytest.raises(DisconnectedError, match="cannot be reached"):
            await management.call(DeleteSubscription("x"), keep_alive=True)

    run_with(server, test)
    assert len(server.requests) == 1


def test_a_connection_is_not_used_again_shortly_before_a_server_would_close_it() -> None:
    server = ScriptedServer(lambda connection, _: STATUS if connection == 1 else DELETED)

    async def test(management: HTTPManagement) -> None:
        await management.call(ReadStatus(), keep_alive=True)
        await asyncio.sleep(http.SECONDS_TO_KEEP_ALIVE * 1.2)  # until it is too old
        await management.call(DeleteSubscription("x"), keep_alive=True)

    run_with(server, test)
    assert server.connections == 2
    # The shortest time for which a broker keeps an idle connection is a second.
    assert http.SECONDS_TO_KEEP_ALIVE <= 0.5


@pytest.mark.parametrize("call", [ReadStatus(), DeleteSubscription("x")])
def test_a_redirect_is_reported_and_not_followed(call: ManagementCall[Any]) -> None:
    location = b"https://user:secret@elsewhere.example:8443/v1/status?x=1"
    server = ScriptedServer(
        lambda *_: (
            b"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: "
            + location
            + b"\r\n\r\n"
        )
    )

    async def test(management: HTTPManagement) -> None:
        with pytest.raises(DisconnectedError) as raised:
            await management.call(call)
        assert str(raised.value).endswith(
            "redirects to https://elsewhere.example:8443; if you trust it, use that address"
        )

    run_with(server, test, token="abc")  # noqa: S106
    assert len(server.requests) == 1


@pytest.mark.parametrize("token", ["", "abc\n", "two words", "é"])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    server = ScriptedServer(lambda *_: STATUS)

    async def test(management: HTTPManagement) -> None:
        with pytest.raises(RefusedError, match="the token is not valid") as refused:
            await management.call(ReadStatus())
        assert refused.value.code == Code.UNAUTHENTICATED
        assert "abc" not in str(refused.value)

    run_with(server, test, token)
    assert not server.requests


@pytest.mark.parametrize("proxy", ["foo://x", "socks5://127.0.0.1:1"])
def test_proxy_settings_that_cannot_be_used_are_named(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    address = parse_address("http://broker.example:1")
    management = HTTPManagement(address, None, timeout=10, tls=None)

    async def test() -> None:
        with pytest.raises(DisconnectedError, match="proxy settings of the environment"):
            await management.call(ReadStatus())

    run(test())


def test_a_request_that_is_too_long_is_refused_as_such() -> None:
    server = ScriptedServer(lambda *_: DELETED)

    async def test(management: HTTPManagement) -> None:
        with pytest.raises(RefusedError, match="the request is too long"):
            await management.call(DeleteDeadLetters("s", [*range(20_000)]))

    run_with(server, test)


def test_a_call_in_flight_when_the_bus_closes_says_so() -> None:
    answered = asyncio.Event()

    def respond(*_: int) -> bytes:
        answered.set()
        return STATUS[:-5]

    server = ScriptedServer(respond)

    async def test(management: HTTPManagement) -> None:
        for call in (ReadStatus(), DeleteSubscription("x")):
            answered.clear()
            calling = asyncio.create_task(management.call(call, keep_alive=True))
            await answered.wait()
            await management.close()
            with pytest.raises(DisconnectedError, match=r"^the bus was closed$"):
                await calling

    run_with(server, test)
    assert len(server.requests) == 2


@pytest.mark.parametrize("hosts", ["localhost,127.0.0.1,[::1]", "::1", "*.example,[::1]:80", "[x"])
def test_hosts_without_a_proxy_may_be_any_text(hosts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", hosts)
    management = HTTPManagement(parse_address("http://0.0.0.0:1"), None, timeout=10, tls=None)

    async def test() -> None:
        with pytest.raises(DisconnectedError, match="cannot be reached: Connection refused"):
            await management.call(ReadStatus())

    run(test())


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ScriptedServer(lambda *_: STATUS)

    async def main() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        monkeypatch.setenv("http_proxy", f"http://{host}:{port}")
        for without in ("", "broker.example"):
            monkeypatch.setenv("no_proxy", without)
            address = parse_address("http://broker.example:81")
            management = HTTPManagement(address, None, timeout=10, tls=None)
            if without:
                with pytest.raises(DisconnectedError, match="cannot be reached"):
                    await management.call(ReadStatus())
            else:
                assert await management.call(ReadStatus()) == {"state": "up"}
        listening.close()

    run(main())
    [request] = server.requests
    assert request.startswith(b"GET http://broker.example:81/v1/status HTTP/1.1\r\n")
