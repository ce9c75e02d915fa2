"""Events as they come: JSON lines for programs, aligned lines for people."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Protocol

from rich.text import Text

from tamis.cli.console import printable, say, stdout, write_json
from tamis.cli.event_output import brief_event
from tamis.client.message import Received
from tamis.errors import TamisError
from tamis.events import decode_json

_HEADER: Final = f"{'sequence':>10}  {'time':<12}  event"


class EventFormat(StrEnum):
    """How events are written."""

    AUTO = "auto"
    TABLE = "table"
    JSON = "json"


class EventWriter(Protocol):
    """Takes events one by one."""

    def write(self, event: Received) -> None:
        """Write one, so that it has arrived when this returns."""


class JSONLines:
    """Writes each event as it was published."""

    def write(self, event: Received) -> None:
        """Write one line."""
        # A JSON text may have line breaks between its parts, never inside of them.
        sys.stdout.write(event.text.decode().replace("\n", " ").replace("\r", " ") + "\n")
        sys.stdout.flush()


class Envelopes:
    """Writes each event with what the broker knows of it."""

    def write(self, event: Received) -> None:
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


class Rows:
    """Writes each event as a row; nobody knows how wide the next will be."""

    def __init__(self) -> None:
        self._console = stdout()
        self._has_header = False

    def write(self, event: Received) -> None:
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


def event_writer(format_: EventFormat, *, envelope: bool) -> EventWriter:
    """Return what writes events in the format that was asked for."""
    as_table = sys.stdout.isatty() if format_ is EventFormat.AUTO else format_ is EventFormat.TABLE
    if envelope:
        return Envelopes()
    return Rows() if as_table else JSONLines()


def _brief(event: Received) -> str:
    try:
        return brief_event(decode_json(event.text))
    except TamisError:
        # CloudEvents may hold what is no attribute.
        return event.text.decode()
