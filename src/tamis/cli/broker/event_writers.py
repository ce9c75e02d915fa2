"""Events as they arrive: JSON lines for programs, aligned rows for people."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, Protocol

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
    """Writes each event as it was published, on one line."""

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
                "event": event.data,
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


def _brief(event: ReceivedEvent) -> str:
    try:
        return brief_event(decode_json(event.text))
    except TamisError:
        # The data of a CloudEvent need not consist of attributes.
        return event.text.decode()
