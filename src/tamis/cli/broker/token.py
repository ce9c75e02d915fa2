"""`tamis token`: make, list and revoke tokens."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer
from rich import box
from rich.table import Table

from tamis.cli.broker.connection import CaFile, Place, TokenFile, Url, duration, moment, run
from tamis.cli.broker.subscription_output import write_views
from tamis.cli.broker.subscriptions import FormatOption
from tamis.cli.console import Format, printable, say, stderr, stdout
from tamis.cli.exits import FINE
from tamis.client.address import DEFAULT_URL
from tamis.protocol.views import TokenView

EXAMPLES: Final = """[bold]Examples[/bold]

tamis token create alice --role trader > alice.token
tamis token create root --role admin --data ./tamis-data
tamis token list
tamis token revoke 0123456789abcdef

[bold]The first token[/bold]

Where tokens are needed, one needs a token to make tokens. The first is made in the broker's data
folder, with --data, while the broker does not run.

[bold]Exit code[/bold]

0 done
2 a mistake, or the broker refused it"""

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="FOLDER",
        help="The folder of a broker that does not run, instead of its address.",
        show_default=False,
    ),
]

token = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Make, list and revoke tokens; for administrators.",
    epilog=EXAMPLES,
)


@token.command(no_args_is_help=True)
def create(
    principal: Annotated[
        str, typer.Argument(metavar="NAME", help="Whom the token is for.", show_default=False)
    ],
    *,
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE", help="A role of the policy; may be repeated.", show_default=False
        ),
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How long it is valid: 24h, '90 days'.", show_default="for ever"
        ),
    ] = None,
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="Where it is used.", show_default=False)
    ] = "",
    data: Data = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Make a token, and write it to standard output: nobody will be shown it again."""
    roles, lasts = role or [], duration(lifetime)
    if data is not None:
        text = _create_in(data, principal, roles, lasts, note)
    else:
        bus = Place(url, token_file, ca).bus()
        text = run(bus.management.issue_token(principal, roles, lasts, note)).text
    sys.stdout.write(f"{text}\n")
    return FINE


@token.command(name="list")
def list_(
    *,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """List the tokens that are valid."""
    found = run(Place(url, token_file, ca).bus().management.tokens())
    if format_ is Format.JSON:
        write_views(found)
    elif found:
        stdout().print(_table(found))
    else:
        say(stderr(), "there are no tokens")
    return FINE


@token.command(no_args_is_help=True)
def revoke(
    id_: Annotated[
        str, typer.Argument(metavar="ID", help="The token, as it is listed.", show_default=False)
    ],
    *,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Revoke a token; connections that use it are closed."""
    run(Place(url, token_file, ca).bus().management.revoke_token(id_))
    say(stdout(), f"{id_} is revoked")
    return FINE


def _create_in(
    folder: Path, principal: str, roles: list[str], lifetime: float | None, note: str
) -> str:
    from tamis.broker.operations.access_control import AccessControl  # noqa: PLC0415 - takes a while to load
    from tamis.broker.operations.settings import BrokerSettings  # noqa: PLC0415
    from tamis.storage import Storage  # noqa: PLC0415

    with closing(Storage.open(folder, clock=time.time)) as store:
        settings = BrokerSettings.model_validate({"data": folder})
        access_control = AccessControl(settings, store.state, None, time.time)
        text, record = asyncio.run(access_control.issue(principal, tuple(roles), lifetime, note))
        act = f"{record.id} for {principal}, in the folder"
        store.state.add_audit(time.time(), "tamis token", "issue token", act)
        return text


def _table(tokens: Iterable[TokenView]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "principal", "roles", "created", "expires", "note"):
        table.add_column(name, overflow="fold")
    for one in tokens:
        table.add_row(
            one.id,
            printable(one.principal),
            printable(", ".join(one.roles)),
            moment(one.created_at),
            moment(one.expires_at),
            printable(one.note),
        )
    return table
