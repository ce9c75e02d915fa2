"""URLs of brokers."""

from __future__ import annotations

import asyncio

import pytest

from tamis.client.transport import parse_address, websocket_dial
from tamis.errors import AddressError, DisconnectedError


@pytest.mark.parametrize(
    ("url", "web", "connect"),
    [
        ("http://127.0.0.1:8765", "http://127.0.0.1:8765", "ws://127.0.0.1:8765/v1/connect"),
        ("https://b.example/", "https://b.example", "wss://b.example/v1/connect"),
        ("ws://[::1]:9", "http://[::1]:9", "ws://[::1]:9/v1/connect"),
        ("wss://b.example/a/b/", "https://b.example/a/b", "wss://b.example/a/b/v1/connect"),
        ("ws://h:1/v1/connect", "http://h:1", "ws://h:1/v1/connect"),
        (" http://h ", "http://h", "ws://h/v1/connect"),
    ],
)
def test_one_url_gives_all_others(url: str, web: str, connect: str) -> None:
    address = parse_address(url)
    assert (address.web, address.connect) == (web, connect)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8765", "it should start like http://127.0.0.1:8765"),
        ("ftp://h", "it should start like"),
        ("", "it should start like"),
        ("http://", "the host is missing"),
        ("http://h:port", "Port could not be cast"),
        ("http://h:99999", "Port out of range"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://h/?token=secret", "it should have only a host, a port and a path"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(url: str, words: str) -> None:
    with pytest.raises(AddressError, match=words) as caught:
        parse_address(url)
    assert repr(url) in str(caught.value)


def test_a_secret_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(AddressError, match="a token does not belong in a URL") as caught:
        parse_address("http://me:secret@h")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("http://127.0.0.1", True),
        ("http://127.8.8.8", True),
        ("http://[::1]:1", True),
        ("http://localhost", True),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
    ],
)
def test_loopback_addresses_are_recognized(url: str, answer: bool) -> None:
    assert parse_address(url).is_loopback is answer


def test_https_where_http_is_spoken_is_said_in_words() -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def dial() -> None:
        async with await asyncio.start_server(speak_http, "127.0.0.1", 0) as server:
            [listening] = server.sockets
            address = parse_address(f"https://127.0.0.1:{listening.getsockname()[1]}")
            await websocket_dial(address, timeout=10, tls=None)()

    with pytest.raises(DisconnectedError, match="does not answer with TLS; perhaps its address"):
        asyncio.run(dial())
