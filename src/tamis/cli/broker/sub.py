"""`tamis sub` and `tamis tail`: show events as they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from tamis.cli.broker.connection import (
    POSITIONS,
    BrokerLanguage,
    BrokerMode,
    BrokerTarget,
    duration,
    run,
    with_broker,
)
from tamis.cli.broker.event_writers import Envelope, EventCount, event_writer, while_read
from tamis.cli.console import TableFormat, say, stderr
from tamis.cli.exits import FINE
from tamis.cli.filter_warnings import warn_of_mistakes
from tamis.cli.options import TableOption, argument, no_default
from tamis.protocol.frames import Overflow
from tamis.units import count

if TYPE_CHECKING:
    from tamis.client import Missed, SubscribeOptions

SUB_EXAMPLES: Final = r"""[bold]Examples[/bold]

tamis sub 'price < 5'
tamis sub 'symbol = "ACME"' --from earliest --count 10
tamis sub 'symbol = "ACME"' --from 1h
tamis sub 'price < 5' --durable laptop-7
tamis sub 'kind = "order"' --group workers --ordering-key customer
tamis sub "order/line[sku = 'chair' \$and\$ quantity > 5]" --language xql
tamis sub 'kind = "news"' --from 2026-01-31T12:00:00Z | jq .headline

[bold]Durable[/bold]

With --durable NAME, the broker keeps the subscription and its events while nobody is connected.
An event is acknowledged once it is written; until then, the broker sends it again. With --roaming,
a subscription that another broker has, which is linked to this one, moves here with its events.

[bold]Group[/bold]

With --group NAME, any number of consumers share a durable subscription: each event goes to one of
them, and to another if that one goes before the event is written. With --ordering-key, events with
the same value of an attribute are handled one after the other.

[bold]Exit code[/bold]

0 --count events arrived
2 a mistake, or the broker ended the subscription
130 interrupted"""

TAIL_EXAMPLES: Final = """[bold]Examples[/bold]

tamis tail
tamis tail --from earliest --format json > events.jsonl
tamis tail --envelope --count 1

[bold]Exit code[/bold]

0 --count events arrived
2 a mistake, or the broker ended the subscription
130 interrupted"""


From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="START",
        help=f"latest, {POSITIONS}",
    ),
]


@with_broker
def sub(
    target: BrokerTarget,
    filter_: Annotated[str, argument("FILTER", "The filter.")],
    *,
    durable: Annotated[
        str | None,
        no_default(metavar="NAME", help="Make the subscription durable, under this name."),
    ] = None,
    group: Annotated[
        str | None,
        no_default(metavar="NAME", help="Share the events with the other members of this group."),
    ] = None,
    ordering_key: Annotated[
        str | None,
        no_default(
            metavar="ATTRIBUTE",
            help="Let the group handle events with the same value of it in order.",
        ),
    ] = None,
    roaming: Annotated[
        bool,
        typer.Option(
            "--roaming", help="Bring it here, with what waits, if a linked broker has it."
        ),
    ] = False,
    start: From = "latest",
    lifetime: Annotated[
        str | None,
        no_default(
            metavar="TIME", help="Expire this long after the last connection: 90s, 24h, '7 days'."
        ),
    ] = None,
    number: EventCount = None,
    format_: TableOption = TableFormat.AUTO,
    envelope: Envelope = False,
    overflow: Annotated[
        Overflow,
        typer.Option(help="What happens to events while the output is not read."),
    ] = "wait",
    language: BrokerLanguage = "tamis",
    mode: BrokerMode = None,
) -> int:
    """Subscribe to a filter, and show matching events as they arrive."""
    warn_of_mistakes(filter_, language)
    options: SubscribeOptions = {
        "durable": durable,
        "acknowledge": "auto" if durable is None and group is None else "manual",
        "start": start,
        "lifetime": duration(lifetime),
        "overflow": overflow,
        "language": language,
        "mode": mode,
        "roaming": roaming,
        "group": group,
        "ordering_key": ordering_key,
    }
    run(while_read(_show(target, filter_, options, number, format_, envelope=envelope)))
    return FINE


@with_broker
def tail(
    target: BrokerTarget,
    *,
    start: From = "latest",
    number: EventCount = None,
    format_: TableOption = TableFormat.AUTO,
    envelope: Envelope = False,
) -> int:
    """Show all events that you may see, as they arrive."""
    options: SubscribeOptions = {"start": start}
    run(while_read(_show(target, "true", options, number, format_, envelope=envelope)))
    return FINE


async def _show(
    target: BrokerTarget,
    filter_: str,
    options: SubscribeOptions,
    number: int | None,
    format_: TableFormat,
    *,
    envelope: bool,
) -> None:
    writer = event_writer(format_, envelope=envelope)
    err = stderr()

    def say_missed(missed: Missed) -> None:
        many = "some events" if missed.count is None else count(missed.count, "event")
        say(err, f"missed: {many} ({missed.reason})")

    options["on_missed"] = say_missed
    shown = 0
    async with target.bus() as bus:
        async for event in await bus.subscribe(filter_, **options):
            writer.write(event)
            await event.ack()
            shown += 1
            if shown == number:
                break
