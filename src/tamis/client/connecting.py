"""`tamis.connect`."""

from __future__ import annotations

import os
import ssl
from typing import Unpack

from tamis.client.address import DEFAULT_URL, parse_address
from tamis.client.bus import Bus
from tamis.client.management import Management
from tamis.client.options import ClientOptions, ConnectOptions
from tamis.client.reconnector import time_to_connect
from tamis.client.transport import websocket_dial


def connect(
    url: str | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    **options: Unpack[ConnectOptions],
) -> Bus:
    """Return a bus, for use with `async with`; `ConnectOptions` lists all options.

    Without a URL, the environment variable TAMIS_URL names the broker, or it is on this machine.
    Use `tls` for certificates that the system does not trust.
    """
    address = parse_address(url or os.environ.get("TAMIS_URL") or DEFAULT_URL)
    chosen = ClientOptions(**options)

    def make_management() -> Management:
        from tamis.client.http import HTTPManagement  # noqa: PLC0415 - takes a while to load

        return HTTPManagement(address, chosen.token, timeout=chosen.timeout, tls=tls)

    return Bus(
        address.web,
        websocket_dial(address, timeout=time_to_connect(chosen.timeout), tls=tls),
        make_management,
        chosen,
    )
