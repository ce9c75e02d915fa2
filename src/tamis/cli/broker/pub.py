"""`tamis pub`: publish events."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Annotated, BinaryIO, Final, NamedTuple

import typer
from rich.console import Console

from tamis.cli.broker.connection import CaFile, Place, TokenFile, Url, run
from tamis.cli.broker.line_source import Line, lines_of
from tamis.cli.console import count, say, stderr
from tamis.cli.event_input import STDIN, opened, progress
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import mistake
from tamis.client import Bus, ConnectOptions, Receipt
from tamis.client.address import DEFAULT_URL
from tamis.errors import EventError, LimitError, RefusedError, TamisError
from tamis.events import decode_cloudevent
from tamis.protocol import Code

EXAMPLES: Final = """[bold]Examples[/bold]

tamis pub --event '{"symbol": "ACME", "price": 4}'
tamis pub events.jsonl
producer | tamis pub --url https://broker.example --token-file token
tamis pub events.jsonl --publisher feed

[bold]Not twice[/bold]

With --publisher, line N is published under that name with the number N, and a number that the
broker has seen before is not stored again. So a file can be published again after an interruption,
or after lines were added to it.

[bold]Exit code[/bold]

0 all events are stored
1 some were rejected, and are named on standard error
2 a mistake, or the broker cannot be reached"""

# The broker's objections to one event, which do not concern the others.
_REJECTED: Final = frozenset({Code.BAD_EVENT, Code.TOO_LARGE, Code.FORBIDDEN})
_MOST_ON_THEIR_WAY: Final = 1_000


class Tally:
    """What became of the events: published + known + rejected is all of them."""

    def __init__(self) -> None:
        self.published = self.known = self.rejected = 0
        self._began = monotonic()

    def add(self, receipt: Receipt) -> None:
        """Count an event that the broker has."""
        self.known += receipt.duplicates
        self.published += receipt.count - receipt.duplicates

    def __str__(self) -> str:
        total = self.published + self.known + self.rejected
        rate = total / max(monotonic() - self._began, 1e-9)
        return (
            f"{count(total, 'event')}: {self.published:,} published, {self.known:,} known already, "
            f"{self.rejected:,} rejected ({rate:,.0f} events/s)"
        )


class Order(NamedTuple):
    """What is to be published, and how."""

    place: Place
    publisher: str | None
    sequence: int
    cloudevents: bool


def pub(
    events: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="A file with one JSON object per line; without one, or with -, standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            "-e",
            metavar="JSON",
            help="An event, instead of a file; may be repeated.",
            show_default=False,
        ),
    ] = None,
    publisher: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A name under which no line is stored twice.",
            show_default=False,
        ),
    ] = None,
    sequence: Annotated[
        int, typer.Option(min=1, metavar="N", help="The number of the first line, for --publisher.")
    ] = 1,
    cloudevents: Annotated[
        bool, typer.Option("--cloudevents", help="Each line is a CloudEvent.")
    ] = False,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
) -> int:
    """Publish events: each is stored by the broker, and sent to everyone whose filter it satisfies.

    A line that holds no event is rejected: it is named on standard error, and the rest goes on.
    """
    if event and events is not None:
        raise mistake("give a file or --event, not both")
    order = Order(Place(url, token_file, ca), publisher, sequence, cloudevents)
    err = stderr()
    tally = Tally()
    with _input(events or STDIN, event) as stream:
        name = STDIN if event else events or STDIN
        with progress(name, err, visible=sys.stderr.isatty()) as advance:
            run(_publish(order, stream, tally, err, advance))
    say(err, str(tally))
    return FINDING if tally.rejected else FINE


@contextmanager
def _input(name: str, events: list[str] | None) -> Iterator[BinaryIO]:
    if events:
        yield io.BytesIO("\n".join(" ".join(one.splitlines()) for one in events).encode())
        return
    with opened(name) as stream:
        if name != STDIN or not isinstance(stream, io.BufferedReader):
            yield stream
            return
        # A thread may still be reading when the program ends, and must not hold what all share.
        with os.fdopen(stream.fileno(), "rb", closefd=False) as own:
            yield own


async def _publish(
    order: Order, stream: BinaryIO, tally: Tally, err: Console, advance: Callable[[int], None]
) -> None:
    options: ConnectOptions = {"timeout": None, "patient": True}
    if order.publisher is not None:
        options |= {"publisher": order.publisher, "sequence": order.sequence}
    waiting: deque[tuple[int, asyncio.Task[Receipt]]] = deque()

    async def settle_first() -> None:
        number, task = waiting[0]
        try:
            tally.add(await task)
        except TamisError as error:
            if not _is_about_event(error):
                raise
            tally.rejected += 1
            say(err, f"rejected: {_named(number, error)}")
        waiting.popleft()

    async with order.place.bus(**options) as bus:
        try:
            async for line in lines_of(stream):
                advance(len(line.text))
                if line.text.strip():
                    task = asyncio.create_task(_publish_line(bus, line, order))
                    waiting.append((line.number, task))
                while waiting and (len(waiting) > _MOST_ON_THEIR_WAY or waiting[0][1].done()):
                    await settle_first()
            while waiting:
                await settle_first()
        finally:
            for _, task in waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)


async def _publish_line(bus: Bus, line: Line, order: Order) -> Receipt:
    event = decode_cloudevent(line.text) if order.cloudevents else line.text
    return await bus.publish(event, sequence=order.sequence + line.number - 1)


def _named(number: int, error: TamisError) -> str:
    if isinstance(error, EventError) and error.place:
        # Each line is a text of its own, whose line is this.
        return f"line {number}, {str(error).removeprefix('line 1, ')}"
    return f"line {number}: {error}"


def _is_about_event(error: TamisError) -> bool:
    if isinstance(error, RefusedError):
        return error.code in _REJECTED
    return isinstance(error, EventError | LimitError)
