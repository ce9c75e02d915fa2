"""The address of a broker, and what carries frames to it: a WebSocket, or two queues."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple, Protocol, cast
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from tamis.client.direct_websocket import DirectWebSocket, FrameHandler, FrameSource
from tamis.errors import AddressError, DisconnectedError, RefusedError
from tamis.protocol.addresses import DEFAULT_URL
from tamis.protocol.codes import STATUS

_WEB: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_CONNECT: Final = "/v1/connect"


class BrokerAddress(NamedTuple):
    """The address of a broker."""

    web: str
    """The URL without a trailing slash, to which `/v1/…` is appended."""
    host: str

    @property
    def connect(self) -> str:
        """Return the URL of the WebSocket."""
        return f"ws{self.web.removeprefix('http')}{_CONNECT}"

    @property
    def origin(self) -> tuple[bool, str, int]:
        """Return what a secret for the broker belongs to: security, host and port.

        >>> parse_address("https://Broker.example/a").origin
        (True, 'broker.example', 443)
        """
        default = 443 if self.is_secure else 80
        return self.is_secure, self.host, urlsplit(self.web).port or default

    @property
    def is_secure(self) -> bool:
        """Return whether connections are encrypted."""
        return self.web.startswith("https:")

    @property
    def is_loopback(self) -> bool:
        """Return whether the broker is on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(url: str) -> BrokerAddress:
    """Return the address of a broker from its URL: http, https, ws or wss.

    >>> parse_address("https://broker.example/tamis/").connect
    'wss://broker.example/tamis/v1/connect'
    """
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(url, str(error)) from None
    if parts.scheme not in _WEB:
        raise AddressError(url, f"it should start like {DEFAULT_URL}, or with https, ws or wss")
    if not host:
        raise AddressError(url, "the host is missing")
    if "@" in parts.netloc:
        # Not shown: the part before the @ may be a secret.
        raise AddressError(f"{parts.scheme}://…@…", "a token does not belong in a URL")
    if parts.query or parts.fragment:
        raise AddressError(url, "it should have only a host, a port and a path")
    path = parts.path.rstrip("/").removesuffix(_CONNECT)
    return BrokerAddress(f"{_WEB[parts.scheme]}://{parts.netloc}{path}", host)


def environment_proxy(address: BrokerAddress) -> str | None:
    """Return the URL of the proxy that the environment names for a broker."""
    if address.is_loopback or proxy_bypass(urlsplit(address.web).netloc):
        return None
    proxies = getproxies()
    return proxies.get("https" if address.is_secure else "http") or proxies.get("all")


class Transport(Protocol):
    """One connection; once it is lost, `send` and `receive` raise `DisconnectedError`.

    One that has no shorter way to send and to receive inherits the other two.
    """

    async def send(self, frame: bytes) -> None:
        """Send a frame; wait while the other side is slow to read."""

    def send_now(self, next_frame: FrameSource) -> bool:  # noqa: ARG002
        """Send what a function returns while none of it has to wait; return whether it was all."""
        return False

    async def receive(self) -> bytes:
        """Return the next frame."""
        raise NotImplementedError

    async def receive_all(self, handler: FrameHandler) -> None:
        """Call a function with every frame, in order, until it or `receive` raises an error."""
        while True:
            handler(await self.receive())

    async def close(self) -> None:
        """Close the connection; never raise."""


Dial = Callable[[], Awaitable[Transport]]
"""Opens a connection, or raises `DisconnectedError` or `RefusedError`."""


# Larger frames are refused; a broker sends smaller ones unless it is set otherwise.
MAX_FRAME_BYTES: Final = 64 * 1024**2
_SECONDS_TO_CLOSE: Final = 2.0
_SECONDS_BETWEEN_PINGS: Final = 20.0

_CODES: Final = {status: code for code, status in STATUS.items()}


