r"""One attribute as one line: everything it may hold, in one order.

A *position* is what an attribute may be: absent, a boolean, a number, an instant, a bit set, a
text, or something that compares with nothing (NaN). Positions are ordered, first by the segment
they lie in, then by value, so that every test of equality, order, membership, kind, presence or
prefix is a union of half-open intervals, and two tests of one attribute can be compared by their
ends alone.

Ends are *cuts*: the cut at p stands for "less than p". A cut is always moved to the first position
that the attribute can really take, so that tests which no value can tell apart have equal cuts:
`x < 5.5` and `x <= 5` of an integer, `x <= "a"` and `x < "a\0"` of a text.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Final

from tamis.events import Attribute, Kind, Type
from tamis.events.values import INT64_MAX, INT64_MIN, kind_of
from tamis.filters import Mode

# (segment,) is the beginning of a segment; (segment, value) a position in it.
Cut = tuple[Any, ...]
Interval = tuple[Cut, Cut]


class Segment(IntEnum):
    """The parts of a line, in their order."""

    ABSENT = 0
    # Beside absence, so that one cut parts both from what can be compared.
    OTHER = 1
    BOOLEAN = 2
    NUMBER = 3
    TIMESTAMP = 4
    BITS = 5
    TEXT = 6


BEGIN: Final[Cut] = (Segment.ABSENT,)
END: Final[Cut] = (len(Segment),)

SEGMENT_OF_KIND: Final = {
    Kind.BOOLEAN: Segment.BOOLEAN,
    Kind.NUMBER: Segment.NUMBER,
    Kind.TIMESTAMP: Segment.TIMESTAMP,
    Kind.BITS: Segment.BITS,
    Kind.TEXT: Segment.TEXT,
}

LAST_CHARACTER: Final = "\U0010ffff"
_LAST_INSTANT: Final = datetime.max.replace(tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Line:
    """What one attribute can be, given its type, the mode, and whether it may hold several."""

    def __init__(self, declared: Attribute | None, mode: Mode, *, many: bool = False) -> None:
        self.many = declared.many if declared else many
        self.default = declared.default if declared and mode is Mode.DEFAULT else None
        self.number_type = declared.type if declared else None
        self.segments: Sequence[Segment] = _segments(declared, mode)
        self._begins = {segment: self._find_begin(segment) for segment in Segment}
        self._ends = {
            segment: self._begins[Segment(segment + 1)] if segment < Segment.TEXT else END
            for segment in Segment
        }

    def below(self, kind: Kind, value: Any) -> Cut:
        """Return the cut under a value: what lies left of it is less than the value."""
        return self._cut(SEGMENT_OF_KIND[kind], self._first_from(kind, value))

    def above(self, kind: Kind, value: Any) -> Cut:
        """Return the cut over a value: what lies left of it is the value or less."""
        return self._cut(SEGMENT_OF_KIND[kind], self._first_after(kind, value))

    def above_prefix(self, prefix: str) -> Cut:
        """Return the cut over all texts that begin with `prefix`."""
        bound = after_prefix(prefix)
        return self.end(Segment.TEXT) if bound is None else self.below(Kind.TEXT, bound)

    def begin(self, segment: Segment) -> Cut:
        """Return the cut under a segment."""
        return self._begins[segment]

    def _find_begin(self, segment: Segment) -> Cut:
        index = bisect_left(self.segments, segment)
        if index == 0:
            return BEGIN
        return (self.segments[index],) if index < len(self.segments) else END

    def end(self, segment: Segment) -> Cut:
        """Return the cut over a segment."""
        return self._ends[segment]

    def whole(self, kind: Kind) -> Interval:
        """Return the interval of all values of a kind."""
        segment = SEGMENT_OF_KIND[kind]
        return self.begin(segment), self.end(segment)

    def present(self) -> Interval:
        """Return the interval of everything but absence."""
        return self.begin(Segment.OTHER), END

    def default_lies_in(self, intervals: Sequence[Interval]) -> bool:
        """Tell whether the default, where one stands in for absence, lies in the intervals."""
        if self.default is None:
            return False
        kind = kind_of(self.default)
        at = (Segment.OTHER,) if kind is None else (SEGMENT_OF_KIND[kind], self.default)
        return any(low <= at < high for low, high in intervals)

    def _cut(self, segment: Segment, first: Any) -> Cut:
        if segment not in self.segments:
            return self.begin(segment)
        if first is None:
            return self.end(segment)
        lowest = INT64_MIN if self.number_type is Type.INT else LOWEST[segment]
        return self.begin(segment) if first == lowest else (segment, first)

    def _first_from(self, kind: Kind, value: Any) -> Any:
        """Return the first value of the attribute's type that is not less than `value`."""
        if kind is not Kind.NUMBER:
            return value
        if self.number_type is Type.INT:
            return _within_int64(math.ceil(value))
        if self.number_type is Type.FLOAT:
            return _float_from(value)
        return value

    def _first_after(self, kind: Kind, value: Any) -> Any:
        """Return the first value of the attribute's type that is greater than `value`."""
        match kind:
            case Kind.NUMBER:
                return self._first_number_after(value)
            case Kind.TEXT:
                return value + "\0"
            case Kind.TIMESTAMP:
                return None if value >= _LAST_INSTANT else value + _MICROSECOND
            case _:
                return None if value else True

    def _first_number_after(self, value: float) -> int | float | None:
        if self.number_type is Type.INT:
            return _within_int64(math.floor(value) + 1)
        after = _float_after(value)
        if self.number_type is Type.FLOAT:
            return after
        whole = _within_int64(math.floor(value) + 1)
        return after if whole is None else min(whole, after)


