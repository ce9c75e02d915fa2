"""Events from a file or standard input, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

from tamis.cli.options import mistake
from tamis.events import (
    DecodedLine,
    RejectedLine,
    Schema,
    decode_cloudevent_lines,
    decode_json_lines,
    read_lines,
)

STDIN: Final = "-"

# A bar that disappears at once only flickers.
_SECONDS_BEFORE_BAR: Final = 1.0
# An update costs more than matching an event.
_SECONDS_BETWEEN_UPDATES: Final = 0.2


def read_events(
    stream: BinaryIO, schema: Schema | None, *, cloudevents: bool, advance: Callable[[int], None]
) -> Iterator[DecodedLine | RejectedLine]:
    """Yield the events of a stream of JSON lines; call `advance` with the bytes read."""

    def lines() -> Iterator[bytes]:
        for line in read_lines(stream):
            advance(len(line))
            yield line

    decode = decode_cloudevent_lines if cloudevents else decode_json_lines
    return decode(lines(), schema=schema)


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
    # By default, the bar would redirect standard output, and the results with it.
    bar = Progress(
        BarColumn(),
        DownloadColumn(),
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
