"""Which web pages may call the broker, and the security headers of every response.

If no token is required, a web page that a user happens to visit must not act in the user's name.
Such a broker answers only pages of its own address, and only under its own name, since a foreign
name can be made to resolve to it (DNS rebinding). Browsers tell where a request comes from: by
`Origin` if a script or form may see or send something, and by `Sec-Fetch-Site` always, unless they
are older than 2023. An old one sends neither for `<img src=…>`, and looks like curl then. So a GET
that changes something needs a header that pages cannot set for other sites.

A request whose length can be read in two ways is refused as well, whoever sends it, and one with
too large a header: the parser notices that only of headers that arrive in several pieces.
"""

from __future__ import annotations

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from tamis.broker.frontend.http.problems import (
    HTTPRefusedError,
    head_too_large,
    problem_response,
)
from tamis.broker.frontend.http.reading import SITE
from tamis.broker.operations.settings import BrokerSettings, is_loopback
from tamis.errors import RefusedError
from tamis.protocol import Code

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Referrer-Policy": "no-referrer",
}

OUR_SITES: Final = frozenset({"same-origin", "none"})
"""`none`: the user entered the address."""
PUBLIC_PATHS: Final = frozenset({"/", "/openapi.json", "/health", "/ready"})


class Guard:
    """Refuses requests from foreign pages before anything else happens."""

    def __init__(self, app: ASGIApp, settings: BrokerSettings) -> None:
        self._app = app
        self._settings = settings

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on, or refuse it; adds no frame to the calls of a long connection."""
        if scope["type"] == "http":
            send = _with_headers(send)
        refusal = self._refusal(scope)
        if refusal is None:
            return self._app(scope, receive, send)
        response = problem_response(refusal, scope["path"])
        if scope["type"] == "websocket":
            return WebSocket(scope, receive, send).send_denial_response(response)
        return response(scope, receive, send)

    def _refusal(self, scope: Scope) -> RefusedError | None:
        headers, path = Headers(scope=scope), scope["path"]
        if "transfer-encoding" in headers and (
            "content-length" in headers or scope.get("http_version") == "1.0"
        ):
            return _ambiguous_length()
        if _head_bytes(scope) > self._settings.largest_header:
            return head_too_large(self._settings.largest_header)
        if self._settings.tokens_required:
            # A page cannot send a token that it does not have.
            return None
        host = headers.get("host", "")
        if self._settings.is_loopback and not is_loopback(_name(host)):
            return HTTPRefusedError(
                HTTPStatus.MISDIRECTED_REQUEST, f"this broker is not called {host!r:.80}"
            )
        origin = headers.get("origin")
        if origin is None:
            is_ours = path in PUBLIC_PATHS or headers.get(SITE, "none") in OUR_SITES
            whose = "pages of another site"
        else:
            is_ours = origin in self._settings.origins or _host(origin) == host.lower()
            whose = f"pages of {origin!r:.80}"
        if is_ours:
            return None
        return RefusedError(
            Code.FORBIDDEN,
            f"{whose} may not call this broker; the setting origins lists who may",
        )


def _ambiguous_length() -> HTTPRefusedError:
    """Return the refusal of a body whose end a proxy may see elsewhere (request smuggling)."""
    return HTTPRefusedError(
        HTTPStatus.BAD_REQUEST,
        "Transfer-Encoding needs HTTP/1.1 and a request without Content-Length: two servers may "
        "disagree on where such a body ends; send one of the two headers",
        headers={"Connection": "close"},
    )


def _head_bytes(scope: Scope) -> int:
    """Return the length of a request without its body, as it was sent but for blanks."""
    line = (
        len(scope.get("method", "GET"))
        + len(scope.get("raw_path") or b"")
        + len(" ? HTTP/1.1\r\n\r\n")
    )
    fields = sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])
    return line + len(scope["query_string"]) + fields


def _name(host: str) -> str:
    """Return a host without its port.

    >>> _name("localhost:8765"), _name("[::1]:8765"), _name("::1")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _with_headers(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sender
