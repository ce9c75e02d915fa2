"""Durations and sizes as people write them: `7 days`, `256 KiB`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

Duration = float | str | timedelta
"""Seconds, text such as `"90s"`, `"1h"` or `"7 days"`, or a timedelta."""

DURATION_EXAMPLES: Final = "30, 30s, 5 minutes, 24h, 7 days"
DURATION_UNITS: Final = "the units are ms, s, m, h, d and w"

# Largest first: in one text, units descend.
_UNITS: Final = {
    r"w|weeks?": 604_800,
    r"d|days?": 86_400,
    r"h|hr|hours?": 3600,
    r"m|min|minutes?": 60,
    r"s|sec|seconds?": 1,
    r"ms|milliseconds?": 0.001,
}
_NUMBER: Final = r"(\d{1,15}(?:\.\d{1,9})?)"
_DURATION: Final = re.compile(
    r"\s*".join(rf"(?:{_NUMBER}\s*(?:{unit})(?![a-z]))?" for unit in _UNITS), re.ASCII
)
_PLAIN: Final = re.compile(_NUMBER, re.ASCII)
_MAX_SECONDS: Final = 1e15
_PREFIXES: Final = ("", "K", "M", "G", "T")
_SIZE: Final = re.compile(
    r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(i?)(?:B|bytes)?", re.ASCII | re.IGNORECASE
)


def number(value: object) -> object:
    """Return a value, unless it is a bool, which Python takes for a number."""
    if isinstance(value, bool):
        raise ValueError(f"a number is needed, not {str(value).lower()}")  # noqa: TRY004 - pydantic's
    return value


def seconds(value: object) -> float:
    """Return a duration in seconds, or raise a ValueError that says how to write one.

    >>> seconds("7 days"), seconds("1h 30m"), seconds("500ms"), seconds("30")
    (604800.0, 5400.0, 0.5, 30.0)
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        text = value.strip()
        if _PLAIN.fullmatch(text):
            return float(text)
        found = _DURATION.fullmatch(text)
        if text and found is not None:
            parts = zip(found.groups(), _UNITS.values(), strict=True)
            return sum(float(part) * unit for part, unit in parts if part is not None)
    # The bounds exclude NaN, infinities and integers too large for a float.
    elif (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -_MAX_SECONDS <= value <= _MAX_SECONDS
    ):
        return float(value)
    raise ValueError(
        f"{value!r:.60} is not a duration; write one like {DURATION_EXAMPLES}; {DURATION_UNITS}"
    )


def size(value: object) -> object:
    """Return a number of bytes; anything but text is left to the caller to check.

    >>> size("256 KiB"), size("1.5MB"), size("12")
    (262144, 1500000, 12)
    """
    if not isinstance(value, str):
        return number(value)
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"{value!r} is not a size; write one like 65536, 256 KiB, 4 MiB, 10 GB")
    prefix, binary = found[2] or "", found[3]
    return int(float(found[1]) * (1024 if binary else 1000) ** _PREFIXES.index(prefix.upper()))


def format_seconds(value: float) -> str:
    """Return a duration as people write it.

    >>> format_seconds(604_800), format_seconds(0.5)
    ('7 days', '0.5s')
    """
    return f"{value / 86_400:g} days" if value > 86_400 else f"{value:g}s"


def format_size(value: int) -> str:
    """Return a number of bytes as people write it.

    >>> format_size(10 * 1024**3), format_size(1000)
    ('10 GiB', '1000 B')
    """
    power = next(power for power in (4, 3, 2, 1, 0) if value % 1024**power == 0)
    return f"{value // 1024**power} {_PREFIXES[power]}{'iB' if power else 'B'}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "event"), count(1200, "event"), count(0, "match")
    ('1 event', '1,200 events', '0 matches')
    """
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"
