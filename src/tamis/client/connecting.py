"""`tamis.connect`."""

from __future__ import annotations

import os
import ssl
from typing import TypedDict, Unpack

from tamis.client.address import DEFAULT_URL, parse_address
from tamis.client.bus import Bus, Options
from tamis.client.http import HTTPManagement
from tamis.client.keeper import Token, time_to_connect
from tamis.client.websocket import websocket_dial


class ConnectOptions(TypedDict, total=False):
    """How a client is to behave; every option can be left out."""

    token: Token
    """A token, or a function, asynchronous or not, that gives one at every connection."""
    publisher: str | None
    """A name for publications that outlives this process; it needs `sequence`."""
    sequence: int | None
    """The number of the next event under that name. A number that the broker knows is a no-op."""
    timeout: float | None
    """Seconds to wait for an answer; None: for ever."""
    reconnect: bool
    """Whether to connect again when the connection is lost; True unless said otherwise."""
    window: int
    """How many events of a subscription may wait in this process."""
    publish_window: int
    """How many published events may wait for their acknowledgement; then `publish` waits."""
    patient: bool
    """Whether to publish again when the broker says that it is too much or too full for now, rather
    than to raise that; False unless said otherwise."""


def connect(
    url: str | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    **options: Unpack[ConnectOptions],
) -> Bus:
    """Return a bus, to be used with `async with`; all options: `ConnectOptions`.

    Without a URL, the broker is where the variable TAMIS_URL says, or on this machine. `tls` is for
    certificates that the system does not know.
    """
    address = parse_address(url or os.environ.get("TAMIS_URL") or DEFAULT_URL)
    chosen = Options(**options)
    return Bus(
        address.web,
        websocket_dial(address, timeout=time_to_connect(chosen.timeout), tls=tls),
        HTTPManagement(address, chosen.token, timeout=chosen.timeout, tls=tls),
        chosen,
    )
