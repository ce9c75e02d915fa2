"""`tamis history`: show events of the past."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tamis.cli.broker.connection import BrokerMode, CaFile, Place, TokenFile, Url, run
from tamis.cli.broker.sub import Count, Envelope, Format, place_in_log
from tamis.cli.broker.sub_output import EventFormat, event_writer
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import Language
from tamis.client.address import DEFAULT_URL

EXAMPLES: Final = """[bold]Examples[/bold]

tamis history
tamis history 'price < 5' --from 2026-01-31T12:00:00Z --to 2026-02-01T12:00:00Z
tamis history 'symbol = "ACME"' --count 1 --envelope
tamis history --format json > backup.jsonl

[bold]Exit code[/bold]

0 there were such events
1 there were none
2 a mistake, or the broker refused it"""

_HELP: Final = "earliest, latest, a sequence, or a time such as 2026-01-31T12:00:00Z."


def history(
    filter_: Annotated[
        str, typer.Argument(metavar="[FILTER]", help="The filter.", show_default=False)
    ] = "true",
    *,
    start: Annotated[str, typer.Option("--from", metavar="START", help=_HELP)] = "earliest",
    end: Annotated[
        str, typer.Option("--to", metavar="END", help="The first that is not wanted, likewise.")
    ] = "latest",
    number: Count = None,
    format_: Format = EventFormat.AUTO,
    envelope: Envelope = False,
    language: Language = "tamis",
    mode: BrokerMode = None,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Show events that matched a filter in the past, as far as the broker has kept them."""
    writer = event_writer(format_, envelope=envelope)
    past = (
        Place(url, token_file, ca)
        .bus()
        .history(
            filter_,
            start=place_in_log(start),
            end=place_in_log(end),
            language=language,
            mode=mode,
        )
    )

    async def show() -> int:
        shown = 0
        async for event in past:
            writer.write(event)
            shown += 1
            if shown == number:
                break
        return shown

    return FINE if run(show()) else FINDING
