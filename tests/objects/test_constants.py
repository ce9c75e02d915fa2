"""Constants that Python takes for equal, or shows alike, are not the same to filters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntFlag, StrEnum
from itertools import combinations
from typing import Any

import pytest

from tamis import Engine, FilterTypeError
from tamis.objects import message, register_comparison

m = message()


def _color() -> Any:
    class Color(Enum):
        RED = 1

    return Color


class Colour(StrEnum):
    RED = "red"


class Right(IntFlag):
    READ = 1
    WRITE = 2


class Name(str):
    __slots__ = ()


class Quiet(int):
    def __repr__(self) -> str:
        return "1"


class Zone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        return "UTC"

    def __repr__(self) -> str:
        return "datetime.timezone.utc"


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ARGUMENTS: tuple[Any, ...] = (
    *(1, 1.0, True, Decimal(1), Decimal("1.0"), Quiet(1), Right.READ, Right.READ | Right.WRITE),
    *(0.0, -0.0, False, "red", Colour.RED, Name("red"), _color().RED, _color().RED, None, "None"),
    *((), (1,), (True,), ("1",), b"red", NOON, NOON.replace(tzinfo=Zone())),
    NOON.astimezone(timezone(timedelta(hours=1))),
)
"""No two of them are the same."""


@dataclass
class Asked:
    x: Any = None

    def is_given(self, given: Any) -> bool:
        return given is self.x


register_comparison("is the very same", lambda value, given: value is given)


def test_calls_with_different_arguments_are_different() -> None:
    engine = Engine()
    filters = [message(Asked).is_given(given) == True for given in ARGUMENTS]  # noqa: E712
    for one, other in combinations(filters, 2):
        assert one != other
    for number, each in enumerate(filters):
        engine.add(number, each)
    for number, given in enumerate(ARGUMENTS):
        assert engine.match(Asked(given)) == [number], given
        assert filters[number] == (message(Asked).is_given(given) == True)  # noqa: E712


def test_comparisons_of_ones_own_with_different_constants_are_different() -> None:
    given = [each for each in ARGUMENTS if each is not None and not isinstance(each, tuple)]
    filters = [message(Asked).x.compare("is the very same", each) for each in given]
    assert len({*filters}) == len(given)
    engine = Engine()
    for number, each in enumerate(filters):
        engine.add(number, each)
    for number, each in enumerate(given):
        assert engine.match(Asked(each)) == [number], each


def test_a_number_is_no_boolean() -> None:
    assert (m.x == 1) != (m.x == True)  # noqa: E712
    assert len({m.x == 1, m.x == True, m.x.contains(1), m.x.contains(True)}) == 4  # noqa: E712
    assert (m.x == 1) == (m.x == 1.0) == (m.x == Decimal(1))
    assert m.x.in_(1, 0) != m.x.in_(True, False)
    for mixed in ((1, True), (True, 1)):
        with pytest.raises(FilterTypeError, match="in one list; join two tests"):
            m.x.in_(*mixed)
