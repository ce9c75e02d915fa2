"""`tamis source`: answer queries from a table."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tamis.cli.broker.connection import BrokerTarget, duration, run, with_broker
from tamis.cli.console import say, stderr
from tamis.cli.exits import FINE
from tamis.cli.options import argument, no_default

if TYPE_CHECKING:
    from tamis.client import DataSource, SourceRequest
    from tamis.sources import SourceTable

EXAMPLES: Final = """[bold]Examples[/bold]

tamis source books.parquet
tamis source shop.sqlite --table books --name shop
tamis source "duckdb:SELECT title, price * 1.2 AS price FROM 'books.csv'"
tamis query 'price < 5'

[bold]What is advertised[/bold]

A filter that every row matches, from the values in the table: ranges, small sets of values, and
which columns are always there. It is made anew when the table changes, which is looked for every
--refresh seconds.

[bold]Exit code[/bold]

2 a mistake, or the broker ended the source
130 interrupted"""


@with_broker
def source(
    target: BrokerTarget,
    table: Annotated[
        str,
        argument("TABLE", "A Parquet, CSV or SQLite file, or duckdb: and a query."),
    ],
    *,
    table_name: Annotated[
        str | None, no_default("--table", metavar="NAME", help="Which table of a SQLite file.")
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What the source is called in reports.")
    ] = "",
    refresh: Annotated[
        str, typer.Option(metavar="TIME", help="How often to look whether the table has changed.")
    ] = "2s",
) -> int:
    """Answer queries with the rows of a table, until you interrupt it."""
    # They take a while to load.
    from tamis.sources import open_table  # noqa: PLC0415

    seconds = duration(refresh) or 2.0
    run(_serve(target, open_table(table, table_name), name or table, seconds))
    return FINE


async def _serve(target: BrokerTarget, table: SourceTable, name: str, seconds: float) -> None:
    from tamis.sources import TableSummary  # noqa: PLC0415 - as above

    def answer(request: SourceRequest) -> Iterator[dict[str, Any]]:
        return table.rows(request.filter)

    version = table.version()
    summary = await asyncio.to_thread(TableSummary.of, table)
    async with target.bus() as bus:
        served = bus.serve(summary.filter, answer, name=name[-200:], many=summary.many)
        async with served:
            say(stderr(), f"serving {name}: {summary.filter}")
            await _stay_current(served, table, version, seconds)


async def _stay_current(
    served: DataSource, table: SourceTable, version: object, seconds: float
) -> None:
    """Advertise anew whenever the table changes; return when the source is closed."""
    from tamis.sources import TableSummary  # noqa: PLC0415 - as above

    over = asyncio.create_task(served.run())
    try:
        while not over.done():
            await asyncio.wait([over], timeout=seconds)
            latest = await asyncio.to_thread(table.version)
            if over.done() or latest == version:
                continue
            # Before it is read: a change while it is read is another version.
            version = latest
            summary = await asyncio.to_thread(TableSummary.of, table)
            if str(summary.filter) != served.filter:
                await served.advertise(summary.filter)
                say(stderr(), f"the table has changed: {summary.filter}")
        await over
    finally:
        over.cancel()
        with suppress(asyncio.CancelledError):
            await over
