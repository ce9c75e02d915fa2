"""Alternative contents of an attribute: one for every cell that a filter distinguishes.

No comparison distinguishes two values of one cell, so one value per cell is enough, the nearest to
the present one. Text predicates, bits and comparisons of several attributes do not follow cells;
for these there are guesses, which the caller has to check.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import islice
from typing import Any, Final

from tamis.diagrams.atom_intervals import TextPredicate
from tamis.diagrams.text_candidates import texts_for
from tamis.diagrams.value_order import (
    BEGIN,
    BRACKET_OF_KIND,
    END,
    NUMBERS,
    OTHER,
    TEXTS,
    Interval,
    text_ends,
)
from tamis.diagrams.variable_order import AttributeVariables
from tamis.diagrams.witness import ABSENT, Values, cell_values
from tamis.events import Bits, Event, Kind, Type, Value
from tamis.events.kinds import identity_of, kind_of
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.filters.arithmetic import Relation
from tamis.filters.folding import fold
from tamis.filters.networks import text_at

# Cells to try, from the present one outwards, and values from each.
MAX_CELLS: Final = 256
MAX_VALUES_PER_CELL: Final = 6
MAX_SUFFIX_CELLS: Final = 8
# Values in alternatives that repeat what an attribute holds: of long contents there are few.
MAX_REPEATED_VALUES: Final = 50_000
# The finest decimal step for numbers, before trying the next float.
FINEST_EXPONENT: Final = -9


def candidates(
    attribute: AttributeVariables, held: Values, extra: Iterable[Value], *, may_go: bool
) -> list[Values]:
    """Return alternatives to the contents `held`, nearest first; `extra` are guesses.

    With `may_go`, absence is one of them.
    """
    multivalued = len(held) > 1 or (
        attribute.value_order.many and attribute.value_order.number_type is not None
    )
    singles = [value for value in _singles(attribute, held) if value is not None]
    singles += [value for value in extra if _fits(attribute, value)]
    found: list[Values] = [(value,) for value in singles]
    if multivalued:
        most = max(1, MAX_REPEATED_VALUES // (len(held) + 1))
        found += islice(_repeating(held, singles), most)
    if may_go:
        found.append(ABSENT)
    distinct = {tuple(map(identity_of, values)): values for values in found}
    distinct.pop(tuple(map(identity_of, held)), None)
    return sorted(distinct.values(), key=lambda values: distance(held, values))


def _repeating(held: Values, singles: Sequence[Value]) -> Iterator[Values]:
    """Yield contents that differ from those held in one value, which comes, goes or changes."""
    yield from ((*held, value) for value in singles)
    places = range(len(held))
    if len(held) > 1:
        yield from (held[:at] + held[at + 1 :] for at in places)
    yield from ((*held[:at], value, *held[at + 1 :]) for at in places for value in singles)


def distance(old: Values, new: Values) -> tuple[int, float]:
    """Return the distance of two contents: the class of the change, and its size."""
    if len(old) == len(new) == 1:
        return _distance(old[0], new[0])
    if not old:
        return 2, _strangeness(new[0])
    if len(old) == len(new):
        return max(_distance(a, b) for a, b in zip(old, new, strict=True))
    return 3, float(abs(len(old) - len(new)))


def _distance(old: Value, new: Value) -> tuple[int, float]:
    kind = kind_of(old)
    if kind is None or kind is not kind_of(new):
        return 4, _strangeness(new)
    match old, new:
        case bool(), _:
            return 0, 1.0
        case ((int() | float()), (int() | float())):
            return _number_distance(old, new)
        case str(), str():
            # Blank text is close to short texts, but rarely meant; what cannot be seen, never.
            is_odd = old.isprintable() and not new.isprintable()
            return 3 * is_odd, (_edits(old, new) + 5 * (not new.strip())) / (1 + len(old))
        case datetime(), datetime():
            finer = new.microsecond > 0 and old.microsecond == 0
            return int(finer), abs((new - old).total_seconds()) / 86_400
        case date(), date():
            return 0, float(abs((new - old).days))
        case bytes(), bytes():
            return 0, float(abs(len(new) - len(old)))
        case Bits(), Bits():
            return 0, float(len(old ^ new))
        case _:
            return 4, 0.0


def _number_distance(old: float, new: float) -> tuple[int, float]:
    """Return the relative distance, which can be compared between attributes.

    More decimals than before make it another class of change: from 900, 1001 is a better example of
    "more than 1000" than the next float.
    """
    if old == new:
        return 0, 0.0
    finer = max(0, _step(old) - _step(new)) if math.isfinite(old) else 0
    size = abs(float(old)) if math.isfinite(old) else 0.0
    far = abs(float(new) - float(old)) / (1 + size)
    return (1, finer + far) if finer else (0, far)


def _strangeness(value: Value) -> float:
    """Return how odd a value is where there was none."""
    match value:
        case bool():
            return 0.0
        case int() | float():
            return math.log10(1 + abs(value)) - _step(value) if math.isfinite(value) else math.inf
        case str():
            return len(value) + 5.0 * (not value.strip()) + 100.0 * (not value.isprintable())
        case datetime():
            return abs(value.year - 2026) + (value.microsecond > 0)
        case date():
            return float(abs(value.year - 2026))
        case Bits() | bytes():
            return float(len(value))
        case _:
            return 1.0


def _edits(old: str, new: str) -> int:
    """Return how many characters differ between the common prefix and suffix of two texts."""
    shortest = min(len(old), len(new))
    start = next((n for n in range(shortest) if old[n] != new[n]), shortest)
    rest = shortest - start
    end = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    return len(old) + len(new) - 2 * (start + end)


# --- values of cells -------------------------------------------------------------------------


def _singles(attribute: AttributeVariables, held: Values) -> Iterator[Value | None]:
    at = held[0] if held else None
    bounds = attribute.partition.bounds
    here = bisect_right(attribute.partition.breakpoints, _position(at))
    nearest = sorted(range(len(bounds)), key=lambda number: abs(number - here))[:MAX_CELLS]
    for number in nearest:
        yield from _values_in(attribute, bounds[number], at)
    if attribute.addresses is not None:
        ends = [point for point in attribute.addresses.partition.breakpoints if len(point) == 2]
        yield from (text_at(int(point[1], 16)) for point in ends[:MAX_CELLS])
    if attribute.folded is not None:
        yield from _singles(attribute.folded, (fold(at),) if isinstance(at, str) else ())


def _position(value: Value | None) -> tuple[Any, ...]:
    if value is None:
        return BEGIN
    kind = kind_of(value)
    if kind is None:
        return (OTHER,)
    return (BRACKET_OF_KIND[kind], value) if kind is not Kind.BITS else (BRACKET_OF_KIND[kind],)


def _values_in(
    attribute: AttributeVariables, cell: Interval, at: Value | None
) -> Iterator[Value | None]:
    yield from _near_numbers(attribute, cell, at)
    yield from _near_instants(attribute, cell)
    texts = _texts(attribute, cell, at)
    for values in islice(
        cell_values(attribute.value_order, cell, bits=Bits(), texts=texts),
        max(MAX_VALUES_PER_CELL, len(texts)),
    ):
        yield values[0] if values else None
    begin, end = attribute.value_order.whole(Kind.BITS)
    if cell[0] < end and begin < cell[1]:
        yield from _bit_sets(attribute, at)


def _near_numbers(
    attribute: AttributeVariables, cell: Interval, at: Value | None
) -> Iterator[Value]:
    """Yield the number in a cell nearest to a given one, with as few decimals as possible."""
    begin, end = attribute.value_order.whole(Kind.NUMBER)
    low, high = max(cell[0], begin), min(cell[1], end)
    if low >= high or not isinstance(at, int | float) or isinstance(at, bool):
        return
    if not math.isfinite(at):
        return
    below = (NUMBERS, at) < low
    edge = low if below else high
    if len(edge) < 2 or not math.isfinite(edge[1]):
        return
    whole = isinstance(at, int)
    for exponent in range(max(FINEST_EXPONENT, _step(at)), FINEST_EXPONENT - 1, -1):
        step = Decimal(1).scaleb(exponent)
        found = _beside(Decimal(edge[1]), step, below=below)
        value = int(found) if whole and found == found.to_integral_value() else float(found)
        if low <= (NUMBERS, value) < high and _fits(attribute, value):
            yield value
            return


def _near_instants(attribute: AttributeVariables, cell: Interval) -> Iterator[Value]:
    """Yield the instants of a cell within a second of its ends."""
    begin, end = attribute.value_order.whole(Kind.TIMESTAMP)
    low, high = max(cell[0], begin), min(cell[1], end)
    for edge in (low, high):
        if low < high and len(edge) == 2:
            for moment in _moments(edge[1].replace(microsecond=0)):
                if low <= (BRACKET_OF_KIND[Kind.TIMESTAMP], moment) < high:
                    yield moment


def _beside(edge: Decimal, step: Decimal, *, below: bool) -> Decimal:
    """Return the first multiple of a step from an edge on, or the last one below it."""
    if below:
        return (edge / step).to_integral_value(ROUND_CEILING) * step
    under = (edge / step).to_integral_value(ROUND_FLOOR) * step
    return under if under < edge else under - step


def _step(value: float) -> int:
    """Return the exponent of a number's last digit: 0 for 12, -2 for 9.99."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return min(0, exponent) if isinstance(exponent, int) else 0


