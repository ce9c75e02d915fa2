"""Output for people and for programs: text and JSON, to a terminal, a pipe or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

# Without a terminal: wide enough for a table, and the same on every machine.
_WIDTH: Final = 100

AnyView = TypeVar("AnyView", bound=msgspec.Struct)


class Format(StrEnum):
    """How a command writes its results: for people or for programs."""

    TEXT = "text"
    JSON = "json"


class TableFormat(StrEnum):
    """How a command writes a stream of results: a table for people, JSON lines for programs."""

    AUTO = "auto"
    TABLE = "table"
    JSON = "json"

    @property
    def is_table(self) -> bool:
        """Return whether to write a table to this standard output."""
        return sys.stdout.isatty() if self is TableFormat.AUTO else self is TableFormat.TABLE


class _Console(Console):
    """A console that raises when the pipe is closed, as other output does; `app` handles it."""

    def on_broken_pipe(self) -> None:
        """Raise the error that this is called to handle."""
        raise BrokenPipeError


def stdout() -> Console:
    """Return the console for results."""
    width = None if sys.stdout.isatty() else _WIDTH
    return _Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)


def stderr() -> Console:
    """Return the console for everything else: errors, summaries, progress."""
    return _Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def say(console: Console, message: str | Text, style: str = "") -> None:
    """Write lines without wrapping them, and without markup or terminal control sequences."""
    if isinstance(message, str):
        message = Text("\n".join(map(printable, message.split("\n"))), style)
    console.print(message, soft_wrap=True)


def say_error(message: str) -> None:
    """Write an error message."""
    label = Text("error: ", "bold red")
    lines = "\n".join(map(printable, message.split("\n")))
    say(stderr(), label.append(Text(lines, "not bold default")))


def write_json(data: Mapping[str, object]) -> None:
    """Write one line of JSON to standard output."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")


def write_list(
    rows: Sequence[AnyView],
    format_: Format,
    table: Callable[[Sequence[AnyView]], RenderableType],
    *,
    empty: str = "",
) -> None:
    """Write structs as JSON lines or as a table; if there are none, say so on standard error."""
    if format_ is Format.JSON:
        for row in rows:
            write_json(msgspec.json.decode(msgspec.json.encode(row)))
    elif rows:
        shown = table(rows)
        stdout().print(shown, soft_wrap=isinstance(shown, Text))
    else:
        say(stderr(), empty)


def printable(text: str) -> str:
    r"""Return a line of text with escapes for everything that could disturb a terminal.

    >>> printable("red \x1b[31m, right-to-left \u202e")
    'red \\x1b[31m, right-to-left \\u202e'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def yes_or_no(value: bool) -> str:
    """Return a truth value for people."""
    return "yes" if value else "no"
