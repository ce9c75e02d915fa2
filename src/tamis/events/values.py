"""Values: bit sets, text, integers and timestamps, checked; others as text and from text."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final, NamedTuple, Self
from uuid import UUID

from tamis.errors import EventError

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
BITS_WIDTH: Final = 64
UUID_BYTES: Final = 16


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


# --- dates, UUIDs, bytes, decimals -----------------------------------------------------------

FIRST_DAY: Final = date(1970, 1, 1)
"""Columns count days from here, as Arrow does."""
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FLOATS_ARE_WHOLE: Final = 2**53
"""From here on every float is an integer, and some integers lie between two floats."""
_MOST_INTEGER_DIGITS: Final = 19
"""Decimals of more digits before the point are no integers of 64 bits."""


def parse_date(text: str) -> date:
    """Return the date that `text` names; ValueError says what is wrong with it.

    >>> parse_date("2026-02-30")
    Traceback (most recent call last):
    ValueError: '2026-02-30' is not a date: day is out of range for month
    """
    if _DATE.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a date such as 2026-11-15")
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is not a date: {error}") from None


def day_at_midnight(moment: datetime) -> date:
    """Return the date of an instant at midnight in UTC; ValueError if it has a time of day."""
    if moment.timetz().replace(tzinfo=None) != time.min:
        raise ValueError(f"{format_timestamp(moment)} is not a date: it has a time of day")
    return moment.date()


def parse_uuid(text: str) -> UUID:
    """Return the UUID in its usual form; ValueError says that it is none."""
    if _UUID.fullmatch(text) is None:
        raise ValueError(
            f"{text[:40]!r} is not a UUID such as 12345678-1234-4234-8234-123456789abc"
        )
    return UUID(text)


def uuid_of_bytes(data: bytes) -> UUID:
    """Return the UUID that is stored in 16 bytes; ValueError if there are more or fewer."""
    if len(data) != UUID_BYTES:
        raise ValueError(f"a UUID is stored in {UUID_BYTES} bytes, not in {len(data)}")
    return UUID(bytes=data)


def parse_base64(text: str) -> bytes:
    """Return the bytes that base64 text holds; ValueError says what is wrong with it.

    >>> parse_base64("YWJj")
    b'abc'
    """
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ValueError(f"{text[:40]!r} is not base64 text such as 3q2+7w==") from None


def format_base64(data: bytes) -> str:
    """Return bytes as base64 text."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


_BYTE_OFFSET: Final = 256
_CHARACTER_OF_BYTE: Final = {byte: byte + _BYTE_OFFSET for byte in range(256)}


def characters_of(data: bytes) -> str:
    """Return a text with a character for each byte that sorts as the bytes do."""
    return data.decode("latin-1").translate(_CHARACTER_OF_BYTE)


def bytes_of_characters(text: str) -> bytes:
    """Return the bytes that `characters_of` wrote."""
    return bytes(ord(character) - _BYTE_OFFSET for character in text)


def nearest_number(value: Decimal) -> int | float:
    """Return the nearest number that an event can hold; the order of decimals is kept.

    That is an integer if the decimal is one, and where integers are closer together than floats.

    >>> nearest_number(Decimal("12.00")), nearest_number(Decimal("0.1"))
    (12, 0.1)
    """
    if not value.is_finite():
        return float("nan") if value.is_nan() else float(value)
    if value.adjusted() < _MOST_INTEGER_DIGITS:
        whole = value.to_integral_value(ROUND_HALF_EVEN)
        is_integer = value == whole or abs(whole) >= _FLOATS_ARE_WHOLE
        if is_integer and INT64_MIN <= whole <= INT64_MAX:
            return int(whole)
    return float(value)
