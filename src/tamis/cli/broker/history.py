"""`tamis history`: show past events."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tamis.cli.broker.connection import (
    POSITIONS,
    BrokerLanguage,
    BrokerMode,
    BrokerTarget,
    run,
    with_broker,
)
from tamis.cli.broker.event_writers import Envelope, EventCount, event_writer
from tamis.cli.console import TableFormat
from tamis.cli.exits import FINDING, FINE
from tamis.cli.filter_warnings import warn_of_mistakes
from tamis.cli.options import TableOption, argument

EXAMPLES: Final = """[bold]Examples[/bold]

tamis history
tamis history 'price < 5' --from 2026-01-31T12:00:00Z --to 2026-02-01T12:00:00Z
tamis history 'symbol = "ACME"' --from '2 days' --count 1 --envelope
tamis history --format json > backup.jsonl

[bold]Exit code[/bold]

0 events were found
1 none was found
2 a mistake, or the broker refused"""


@with_broker
def history(
    target: BrokerTarget,
    filter_: Annotated[str, argument("[FILTER]", "The filter.")] = "true",
    *,
    start: Annotated[
        str, typer.Option("--from", metavar="START", help=f"latest, {POSITIONS}")
    ] = "earliest",
    end: Annotated[
        str, typer.Option("--to", metavar="END", help="Where to end, excluded; the same forms.")
    ] = "latest",
    number: EventCount = None,
    format_: TableOption = TableFormat.AUTO,
    envelope: Envelope = False,
    language: BrokerLanguage = "tamis",
    mode: BrokerMode = None,
) -> int:
    """Show past events that match a filter, as far back as the broker has kept them."""
    warn_of_mistakes(filter_, language)
    writer = event_writer(format_, envelope=envelope)

    async def show() -> int:
        shown = 0
        events = target.bus().history(
            filter_,
            start=start,
            end=end,
            language=language,
            mode=mode,
        )
        async for event in events:
            writer.write(event)
            shown += 1
            if shown == number:
                break
        return shown

    return FINE if run(show()) else FINDING
