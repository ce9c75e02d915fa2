"""Events as they arrive: JSON lines for programs, aligned rows for people."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer
from rich.text import Text

from tamis.cli.console import TableFormat, printable, say, stdout, write_json
from tamis.cli.event_output import brief_event
from tamis.cli.options import no_default
from tamis.errors import TamisError
from tamis.events import decode_json

if TYPE_CHECKING:
    from tamis.client.messages import ReceivedEvent

_HEADER: Final = f"{'sequence':>10}  {'time':<12}  event"

EventCount = Annotated[
    int | None,
    no_default("--count", "-n", min=1, metavar="N", help="Stop after N events."),
]
Envelope = Annotated[
    bool,
    typer.Option(
        "--envelope", help="As JSON, with sequence, time, publisher and attempt beside the event."
    ),
]


class EventWriter(Protocol):
    """Writes events one by one."""

    def write(self, event: ReceivedEvent) -> None:
        """Write an event and flush it."""


class EventLines:
    """Writes each event as it was published, on one line; a document is a JSON string."""

    def write(self, event: ReceivedEvent) -> None:
        """Write one line."""
        # JSON can have line breaks between its tokens, never inside them.
        sys.stdout.write(event.text.decode().replace("\n", " ").replace("\r", " ") + "\n")
        sys.stdout.flush()


class EventEnvelopes:
    """Writes each event with its sequence, time, publisher and attempt."""

    def write(self, event: ReceivedEvent) -> None:
        """Write one line."""
        write_json(
            {
                "sequence": event.sequence,
                "time": event.time,
                "publisher": event.publisher,
                "attempt": event.attempt,
                "event": event.data if event.xml is None else event.xml,
            }
        )
        sys.stdout.flush()


class EventRows:
    """Writes each event as a row, without knowing how wide the next will be."""

    def __init__(self) -> None:
        self._console = stdout()
        self._has_header = False

    def write(self, event: ReceivedEvent) -> None:
        """Write one row."""
        if not self._has_header:
            say(self._console, Text(_HEADER, "bold"))
            self._has_header = True
        when = datetime.fromtimestamp(event.time, UTC).strftime("%H:%M:%S.%f")[:-3]
        row = Text(f"{event.sequence:>10}  {when}  ", "dim")
        row.append(printable(_brief(event)), "not dim")
        if event.attempt > 1:
            row.append(f"  attempt {event.attempt}", "yellow")
        say(self._console, row)
        sys.stdout.flush()


def event_writer(format_: TableFormat, *, envelope: bool) -> EventWriter:
    """Return the writer for a format."""
    if envelope:
        return EventEnvelopes()
    return EventRows() if format_.is_table else EventLines()


async def while_read(work: Coroutine[Any, Any, None]) -> None:
    """Work for as long as somebody reads standard output; then raise BrokenPipeError.

    Writing would fail too, but only at the next event.
    """
    working = asyncio.ensure_future(work)
    has_reader = True

    def stop() -> None:
        nonlocal has_reader
        has_reader = False
        working.cancel()

    with _watched_pipe(stop):
        try:
            await working
        except asyncio.CancelledError:
            if has_reader:
                raise
            raise BrokenPipeError from None


@contextmanager
def _watched_pipe(stop: Callable[[], None]) -> Iterator[None]:
    """Call a function once nobody reads standard output any more, if it is a pipe."""
    pipe = _pipe_descriptor()
    if pipe is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def closed() -> None:
        loop.remove_reader(pipe)
        stop()

    # The writing end of a pipe never becomes readable, except when the reading end is closed.
    loop.add_reader(pipe, closed)
    try:
        yield
    finally:
        loop.remove_reader(pipe)


def _pipe_descriptor() -> int | None:
    """Return the file descriptor of standard output if it is a pipe that can be watched."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # It is closed, or no file.
        return None
    is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    # On Windows, the event loop watches no pipes.
    return descriptor if is_pipe and sys.platform != "win32" else None


def _brief(event: ReceivedEvent) -> str:
    if event.xml is not None:
        return " ".join(event.xml.split())
    try:
        return brief_event(decode_json(event.text))
    except TamisError:
        # The data of a CloudEvent need not consist of attributes.
        return event.text.decode()