def _fits(attribute: AttributeVariables, value: Value) -> bool:
    """Return whether the attribute can hold the value."""
    kind = kind_of(value)
    if kind is None or BRACKET_OF_KIND[kind] not in attribute.value_order.brackets:
        return False
    if isinstance(value, int) and not isinstance(value, bool):
        in_range = INT64_MIN <= value <= INT64_MAX
        return in_range and attribute.value_order.number_type is not Type.FLOAT
    return not (isinstance(value, float) and attribute.value_order.number_type is Type.INT)


def _bit_sets(attribute: AttributeVariables, at: Value | None) -> Iterator[Bits]:
    masks = list(attribute.bits)
    together = Bits(Bits().union(*masks))
    yield from (together, Bits(), *masks)
    if isinstance(at, Bits):
        for mask in (together, *masks):
            yield from (Bits(at | mask), Bits(at - mask), Bits(at ^ mask))


def _texts(attribute: AttributeVariables, cell: Interval, at: Value | None) -> list[str]:
    begin, end = attribute.value_order.whole(Kind.TEXT)
    low, high = max(cell[0], begin), min(cell[1], end)
    if low >= high:
        return []
    text_predicates = [predicate for predicate, _ in attribute.text_predicates.values()]
    asked = [[(q, True) for q in text_predicates], *([(q, True)] for q in text_predicates), []]
    found = [
        text
        for backward in [*attribute.suffix_partition.bounds[:MAX_SUFFIX_CELLS], (BEGIN, END)]
        for each in asked[: MAX_SUFFIX_CELLS + 1]
        for text in texts_for(text_ends((low, high)), text_ends(backward), each)
    ]
    if isinstance(at, str):
        found += _edited(at, attribute, text_predicates)
    return list(dict.fromkeys(found))


