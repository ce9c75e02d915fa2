"""The options of commands that speak with a broker, and speaking with it."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, Unpack

import typer

from tamis.cli.options import mistake
from tamis.client import Bus, ConnectOptions, connect
from tamis.client.address import DEFAULT_URL
from tamis.units import seconds

T = TypeVar("T")

Url = Annotated[
    str,
    typer.Option(
        "--url",
        "-u",
        metavar="URL",
        envvar="TAMIS_URL",
        help="Where the broker is.",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with the token; without one, the variable TAMIS_TOKEN.",
        show_default=False,
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="Certificates to trust, a PEM file; without one, those of the system.",
        show_default=False,
    ),
]
BrokerMode = Annotated[
    str | None,
    typer.Option(
        "--mode",
        "-m",
        metavar="MODE",
        help="What an absent attribute means; without it, as the broker is set.",
        show_default=False,
    ),
]
SubscriptionId = Annotated[
    str, typer.Argument(metavar="ID", help="The subscription.", show_default=False)
]


class Place(NamedTuple):
    """Where a broker is, and how to be let in."""

    url: str = DEFAULT_URL
    token_file: Path | None = None
    ca: Path | None = None

    def bus(self, **options: Unpack[ConnectOptions]) -> Bus:
        """Return a bus that is not open yet."""
        options["token"] = self._token()
        return connect(self.url, tls=self._tls(), **options)

    def _token(self) -> str | None:
        # There is no option for the token itself: everybody on a machine sees command lines.
        if self.token_file is None:
            return os.environ.get("TAMIS_TOKEN") or None
        token = self.token_file.read_text(encoding="utf-8").strip()
        if not token:
            raise mistake(f"there is no token in {self.token_file}")
        return token

    def _tls(self) -> ssl.SSLContext | None:
        if self.ca is None:
            return None
        certificates = self.ca.read_text(encoding="utf-8")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=certificates)
        except (ssl.SSLError, ValueError):
            raise mistake(f"there are no certificates in {self.ca}; it should be PEM") from None
        return context


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command to its end; Ctrl-C lets it clean up first."""
    return asyncio.run(coroutine)


def duration(text: str | None) -> float | None:
    """Return a length of time such as `7 days` in seconds."""
    if text is None:
        return None
    try:
        return float(str(seconds(text)))
    except ValueError as error:
        raise mistake(str(error)) from None


def moment(time: float | None) -> str:
    """Return a time for people.

    >>> moment(0), moment(None)
    ('1970-01-01 00:00:00Z', 'never')
    """
    if time is None:
        return "never"
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
