"""`tamis pub`: publish events."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, NamedTuple

import typer

from tamis.cli.broker.connection import BrokerTarget, run, with_broker
from tamis.cli.console import say, stderr
from tamis.cli.event_input import STDIN, opened, progress
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import argument, mistake, no_default
from tamis.errors import EventError, LimitError, RefusedError, TamisError
from tamis.events import decode_cloudevent, read_lines
from tamis.events.json_lines import of_truncated
from tamis.protocol import Code
from tamis.units import count

if TYPE_CHECKING:
    from tamis.client import Bus, ConnectOptions, Receipt

EXAMPLES: Final = """[bold]Examples[/bold]

tamis pub --event '{"symbol": "ACME", "price": 4}'
tamis pub events.jsonl
producer | tamis pub --url https://broker.example --token-file token
tamis pub events.jsonl --publisher feed
tamis pub --xml order.xml

[bold]Publishing a file again[/bold]

With --publisher, line N is published under that name with the number N, and the broker stores each
number once. So you can publish a file again after an interruption, or after it has grown.

[bold]Exit code[/bold]

0 all events are stored
1 some were rejected, and are reported on standard error
2 a mistake, or the broker cannot be reached"""

# Refusals of one event, which do not affect the others.
_REJECTED: Final = frozenset({Code.BAD_EVENT, Code.TOO_LARGE, Code.FORBIDDEN})
_MAX_EVENTS_IN_FLIGHT: Final = 1_000
_MAX_LINES_WAITING: Final = 2_000
MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024


class PublishCounts:
    """The outcomes of all events: published, duplicate or rejected."""

    def __init__(self) -> None:
        self.published = self.duplicates = self.rejected = 0
        self._began = monotonic()

    def add(self, receipt: Receipt) -> None:
        """Count the events of a receipt."""
        self.duplicates += receipt.duplicates
        self.published += receipt.count - receipt.duplicates

    def __str__(self) -> str:
        total = self.published + self.duplicates + self.rejected
        rate = total / max(monotonic() - self._began, 1e-9)
        return (
            f"{count(total, 'event')}: {self.published:,} published, "
            f"{count(self.duplicates, 'duplicate')}, "
            f"{self.rejected:,} rejected ({rate:,.0f} events/s)"
        )


class PublishOptions(NamedTuple):
    """How lines are published."""

    publisher: str | None
    sequence: int
    cloudevents: bool
    unit: str
    """What the numbers in messages count: lines or events."""
    xml: bool = False


class InputLine(NamedTuple):
    """A line of the input and its number, counted from 1."""

    number: int
    text: bytes


@with_broker
def pub(
    target: BrokerTarget,
    events: Annotated[
        str | None,
        argument(
            "FILE", "A file with one JSON object per line; without one, or with -, standard input."
        ),
    ] = None,
    *,
    event: Annotated[
        list[str] | None,
        no_default(
            "--event", "-e", metavar="JSON", help="An event, instead of a file; may be repeated."
        ),
    ] = None,
    publisher: Annotated[
        str | None,
        no_default(metavar="NAME", help="A name under which each line is stored only once."),
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The number of the first line, for --publisher; 1 by default.",
            show_default=False,
        ),
    ] = None,
    cloudevents: Annotated[
        bool, typer.Option("--cloudevents", help="Each line is a CloudEvent.")
    ] = False,
    xml: Annotated[
        bool, typer.Option("--xml", help="The file, or each --event, is one XML document.")
    ] = False,
) -> int:
    """Publish events: the broker stores each, and sends it to every matching subscription.

    A line that is not an event is rejected: it is reported on standard error, and the remaining
    lines are published.
    """
    if event and events is not None:
        raise mistake("give a file or --event, not both")
    if xml and cloudevents:
        raise mistake("an event is a CloudEvent or an XML document, not both")
    if events is not None and events.lstrip().startswith(("{", "<")):
        raise mistake("an event on the command line goes with --event; without it, name a file")
    if not xml and _looks_like_xml(events, event):
        raise mistake("this looks like XML: give --xml, so that all of it is one document")
    if sequence is not None and publisher is None:
        raise mistake("--sequence counts the lines of a --publisher; give its name too")
    unit = "event" if event or xml else "line" if events in (None, STDIN) else f"{events}: line"
    options = PublishOptions(publisher, sequence or 1, cloudevents, unit, xml)
    err = stderr()
    counts = PublishCounts()
    if xml:
        run(_publish(target, options, _documents(events or STDIN, event), counts, _nothing))
        say(err, str(counts))
        return FINDING if counts.rejected else FINE
    with _input(events or STDIN, event) as stream:
        name = STDIN if event else events or STDIN
        with progress(name, err, visible=sys.stderr.isatty()) as advance:
            run(_publish(target, options, arriving_lines(stream), counts, advance))
    say(err, str(counts))
    return FINDING if counts.rejected else FINE


def _looks_like_xml(name: str | None, given: list[str] | None) -> bool:
    """Return whether the name of a file, or an event on the command line, is that of XML."""
    is_named = name is not None and name.lower().endswith(".xml")
    return is_named or any(one.lstrip().startswith("<") for one in given or ())


@contextmanager
def _input(name: str, events: list[str] | None) -> Iterator[BinaryIO]:
    if events:
        yield io.BytesIO("\n".join(" ".join(one.splitlines()) for one in events).encode())
        return
    with opened(name) as stream:
        if name != STDIN or not isinstance(stream, io.BufferedReader):
            yield stream
            return
        # A thread may still be reading when the program ends, and must not hold the shared stream.
        with os.fdopen(stream.fileno(), "rb", closefd=False) as own:
            yield own


async def _publish(
    target: BrokerTarget,
    options: PublishOptions,
    lines: AsyncIterator[InputLine],
    counts: PublishCounts,
    advance: Callable[[int], None],
) -> None:
    connecting: ConnectOptions = {"timeout": None, "patient": True}
    if options.publisher is not None:
        connecting |= {"publisher": options.publisher, "sequence": options.sequence}
    waiting: deque[tuple[int, asyncio.Task[Receipt]]] = deque()

    async def settle_first() -> None:
        number, task = waiting[0]
        try:
            counts.add(await task)
        except TamisError as error:
            if not _is_about_event(error):
                raise
            counts.rejected += 1
            say(stderr(), f"rejected: {_named(f'{options.unit} {number}', error)}")
        waiting.popleft()

    async with target.bus(**connecting) as bus:
        try:
            async for line in lines:
                advance(len(line.text))
                if line.text.strip():
                    task = asyncio.create_task(_publish_line(bus, line, options))
                    waiting.append((line.number, task))
                while waiting and (len(waiting) > _MAX_EVENTS_IN_FLIGHT or waiting[0][1].done()):
                    await settle_first()
            while waiting:
                await settle_first()
        finally:
            for _, task in waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)


async def _publish_line(bus: Bus, line: InputLine, options: PublishOptions) -> Receipt:
    if options.xml:
        # Both extras are there if the command is.
        from tamis.client import XMLText  # noqa: PLC0415
        from tamis.xml.decoding import decode_document  # noqa: PLC0415

        document = XMLText(decode_document(line.text))
        return await bus.publish(document, sequence=options.sequence + line.number - 1)
    text = line.text.rstrip(b"\r\n")
    event = decode_cloudevent(text) if options.cloudevents else text
    return await bus.publish(event, sequence=options.sequence + line.number - 1)


async def _documents(name: str, given: list[str] | None) -> AsyncIterator[InputLine]:
    """Yield documents: those of the command line, or the one in a file."""
    if given:
        for number, text in enumerate(given, start=1):
            yield InputLine(number, text.encode())
        return
    with opened(name) as stream:
        # One byte more than is taken anywhere, so that a file without an end is refused.
        yield InputLine(1, await asyncio.to_thread(stream.read, MAX_DOCUMENT_BYTES + 1))


def _nothing(_: int) -> None:
    pass


def _named(place: str, error: TamisError) -> str:
    if isinstance(error, EventError) and error.place:
        # Each line was parsed on its own, as line 1.
        return f"{place}, {str(error).removeprefix('line 1, ')}"
    return f"{place}: {of_truncated(error) if isinstance(error, LimitError) else error}"


def _is_about_event(error: TamisError) -> bool:
    if isinstance(error, RefusedError):
        return error.code in _REJECTED
    return isinstance(error, EventError | LimitError)


async def arriving_lines(stream: BinaryIO) -> AsyncIterator[InputLine]:
    """Yield the lines of a stream, without blocking the event loop while none arrives."""
    loop = asyncio.get_running_loop()
    waiting: deque[InputLine | OSError | None] = deque()
    has_news = asyncio.Event()
    room = threading.Semaphore(_MAX_LINES_WAITING)

    def put(item: InputLine | OSError | None) -> None:
        waiting.append(item)
        # The loop may be closed, if the command ended before its input.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(has_news.set)

    def read() -> None:
        end: OSError | None = None
        try:
            for number, text in enumerate(read_lines(stream), start=1):
                room.acquire()
                put(InputLine(number, text))
        except OSError as error:
            end = error
        put(end)

    threading.Thread(target=read, name="tamis input", daemon=True).start()
    while True:
        while not waiting:
            has_news.clear()
            await has_news.wait()
        item = waiting.popleft()
        if item is None:
            return
        if isinstance(item, OSError):
            raise item
        room.release()
        yield item