def _edited(
    text: str, attribute: AttributeVariables, text_predicates: Sequence[TextPredicate]
) -> Iterator[str]:
    """Yield a text with parts that the filter mentions inserted or removed."""
    parts = {
        part for q in text_predicates for part in (*q.parts, q.prefix, q.suffix, q.key[1]) if part
    }
    parts |= {point[1][::-1] for point in attribute.suffix_partition.breakpoints if len(point) == 2}
    parts |= {point[1].rstrip("\0") for point in attribute.partition.breakpoints if _is_text(point)}
    for part in sorted(parts)[:MAX_CELLS]:
        yield from (f"{text} {part}", text + part, part + text)
        yield from (text.replace(part, ""), text.removeprefix(part), text.removesuffix(part))
    yield from (text + "x", "x" + text, text[:-1], text[1:])


def _is_text(point: tuple[Any, ...]) -> bool:
    return len(point) == 2 and point[0] == TEXTS


# --- several attributes ----------------------------------------------------------------------


def solutions(relation: Relation, name: str, event: Event) -> Iterator[Value]:
    """Yield values of an attribute at which a linear comparison with others changes.

    If the comparison is not linear, they are guesses.
    """
    names = relation.attributes() - {name}
    if not names <= event.keys():
        return
    choice = {other: event[other][0] for other in names}
    at = next(iter(event.of_kind(name, Kind.NUMBER)), 1)
    here, there = (_gap(relation, {**choice, name: at + more}) for more in (0, 1))  # type: ignore[operator]
    if here is None or there is None or here == there:
        yield from _other_sides(choice)
        return
    root = at - here / (there - here)  # type: ignore[operator]
    if math.isfinite(root):
        whole = math.floor(root)
        yield from (whole, whole + 1, whole - 1, whole + 2)
        yield from (float(root), math.nextafter(root, math.inf), math.nextafter(root, -math.inf))


def _gap(relation: Relation, choice: dict[str, Value]) -> float | None:
    left, right = relation.left.value(choice), relation.right.value(choice)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return float(left) - float(right)
    return None


def _other_sides(choice: dict[str, Value]) -> Iterator[Value]:
    """Yield the values of the other attributes, and their neighbours."""
    for value in choice.values():
        yield value
        match value:
            case str():
                yield from (value + "x", value[:-1])
            case datetime():
                yield from _moments(value)
            case bool():
                yield not value
            case int() | float():
                yield from (value - 1, value + 1)


def _moments(value: datetime) -> Iterator[datetime]:
    for seconds in (-1, 1):
        try:
            yield value + timedelta(seconds=seconds)
        except OverflowError:
            continue
