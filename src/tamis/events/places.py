"""Places of errors in the input: paths, and lines and columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tamis.errors import EventError, LimitError

# A name from a client may be a megabyte long, or hold line breaks that would forge a log entry.
_MAX_STEP_CHARACTERS: Final = 60
_NOT_A_PATH: Final = re.compile(r"line \d+, column \d+|top level")


def path(steps: Iterable[str | int]) -> str:
    """Return the path to a member of nested data.

    >>> path(["order", "items", 2, "price"])
    'order.items[2].price'
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in steps)
    return text.removeprefix(".")


def end_of(text: str) -> str:
    r"""Return the line and column right after `text`.

    >>> end_of("{\n  1")
    'line 2, column 4'
    """
    return f"line {text.count(chr(10)) + 1}, column {len(text) - text.rfind(chr(10))}"


def inside(outer: str, error: EventError | LimitError) -> EventError | LimitError:
    """Return the error with its place as seen from one level further out.

    >>> print(inside("[3]", EventError("it is missing", place="source")))
    [3].source: it is missing
    >>> print(inside("line 7", EventError("it is missing", place="source")))
    line 7, source: it is missing
    >>> print(inside("[3]", EventError("this is not JSON", place="line 1, column 2")))
    [3], line 1, column 2: this is not JSON
    """
    if isinstance(error, LimitError):
        return LimitError(f"{outer}: {error.what}", actual=error.actual, limit=error.limit)
    return type(error)(error.reason, place=_joined(outer, error.place))


def _joined(outer: str, place: str) -> str:
    if not place:
        return outer
    is_path = outer.endswith("]") and _NOT_A_PATH.fullmatch(place) is None
    separator = "." if is_path else ", "
    return f"{outer}{separator}{place}"


def _name(step: str) -> str:
    cut = step if len(step) <= _MAX_STEP_CHARACTERS else f"{step[:_MAX_STEP_CHARACTERS]}…"
    return cut if cut.isprintable() else repr(cut)[1:-1]
