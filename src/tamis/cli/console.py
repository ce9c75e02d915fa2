"""Writing for people and for programs: sentences and JSON, to a terminal, a pipe or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from rich.console import Console
from rich.text import Text

# Where there is no terminal to ask: wide enough for a table, and the same on every machine.
_WIDTH: Final = 100


class Format(StrEnum):
    """How a command writes its results."""

    TEXT = "text"
    JSON = "json"


class _Console(Console):
    """A console that leaves a closed pipe to the one place that knows what to do about it."""

    def on_broken_pipe(self) -> None:
        """Let the error through, which this is called to handle."""
        raise BrokenPipeError


def stdout() -> Console:
    """Return the console for results."""
    width = None if sys.stdout.isatty() else _WIDTH
    return _Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)


def stderr() -> Console:
    """Return the console for everything that is no result."""
    return _Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def say(console: Console, message: str | Text, style: str = "") -> None:
    """Write a line as it is: never wrapped, nothing in it taken for markup or terminal control."""
    if isinstance(message, str):
        message = Text("\n".join(map(printable, message.split("\n"))), style)
    console.print(message, soft_wrap=True)


def say_error(message: str) -> None:
    """Write what the user did wrong."""
    label = Text("error: ", "bold red")
    lines = "\n".join(map(printable, message.split("\n")))
    say(stderr(), label.append(Text(lines, "not bold default")))


def write_json(data: Mapping[str, object]) -> None:
    """Write one line of JSON to the results."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")


def printable(text: str) -> str:
    r"""Return one line of text with everything that could disturb a terminal as escapes.

    >>> printable("red \x1b[31m, right-to-left \u202e")
    'red \\x1b[31m, right-to-left \\u202e'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "event"), count(1200, "event")
    ('1 event', '1,200 events')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
