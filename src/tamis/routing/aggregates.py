"""Aggregates of rows: each broker adds up what it gets, and passes on one state.

A state is the same whatever tree the rows came through: sums are exact, and ties are broken by the
rows themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from heapq import nlargest, nsmallest
from typing import Annotated, Final, Literal

import msgspec

from tamis.errors import OptionError
from tamis.events import Event
from tamis.events.values import brief

AggregateKind = Literal["union", "count", "sum", "min", "max", "top", "bottom"]

MAX_TOP: Final = 1_000
MAX_TOP_BYTES: Final = 1024 * 1024
"""Of the rows of `top`, which travel as one message."""
MAX_ATTRIBUTE_CHARACTERS: Final = 1_024
# Every float is a multiple of the smallest, so a sum of such multiples is exact.
_SMALLEST_FLOAT: Final = 2**1074
_MAX_SUM_DIGITS: Final = 1_000
# No rows come to more: whatever peers claim, the state can travel on.
_MAX_COUNT: Final = 2**63 - 1
_MAX_SUM: Final = 16 ** (_MAX_SUM_DIGITS - 1) - 1

_FORMS: Final = "union, count, sum X, min X, max X, top N X or bottom N X"
_SCALAR: Final = re.compile(r"(sum|min|max)\s+(\S.*)")
_RANKED: Final = re.compile(r"(top|bottom)\s+([0-9]{1,9})\s+(\S.*)")

AttributeName = Annotated[str, msgspec.Meta(max_length=MAX_ATTRIBUTE_CHARACTERS)]


class Aggregate(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to make of the rows of a query.

    >>> Aggregate.parse("top 3 price")
    Aggregate(kind='top', attribute='price', size=3)
    """

    kind: AggregateKind
    attribute: AttributeName = ""
    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOP)] = 0

    @classmethod
    def parse(cls, text: str) -> Aggregate:
        """Return the aggregate that a text such as `count` or `sum price` stands for."""
        words = text.strip() if isinstance(text, str) else ""
        if words in ("union", "count"):
            return cls(words)  # type: ignore[arg-type]
        found = _SCALAR.fullmatch(words)
        if found is not None:
            return cls(found[1], _checked_name(found[2]))  # type: ignore[arg-type]
        found = _RANKED.fullmatch(words)
        if found is not None and 1 <= int(found[2]) <= MAX_TOP:
            return cls(found[1], _checked_name(found[3]), int(found[2]))  # type: ignore[arg-type]
        if found is not None:
            raise OptionError(
                "aggregate", f"asks for {found[2]} rows; from 1 to {MAX_TOP:,} it can"
            )
        raise OptionError("aggregate", f"is {brief(text)}; it must be {_FORMS}")

    def check(self) -> Aggregate:
        """Return an aggregate that came from elsewhere, or refuse one that means nothing."""
        is_ranked = self.kind in ("top", "bottom")
        takes_name = is_ranked or self.kind in ("sum", "min", "max")
        if takes_name is not bool(self.attribute) or is_ranked is not bool(self.size):
            raise OptionError("aggregate", f"is {brief(str(self))}; it must be {_FORMS}")
        return self

    @property
    def is_streamed(self) -> bool:
        """Return whether rows are passed on as they come."""
        return self.kind == "union"

    def state(self) -> AggregateState:
        """Return the state of no rows."""
        return _STATES[self.kind](self)

    def __str__(self) -> str:
        size = str(self.size) if self.size else ""
        return " ".join(part for part in (self.kind, size, self.attribute) if part)


def _checked_name(name: str) -> str:
    if len(name) > MAX_ATTRIBUTE_CHARACTERS:
        raise OptionError(
            "aggregate", f"names an attribute of more than {MAX_ATTRIBUTE_CHARACTERS:,} characters"
        )
    return name


