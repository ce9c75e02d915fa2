"""Values that lie in a cell: what a witness is made of, the pleasant ones first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tamis.diagrams.atom_intervals import TextPredicate
from tamis.diagrams.value_order import LOWEST, Bracket, Interval, ValueOrder, common_prefix
from tamis.events import Bits, Type, Value
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.filters.patterns import like_parts

# Beyond the ends of a cell, something to compute with.
_NUMBERS: Final = (1, -1, 2, 10, 100, 10_000)
_INSTANT: Final = datetime(2026, 1, 1, tzinfo=UTC)

Values = tuple[Value, ...]
ABSENT: Final[Values] = ()


def cell_values(
    value_order: ValueOrder, cell: Interval, *, bits: Bits, texts: Sequence[str]
) -> Iterator[Values]:
    """Yield what an attribute may hold to lie in a cell; nothing at all is an empty tuple."""
    # What compares with nothing comes last: a witness should say something.
    for bracket in sorted(value_order.brackets, key=Bracket.OTHER.__eq__):
        low, high = max(cell[0], (bracket,)), min(cell[1], (bracket + 1,))
        if low < high:
            for value in _bracket_values(value_order, bracket, (low, high), bits, texts):
                yield ABSENT if value is None else (value,)


def _bracket_values(
    value_order: ValueOrder, bracket: Bracket, cell: Interval, bits: Bits, texts: Sequence[str]
) -> Iterable[Value | None]:
    match bracket:
        case Bracket.ABSENT:
            return (None,)
        case Bracket.BITS:
            return (bits,)
        case Bracket.OTHER:
            return (math.nan,)
        case Bracket.BOOLEAN:
            return _within(bracket, cell, (True, False))
        case Bracket.NUMBER:
            return _within(bracket, cell, _numbers(value_order, cell))
        case Bracket.TIMESTAMP:
            return _within(bracket, cell, _instants(cell))
        case Bracket.TEXT:
            return _within(bracket, cell, (*texts, "x", _end(cell[0], "")))


def _within(bracket: Bracket, cell: Interval, values: Iterable[Value]) -> list[Value]:
    low, high = cell
    return list(dict.fromkeys(v for v in values if low <= (bracket, v) < high))


def _end(point: tuple[Any, ...], otherwise: Any) -> Any:
    return point[1] if len(point) == 2 else otherwise


def _numbers(value_order: ValueOrder, cell: Interval) -> Iterator[int | float]:
    whole = value_order.number_type is Type.INT
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
        if value_order.number_type is Type.FLOAT:
            yield float(value)
        elif isinstance(value, float) or INT64_MIN <= value <= INT64_MAX:
            yield value if not (whole and isinstance(value, float)) else low


def _instants(cell: Interval) -> Iterator[datetime]:
    low = _end(cell[0], LOWEST[Bracket.TIMESTAMP])
    yield from (_INSTANT, low)
    high = _end(cell[1], None)
    if high is not None:
        yield high - timedelta(microseconds=1)


def texts_for(
    cell: tuple[str, str | None],
    backward: tuple[str, str | None],
    asked: Iterable[tuple[TextPredicate, bool]],
) -> list[str]:
    """Return texts that may lie in a cell and in a cell of reversed texts, and pass the tests."""
    passing = [predicate for predicate, answer in asked if answer]
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


def _middles(passing: Sequence[TextPredicate]) -> Iterator[str]:
    together = "".join(part for predicate in passing for part in predicate.parts)
    yield from ("", together)
    for predicate in passing:
        op, text = predicate.key
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
