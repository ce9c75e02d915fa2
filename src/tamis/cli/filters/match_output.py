"""Matches as a table for people, or as JSON lines for programs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from rich import box
from rich.table import Table
from rich.text import Text

from tamis.cli.console import count, printable, say, stdout, write_json
from tamis.cli.event_output import brief_event, plain_event
from tamis.cli.filters.files import Subscription
from tamis.events import Event

# A table is made in memory, and nobody reads more rows.
TABLE_ROWS: Final = 1000

# What rich puts between and beside three columns.
_BETWEEN: Final = 8


class Matched(NamedTuple):
    """An event and the ids of the filters that it satisfies, perhaps none."""

    line: int
    event: Event
    ids: Sequence[str]


class MatchWriter(Protocol):
    """Takes matches one by one."""

    def write(self, matched: Matched) -> None:
        """Take one."""

    def close(self) -> None:
        """Write what has been held back."""


class JSONLines:
    """Writes each match at once, as a line of JSON."""

    def __init__(self, *, flush: bool) -> None:
        self._flush = flush

    def write(self, matched: Matched) -> None:
        """Write one line."""
        event = plain_event(matched.event)
        write_json({"line": matched.line, "filters": matched.ids, "event": event})
        if self._flush:
            sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: everything is written."""


class MatchTable:
    """Writes a table of events with their filters, and one of filters with their events."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self._subscriptions = subscriptions
        self._rows: list[Matched] = []
        self._left_out = 0
        self._counts: Counter[str] = Counter()

    def write(self, matched: Matched) -> None:
        """Keep a row, while they can still be read."""
        self._counts.update(matched.ids)
        if len(self._rows) < TABLE_ROWS:
            self._rows.append(matched)
        else:
            self._left_out += 1

    def close(self) -> None:
        """Write the tables."""
        console = stdout()
        if self._rows:
            console.print(self._by_event(console.width))
        if self._left_out:
            say(console, f"and {count(self._left_out, 'more event')}; --format json has them all")
        if len(self._subscriptions) > 1:
            console.print(self._by_filter())

    def _by_event(self, width: int) -> Table:
        # Left to itself, the event would take it all: it is long and does not wrap.
        ids_width = min(max(len(" ".join(row.ids)) for row in self._rows), width * 2 // 5)
        ids_width = max(ids_width, len("filters"))
        line_width = max(len(str(self._rows[-1].line)), len("line"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("line", justify="right", style="dim", width=line_width)
        table.add_column("filters", width=ids_width, overflow="fold")
        rest = max(width - line_width - ids_width - _BETWEEN, len("event"))
        table.add_column("event", max_width=rest, no_wrap=True, overflow="ellipsis")
        for row in self._rows:
            ids = Text(" ".join(row.ids), "green") if row.ids else Text("none", "dim")
            event = Text(printable(brief_event(row.event)), "" if row.ids else "dim")
            table.add_row(str(row.line), ids, event)
        return table

    def _by_filter(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("filter", style="green", overflow="fold")
        table.add_column("events", justify="right")
        table.add_column("matches where")
        for one in self._subscriptions:
            condition = Text(printable(str(one.filter)))
            table.add_row(one.id, f"{self._counts[one.id]:,}", condition)
        return table
