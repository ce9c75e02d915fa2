"""Regions of a line in words: what a node of a diagram asks, as a reader would write it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from tamis.diagrams.alphabet import Meaning
from tamis.diagrams.lines import (
    BEGIN,
    END,
    LOWEST,
    SEGMENT_OF_KIND,
    Cut,
    Interval,
    Line,
    Segment,
    after_prefix,
)
from tamis.diagrams.readings import TextQuestion
from tamis.events import Bits, Value
from tamis.filters.arithmetic import Relation
from tamis.filters.printing import show_name, show_value

_KIND_OF_SEGMENT: Final = {segment: kind for kind, segment in SEGMENT_OF_KIND.items()}
_WORDS_OF_SEGMENT: Final = {
    Segment.ABSENT: "is absent",
    Segment.OTHER: "is NaN",
    **{segment: f"is {kind.value}" for segment, kind in _KIND_OF_SEGMENT.items()},
}
_MICROSECOND: Final = timedelta(microseconds=1)


def free_words(meaning: Meaning) -> str:
    """Say what a variable asks that is no cut, nor a cell."""
    name = show_name(meaning.attribute) if meaning.attribute else ""
    match meaning.subject:
        case Bits() as bits:
            return f"{name} has all bits {_show(bits)}"
        case TextQuestion(key=(op, text)):
            return f"{name} {op} {_show(text)}"
        case Relation() as relation:
            return str(relation) if meaning.role == "holds" else f"{relation} is known"
        case other:
            return f"{name} {other}"


def region_words(name: str, line: Line, intervals: Iterable[Interval]) -> str:
    """Say that an attribute lies in some intervals of its line."""
    inside = list(intervals)
    parts = {segment: _part(inside, segment) for segment in line.segments}
    held = {segment: part for segment, part in parts.items() if part}
    if all(part == [_whole(segment)] for segment, part in parts.items()):
        return "true"
    present = [segment for segment in line.segments if segment is not Segment.ABSENT]
    if list(held) == present and all(part == [_whole(s)] for s, part in held.items()):
        return f"{name} is present"
    return " or ".join(
        words
        for segment, part in held.items()
        for words in _segment_words(name, line, segment, part)
    )


def _whole(segment: Segment) -> Interval:
    return (segment,), (segment + 1,)


def _part(intervals: Iterable[Interval], segment: Segment) -> list[Interval]:
    """Return what of the intervals lies in a segment."""
    begin, end = _whole(segment)
    cropped = [(max(low, begin), min(high, end)) for low, high in intervals]
    return [(low, high) for low, high in cropped if low < high]


def _segment_words(
    name: str, line: Line, segment: Segment, part: Sequence[Interval]
) -> Iterator[str]:
    if list(part) == [_whole(segment)]:
        yield f"{name} {_WORDS_OF_SEGMENT[segment]}"
        return
    gaps = _gaps(segment, part)
    if len(part) > 1 and len(gaps) == 1 and _is_point(line, segment, gaps[0]):
        yield f"{name} != {_show(_value(segment, gaps[0][0]))}"
        return
    points = [_value(segment, each[0]) for each in part if _is_point(line, segment, each)]
    if len(points) == 1:
        yield f"{name} = {_show(points[0])}"
    elif points:
        yield f"{name} in ({', '.join(map(_show, points))})"
    for each in part:
        if not _is_point(line, segment, each):
            yield _range_words(name, segment, each)


def _gaps(segment: Segment, part: Iterable[Interval]) -> list[Interval]:
    gaps: list[Interval] = []
    at, end = _whole(segment)
    for low, high in part:
        if at < low:
            gaps.append((at, low))
        at = high
    return [*gaps, (at, end)] if at < end else gaps


def _value(segment: Segment, cut: Cut) -> Any:
    return cut[1] if len(cut) == 2 else LOWEST[segment]


def _is_point(line: Line, segment: Segment, interval: Interval) -> bool:
    """Tell whether there is just one value in an interval of a segment."""
    if segment not in LOWEST:
        return False
    low, high = interval
    if segment is Segment.BOOLEAN:
        return True
    value = _value(segment, low)
    if segment is Segment.NUMBER and not math.isfinite(value):
        return False
    return line.above(_KIND_OF_SEGMENT[segment], value) == high


def _range_words(name: str, segment: Segment, interval: Interval) -> str:
    low, high = interval
    if len(low) == 1:
        value, included = _edge(high)
        return f"{name} {'<=' if included else '<'} {_show(value)}"
    if segment is Segment.TEXT and after_prefix(low[1]) == (high[1] if len(high) == 2 else None):
        return f"{name} starts with {_show(low[1])}"
    first, above = _edge(low)
    if len(high) == 1:
        return f"{name} {'>' if above else '>='} {_show(first)}"
    last, included = _edge(high)
    if included and not above:
        return f"{name} between {_show(first)} and {_show(last)}"
    left, right = "<" if above else "<=", "<=" if included else "<"
    return f"{_show(first)} {left} {name} {right} {_show(last)}"


def _edge(cut: Cut) -> tuple[Any, bool]:
    """Return the value to name for a cut, and whether it lies left of it.

    The cut just over 1000 stands at the next float; a reader would rather say `<= 1000`.
    """
    segment, value = cut
    match segment:
        case Segment.TEXT if value.endswith("\0"):
            return value[:-1], True
        case Segment.TIMESTAMP if value.microsecond % 1000 == 1:
            return value - _MICROSECOND, True
        case Segment.NUMBER if isinstance(value, float) and math.isfinite(value):
            before = math.nextafter(value, -math.inf)
            if len(repr(before)) < len(repr(value)):
                return before, True
    return value, False


def _show(value: Value) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return show_value(int(value) if whole else value)  # type: ignore[arg-type]


def suffix_words(name: str, line: Line, intervals: Iterable[Interval]) -> str:
    """Say that a text, read backwards, lies in some intervals."""
    inside = list(intervals)
    if len(inside) == 1:
        low, high = inside[0]
        if len(low) == 2 and after_prefix(low[1]) == (high[1] if len(high) == 2 else None):
            return f"{name} ends with {_show(low[1][::-1])}"
    cropped = [(max(low, (Segment.TEXT,)), high) for low, high in inside]
    return region_words(f"{name} backwards", line, cropped)


def complement(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the rest of the line."""
    gaps: list[Interval] = []
    at = BEGIN
    for low, high in intervals:
        if at < low:
            gaps.append((at, low))
        at = high
    return [*gaps, (at, END)] if at < END else gaps
