"""Writing for people and for programs: sentences, events, JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from rich.console import Console
from rich.text import Text

from tamis.events import Bits, Event, Value
from tamis.events.timestamps import format_timestamp
from tamis.filters.printing import show_name, show_value

# Where there is no terminal to ask: wide enough for a table, and the same on every machine.
_WIDTH: Final = 100


_PLAIN: Final = re.compile(r"[\w.:+-]+")


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


def show_event(event: Event) -> str:
    """Return an event for people, its values as the Tamis language writes them.

    >>> show_event(Event({"price": 9.5, "tag": ["new", "red"]}))
    'price = 9.5, tag = "new" "red"'
    """
    if not event:
        return "an event without attributes"
    return ", ".join(
        f"{show_name(name)} = {' '.join(map(show_value, values))}" for name, values in event.items()
    )


def brief_event(event: Event) -> str:
    """Return an event for a row of a table, with quotes only where they are needed.

    >>> brief_event(Event({"symbol": "ACME", "headline": "Profit up", "tag": ["new", "red"]}))
    'symbol=ACME headline="Profit up" tag=new,red'
    """
    return " ".join(
        f"{name}={','.join(_brief(_plain(value)) for value in values)}"
        for name, values in event.items()
    )


def _brief(value: object) -> str:
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain_event(event: Event) -> dict[str, object]:
    """Return an event for programs: values that JSON has, NaN and infinities as text.

    >>> plain_event(Event({"price": float("nan"), "flags": Bits([0, 2])}))
    {'price': 'nan', 'flags': 5}
    """
    return {
        name: _plain(values[0]) if len(values) == 1 else [_plain(value) for value in values]
        for name, values in event.items()
    }


def _plain(value: Value) -> object:
    match value:
        case datetime():
            return format_timestamp(value)
        case Bits():
            return value.mask
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "event"), count(1200, "event")
    ('1 event', '1,200 events')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
