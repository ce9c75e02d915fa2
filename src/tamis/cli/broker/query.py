"""`tamis query`: ask the data sources for rows."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import typer

from tamis.cli.broker.connection import BrokerTarget, duration, run, with_broker
from tamis.cli.console import say, stderr
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import Language, argument, no_default
from tamis.units import count

EXAMPLES: Final = """[bold]Examples[/bold]

tamis query 'price < 5'
tamis query 'price < 5' --limit 10
tamis query 'symbol = "ACME"' --aggregate 'max price'
tamis query '(author, *, "Stein")' --language siena | jq .title

[bold]Exit code[/bold]

0 every source has answered
1 some did not; they are named
2 a mistake"""


@with_broker
def query(
    target: BrokerTarget,
    filter_: Annotated[str, argument("FILTER", "The filter.")],
    *,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for all sources.")
    ] = "30s",
    limit: Annotated[
        int | None, no_default(metavar="N", help="Stop after so many rows.", min=1)
    ] = None,
    aggregate: Annotated[
        str | None,
        no_default(
            metavar="WHAT",
            help="union, count, sum X, min X, max X, top N X or bottom N X.",
        ),
    ] = None,
    language: Language = "tamis",
) -> int:
    """Show the rows of all data sources that match a filter, as JSON lines."""
    options: dict[str, Any] = {
        "timeout": duration(timeout) or 30.0,
        "limit": limit,
        "aggregate": aggregate,
        "language": language,
    }
    return run(_show(target, filter_, options))


async def _show(target: BrokerTarget, filter_: str, options: dict[str, Any]) -> int:
    err = stderr()
    async with target.bus() as bus:
        result = bus.query(filter_, **options)
        async for row in result:
            typer.echo(json.dumps(row, ensure_ascii=False))
    for name, reason in result.missing.items():
        say(err, f"missing: {name or 'the rest'}: {reason}")
    if not (result.answered or result.missing or result.cut):
        say(err, "no source advertises anything that this filter may match")
    if result.hint:
        say(err, result.hint)
    if result.unnamed:
        say(err, f"and {count(result.unnamed, 'other source')}")
    if result.cut:
        say(err, "there may be more rows")
    return FINDING if result.missing else FINE