class WebSocketTransport(Transport):
    """A WebSocket that raises `DisconnectedError` however it was lost."""

    def __init__(self, socket: DirectWebSocket, largest_frame: int) -> None:
        self._socket = socket
        self._largest_frame = largest_frame

    async def send(self, frame: bytes) -> None:
        """Send a frame as text."""
        try:
            await self._socket.send(frame, text=True)
        except ConnectionClosed as error:
            raise _disconnected(error) from None

    def send_now(self, next_frame: FrameSource) -> bool:
        """Send frames as text while nothing waits to be sent; return whether it was all."""
        return self._socket.send_now(next_frame)

    async def receive(self) -> bytes:
        """Return the next frame."""
        try:
            return await self._socket.next_frame()
        except ConnectionClosed as error:
            raise _disconnected(error) from None

    async def receive_all(self, handler: FrameHandler) -> None:
        """Call a function with every frame, most of them where they are read."""
        self._socket.hand_on(handler, self._largest_frame)
        try:
            await super().receive_all(handler)
        finally:
            self._socket.hand_on(None)

    async def close(self) -> None:
        """Close the WebSocket, without waiting long for the broker's answer."""
        await self._socket.close()


class _Problem(msgspec.Struct):
    """What HTTP says of a refusal (RFC 9457)."""

    detail: str


class _Connect(connect):
    """Opens a WebSocket, and follows no redirect: the token is for this broker."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def websocket_dial(
    address: BrokerAddress,
    *,
    timeout: float | None,
    tls: ssl.SSLContext | None,
    path: str = _CONNECT,
    token: str | None = None,
    largest_frame: int = MAX_FRAME_BYTES,
) -> Dial:
    """Return a function that connects to a broker over the network.

    With `token`, the client is known before it sends its first frame.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    async def dial() -> Transport:
        try:
            opened = await _Connect(
                f"ws{address.web.removeprefix('http')}{path}",
                additional_headers=headers,
                compression=None,
                create_connection=DirectWebSocket,
                max_size=largest_frame,
                open_timeout=timeout,
                close_timeout=_SECONDS_TO_CLOSE,
                ping_interval=_SECONDS_BETWEEN_PINGS,
                proxy=None if address.is_loopback else True,
                # True stands for the certificates that the system trusts.
                ssl=(tls or True) if address.is_secure else None,
            )
            return WebSocketTransport(cast("DirectWebSocket", opened), largest_frame)
        except InvalidStatus as error:
            raise _refused(address, error) from None
        except (OSError, TimeoutError, WebSocketException) as error:
            raise DisconnectedError(
                f"{address.web} cannot be reached: {failure_reason(error)}"
            ) from None

    return dial


def _refused(address: BrokerAddress, error: InvalidStatus) -> RefusedError:
    status = error.response.status_code
    location = error.response.headers.get("Location")
    if location is not None and 300 <= status < 400:
        return redirected(address, urljoin(address.connect, location))
    code = _CODES.get(status)
    if code is None:
        return DisconnectedError(f"{address.web} answered with HTTP {status}: is it a broker?")
    return RefusedError(code, f"{address.web} refused the connection: {_detail(error) or code}")


def _detail(error: InvalidStatus) -> str:
    """Return the sentence in the problem that a broker answers with."""
    try:
        return msgspec.json.decode(error.response.body or b"", type=_Problem).detail
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def redirected(address: BrokerAddress, target: str) -> DisconnectedError:
    """Return the error for a redirect, without secrets that the target may have."""
    parts = urlsplit(target)
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return DisconnectedError(
        f"{address.web} redirects to {origin}; if you trust it, use that address"
    )


def _disconnected(error: ConnectionClosed) -> DisconnectedError:
    received = error.rcvd
    if received is None:
        return DisconnectedError("the connection was lost")
    reason = f": {received.reason}" if received.reason else ""
    return DisconnectedError(f"the broker closed the connection ({received.code}){reason}")


# What OpenSSL says, by version, of an answer that is not TLS.
_NOT_TLS: Final = frozenset({"HTTP_REQUEST", "RECORD_LAYER_FAILURE", "WRONG_VERSION_NUMBER"})


def failure_reason(error: BaseException) -> str:
    """Return why a connection failed; libraries wrap the error of the system in their own."""
    for cause in _chain(error):
        if isinstance(cause, TimeoutError):
            return "no answer in time"
        if isinstance(cause, socket.gaierror):
            # The resolver's words are for whoever knows its numbers.
            return "no host of this name is known; check its spelling, and the network"
        if isinstance(cause, ssl.SSLError) and cause.reason in _NOT_TLS:
            return "it does not answer with TLS; perhaps its address begins with http://"
        if isinstance(cause, ConnectionError) and cause.errno:
            return os.strerror(cause.errno)
    return str(error) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