class StateFrame(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The state of an aggregate, as it travels."""

    count: Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)] = 0
    total: Annotated[str, msgspec.Meta(max_length=_MAX_SUM_DIGITS)] = ""
    """A sum as a hexadecimal multiple of the smallest float."""
    has_floats: bool = False
    value: bool | int | float | str | None = None
    rows: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_TOP)] = []
    is_cut: bool = False


class AggregateState:
    """What rows amount to so far."""

    is_cut = False
    """Whether some rows were left out for want of space."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate

    def add(self, row: bytes) -> None:
        """Add a row, a JSON object."""
        raise NotImplementedError

    def merge(self, other: StateFrame) -> None:
        """Add the state of rows that somebody else has added up."""
        raise NotImplementedError

    def frame(self) -> StateFrame:
        """Return the state as it travels."""
        raise NotImplementedError

    def rows(self) -> list[bytes]:
        """Return the result as rows."""
        raise NotImplementedError

    def _values(self, row: bytes) -> Iterable[bool | int | float | str]:
        """Return the values of the aggregated attribute, of kinds that JSON has."""
        event = Event(msgspec.json.decode(row))
        held = event.get(self._aggregate.attribute, ())
        return [v for v in held if isinstance(v, bool | int | float | str)]


class _CountState(AggregateState):
    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._count = 0

    def add(self, row: bytes) -> None:  # noqa: ARG002
        self._count += 1

    def merge(self, other: StateFrame) -> None:
        self._count = min(self._count + other.count, _MAX_COUNT)

    def frame(self) -> StateFrame:
        return StateFrame(count=self._count)

    def rows(self) -> list[bytes]:
        return [msgspec.json.encode({"count": self._count})]


class _SumState(AggregateState):
    """An exact sum; without a number in any row there is none."""

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._total = 0
        self._count = 0
        self._has_floats = False

    def add(self, row: bytes) -> None:
        for value in self._values(row):
            if isinstance(value, int | float) and not isinstance(value, bool):
                # Without infinity, which no sum can get rid of again; JSON has none anyway.
                if isinstance(value, float) and not math.isfinite(value):
                    continue
                numerator, denominator = value.as_integer_ratio()
                self._total += numerator * (_SMALLEST_FLOAT // denominator)
                self._count += 1
                self._has_floats |= isinstance(value, float)

    def merge(self, other: StateFrame) -> None:
        total = self._total + int(other.total or "0", 16)
        self._total = max(-_MAX_SUM, min(total, _MAX_SUM))
        self._count = min(self._count + other.count, _MAX_COUNT)
        self._has_floats |= other.has_floats

    def frame(self) -> StateFrame:
        return StateFrame(count=self._count, total=f"{self._total:x}", has_floats=self._has_floats)

    def rows(self) -> list[bytes]:
        if not self._count:
            return [b'{"sum":null}']
        if not self._has_floats:
            return [b'{"sum":%d}' % (self._total // _SMALLEST_FLOAT)]
        try:
            total: float | None = self._total / _SMALLEST_FLOAT
        except OverflowError:
            # It is beyond every float, and JSON has no infinity.
            total = None
        return [msgspec.json.encode({"sum": total})]


_ValueOrderKey = tuple[int, bool | float | str, str]


class _ExtremeState(AggregateState):
    """The lowest or highest value; booleans come before numbers, and numbers before texts."""

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._value: bool | int | float | str | None = None

    def add(self, row: bytes) -> None:
        for value in self._values(row):
            self._offer(value)

    def merge(self, other: StateFrame) -> None:
        if other.value is not None:
            self._offer(other.value)

    def _offer(self, value: bool | float | str) -> None:
        if self._value is None:
            self._value = value
        else:
            choose = max if self._aggregate.kind == "max" else min
            self._value = choose(self._value, value, key=_order)

    def frame(self) -> StateFrame:
        return StateFrame(value=self._value)

    def rows(self) -> list[bytes]:
        return [msgspec.json.encode({self._aggregate.kind: self._value})]


class _RankingState(AggregateState):
    """The rows with the highest or lowest values; rows without one are left out."""

    def __init__(self, aggregate: Aggregate) -> None:
        super().__init__(aggregate)
        self._ranked: list[tuple[_ValueOrderKey, bytes]] = []

    def add(self, row: bytes) -> None:
        values = [*self._values(row)]
        if not values:
            return
        best = max if self._aggregate.kind == "top" else min
        self._ranked.append((best(map(_order, values)), row))
        if len(self._ranked) >= 2 * self._aggregate.size:
            self._trim()

    def merge(self, other: StateFrame) -> None:
        for row in other.rows:
            self.add(bytes(row))
        self.is_cut |= other.is_cut

    def frame(self) -> StateFrame:
        self._trim()
        rows = [msgspec.Raw(row) for _, row in self._ranked]
        return StateFrame(rows=rows, is_cut=self.is_cut)

    def rows(self) -> list[bytes]:
        self._trim()
        return [row for _, row in self._ranked]

    def _trim(self) -> None:
        choose = nlargest if self._aggregate.kind == "top" else nsmallest
        self._ranked = choose(self._aggregate.size, self._ranked)
        size = 0
        for place, (_, row) in enumerate(self._ranked):
            size += len(row)
            if size > MAX_TOP_BYTES and place:
                self.is_cut = True
                del self._ranked[place:]
                break


def _order(value: bool | float | str) -> _ValueOrderKey:
    """Return a key that orders values of different kinds, and 1 before 1.0."""
    rank = 0 if isinstance(value, bool) else 2 if isinstance(value, str) else 1
    return rank, value, "" if isinstance(value, str) else repr(value)


_STATES: Final[dict[str, type[AggregateState]]] = {
    "count": _CountState,
    "sum": _SumState,
    "min": _ExtremeState,
    "max": _ExtremeState,
    "top": _RankingState,
    "bottom": _RankingState,
}
