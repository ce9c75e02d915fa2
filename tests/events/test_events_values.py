"""What an attribute may hold."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis import Engine, Event, attr
from tamis.errors import EventError
from tamis.events.kinds import TYPE_OF_CLASS, Kind, Value, check_value, kind_of
from tamis.events.values import INT64_MAX, INT64_MIN, Bits

from . import event_strategies as some


class Colour(str, Enum):  # noqa: UP042 - the older form, whose str() is 'Colour.RED'
    RED = "red"


class Size(StrEnum):
    LARGE = "large"


class Level(IntEnum):
    HIGH = 3


class Metres(float):
    def __float__(self) -> float:
        return -1.0


class Stamp(datetime):
    pass


class Flags(Bits):
    pass


class Day(date):
    pass


class Key(UUID):
    pass


class Blob(bytes):
    pass


class Side(Enum):
    BUY = "buy"


class Grade(Enum):
    GOOD = Decimal("1.5")


class Shape(Enum):
    SQUARE = (1, 1)


class Nested(Enum):
    ONE = Side.BUY


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (Size.LARGE, "large"),
        (Level.HIGH, 3),
        (Metres(2.5), 2.5),
        (Flags([1]), Bits([1])),
        (Day(2026, 1, 2), date(2026, 1, 2)),
        (Key("12345678-1234-4234-8234-123456789abc"), UUID("12345678-1234-4234-8234-123456789abc")),
        (Blob(b"\0x"), b"\0x"),
        (bytearray(b"x\0"), b"x\0"),
        (memoryview(b"raw"), b"raw"),
        (Decimal("2.50"), 2.5),
        (Decimal("1e3"), 1000),
        (Decimal(INT64_MIN), INT64_MIN),
        (Decimal(INT64_MAX) + 1, float(2**63)),
        (Decimal("0.1"), 0.1),
        (Decimal("-Infinity"), -math.inf),
        (Decimal("1e999999999"), math.inf),
        (Decimal("1e-999999999"), 0.0),
        (Side.BUY, "buy"),
        (Grade.GOOD, 1.5),
        (Shape.SQUARE, "SQUARE"),
        (Nested.ONE, "buy"),
        (Stamp(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), some.moment(2026, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_a_value_of_a_subclass_becomes_a_plain_one(value: object, plain: Value) -> None:
    checked = check_value(value)
    assert checked == plain
    assert type(checked) is type(plain)


def test_a_boolean_stays_a_boolean() -> None:
    assert check_value(True) is True


def test_a_datetime_moves_to_utc() -> None:
    local = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    checked = check_value(local)
    assert isinstance(checked, datetime)
    assert checked.tzinfo is UTC
    assert checked == local


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (INT64_MAX + 1, "does not fit in 64 bits"),
        (INT64_MIN - 1, "does not fit in 64 bits"),
        pytest.param(10**5000, "of 16610 bits does not fit", id="huge"),
        ("a\ud800b", r"lone surrogate \(U\+D800\) at character 2"),
        (datetime(2026, 1, 1), "has no time zone"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "outside of the years"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))), "outside of the years"),
        ({1}, "type 'set' is not one that Tamis knows"),
        (1j, "type 'complex'"),
        (None, "type 'NoneType'"),
    ],
)
def test_what_is_no_value_is_refused_with_a_sentence_and_its_place(
    value: object, words: str
) -> None:
    with pytest.raises(EventError, match=words) as caught:
        check_value(value, "order.id")
    assert caught.value.place == "order.id"


@pytest.mark.parametrize("value", [INT64_MIN, INT64_MAX, 0, -0.0, math.inf, "", "é😀", False])
def test_the_extremes_of_each_type_are_values(value: Value) -> None:
    assert check_value(value) == value


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, Kind.NUMBER),
        (1.5, Kind.NUMBER),
        (math.inf, Kind.NUMBER),
        (math.nan, None),
        ("a", Kind.TEXT),
        (True, Kind.BOOLEAN),
        (some.moment(2026, 1, 1), Kind.TIMESTAMP),
        (Bits(), Kind.BITS),
    ],
)
def test_every_value_has_its_kind_and_nan_has_none(value: Value, kind: Kind | None) -> None:
    assert kind_of(value) is kind


@given(some.all_values)
def test_checking_a_checked_value_changes_nothing(value: Value) -> None:
    once = check_value(value)
    assert type(once) in TYPE_OF_CLASS
    assert check_value(once) is once


@given(st.integers(0, 2**64 - 1))
def test_a_bit_set_keeps_its_mask(mask: int) -> None:
    assert Bits.from_mask(mask).mask == mask


@given(st.frozensets(st.integers(0, 63)))
def test_a_bit_set_is_the_set_of_its_bit_numbers(numbers: frozenset[int]) -> None:
    assert Bits(numbers) == numbers
    assert Bits.from_mask(Bits(numbers).mask) == numbers


@pytest.mark.parametrize("numbers", [[64], [-1], [True], [1.0], ["a"], 5, None])
def test_a_bit_set_refuses_what_is_no_bit_number(numbers: object) -> None:
    with pytest.raises(EventError, match="bit"):
        Bits(numbers)


@pytest.mark.parametrize("mask", [-1, 2**64, True, 1.0, "1", pytest.param(10**5000, id="huge")])
def test_a_bit_set_refuses_what_is_no_mask(mask: int) -> None:
    with pytest.raises(EventError, match="bit mask"):
        Bits.from_mask(mask)


@pytest.mark.parametrize(
    ("number", "plain"),
    [
        (np.int64(5), 5),
        (np.uint8(5), 5),
        (np.float32(0.1), 0.10000000149011612),
        (np.float64(0.1), 0.1),
        (np.bool_(True), True),
        (np.array(7), 7),
    ],
)
def test_a_number_of_numpy_is_the_same_number(number: Any, plain: object) -> None:
    checked = check_value(number)
    assert (type(checked), checked) == (type(plain), plain)
    [event] = Event({"x": number}).items()
    assert event == ("x", (plain,))
    engine = Engine()
    engine.add(1, attr("x") == number)
    for found in (engine.match({"x": number}), engine.match_batch([{"x": number}] * 2)[1]):
        assert found == [1]


@pytest.mark.parametrize(
    "number",
    [np.uint64(2**63), np.datetime64("2026-01-31"), np.array([1]), np.complex64(1)],
)
def test_what_is_no_such_number_is_refused(number: Any) -> None:
    with pytest.raises(EventError):
        check_value(number)