# A cut at the lowest value of a segment is the beginning of the segment.
LOWEST: Final[dict[Segment, Any]] = {
    Segment.BOOLEAN: False,
    Segment.NUMBER: -math.inf,
    Segment.TIMESTAMP: datetime.min.replace(tzinfo=UTC),
    Segment.TEXT: "",
}


def _segments(declared: Attribute | None, mode: Mode) -> list[Segment]:
    if declared is None:
        return list(Segment)
    segments = [SEGMENT_OF_KIND[declared.kind]]
    if declared.type is Type.FLOAT:
        segments.insert(0, Segment.OTHER)
    return segments if mode is Mode.TOTAL else [Segment.ABSENT, *segments]


def _within_int64(value: int) -> int | None:
    return None if value > INT64_MAX else max(value, INT64_MIN)


def _float_from(value: float) -> float:
    nearest = float(value)
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def _float_after(value: float) -> float:
    nearest = float(value)
    return nearest if nearest > value else math.nextafter(nearest, math.inf)


def after_prefix(prefix: str) -> str | None:
    """Return the least text that is greater than every text beginning with `prefix`, if any.

    >>> after_prefix("ab"), after_prefix("a" + LAST_CHARACTER), after_prefix("")
    ('ac', 'b', None)
    """
    kept = prefix.rstrip(LAST_CHARACTER)
    if not kept:
        return None
    # Texts hold no surrogates, so the character after U+D7FF is U+E000.
    following = "\ue000" if kept[-1] == "\ud7ff" else chr(ord(kept[-1]) + 1)
    return kept[:-1] + following


def text_ends(cell: Interval) -> tuple[str, str | None]:
    """Return the least text of a cell of texts, and the least one above it, if there is one."""
    low, high = cell
    return (low[1] if len(low) == 2 else ""), (high[1] if len(high) == 2 else None)


def common_prefix(low: str, high: str | None) -> str:
    """Return what every text from `low` to below `high` begins with; None is no upper end.

    >>> common_prefix("abc", "abd"), common_prefix("ab", "b"), common_prefix("abc", "ac")
    ('abc', 'a', 'ab')
    """
    if high is None:
        return ""
    shared = 0
    while shared < min(len(low), len(high)) and low[shared] == high[shared]:
        shared += 1
    longer = low[: shared + 1]
    return longer if longer and after_prefix(longer) == high else low[:shared]
