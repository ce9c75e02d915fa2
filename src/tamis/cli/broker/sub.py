"""`tamis sub` and `tamis tail`: show events as they come."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final, Literal

import typer

from tamis.cli.broker.connection import BrokerMode, CaFile, Place, TokenFile, Url, duration, run
from tamis.cli.broker.sub_output import EventFormat, event_writer
from tamis.cli.console import count, say, stderr
from tamis.cli.exits import FINE
from tamis.cli.options import Language
from tamis.client import Missed, SubscribeOptions
from tamis.client.address import DEFAULT_URL

SUB_EXAMPLES: Final = """[bold]Examples[/bold]

tamis sub 'price < 5'
tamis sub 'symbol = "ACME"' --from earliest --count 10
tamis sub 'price < 5' --durable laptop-7
tamis sub 'kind = "news"' --from 2026-01-31T12:00:00Z | jq .headline

[bold]Durable[/bold]

With --durable NAME the broker keeps the subscription and its events while nobody is connected.
An event is acknowledged when it has been written; until then it comes again.

[bold]Exit code[/bold]

0 as many events came as --count says
2 a mistake, or the broker ended the subscription
130 interrupted"""

TAIL_EXAMPLES: Final = """[bold]Examples[/bold]

tamis tail
tamis tail --from earliest --format json > events.jsonl
tamis tail --envelope --count 1

[bold]Exit code[/bold]

0 as many events came as --count says
2 a mistake, or the broker ended the subscription
130 interrupted"""

_SEQUENCE: Final = re.compile(r"\d{1,18}", re.ASCII)


class SlowPolicy(StrEnum):
    """What becomes of events while nobody reads the output."""

    WAIT = "wait"
    DROP = "drop"
    DISCONNECT = "disconnect"


From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="START",
        help="latest, earliest, a sequence, or a time such as 2026-01-31T12:00:00Z.",
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        "--count", "-n", min=1, metavar="N", help="End after so many events.", show_default=False
    ),
]
Format = Annotated[
    EventFormat,
    typer.Option("--format", help="auto is a table in a terminal, JSON lines elsewhere."),
]
Envelope = Annotated[
    bool,
    typer.Option(
        "--envelope", help="As JSON, with sequence, time, publisher and attempt beside the event."
    ),
]


def sub(
    filter_: Annotated[
        str, typer.Argument(metavar="FILTER", help="The filter.", show_default=False)
    ],
    *,
    durable: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Let the broker keep the subscription under this name.",
            show_default=False,
        ),
    ] = None,
    start: From = "latest",
    lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Let it expire so long after it was last taken up: 90s, 24h, '7 days'.",
            show_default=False,
        ),
    ] = None,
    number: Count = None,
    format_: Format = EventFormat.AUTO,
    envelope: Envelope = False,
    policy: Annotated[
        SlowPolicy,
        typer.Option(help="What becomes of events while nobody reads the output."),
    ] = SlowPolicy.WAIT,
    language: Language = "tamis",
    mode: BrokerMode = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Subscribe to a filter, and show the events that match it, as they come."""
    options: SubscribeOptions = {
        "durable": durable,
        "acknowledge": "auto" if durable is None else "manual",
        "start": place_in_log(start),
        "lifetime": duration(lifetime),
        "policy": _policy(policy),
        "language": language,
        "mode": mode,
    }
    place = Place(url, token_file, ca)
    run(_show(place, filter_, options, number, format_, envelope=envelope))
    return FINE


def tail(
    *,
    start: From = "latest",
    number: Count = None,
    format_: Format = EventFormat.AUTO,
    envelope: Envelope = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Show all events that you may see, as they come."""
    options: SubscribeOptions = {"start": place_in_log(start)}
    place = Place(url, token_file, ca)
    run(_show(place, "true", options, number, format_, envelope=envelope))
    return FINE


def place_in_log(text: str) -> int | str:
    """Return a sequence as a number; what else it may be, the broker understands."""
    return int(text) if _SEQUENCE.fullmatch(text) else text


def _policy(policy: SlowPolicy) -> Literal["wait", "drop", "disconnect"]:
    return policy.value


async def _show(
    place: Place,
    filter_: str,
    options: SubscribeOptions,
    number: int | None,
    format_: EventFormat,
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
    async with place.bus() as bus:
        async for event in await bus.subscribe(filter_, **options):
            writer.write(event)
            await event.ack()
            shown += 1
            if shown == number:
                break
