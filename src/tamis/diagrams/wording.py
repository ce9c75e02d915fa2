"""Regions of a value order in words: what a node of a diagram asks, as a reader would write it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from tamis.diagrams.atom_intervals import TextPredicate
from tamis.diagrams.value_order import (
    BEGIN,
    BRACKET_OF_KIND,
    END,
    LOWEST,
    Bracket,
    Breakpoint,
    Interval,
    ValueOrder,
    after_prefix,
)
from tamis.diagrams.variable_order import Variable
from tamis.events import Bits, Value
from tamis.filters.arithmetic import Relation
from tamis.filters.printing import show_name, show_value

_KIND_OF_BRACKET: Final = {bracket: kind for kind, bracket in BRACKET_OF_KIND.items()}
_WORDS_OF_BRACKET: Final = {
    Bracket.ABSENT: "is absent",
    Bracket.OTHER: "is NaN",
    **{bracket: f"is {kind.value}" for bracket, kind in _KIND_OF_BRACKET.items()},
}
_MICROSECOND: Final = timedelta(microseconds=1)


def free_words(variable: Variable) -> str:
    """Say what a variable asks that is no breakpoint, nor a cell."""
    name = show_name(variable.attribute) if variable.attribute else ""
    match variable.subject:
        case Bits() as bits:
            return f"{name} has all bits {_show(bits)}"
        case TextPredicate(key=(op, text)):
            return f"{name} {op} {_show(text)}"
        case Relation() as relation:
            return str(relation) if variable.role == "holds" else f"{relation} is known"
        case other:
            return f"{name} {other}"


def region_words(name: str, value_order: ValueOrder, intervals: Iterable[Interval]) -> str:
    """Say that an attribute lies in some intervals of its value order."""
    inside = list(intervals)
    parts = {bracket: _part(inside, bracket) for bracket in value_order.brackets}
    held = {bracket: part for bracket, part in parts.items() if part}
    if all(part == [_whole(bracket)] for bracket, part in parts.items()):
        return "true"
    present = [bracket for bracket in value_order.brackets if bracket is not Bracket.ABSENT]
    if list(held) == present and all(part == [_whole(s)] for s, part in held.items()):
        return f"{name} is present"
    return " or ".join(
        words
        for bracket, part in held.items()
        for words in _bracket_words(name, value_order, bracket, part)
    )


def _whole(bracket: Bracket) -> Interval:
    return (bracket,), (bracket + 1,)


def _part(intervals: Iterable[Interval], bracket: Bracket) -> list[Interval]:
    """Return what of the intervals lies in a bracket."""
    begin, end = _whole(bracket)
    cropped = [(max(low, begin), min(high, end)) for low, high in intervals]
    return [(low, high) for low, high in cropped if low < high]


def _bracket_words(
    name: str, value_order: ValueOrder, bracket: Bracket, part: Sequence[Interval]
) -> Iterator[str]:
    if list(part) == [_whole(bracket)]:
        yield f"{name} {_WORDS_OF_BRACKET[bracket]}"
        return
    gaps = _gaps(bracket, part)
    if len(part) > 1 and len(gaps) == 1 and _is_point(value_order, bracket, gaps[0]):
        yield f"{name} != {_show(_value(bracket, gaps[0][0]))}"
        return
    points = [_value(bracket, each[0]) for each in part if _is_point(value_order, bracket, each)]
    if len(points) == 1:
        yield f"{name} = {_show(points[0])}"
    elif points:
        yield f"{name} in ({', '.join(map(_show, points))})"
    for each in part:
        if not _is_point(value_order, bracket, each):
            yield _range_words(name, bracket, each)


def _gaps(bracket: Bracket, part: Iterable[Interval]) -> list[Interval]:
    gaps: list[Interval] = []
    at, end = _whole(bracket)
    for low, high in part:
        if at < low:
            gaps.append((at, low))
        at = high
    return [*gaps, (at, end)] if at < end else gaps


def _value(bracket: Bracket, point: Breakpoint) -> Any:
    return point[1] if len(point) == 2 else LOWEST[bracket]


def _is_point(value_order: ValueOrder, bracket: Bracket, interval: Interval) -> bool:
    """Tell whether there is just one value in an interval of a bracket."""
    if bracket not in LOWEST:
        return False
    low, high = interval
    if bracket is Bracket.BOOLEAN:
        return True
    value = _value(bracket, low)
    if bracket is Bracket.NUMBER and not math.isfinite(value):
        return False
    return value_order.above(_KIND_OF_BRACKET[bracket], value) == high


def _range_words(name: str, bracket: Bracket, interval: Interval) -> str:
    low, high = interval
    if len(low) == 1:
        value, included = _edge(high)
        return f"{name} {'<=' if included else '<'} {_show(value)}"
    if bracket is Bracket.TEXT and after_prefix(low[1]) == (high[1] if len(high) == 2 else None):
        return f"{name} starts with {_show(low[1])}"
    first, above = _edge(low)
    if len(high) == 1:
        return f"{name} {'>' if above else '>='} {_show(first)}"
    last, included = _edge(high)
    if included and not above:
        return f"{name} between {_show(first)} and {_show(last)}"
    left, right = "<" if above else "<=", "<=" if included else "<"
    return f"{_show(first)} {left} {name} {right} {_show(last)}"


def _edge(point: Breakpoint) -> tuple[Any, bool]:
    """Return the value to name for a breakpoint, and whether it lies left of it.

    The breakpoint just over 1000 stands at the next float; a reader would rather say `<= 1000`.
    """
    bracket, value = point
    match bracket:
        case Bracket.TEXT if value.endswith("\0"):
            return value[:-1], True
        case Bracket.TIMESTAMP if value.microsecond % 1000 == 1:
            return value - _MICROSECOND, True
        case Bracket.NUMBER if isinstance(value, float) and math.isfinite(value):
            before = math.nextafter(value, -math.inf)
            if len(repr(before)) < len(repr(value)):
                return before, True
    return value, False


def _show(value: Value) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return show_value(int(value) if whole else value)  # type: ignore[arg-type]


def suffix_words(name: str, value_order: ValueOrder, intervals: Iterable[Interval]) -> str:
    """Say that a text, read backwards, lies in some intervals."""
    inside = list(intervals)
    if len(inside) == 1:
        low, high = inside[0]
        if len(low) == 2 and after_prefix(low[1]) == (high[1] if len(high) == 2 else None):
            return f"{name} ends with {_show(low[1][::-1])}"
    cropped = [(max(low, (Bracket.TEXT,)), high) for low, high in inside]
    return region_words(f"{name} backwards", value_order, cropped)


def complement(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the rest of the value order."""
    gaps: list[Interval] = []
    at = BEGIN
    for low, high in intervals:
        if at < low:
            gaps.append((at, low))
        at = high
    return [*gaps, (at, END)] if at < END else gaps
