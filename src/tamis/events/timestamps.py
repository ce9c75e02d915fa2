"""Timestamps as text: RFC 3339, with UTC where no offset is written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

# Anchored, no nested repetition: linear. Python's fromisoformat would also take week dates and
# other forms that no event on the wire uses, and which ones depends on Python's version.
_FORM: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:(?P<separator>[Tt ])(\d\d):(\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d+))?)?"
    r"(?P<offset>[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?)?",
    re.ASCII,
)


def parse_timestamp(text: str) -> datetime:
    """Return the instant that `text` names; ValueError says what is wrong with it.

    The time of day, the seconds and the offset may be left out, as people do in filters. Digits
    beyond microseconds are cut off, which moves an instant into the past by less than one.

    >>> parse_timestamp("2026-11-15T04:02:00.5+01:00").isoformat()
    '2026-11-15T03:02:00.500000+00:00'
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a timestamp such as 2026-11-15T04:02:00Z")
    try:
        return _instant(found)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text[:40]!r} is not a timestamp: {error}") from None


def parse_rfc3339(text: str) -> datetime:
    """Return the instant that `text` names in full, with seconds and an offset.

    >>> parse_rfc3339("2026-11-15T04:02:00")
    Traceback (most recent call last):
    ValueError: '2026-11-15T04:02:00' is not a full RFC 3339 timestamp such as 2026-11-15T04:02:00Z
    """
    found = _FORM.fullmatch(text)
    if found is None or found["separator"] == " " or not (found["second"] and found["offset"]):
        raise ValueError(
            f"{text[:40]!r} is not a full RFC 3339 timestamp such as 2026-11-15T04:02:00Z"
        )
    return parse_timestamp(text)


def format_timestamp(moment: datetime) -> str:
    """Return the shortest RFC 3339 text for an instant, in UTC.

    >>> format_timestamp(parse_timestamp("2026-11-15"))
    '2026-11-15T00:00:00Z'
    """
    text = moment.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{text}Z"


def _instant(found: re.Match[str]) -> datetime:
    year, month, day, hour, minute, second = (int(found[n] or 0) for n in (1, 2, 3, 5, 6, "second"))
    micros = int((found["fraction"] or "")[:6].ljust(6, "0"))
    zone = _zone(found["offset"])
    return datetime(year, month, day, hour, minute, second, micros, zone).astimezone(UTC)


def _zone(offset: str | None) -> timezone:
    if offset in (None, "Z", "z"):
        return UTC
    distance = timedelta(hours=int(offset[1:3]), minutes=int(offset[4:6]))
    return timezone(-distance if offset[0] == "-" else distance)
