"""Events from a file or standard input, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final, NamedTuple, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from tamis.cli.options import mistake
from tamis.events import (
    Event,
    RejectedLine,
    Schema,
    decode_cloudevent_lines,
    decode_json_lines,
    read_lines,
)
from tamis.events.json_lines import is_blank

STDIN: Final = "-"

Item = TypeVar("Item")

# A bar that disappears at once only flickers.
_SECONDS_BEFORE_BAR: Final = 1.0
# An update costs more than matching an event.
_SECONDS_BETWEEN_UPDATES: Final = 0.2


class EventLine(NamedTuple):
    """An event, with the line that it was read from."""

    number: int
    event: Event
    text: bytes


class EventInput(NamedTuple):
    """A stream of JSON lines, and how it is to be read."""

    stream: BinaryIO
    schema: Schema | None
    cloudevents: bool = False
    limit: int | None = None
    """The most events to read."""
    advance: Callable[[int], None] = lambda _: None
    """Gets the number of bytes read."""

    def events(self) -> Iterator[EventLine | RejectedLine]:
        """Yield the events decoded."""
        text = b""

        def lines() -> Iterator[bytes]:
            nonlocal text
            for line in self._lines():
                text = line
                yield line

        decode = decode_cloudevent_lines if self.cloudevents else decode_json_lines
        # A line is read only when all events of the one before have been taken.
        for found in islice(decode(lines(), schema=self.schema), self.limit):
            yield (
                found
                if isinstance(found, RejectedLine)
                else EventLine(found.number, found.event, text)
            )

    def lines(self) -> Iterator[bytes]:
        """Yield the lines, blank ones too, up to the last that is wanted; not for CloudEvents."""
        left = self.limit
        for line in self._lines() if left != 0 else ():
            yield line
            if left is not None and not is_blank(line):
                left -= 1
                if not left:
                    return

    def _lines(self) -> Iterator[bytes]:
        for line in read_lines(self.stream):
            self.advance(len(line))
            yield line


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """Open the named file, or standard input for `-`."""
    if name != STDIN:
        with Path(name).open("rb") as stream:
            yield stream
    elif sys.stdin.isatty():
        raise mistake("the events are missing: name a file of JSON lines, or pipe them in")
    else:
        yield sys.stdin.buffer


@contextmanager
def progress(name: str, console: Console, *, visible: bool) -> Iterator[Callable[[int], None]]:
    """Provide a function to call with the bytes read; a bar appears after a second."""
    total = Path(name).stat().st_size if name != STDIN else None
    with _bar(console, DownloadColumn(), total, visible=visible) as advance:
        yield advance


def watched(
    items: Sequence[Item], description: str, console: Console, *, visible: bool
) -> Iterator[Item]:
    """Yield items; a bar that counts them appears after a second."""
    column = TextColumn(f"{description} {{task.completed:,.0f}} of {{task.total:,.0f}}")
    with _bar(console, column, len(items), visible=visible) as advance:
        for item in items:
            yield item
            advance(1)


@contextmanager
def _bar(
    console: Console, column: ProgressColumn, total: int | None, *, visible: bool
) -> Iterator[Callable[[int], None]]:
    # By default, the bar would redirect standard output, and the results with it.
    bar = Progress(
        BarColumn(),
        column,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task("", total=total)
    done, due = 0, monotonic() + _SECONDS_BEFORE_BAR

    def advance(read: int) -> None:
        nonlocal done, due
        done += read
        now = monotonic()
        if now >= due:
            due = now + _SECONDS_BETWEEN_UPDATES
            bar.start()
            bar.update(task, completed=done)

    try:
        yield advance if visible else _nothing
    finally:
        if bar.live.is_started:
            bar.stop()


def _nothing(_: int) -> None:
    pass
