r"""The value order of an attribute: everything it may hold, in one total order.

A *position* is a state that the attribute may have: absent, a boolean, a number, an instant, a bit
set, a text, or NaN, which compares with nothing. Positions are ordered first by *bracket* (one
per kind), then by value. So every test of equality, order, membership, kind, presence or prefix is
a union of half-open intervals, and two tests of one attribute can be compared by their ends alone.

Ends are *breakpoints*: the breakpoint at p stands for "less than p". A breakpoint always moves to
the first position that the attribute can really take, so that tests which no value can distinguish
have equal breakpoints: `x < 5.5` and `x <= 5` for integers, `x <= "a"` and `x < "a\0"` for texts.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from tamis.events import Attribute, Kind, Type
from tamis.events.kinds import KINDS
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.filters import Mode

# (bracket,) is the beginning of a bracket; (bracket, value) a position in it.
Breakpoint = tuple[Any, ...]
Interval = tuple[Breakpoint, Breakpoint]


Bracket = int
"""A part of the value order, by its place in it: absence, NaN, then one for each kind."""

ABSENT: Final[Bracket] = 0
# Next to absence, so that one breakpoint separates both from the comparable values.
OTHER: Final[Bracket] = 1
BRACKET_OF_KIND: Final[dict[Kind, Bracket]] = {kind: n for n, kind in enumerate(KINDS, 2)}
KIND_OF_BRACKET: Final = {bracket: kind for kind, bracket in BRACKET_OF_KIND.items()}
BRACKETS: Final[range] = range(2 + len(KINDS))
NUMBERS: Final = BRACKET_OF_KIND[Kind.NUMBER]
TEXTS: Final = BRACKET_OF_KIND[Kind.TEXT]

BEGIN: Final[Breakpoint] = (ABSENT,)
END: Final[Breakpoint] = (len(BRACKETS),)

LAST_CHARACTER: Final = "\U0010ffff"


class ValueOrder:
    """The positions of one attribute, given its type, the mode, and whether it may hold several."""

    def __init__(self, declared: Attribute | None, mode: Mode, *, many: bool = False) -> None:
        self.many = declared.many if declared else many
        self.default = declared.default if declared and mode is Mode.DEFAULT else None
        self.number_type = declared.type if declared else None
        self.brackets: Sequence[Bracket] = _brackets(declared, mode)
        self._begins = [*map(self._find_begin, BRACKETS), END]

    def below(self, kind: Kind, value: Any) -> Breakpoint:
        """Return the breakpoint below a value: positions left of it are less than the value."""
        return self._breakpoint(BRACKET_OF_KIND[kind], self._first_from(kind, value))

    def above(self, kind: Kind, value: Any) -> Breakpoint:
        """Return the breakpoint above a value: positions left of it are the value or less."""
        return self._breakpoint(BRACKET_OF_KIND[kind], self._first_after(kind, value))

    def above_prefix(self, prefix: str) -> Breakpoint:
        """Return the breakpoint above all texts that begin with `prefix`."""
        bound = after_prefix(prefix)
        return self.end(TEXTS) if bound is None else self.below(Kind.TEXT, bound)

    def begin(self, bracket: Bracket) -> Breakpoint:
        """Return the breakpoint below a bracket."""
        return self._begins[bracket]

    def _find_begin(self, bracket: Bracket) -> Breakpoint:
        index = bisect_left(self.brackets, bracket)
        if index == 0:
            return BEGIN
        return (self.brackets[index],) if index < len(self.brackets) else END

    def end(self, bracket: Bracket) -> Breakpoint:
        """Return the breakpoint above a bracket."""
        return self._begins[bracket + 1]

    def whole(self, kind: Kind) -> Interval:
        """Return the interval of all values of a kind."""
        bracket = BRACKET_OF_KIND[kind]
        return self.begin(bracket), self.end(bracket)

    def present(self) -> Interval:
        """Return the interval of everything but absence."""
        return self.begin(OTHER), END

    def last_number(self) -> int | float:
        """Return the greatest number that the attribute may hold."""
        return INT64_MAX if self.number_type is Type.INT else math.inf

    def _breakpoint(self, bracket: Bracket, first: Any) -> Breakpoint:
        if bracket not in self.brackets:
            return self.begin(bracket)
        if first is None:
            return self.end(bracket)
        lowest = INT64_MIN if self.number_type is Type.INT else lowest_of(bracket)
        return self.begin(bracket) if first == lowest else (bracket, first)

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
        return self._number_after(value) if kind is Kind.NUMBER else KINDS[kind].successor(value)

    def _number_after(self, value: float) -> int | float | None:
        if value == math.inf:
            # It stands for what lies above the largest float, and nothing lies above it.
            return None
        if self.number_type is Type.INT:
            return _within_int64(math.floor(value) + 1)
        after = _float_after(value)
        if self.number_type is Type.FLOAT:
            return after
        whole = _within_int64(math.floor(value) + 1)
        return after if whole is None else min(whole, after)


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the same positions as disjoint intervals that do not touch, ascending."""
    joined: list[Interval] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        elif low < high:
            joined.append((low, high))
    return tuple(joined)


