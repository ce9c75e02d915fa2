"""Classes that are written in less usual ways are read as Python reads them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum, StrEnum
from functools import partialmethod
from typing import Any, Generic, Protocol, TypeVar

import attrs
import pydantic
import pytest

from tamis import Engine, EventError, FilterTypeError, Schema, message
from tamis.objects import decode_object, encode_object, read_object_header
from tamis.objects.patterns import require_object_filter

T = TypeVar("T")


class Doubled:
    """A descriptor that is no method, and cannot be called."""

    def __get__(self, owner: Any, cls: type) -> Any:
        return self if owner is None else owner.size * 2


class Sized:
    double = Doubled()

    def __init__(self, size: int) -> None:
        self.size = size

    def scaled(self, factor: int) -> int:
        return self.size * factor

    tripled = partialmethod(scaled, 3)


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Crate(Box[list[T]], Generic[T]):
    label: T


@dataclass
class Numbers(Crate[int]):
    pass


class Few(Numbers):
    pass


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Colour(StrEnum):
    RED = "red"


@dataclass
class Painted:
    level: Level = Level.LOW
    colour: Colour = Colour.RED
    price: Decimal = Decimal(1)


@dataclass
class Ambiguous:
    price: float | Decimal


class Heavy(Protocol):
    weight: int


CONDITIONS: list[tuple[Any, object, bool]] = [
    (message(Sized).double == 4, Sized(2), True),
    (message(Sized).double == 4, Sized(3), False),
    (message(Sized).tripled() == 6, Sized(2), True),
    (message(Numbers).content.contains(5), Numbers([5], 1), True),
    (message(Few).label == 1, Few([5], 1), True),
    (message(Crate[str]).content.contains("a"), Crate(["a"], "b"), True),
    (message(Painted).level < 5, Painted(), True),
    (message(Painted).level > 1, Painted(Level.HIGH), True),
    (message(Painted).price > Decimal("1E+400"), Painted(price=Decimal("2E+400")), True),
    (message(Painted).price > Decimal("1E+400"), Painted(price=Decimal("1E+399")), False),
    (message(Painted).price < Decimal("1E+400"), Painted(price=Decimal("2E+400")), False),
    (message(Painted).price < Decimal("1E+400"), Painted(), True),
    (message(Painted).price == Decimal("1E+400"), Painted(price=Decimal("10E+399")), True),
    (message(Painted).price.in_(1, Decimal("1E+400")), Painted(), True),
    (~(message(Painted).price == Decimal("1E+400")), Painted(price=Decimal("2E+400")), True),
]


@pytest.mark.parametrize("place", range(len(CONDITIONS)))
def test_odd_classes_are_asked(place: int) -> None:
    condition, given, expected = CONDITIONS[place]
    engine = Engine()
    engine.add("it", condition)
    assert require_object_filter(condition).matches(given) is expected
    [found] = engine.match_batch([given])
    assert engine.match(given) == found == ["it"] * expected


def test_tests_of_texts_are_tests_also_of_classes_derived_from_them() -> None:
    assert (
        repr(message(Painted).colour.startswith("r")) == "message(Painted).colour.startswith('r')"
    )
    assert hash(message(Painted).colour.startswith("r"))


def test_what_a_type_variable_stands_for_is_known_in_every_base() -> None:
    with pytest.raises(FilterTypeError, match="content is int, which is never equal to 'a'"):
        message(Numbers).content.contains("a")
    for given in (Numbers([1, 2], 3), Few([1], 2), Crate([], "x")):
        data = encode_object(given)
        header = read_object_header(data)
        assert header is not None
        assert decode_object(data, header, [type(given)]) == given
    with pytest.raises(EventError, match=r"content\[0\]: 'a' is not int, as declared"):
        encode_object(Numbers(["a"], 1))  # type: ignore[list-item]


def test_numbers_that_a_reader_could_not_tell_apart_are_refused() -> None:
    with pytest.raises(EventError, match="price: it may be a Decimal or another number"):
        encode_object(Ambiguous(1.0))


def test_structure_is_no_condition() -> None:
    with pytest.raises(FilterTypeError, match="Heavy describes structure, which is no condition"):
        require_object_filter(message(Heavy))


class Model(pydantic.BaseModel):
    total: int = 1
    customer: str = "a"


class OpenModel(Model):
    model_config = pydantic.ConfigDict(extra="allow")


class AnsweringModel(Model):
    def __getattr__(self, name: str) -> int:
        return len(name)


@attrs.define
class Attributes:
    total: int = 1


class Counter:
    """Nothing declares what it counts, and a helper has members of its own."""

    def __init__(self, helper: Any) -> None:
        helper.state.busy = True
        self.count = 0

    def more(self) -> None:
        self.times += 1  # type: ignore[attr-defined]


MISSPELLED: list[tuple[Any, str, str]] = [
    (Model, "custommer", "Model has no member 'custommer'; did you mean \"customer\"?"),
    (Attributes, "already_repring", "Attributes has no member 'already_repring'"),
    (Counter, "busy", "Counter has no member 'busy'"),
]


@pytest.mark.parametrize(("cls", "name", "sentence"), MISSPELLED)
def test_members_that_a_class_does_not_have_are_refused(cls: Any, name: str, sentence: str) -> None:
    with pytest.raises(FilterTypeError) as caught:
        getattr(message(cls), name)
    assert sentence in str(caught.value)


def test_members_that_a_class_may_have_are_asked() -> None:
    assert (message(OpenModel).extra == 5).matches(OpenModel(extra=5))  # type: ignore[call-arg]
    assert (message(AnsweringModel).word == 4).matches(AnsweringModel())
    for name in ("count", "times"):
        assert getattr(message(Counter), name) is not None


def test_a_schema_has_the_fields_of_a_model_and_no_others() -> None:
    assert str(Schema.of(Model)) == "Schema({'total': 'int', 'customer': 'str'})"
