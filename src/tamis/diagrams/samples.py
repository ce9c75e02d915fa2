"""Values that lie in a cell: what a witness is made of, the pleasant ones first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tamis.diagrams.lines import LOWEST, Interval, Line, Segment, common_prefix
from tamis.diagrams.readings import TextQuestion
from tamis.events import Bits, Type, Value
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.filters.patterns import like_parts

# Beyond the ends of a cell, something to compute with.
_NUMBERS: Final = (1, -1, 2, 10, 100, 10_000)
_INSTANT: Final = datetime(2026, 1, 1, tzinfo=UTC)

Values = tuple[Value, ...]
ABSENT: Final[Values] = ()


def cell_values(
    line: Line, cell: Interval, *, bits: Bits, texts: Sequence[str]
) -> Iterator[Values]:
    """Yield what an attribute may hold to lie in a cell; nothing at all is an empty tuple."""
    # What compares with nothing comes last: a witness should say something.
    for segment in sorted(line.segments, key=Segment.OTHER.__eq__):
        low, high = max(cell[0], (segment,)), min(cell[1], (segment + 1,))
        if low < high:
            for value in _segment_values(line, segment, (low, high), bits, texts):
                yield ABSENT if value is None else (value,)


def _segment_values(
    line: Line, segment: Segment, cell: Interval, bits: Bits, texts: Sequence[str]
) -> Iterable[Value | None]:
    match segment:
        case Segment.ABSENT:
            return (None,)
        case Segment.BITS:
            return (bits,)
        case Segment.OTHER:
            return (math.nan,)
        case Segment.BOOLEAN:
            return _within(segment, cell, (True, False))
        case Segment.NUMBER:
            return _within(segment, cell, _numbers(line, cell))
        case Segment.TIMESTAMP:
            return _within(segment, cell, _instants(cell))
        case Segment.TEXT:
            return _within(segment, cell, (*texts, "x", _end(cell[0], "")))


def _within(segment: Segment, cell: Interval, values: Iterable[Value]) -> list[Value]:
    low, high = cell
    return list(dict.fromkeys(v for v in values if low <= (segment, v) < high))


def _end(cut: tuple[Any, ...], otherwise: Any) -> Any:
    return cut[1] if len(cut) == 2 else otherwise


def _numbers(line: Line, cell: Interval) -> Iterator[int | float]:
    whole = line.number_type is Type.INT
    low = _end(cell[0], INT64_MIN if whole else -math.inf)
    high = _end(cell[1], math.inf)
    found: list[int | float] = [0]
    if math.isfinite(low):
        found += (math.ceil(low), math.floor(low) + 1)
    found.append(low)
    if math.isfinite(high):
        found += (math.ceil(high) - 1, math.nextafter(high, -math.inf))
    found += _NUMBERS
    for value in found:
        if line.number_type is Type.FLOAT:
            yield float(value)
        elif isinstance(value, float) or INT64_MIN <= value <= INT64_MAX:
            yield value if not (whole and isinstance(value, float)) else low


def _instants(cell: Interval) -> Iterator[datetime]:
    low = _end(cell[0], LOWEST[Segment.TIMESTAMP])
    yield from (_INSTANT, low)
    high = _end(cell[1], None)
    if high is not None:
        yield high - timedelta(microseconds=1)


def texts_for(
    cell: tuple[str, str | None],
    backward: tuple[str, str | None],
    asked: Iterable[tuple[TextQuestion, bool]],
) -> list[str]:
    """Return texts that may lie in a cell of the line and of the backward line, and pass tests."""
    passing = [question for question, answer in asked if answer]
    suffixes = dict.fromkeys((common_prefix(*backward)[::-1], backward[0][::-1]))
    starts = dict.fromkeys((common_prefix(*cell), cell[0], cell[0].rstrip("\0") + "x", ""))
    middles = dict.fromkeys(_middles(passing))
    return [
        f"{start}{gap}{middle}{gap}{suffix}"
        for start in starts
        for middle in middles
        for gap in ("", "x", " ")
        for suffix in suffixes
    ]


def _middles(passing: Sequence[TextQuestion]) -> Iterator[str]:
    together = "".join(part for question in passing for part in question.parts)
    yield from ("", together)
    for question in passing:
        op, text = question.key
        if op == "like":
            for run in ("", "x", together):
                yield "".join(
                    {"%": run, "_": "x"}[wildcard] if wildcard else part
                    for part, wildcard in like_parts(text)
                )
        elif op == "within":
            yield from (text, text[:1], text[1:])
        elif op == "matches":
            yield text.strip("^$")
