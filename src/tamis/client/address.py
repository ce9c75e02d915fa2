"""The address of a broker: one URL, from which the WebSocket's follows."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tamis.errors import AddressError

DEFAULT_URL: Final = "http://127.0.0.1:8765"

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
