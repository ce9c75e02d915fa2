"""The options of commands that talk to a broker."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import ssl
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from difflib import get_close_matches
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar, Unpack

import typer

from tamis.cli.console import say, stderr
from tamis.cli.options import argument, declare_parameters, mistake, no_default, option_parameter
from tamis.errors import RefusedError
from tamis.languages.registry import ALL_LANGUAGES
from tamis.protocol import Code
from tamis.protocol.addresses import DEFAULT_URL
from tamis.units import seconds

if TYPE_CHECKING:
    from tamis.client import Bus, ConnectOptions

T = TypeVar("T")


BrokerMode = Annotated[
    str | None,
    no_default(
        "--mode",
        "-m",
        metavar="MODE",
        help="What an absent attribute means; by default, what the broker is set to.",
    ),
]
BrokerLanguage = Annotated[
    str,
    typer.Option(
        "--language",
        "-l",
        metavar="NAME",
        help=f"The language of the filter: {', '.join(ALL_LANGUAGES)}.",
        autocompletion=lambda: list(ALL_LANGUAGES),
    ),
]
VARIABLES: Final = ("TAMIS_URL", "TAMIS_TOKEN")
POSITIONS: Final = (
    "earliest, a sequence, a time such as 2026-01-31T12:00:00Z, or how long ago: 90s, 1h, '7 days'."
)
SubscriptionId = Annotated[str, argument("ID", "The subscription.")]

_Url = Annotated[
    str | None,
    no_default(
        "--url",
        "-u",
        metavar="URL",
        help=f"The address of the broker; by default, the variable TAMIS_URL, or {DEFAULT_URL}.",
    ),
]
_TokenFile = Annotated[
    Path | None,
    no_default(
        "--token-file",
        metavar="FILE",
        help="A file with the token; by default, the variable TAMIS_TOKEN, for the broker in "
        "TAMIS_URL.",
    ),
]
_CaFile = Annotated[
    Path | None,
    no_default(
        "--ca",
        metavar="FILE",
        help="Certificates to trust, as a PEM file; by default, the system's.",
    ),
]


class BrokerTarget(NamedTuple):
    """Which broker to talk to, and the credentials for it."""

    url: str | None = None
    token_file: Path | None = None
    ca: Path | None = None

    def bus(self, **options: Unpack[ConnectOptions]) -> Bus:
        """Return a bus that is not open yet."""
        # An extra, which `--help` and explaining without a broker do without.
        from tamis.client import connect  # noqa: PLC0415

        options["token"] = self._token()
        return connect(self.url, tls=self._tls(), **options)

    def call(self, ask: Callable[[Bus], Coroutine[Any, Any, T]]) -> T:
        """Return the broker's answer to one management call."""
        return run(ask(self.bus()))

    def _token(self) -> str | None:
        # There is no option for the token itself: command lines are visible to every user.
        if self.token_file is None:
            return None  # `connect` looks for the variable.
        token = self.token_file.read_text(encoding="utf-8").strip()
        if not token:
            raise mistake(f"there is no token in {self.token_file}")
        return token

    def origin_of_token(self) -> str:
        """Return where the token came from, or where one may be."""
        from tamis.client.environment import (  # noqa: PLC0415 - as above
            broker_address,
            has_environment_token,
        )

        if self.token_file is not None:
            return f"the broker was sent the one in {self.token_file}"
        if has_environment_token(broker_address(self.url)):
            return "the broker was sent the one in the variable TAMIS_TOKEN"
        return "name its file with --token-file, or set the variable TAMIS_TOKEN"

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


def with_broker(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options that name a broker, in place of its first parameter.

    In a group of commands, they can also be given to the group, before the subcommand.
    """
    own = inspect.signature(command, eval_str=True)
    takes_context = "context" in own.parameters

    @functools.wraps(command)
    def wrapper(context: typer.Context, **options: Any) -> int:
        _warn_of_misspelt_variables()
        group = context.obj or BrokerTarget()
        fields = (options.pop(name) or getattr(group, name) for name in BrokerTarget._fields)
        target = context.obj = BrokerTarget(*fields)
        try:
            return command(target, **({"context": context} if takes_context else {}), **options)
        except RefusedError as error:
            if error.code != Code.UNAUTHENTICATED:
                raise
            raise RefusedError(error.code, f"{error}; {target.origin_of_token()}") from None

    _, *rest = [one for one in own.parameters.values() if one.name != "context"]
    kinds = zip(BrokerTarget._fields, (_Url, _TokenFile, _CaFile), strict=True)
    context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    declare_parameters(
        wrapper, [context, *rest, *(option_parameter(name, kind) for name, kind in kinds)]
    )
    return wrapper


def _warn_of_misspelt_variables() -> None:
    """Warn of variables that are nearly `TAMIS_URL` or `TAMIS_TOKEN`; others may be a broker's."""
    for name in sorted(os.environ):
        near = get_close_matches(name, VARIABLES, n=1, cutoff=0.8)
        if name.startswith("TAMIS_") and near and name not in VARIABLES:
            say(stderr(), f"warning: the variable {name} means nothing; did you mean {near[0]}?")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command; on Ctrl-C, wait until it has cleaned up."""
    return asyncio.run(coroutine)


def duration(text: str | None) -> float | None:
    """Return a duration such as `7 days` in seconds."""
    if text is None:
        return None
    try:
        return seconds(text)
    except ValueError as error:
        raise mistake(str(error)) from None


def format_time(time: float | None) -> str:
    """Return a time for people.

    >>> format_time(0), format_time(None)
    ('1970-01-01 00:00:00Z', 'never')
    """
    if time is None:
        return "never"
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
