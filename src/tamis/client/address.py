"""Where a broker is: one URL for people, from which the others follow."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tamis.errors import AddressError

DEFAULT_URL: Final = "http://127.0.0.1:8765"

_WEB: Final = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
_CONNECT: Final = "/v1/connect"


class Address(NamedTuple):
    """A broker's address."""

    web: str
    """Without a slash at the end; `/v1/…` is appended to it."""
    host: str

    @property
    def connect(self) -> str:
        """Return the URL of the WebSocket."""
        return f"ws{self.web.removeprefix('http')}{_CONNECT}"

    @property
    def is_secure(self) -> bool:
        """Tell whether others on the way can read nothing."""
        return self.web.startswith("https:")

    @property
    def is_loopback(self) -> bool:
        """Tell whether the broker is on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(url: str) -> Address:
    """Return the address that a URL names: http, https, ws or wss.

    >>> parse_address("https://broker.example/tamis/").connect
    'wss://broker.example/tamis/v1/connect'
    """
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(url, str(error)) from None
    if parts.scheme not in _WEB:
        raise AddressError(url, f"it should begin like {DEFAULT_URL}, or with https, ws or wss")
    if not host:
        raise AddressError(url, "the host is missing")
    if "@" in parts.netloc:
        # Not shown: what stands before the @ may be a secret.
        raise AddressError(f"{parts.scheme}://…@…", "a token does not belong into a URL")
    if parts.query or parts.fragment:
        raise AddressError(url, "there is more than host, port and path")
    path = parts.path.rstrip("/").removesuffix(_CONNECT)
    return Address(f"{_WEB[parts.scheme]}://{parts.netloc}{path}", host)
