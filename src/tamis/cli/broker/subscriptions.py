"""`tamis subscriptions`: list, show, renew and delete subscriptions; their dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final

import typer

from tamis.cli.broker.connection import (
    CaFile,
    Place,
    SubscriptionId,
    TokenFile,
    Url,
    duration,
    moment,
    run,
)
from tamis.cli.broker.subscription_output import (
    letter_table,
    say_fields,
    subscription_table,
    write_views,
)
from tamis.cli.console import Format, count, say, stderr, stdout
from tamis.cli.exits import FINE
from tamis.cli.options import mistake
from tamis.client import Bus
from tamis.client.address import DEFAULT_URL
from tamis.protocol.views import DeadLetterView

EXAMPLES: Final = """[bold]Examples[/bold]

tamis subscriptions
tamis subscriptions show laptop-7
tamis subscriptions renew laptop-7 '30 days'
tamis subscriptions dead-letters laptop-7
tamis subscriptions requeue laptop-7 --all
tamis subscriptions delete laptop-7

[bold]Exit code[/bold]

0 done
2 a mistake, or the broker refused it"""

_LETTERS_AT_ONCE: Final = 1000

FormatOption = Annotated[Format, typer.Option("--format", help="For people or for programs.")]
# Where the broker is can also be said before the subcommand; then nothing need be said here.
OtherUrl = Annotated[
    str | None,
    typer.Option("--url", "-u", metavar="URL", help="Where the broker is.", show_default=False),
]
Sequences = Annotated[
    list[int] | None,
    typer.Argument(metavar="[SEQUENCE]...", help="The dead letters.", show_default=False),
]
AllOfThem = Annotated[bool, typer.Option("--all", help="All of them.")]

subscriptions = typer.Typer(
    rich_markup_mode="rich", help="List and look after subscriptions.", epilog=EXAMPLES
)


@subscriptions.callback(invoke_without_command=True)
def _default(
    context: typer.Context,
    *,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """List your subscriptions, or look after one of them."""
    context.obj = place = Place(url, token_file, ca)
    return FINE if context.invoked_subcommand else _list(place.bus(), format_)


@subscriptions.command(name="list")
def list_(
    context: typer.Context,
    *,
    url: OtherUrl = None,
    token_file: TokenFile = None,
    ca: CaFile = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """List your subscriptions."""
    return _list(_bus(context, url, token_file, ca), format_)


def _list(bus: Bus, format_: Format) -> int:
    found = run(bus.subscriptions())
    if format_ is Format.JSON:
        write_views(found)
    elif found:
        stdout().print(subscription_table(found))
    else:
        say(stderr(), "there are no subscriptions")
    return FINE


@subscriptions.command(no_args_is_help=True)
def show(
    context: typer.Context,
    id_: SubscriptionId,
    *,
    url: OtherUrl = None,
    token_file: TokenFile = None,
    ca: CaFile = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show one subscription."""
    view = run(_bus(context, url, token_file, ca).subscription(id_))
    if format_ is Format.JSON:
        write_views([view])
    else:
        say_fields(view)
    return FINE


@subscriptions.command(no_args_is_help=True)
def renew(
    context: typer.Context,
    id_: SubscriptionId,
    lifetime: Annotated[
        str,
        typer.Argument(metavar="TIME", help="90s, 24h, '7 days', or never.", show_default=False),
    ],
    *,
    url: OtherUrl = None,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Let a subscription live for so long from now on."""
    lasts = None if lifetime == "never" else duration(lifetime)
    view = run(_bus(context, url, token_file, ca).renew(id_, lasts))
    say(stdout(), f"{view.id} expires: {moment(view.expires_at)}")
    return FINE


@subscriptions.command(no_args_is_help=True)
def delete(
    context: typer.Context,
    id_: SubscriptionId,
    *,
    url: OtherUrl = None,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Delete a subscription with all that waits for it."""
    run(_bus(context, url, token_file, ca).delete(id_))
    say(stdout(), f"{id_} is deleted")
    return FINE


@subscriptions.command(no_args_is_help=True)
def dead_letters(
    context: typer.Context,
    id_: SubscriptionId,
    *,
    url: OtherUrl = None,
    token_file: TokenFile = None,
    ca: CaFile = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show events that were given up after too many attempts."""
    letters = run(_all_letters(_bus(context, url, token_file, ca), id_))
    if format_ is Format.JSON:
        write_views(letters)
    elif letters:
        stdout().print(letter_table(letters))
    else:
        say(stderr(), "there are no dead letters")
    return FINE


@subscriptions.command(no_args_is_help=True)
def requeue(
    context: typer.Context,
    id_: SubscriptionId,
    sequences: Sequences = None,
    *,
    all_: AllOfThem = False,
    url: OtherUrl = None,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Let dead letters come again, as if they had never been sent."""
    bus = _bus(context, url, token_file, ca)
    done = run(_each_letter(bus.requeue, bus, id_, sequences, all_=all_))
    say(stdout(), f"{count(done, 'event')} will come again")
    return FINE


@subscriptions.command(no_args_is_help=True)
def discard(
    context: typer.Context,
    id_: SubscriptionId,
    sequences: Sequences = None,
    *,
    all_: AllOfThem = False,
    url: OtherUrl = None,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Delete dead letters."""
    bus = _bus(context, url, token_file, ca)
    done = run(_each_letter(bus.delete_dead_letters, bus, id_, sequences, all_=all_))
    say(stdout(), f"{count(done, 'dead letter')} deleted")
    return FINE


def _bus(context: typer.Context, url: str | None, token_file: TokenFile, ca: CaFile) -> Bus:
    said: Place = context.obj
    return Place(url or said.url, token_file or said.token_file, ca or said.ca).bus()


async def _all_letters(bus: Bus, id_: str) -> list[DeadLetterView]:
    letters: list[DeadLetterView] = []
    after = 0
    while some := await bus.dead_letters(id_, after=after, limit=_LETTERS_AT_ONCE):
        letters += some
        after = some[-1].sequence
    return letters


async def _each_letter(
    act: Callable[[str, Sequence[int]], Awaitable[int]],
    bus: Bus,
    id_: str,
    sequences: Sequence[int] | None,
    *,
    all_: bool,
) -> int:
    if bool(sequences) is all_:
        raise mistake("give the sequences of dead letters, or --all")
    chosen = sequences or [letter.sequence for letter in await _all_letters(bus, id_)]
    parts = range(0, len(chosen), _LETTERS_AT_ONCE)
    return sum([await act(id_, chosen[start : start + _LETTERS_AT_ONCE]) for start in parts])
