"""`tamis token`: create, list and revoke tokens."""

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

from tamis.cli.broker.connection import BrokerTarget, duration, format_time, with_broker
from tamis.cli.console import Format, printable, say, stderr, stdout, write_list
from tamis.cli.exits import FINE
from tamis.cli.help_text import flowing
from tamis.cli.options import FormatOption, argument, mistake, no_default
from tamis.protocol.management import IssueToken, ListTokens, RevokeToken
from tamis.protocol.views import TokenView
from tamis.units import count

EXAMPLES: Final = """[bold]Examples[/bold]

tamis token create alice --role trader > alice.token
tamis token create root --role admin --data ./tamis-data --new --policy policy.toml
tamis token list
tamis token revoke 0123456789abcdef

[bold]The first token[/bold]

A broker that requires tokens also requires one to create tokens. Create the first in the broker's
data folder, with --data, while the broker is stopped; add --new if it never ran.

[bold]Exit code[/bold]

0 success
2 a mistake, or the broker refused"""

Data = Annotated[
    Path | None,
    no_default(
        "--data",
        metavar="FOLDER",
        help="The data folder of a stopped broker, instead of the address of a running one.",
    ),
]

token = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Create, list and revoke tokens; for administrators.",
    epilog=flowing(EXAMPLES),
)


@token.command(no_args_is_help=True)
@with_broker
def create(
    target: BrokerTarget,
    principal: Annotated[str, argument("NAME", "The token's principal.")],
    *,
    role: Annotated[
        list[str] | None,
        no_default(metavar="ROLE", help="A role of the policy; may be repeated."),
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How long it is valid: 24h, '90 days'.", show_default="forever"
        ),
    ] = None,
    note: Annotated[str, no_default(metavar="TEXT", help="Where it is used.")] = "",
    undefined_roles: Annotated[
        bool,
        typer.Option("--undefined-roles", help="Accept roles that the policy does not define yet."),
    ] = False,
    data: Data = None,
    new: Annotated[
        bool,
        typer.Option("--new", help="With --data: make the folder, for a broker that never ran."),
    ] = False,
    policy: Annotated[
        Path | None,
        no_default(
            metavar="FILE",
            help="With --data: the policy that defines the roles; by default, the one in "
            "tamis.toml or TAMIS_POLICY.",
        ),
    ] = None,
) -> int:
    """Create a token and write it to standard output; it is never shown again.

    A role that the policy does not define is refused, because it would grant nothing.
    """
    wanted = IssueToken(principal, role or [], duration(lifetime), note, undefined_roles)
    if data is not None:
        _check_folder(data, new=new)
        text = _create_in(data, wanted, policy)
    elif new:
        raise mistake("--new makes a data folder: name it with --data")
    elif policy is not None:
        raise mistake("a running broker has its own policy: leave --policy out, or give --data")
    else:
        text = target.call(lambda bus: bus.call(wanted)).text
    sys.stdout.write(f"{text}\n")
    return FINE


@token.command(name="list")
@with_broker
def list_(target: BrokerTarget, *, format_: FormatOption = Format.TEXT) -> int:
    """List the valid tokens."""
    found = target.call(lambda bus: bus.call(ListTokens()))
    write_list(found, format_, _table, empty="there are no tokens")
    return FINE


@token.command(no_args_is_help=True)
@with_broker
def revoke(
    target: BrokerTarget,
    id_: Annotated[str, argument("ID", "The token's id, as listed.")],
) -> int:
    """Revoke a token and close the connections that use it."""
    target.call(lambda bus: bus.call(RevokeToken(id_)))
    say(stdout(), f"{id_} is revoked")
    return FINE


def _check_folder(folder: Path, *, new: bool) -> None:
    """Refuse a folder that no broker will find the token in."""
    from tamis.storage import is_store  # noqa: PLC0415 - takes a while to load

    if is_store(folder):
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise mistake(f"{folder} is not the data folder of a broker, and not empty")
    if not new:
        raise mistake(
            f"there is no data of a broker in {folder}; if none has run there yet, add --new"
        )


def _create_in(folder: Path, wanted: IssueToken, policy: Path | None) -> str:
    from tamis.broker.operations.access_control import AccessControl  # noqa: PLC0415 - takes a while to load
    from tamis.broker.operations.settings import BrokerSettings  # noqa: PLC0415
    from tamis.ports import CautiousClock, SystemClock, ThreadExecutor  # noqa: PLC0415
    from tamis.storage import Storage  # noqa: PLC0415

    if wanted.roles and not wanted.undefined_roles:
        _check_roles(wanted.roles, policy)
    with closing(Storage.open(folder)) as store:
        settings = BrokerSettings.model_validate({"data": folder})
        clock = CautiousClock(SystemClock())
        access_control = AccessControl(settings, store.state, None, clock, ThreadExecutor("token"))
        issuing = access_control.issue(
            wanted.principal, tuple(wanted.roles), wanted.lifetime, wanted.note
        )
        text, record = asyncio.run(issuing)
        act = f"{record.id} for {wanted.principal}, in the folder"
        store.state.add_audit(time.time(), "tamis token", "issue token", act)
        return text


def _check_roles(roles: list[str], given: Path | None) -> None:
    """Refuse roles that the policy does not define; warn if no policy is known."""
    from tamis.access import Policy  # noqa: PLC0415 - takes a while to load
    from tamis.broker.operations.settings import load_settings  # noqa: PLC0415

    path = given or load_settings().policy
    if path is not None:
        Policy.load(path).require_roles(roles)
    else:
        say(
            stderr(),
            f"warning: {count(len(roles), 'role')} could not be checked, because no policy is "
            "known here; name it with --policy FILE",
        )


def _table(tokens: Iterable[TokenView]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "principal", "roles", "created", "expires", "note"):
        table.add_column(name, overflow="fold")
    for one in tokens:
        table.add_row(
            one.id,
            printable(one.principal),
            printable(", ".join(one.roles)),
            format_time(one.created_at),
            format_time(one.expires_at),
            printable(one.note),
        )
    return table
