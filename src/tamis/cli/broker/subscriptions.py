"""`tamis subscriptions`: list, show, change and delete subscriptions; manage their dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from tamis.cli.broker.connection import (
    BrokerLanguage,
    BrokerMode,
    BrokerTarget,
    SubscriptionId,
    duration,
    format_time,
    with_broker,
)
from tamis.cli.console import (
    Format,
    printable,
    say,
    stderr,
    stdout,
    write_list,
    yes_or_no,
)
from tamis.cli.exits import FINDING, FINE
from tamis.cli.filter_warnings import warn_of_mistakes
from tamis.cli.help_text import flowing
from tamis.cli.options import FormatOption, argument, mistake
from tamis.protocol.views import DeadLetterView, MemberView, SubscriptionView
from tamis.units import count

if TYPE_CHECKING:
    from tamis.client import Bus

EXAMPLES: Final = """[bold]Examples[/bold]

tamis subscriptions
tamis subscriptions show laptop-7
tamis subscriptions renew laptop-7 '30 days'
tamis subscriptions update laptop-7 'price < 4'
tamis subscriptions dead-letters laptop-7
tamis subscriptions requeue laptop-7 --all
tamis subscriptions delete laptop-7

[bold]Exit code[/bold]

0 success
1 the event to requeue or discard is not a dead letter
2 a mistake, or the broker refused"""

_DEAD_LETTERS_PER_CALL: Final = 1000

Sequences = Annotated[
    list[int] | None,
    argument("[SEQUENCE]...", "The dead letters."),
]
_DeadLetterAction = Callable[["Bus", str, Sequence[int]], Awaitable[int]]
AllOfThem = Annotated[bool, typer.Option("--all", help="All of them.")]

subscriptions = typer.Typer(
    rich_markup_mode="rich", help="List and manage subscriptions.", epilog=flowing(EXAMPLES)
)


@subscriptions.callback(invoke_without_command=True)
@with_broker
def _default(
    target: BrokerTarget, context: typer.Context, *, format_: FormatOption = Format.TEXT
) -> int:
    """List your subscriptions, or manage one of them."""
    context.obj = target
    return FINE if context.invoked_subcommand else _list(target, format_)


@subscriptions.command(name="list")
@with_broker
def list_(target: BrokerTarget, *, format_: FormatOption = Format.TEXT) -> int:
    """List your subscriptions."""
    return _list(target, format_)


def _list(target: BrokerTarget, format_: Format) -> int:
    found = target.call(lambda bus: bus.subscriptions())
    write_list(found, format_, _subscription_table, empty="there are no subscriptions")
    return FINE


@subscriptions.command(no_args_is_help=True)
@with_broker
def show(target: BrokerTarget, id_: SubscriptionId, *, format_: FormatOption = Format.TEXT) -> int:
    """Show one subscription."""
    view = target.call(lambda bus: bus.subscription(id_))
    write_list([view], format_, lambda _: _fields(view))
    return FINE


@subscriptions.command(no_args_is_help=True)
@with_broker
def renew(
    target: BrokerTarget,
    id_: SubscriptionId,
    lifetime: Annotated[
        str,
        argument("TIME", "90s, 24h, '7 days', or never."),
    ],
) -> int:
    """Set when a subscription expires, counted from now."""
    lasts = None if lifetime == "never" else duration(lifetime)
    view = target.call(lambda bus: bus.renew(id_, lasts))
    say(stdout(), f"{view.id} expires: {format_time(view.expires_at)}")
    return FINE


@subscriptions.command(no_args_is_help=True)
@with_broker
def update(
    target: BrokerTarget,
    id_: SubscriptionId,
    filter_: Annotated[str, argument("FILTER", "The new filter.")],
    *,
    language: BrokerLanguage = "tamis",
    mode: BrokerMode = None,
) -> int:
    """Replace the filter of a durable subscription; the events that wait for it stay."""
    warn_of_mistakes(filter_, language)
    view = target.call(lambda bus: bus.update(id_, filter_, language=language, mode=mode))
    since = f", from event {view.filter_from} on" if view.filter_from else ""
    say(stdout(), f"{view.id} has the filter {printable(view.filter)}{since}")
    return FINE


@subscriptions.command(no_args_is_help=True)
@with_broker
def delete(target: BrokerTarget, id_: SubscriptionId) -> int:
    """Delete a subscription and the events that wait for it."""
    target.call(lambda bus: bus.delete(id_))
    say(stdout(), f"{id_} is deleted")
    return FINE


@subscriptions.command(no_args_is_help=True)
@with_broker
def dead_letters(
    target: BrokerTarget, id_: SubscriptionId, *, format_: FormatOption = Format.TEXT
) -> int:
    """List the dead letters: events that failed after too many attempts."""
    letters = target.call(lambda bus: _all_dead_letters(bus, id_))
    write_list(letters, format_, _dead_letter_table, empty="there are no dead letters")
    return FINE


def _dead_letter_command(
    name: str, help_: str, act: _DeadLetterAction, report: Callable[[int], str]
) -> None:
    """Add a command that does something to chosen dead letters and reports how many there were."""

    @subscriptions.command(name, help=help_, no_args_is_help=True)
    @with_broker
    def command(
        target: BrokerTarget,
        id_: SubscriptionId,
        sequences: Sequences = None,
        *,
        all_: AllOfThem = False,
    ) -> int:
        if bool(sequences) is all_:
            raise mistake("give the sequences of dead letters, or --all")
        done = target.call(lambda bus: _for_dead_letters(bus, act, id_, sequences))
        say(stdout(), report(done))
        missing = len({*sequences}) - done if sequences else 0
        if missing <= 0:
            return FINE
        say(stderr(), _missing_dead_letters(id_, sequences or [], missing))
        return FINDING


def _missing_dead_letters(id_: str, sequences: Sequence[int], missing: int) -> str:
    given = sorted({*sequences})
    if missing < len(given):
        which = f"{missing:,} of the {len(given):,} sequences {'is' if missing == 1 else 'are'}"
    else:
        which = f"{', '.join(map(str, given))} {'is' if missing == 1 else 'are'}"
    kind = "no dead letter" if missing == 1 else "no dead letters"
    return f"{which} {kind} of {id_}; tamis subscriptions dead-letters {id_} lists them"


async def _all_dead_letters(bus: Bus, id_: str) -> list[DeadLetterView]:
    letters: list[DeadLetterView] = []
    after = 0
    while some := await bus.dead_letters(id_, after=after, limit=_DEAD_LETTERS_PER_CALL):
        letters += some
        after = some[-1].sequence
    return letters


async def _for_dead_letters(
    bus: Bus,
    act: _DeadLetterAction,
    id_: str,
    sequences: Sequence[int] | None,
) -> int:
    """Act on the given dead letters, or on all, in as many calls as it takes."""
    chosen = sequences or [letter.sequence for letter in await _all_dead_letters(bus, id_)]
    starts = range(0, len(chosen), _DEAD_LETTERS_PER_CALL)
    return sum([await act(bus, id_, chosen[i : i + _DEAD_LETTERS_PER_CALL]) for i in starts])


_dead_letter_command(
    "requeue",
    "Send dead letters again, as if they had never been sent.",
    lambda bus, id_, sequences: bus.requeue(id_, sequences),
    lambda done: f"{count(done, 'event')} will be sent again",
)
_dead_letter_command(
    "discard",
    "Delete dead letters.",
    lambda bus, id_, sequences: bus.delete_dead_letters(id_, sequences),
    lambda done: f"{count(done, 'dead letter')} deleted",
)


# --- output --------------------------------------------------------------------------------------


def _subscription_table(views: Iterable[SubscriptionView]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", style="green", overflow="fold")
    for name in ("durable", "connected"):
        table.add_column(name)
    for name in ("pending", "in flight", "dropped", "dead"):
        table.add_column(name, justify="right")
    table.add_column("expires")
    table.add_column("filter", overflow="fold")
    for view in views:
        table.add_row(
            printable(view.id),
            yes_or_no(view.durable),
            _connection(view),
            *(f"{number:,}" for number in (view.pending, view.in_flight, view.dropped)),
            Text(f"{view.dead:,}", "red" if view.dead else ""),
            format_time(view.expires_at),
            Text(printable(view.filter)),
        )
    return table


def _connection(view: SubscriptionView) -> str | Text:
    if view.suspended_from:
        return Text(f"suspended from {view.suspended_from}", "red")
    if view.group:
        return count(len(view.members), "member")
    return yes_or_no(view.connected)


def _member(member: MemberView) -> str:
    return (
        f"{member.id or 'without a name'} since {format_time(member.connected_at)}, "
        f"{member.in_flight:,} in flight"
    )


def _dead_letter_table(letters: Iterable[DeadLetterView]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("sequence", justify="right", style="dim")
    table.add_column("attempts", justify="right")
    table.add_column("reason", overflow="fold")
    table.add_column("event", overflow="fold")
    for letter in letters:
        data = Text(printable(bytes(letter.data).decode()))
        table.add_row(str(letter.sequence), str(letter.attempts), printable(letter.reason), data)
    return table


def _fields(view: SubscriptionView) -> Text:
    fields = msgspec.structs.asdict(view)
    fields["created_at"] = format_time(view.created_at)
    fields["expires_at"] = format_time(view.expires_at)
    rare = ("suspended_from", "filter_from", "group", "ordering_key", "members")
    for name in (*rare, "matched_to", "log_end"):
        if not fields[name]:
            del fields[name]
    if view.members:
        fields["members"] = "; ".join(map(_member, view.members))
    width = max(map(len, fields))
    lines = (
        f"{name.replace('_', ' '):<{width}}  "
        + printable(yes_or_no(value) if isinstance(value, bool) else str(value))
        for name, value in fields.items()
    )
    return Text("\n".join(lines))
