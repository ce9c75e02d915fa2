"""`tamis peer`: link a broker to others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich import box
from rich.table import Table

from tamis.cli.broker.connection import BrokerTarget, with_broker
from tamis.cli.console import Format, printable, say, stdout, write_list, yes_or_no
from tamis.cli.exits import FINE
from tamis.cli.help_text import flowing
from tamis.cli.options import FormatOption, argument, mistake, no_default
from tamis.protocol.management import AddPeer, ListPeers, RemovePeer
from tamis.protocol.views import PeerView

EXAMPLES: Final = """[bold]Examples[/bold]

tamis peer add http://127.0.0.1:8766
tamis peer add https://hamburg.example --peer-token-file hamburg.token --role branch
tamis peer list
tamis peer remove https://hamburg.example

[bold]Exit code[/bold]

0 success
2 a mistake, or the broker refused"""

peer = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Link the broker to others; for administrators.",
    epilog=flowing(EXAMPLES),
)


@peer.command(no_args_is_help=True)
@with_broker
def add(
    target: BrokerTarget,
    address: Annotated[str, argument("ADDRESS", "The address of the other broker.")],
    *,
    peer_token_file: Annotated[
        Path | None,
        no_default(metavar="FILE", help="A file with the token that the other broker asks for."),
    ] = None,
    role: Annotated[
        str | None,
        no_default(metavar="ROLE", help="The role that the other broker has at this one."),
    ] = None,
) -> int:
    """Link the broker to another, also after a restart.

    The broker dials the address as long as the link is there; `tamis peer list` shows whether it
    is connected, and if not, why.
    """
    token = None if peer_token_file is None else peer_token_file.read_text(encoding="utf-8").strip()
    if token == "":
        raise mistake(f"there is no token in {peer_token_file}")
    target.call(lambda bus: bus.call(AddPeer(address, token, role)))
    say(stdout(), f"{address} is added")
    return FINE


@peer.command(no_args_is_help=True)
@with_broker
def remove(
    target: BrokerTarget,
    id_: Annotated[str, argument("PEER", "The peer's address, id or name, as listed.")],
) -> int:
    """Remove a link, and delete the events that wait for the other broker."""
    target.call(lambda bus: bus.call(RemovePeer(id_)))
    say(stdout(), f"{id_} is removed")
    return FINE


@peer.command(name="list")
@with_broker
def list_(target: BrokerTarget, *, format_: FormatOption = Format.TEXT) -> int:
    """List the links, whether they are connected or not."""
    found = target.call(lambda bus: bus.call(ListPeers()))
    write_list(found, format_, _table, empty="there are no links to other brokers")
    return FINE


def _table(links: Iterable[PeerView]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("name", "id", "address", "made by", "connected", "waiting", "problem"):
        table.add_column(name, overflow="fold")
    for one in links:
        table.add_row(
            printable(one.name),
            one.broker[:8],
            printable(one.url),
            one.made_by,
            yes_or_no(one.connected),
            f"{one.waiting:,}",
            printable(one.problem),
        )
    return table
