"""Durations and sizes as people write them: `7 days`, `256 KiB`."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(
    r"(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|seconds?|minutes?|hours?|days?)?", re.ASCII
)
_PREFIXES: Final = ("", "K", "M", "G", "T")
_SIZE: Final = re.compile(
    r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(i?)(?:B|bytes)?", re.ASCII | re.IGNORECASE
)


def number(value: object) -> object:
    """Return a value, unless it is a bool, which Python takes for a number."""
    if isinstance(value, bool):
        raise ValueError(f"a number is needed, not {str(value).lower()}")  # noqa: TRY004 - pydantic's
    return value


def seconds(value: object) -> object:
    """Return a duration in seconds; anything but text is left to the caller to check.

    >>> seconds("7 days"), seconds("1.5h"), seconds("30")
    (604800.0, 5400.0, 30.0)
    """
    if not isinstance(value, str):
        return number(value)
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError(
            f"{value!r} is not a duration; write one like 30, 30s, 5 minutes, 24h, 7 days"
        )
    unit = found[2] or "s"
    return float(found[1]) * _UNITS[unit if unit in _UNITS else unit[0]]


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
