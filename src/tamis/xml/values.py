"""What texts of nodes stand for: numbers and dates, and how XQL compares them."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from typing import Final

from tamis.filters.atoms import COMPARISONS
from tamis.filters.folding import fold

XQLValue = str | int | float | date
"""A value of XQL; a `date` may be a `datetime`, which is always one with a time zone."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_SPACE: Final = re.compile(r"[ \t\r\n]+")
_MAX_CHARACTERS: Final = 400
"""Longer texts are never numbers: a float has at most some 320 digits before its point."""


def without_extra_space(text: str) -> str:
    """Return a text without white space around it, and with one blank for each run inside it."""
    if text.isascii():
        # Several times as fast; XML has no other white space in ASCII that this would take.
        return " ".join(text.split())
    return _SPACE.sub(" ", text).strip(" ")


def number_in(text: str) -> int | float | None:
    """Return the number that a text is, None if it is none.

    >>> number_in("007"), number_in("1e3"), number_in("1,000")
    (7, 1000.0, None)
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    if len(text) > _MAX_CHARACTERS or not _DECIMAL.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def date_in(text: str) -> date | None:
    """Return the date, or the timestamp with a time zone, that a text is, None if it is none.

    >>> date_in("2026-01-31"), date_in("31.1.2026")
    (datetime.date(2026, 1, 31), None)
    """
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
        if _TIMESTAMP.fullmatch(text):
            return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    return None


def comparison_holds(
    op: str, left: XQLValue, right: XQLValue, *, cast: bool, caseless: bool
) -> bool:
    """Return whether two values satisfy a comparison; if they cannot be compared, they do not.

    Args:
        op: The comparison.
        left: Its left side.
        right: Its right side.
        cast: Whether two texts that are both numbers are compared as numbers.
        caseless: Whether texts are compared without regard to case.
    """
    pair = _pair(left, right, cast=cast)
    if pair is None:
        return False
    first, second = pair
    if caseless and isinstance(first, str) and isinstance(second, str):
        first, second = fold(first), fold(second)
    return COMPARISONS[op](first, second)


def _pair(left: XQLValue, right: XQLValue, *, cast: bool) -> tuple[XQLValue, XQLValue] | None:
    """Return two values of one kind, None if there is no such kind."""
    if isinstance(left, str) and isinstance(right, str):
        if cast:
            numbers = number_in(left), number_in(right)
            if numbers[0] is not None and numbers[1] is not None:
                return numbers[0], numbers[1]
        return left, right
    first = _like(left, right)
    second = _like(right, left)
    return None if first is None or second is None else (first, second)


def _like(value: XQLValue, other: XQLValue) -> XQLValue | None:
    """Return a value as one of the kind of another, None if it is none."""
    if isinstance(other, date):
        found = date_in(value) if isinstance(value, str) else value
        # A date has no time, and so no place among timestamps.
        return found if type(found) is type(other) else None
    if isinstance(other, str):
        return value
    if isinstance(value, str):
        return number_in(value)
    return None if isinstance(value, date) else value