def outside(intervals: Iterable[Interval], within: Interval = (BEGIN, END)) -> tuple[Interval, ...]:
    """Return the positions of `within` that lie in none of the merged intervals."""
    gaps: list[Interval] = []
    at, end = within
    for low, high in intervals:
        if at < min(low, end):
            gaps.append((at, min(low, end)))
        at = max(at, high)
    return (*gaps, (at, end)) if at < end else tuple(gaps)


def clipped(intervals: Iterable[Interval], within: Interval) -> tuple[Interval, ...]:
    """Return the parts of the intervals that lie in `within`."""
    begin, end = within
    parts = ((max(low, begin), min(high, end)) for low, high in intervals)
    return tuple((low, high) for low, high in parts if low < high)


CellSet = int
"""A set of cells of a partition, as a bit mask."""


class Partition:
    """A value order divided into cells by the breakpoints that some filters need."""

    def __init__(self, breakpoints: Iterable[Breakpoint]) -> None:
        self.breakpoints: Sequence[Breakpoint] = sorted(set(breakpoints) - {BEGIN, END})

    @classmethod
    def of_ascending(cls, breakpoints: Sequence[Breakpoint]) -> Partition:
        """Return a partition by breakpoints that are in order already, BEGIN and END apart."""
        partition = cls(())
        partition.breakpoints = breakpoints
        return partition

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return len(self.breakpoints) + 1

    @cached_property
    def bounds(self) -> Sequence[Interval]:
        """Return the two breakpoints of each cell."""
        return list(pairwise((BEGIN, *self.breakpoints, END)))

    @cached_property
    def _number(self) -> Mapping[Breakpoint, int]:
        inner = {point: number for number, point in enumerate(self.breakpoints, 1)}
        return {BEGIN: 0, END: self.size, **inner}

    def number(self, point: Breakpoint) -> int:
        """Return the number of the cell that starts at a breakpoint; END's is one past the last."""
        return self._number[point]

    def values_by_bracket(self) -> list[list[Any]]:
        """Return the breakpoints inside each bracket as values, ascending."""
        values: list[list[Any]] = [[] for _ in BRACKETS]
        for point in self.breakpoints:
            if len(point) == 2:
                values[point[0]].append(point[1])
        return values

    def first_cells(self) -> list[int]:
        """Return for each bracket the cell that its first position lies in."""
        return [bisect_right(self.breakpoints, (bracket,)) for bracket in BRACKETS]

    def cells_in(self, intervals: Iterable[Interval]) -> CellSet:
        """Return the cells that make up the intervals."""
        cells = 0
        for low, high in intervals:
            cells |= ((1 << self._number[high]) - 1) & -(1 << self._number[low])
        return cells


def lowest_of(bracket: Bracket) -> Any:
    """Return the lowest value of a bracket, at which it begins; None if its kind has no order."""
    return KINDS[KIND_OF_BRACKET[bracket]].lowest


def _brackets(declared: Attribute | None, mode: Mode) -> Sequence[Bracket]:
    if declared is None:
        return BRACKETS
    brackets = [BRACKET_OF_KIND[declared.kind]]
    if declared.type is Type.FLOAT:
        # Only floats have NaN.
        brackets.insert(0, OTHER)
    return brackets if mode is Mode.TOTAL else [ABSENT, *brackets]


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
