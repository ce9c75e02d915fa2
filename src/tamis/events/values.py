"""Values: bit sets, text, integers and timestamps, checked, and timestamps as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, NamedTuple, Self

from tamis.errors import EventError

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
BITS_WIDTH: Final = 64


def brief(value: object) -> str:
    """Return a short form of anything, for a sentence."""
    try:
        text = repr(value)
    except ValueError:  # CPython refuses to print more than 4300 digits.
        return f"a huge {type(value).__name__}"
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:59]}…"


class Bits(frozenset[int]):
    """A set of bit numbers from 0 to 63, such as the properties a device has.

    >>> Bits([0, 2])
    Bits(0b101)
    >>> Bits.from_mask(6) == {1, 2}
    True
    """

    __slots__ = ()

    def __new__(cls, numbers: object = ()) -> Self:
        """Make a bit set from bit numbers; `from_mask` makes one from an integer."""
        if not isinstance(numbers, Iterable):
            raise EventError(
                f"a bit set is made of bit numbers, not of {brief(numbers)}; Bits.from_mask makes "
                "one from an integer"
            )
        self = super().__new__(cls, numbers)
        for number in self:
            if type(number) is not int or not 0 <= number < BITS_WIDTH:
                raise EventError(f"a bit set holds bit numbers from 0 to 63, not {brief(number)}")
        return self

    @classmethod
    def from_mask(cls, mask: int) -> Self:
        """Return the set of the bits that are 1 in `mask`."""
        if type(mask) is not int or not 0 <= mask < 2**BITS_WIDTH:
            raise EventError(f"a bit mask is an integer from 0 to 2**64 - 1, not {brief(mask)}")
        return cls(number for number in range(mask.bit_length()) if mask >> number & 1)

    @property
    def mask(self) -> int:
        """Return the set as an integer."""
        return sum(1 << number for number in self)

    def __repr__(self) -> str:
        return f"Bits({self.mask:#b})"


class RejectedValue(NamedTuple):
    """A marker in decoded data for an item that must be refused, with the reason."""

    reason: str


def check_text(text: str, place: str = "", *, what: str = "the text") -> str:
    """Return `text` as a plain str, or raise EventError where it is not valid Unicode."""
    text = str.__str__(text)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EventError(
                f"{what} has a lone surrogate (U+{ord(text[error.start]):04X}) at character "
                f"{error.start + 1}, so it is not valid Unicode",
                place=place,
            ) from None
    return text


def check_int(value: int, place: str = "") -> int:
    """Return `value` as a plain int of 64 bits, or say that it does not fit."""
    # The unbound method, here and below, makes a plain value of a subclass: int() would call what
    # an enumeration defines.
    value = int.__int__(value)
    if not INT64_MIN <= value <= INT64_MAX:
        shown = str(value) if value.bit_length() < 256 else f"of {value.bit_length()} bits"
        raise EventError(
            f"the integer {shown} does not fit in 64 bits; send it as text or as a float",
            place=place,
        )
    return value


def check_datetime(value: datetime, place: str = "") -> datetime:
    """Return `value` as a plain datetime in UTC, or say why it names no instant."""
    if value.utcoffset() is None:
        raise EventError(
            f"the datetime {value.isoformat()} has no time zone, so it names no instant; "
            "give it one, for example tzinfo=datetime.UTC",
            place=place,
        )
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        raise EventError(
            f"the datetime {value.isoformat()} lies outside of the years 1 to 9999 in UTC",
            place=place,
        ) from None
    return moment if type(moment) is datetime else _plain(moment)


def exact_float(value: int) -> float:
    """Return an integer as a float; ValueError if that would change it."""
    if int(float(value)) != value:
        raise ValueError(f"the integer {value} has no exact float; declare the attribute as 'int'")
    return float(value)


def mask_bits(mask: int) -> Bits | None:
    """Return the bit set of a mask, None if it is negative."""
    return Bits.from_mask(mask) if mask >= 0 else None


def _plain(moment: datetime) -> datetime:
    day, clock = moment.timetuple()[:3], moment.timetuple()[3:6]
    return datetime(*day, *clock, moment.microsecond, tzinfo=UTC)


# --- timestamps ------------------------------------------------------------------------------

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
LAST_INSTANT: Final = datetime.max.replace(tzinfo=UTC)

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
    beyond microseconds are truncated.

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


def microseconds(moment: datetime) -> int:
    """Return a timestamp as whole microseconds since 1970."""
    return (moment - _EPOCH) // MICROSECOND


def instant(elapsed: int) -> datetime:
    """Return the timestamp that many microseconds after the beginning of 1970."""
    return _EPOCH + timedelta(microseconds=int(elapsed))
