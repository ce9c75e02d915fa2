"""What a function asks of members that may be several things means what it means when called."""

# ruff: noqa: PIE804
# mypy: disable-error-code="operator, no-any-return, attr-defined, comparison-overlap, arg-type"

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntFlag
from fractions import Fraction
from itertools import product
from numbers import Number
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tamis import Engine, FilterTypeError, message, open_bus_sync, where
from tamis.errors import FilterFunctionError


class Basket(Collection[str]):
    """A collection by its base class, and by nothing else."""

    def __init__(self, things: list[str]) -> None:
        self.things = things

    def __iter__(self) -> Iterator[str]:
        return iter(self.things)

    def __len__(self) -> int:
        return len(self.things)

    def __contains__(self, thing: object) -> bool:
        return thing in self.things


class Lookalike:
    """It has what collections have, and does not say that it is one."""

    __iter__, __len__, __contains__ = Basket.__iter__, Basket.__len__, Basket.__contains__


class Unannotated:
    def __init__(self, held: Any) -> None:
        self.held = held


@dataclass
class Holder:
    texts: Iterable[str] = ()
    container: Container[str] = ()
    collection: Collection[str] = ()
    numbers: Iterable[int] = ()
    prices: Iterable[Decimal] = ()
    basket: Basket = field(default_factory=lambda: Basket([]))
    names: list[str] = field(default_factory=list)
    either: list[str] | str = ""
    number: Number = 1  # type: ignore[assignment]


HELD: tuple[Any, ...] = (
    *(["x"], ["xyz"], ("x", "y"), {"x"}, "xyz", "x", "", [], {"x": 1}, {"xy": None, 1: 2}),
    *({"x": None}, {("x", 1): 1}, Basket(["x"]), Basket(["xy"]), frozenset({"y"})),
)
FUNCTIONS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: "x" in t.texts, "texts"),
    (lambda t: "x" not in t.texts, "texts"),
    (lambda t: "x" in t.container, "container"),
    (lambda t: "x" in t.collection, "collection"),
    (lambda t: isinstance(t.texts, str), "texts"),
    (lambda t: isinstance(t.texts, list), "texts"),
    (lambda t: isinstance(t.either, list), "either"),
    (lambda t: not isinstance(t.either, str), "either"),
]


def _says(filter_: Any, given: Any) -> bool:
    engine = Engine()
    engine.add("it", filter_)
    [batch] = engine.match_batch([given])
    said: bool = filter_.matches(given)
    assert engine.match(given) == batch == ["it"] * said, (filter_, vars(given))
    return said


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_what_may_be_several_things_is_asked_as_it_is(number: int) -> None:
    function, name = FUNCTIONS[number]
    filter_ = where(Holder, function)
    for held in HELD:
        given = Holder(**{name: held})
        assert _says(filter_, given) is function(given), (filter_, held)


UNKNOWN: list[Callable[[Any], Any]] = [
    lambda t: "x" in t.held,
    lambda t: "x" not in t.held,
    lambda t: isinstance(t.held, list),
    lambda t: isinstance(t.held, str),
    lambda t: isinstance(t.held, dict) and "x" in t.held,
]


@pytest.mark.parametrize(("function", "cls"), [*product(UNKNOWN, (Unannotated, None))])
def test_what_nobody_has_declared_is_asked_as_it_is(function: Any, cls: Any) -> None:
    filter_ = where(cls, function)
    for held in HELD:
        given = Unannotated(held)
        assert _says(filter_, given) is function(given), (filter_, held)
    if cls is None:
        assert _says(where(None, lambda t: 1 in t.held), Unannotated({1: 2}))


def test_collections_by_their_base_class_are_collections() -> None:
    given = Holder(numbers=[1, 2], prices=[Decimal("0.1")], basket=Basket(["x"]), names=["a"])
    functions: list[Callable[[Holder], Any]] = [
        lambda t: "x" in t.basket,
        lambda t: any(each == "x" for each in t.basket),
        lambda t: all(each != "y" for each in t.basket),
        lambda t: any(each > 1 for each in t.numbers),
        lambda t: 2 in t.numbers,
        lambda t: Decimal("0.1") in t.prices,
        lambda t: isinstance(t.names, list),
        lambda t: isinstance(t.basket, Basket),
        lambda t: t.number == 1,
    ]
    for function in functions:
        assert function(given)
        assert _says(where(Holder, function), given), function.__code__.co_firstlineno


def test_elements_are_asked_for_their_class_one_by_one() -> None:
    given = Holder(names=["a"])
    assert message().names.any(lambda each: each.is_a(str)).matches(given)
    assert not message().names.is_a(str).matches(given)
    with pytest.raises(FilterTypeError, match=r"names is list\[str\], never a str"):
        message(Holder).names.is_a(str)


@dataclass
class Mistaken:
    part: Fraction
    phase: complex
    alike: Lookalike
    stream: Iterator[str]

    def scaled(self, factor: int = 1) -> int:
        return factor


MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.part > 1, "part is Fraction, which is no value to compare"),
    (lambda t: t.phase == 1, "phase is complex, which is no value to compare"),
    (lambda t: "x" in t.alike, "derive Lookalike from collections.abc.Collection"),
    (lambda t: any(x == "x" for x in t.alike), "which has no elements for any; if it is a coll"),
    (lambda t: "x" in t.stream, "stream is Iterator[str], which has no test 'contains'"),
    (lambda t: t.scaled(**{"factor": 3}) == 3, "write the arguments of ** one by one"),
    (lambda t: t.scaled() == Decimal(**{"value": "3"}), "write the arguments of ** one by one"),
]


@pytest.mark.parametrize(("function", "sentence"), MISTAKES)
def test_what_could_never_match_or_is_not_read_is_refused(function: Any, sentence: str) -> None:
    with pytest.raises(FilterFunctionError) as caught:
        where(Mistaken, function)
    # The whole error shows the line, which has the sentence as well.
    assert sentence in str(caught.value).splitlines()[0]


@dataclass
class Travelling:
    texts: Iterable[str]
    meta: Any


def test_what_may_be_several_things_is_found_over_a_bus_as_well() -> None:
    given = [Travelling(texts, meta) for texts, meta in product((["x"], ["xyz"]), ({"x": 1}, "xy"))]
    with open_bus_sync() as bus:
        for filter_, expected in (
            (where(Travelling, lambda t: "x" in t.texts), [True, True, False, False]),
            (where(None, lambda t: "x" in t.meta), [True] * 4),
            (where(None, lambda t: "x" in t.texts), [True, True, False, False]),
        ):
            with bus.subscribe(filter_) as found:
                for each in given:
                    bus.publish(each)
                bus.publish(Travelling(["x"], ["x", "last"]))
                came: list[Any] = []
                while not came or came[-1].meta != ["x", "last"]:
                    came.append(found.next(timeout=10))
            assert came[:-1] == [each for each, is_in in zip(given, expected, strict=True) if is_in]


class Right(IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Granted:
    right: Right = Right.READ | Right.WRITE
    at: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)
    price: Decimal = Decimal(-5)


def test_constants_are_computed_as_python_does() -> None:
    given = Granted()
    functions: list[Callable[[Granted], Any]] = [
        lambda t: t.right == Right.READ | Right.WRITE,
        lambda t: t.right != Right.READ & Right.WRITE,
        lambda t: t.at >= datetime(2026, 1, 1, 12, tzinfo=timezone.utc),  # noqa: UP017
        lambda t: t.at > datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=1))),
        lambda t: t.at < datetime(2026, 1, 1, 14, tzinfo=ZoneInfo("Europe/Vienna")),
        lambda t: t.price == -Decimal(5),
        lambda t: t.price < -Decimal(5) + 1,
    ]
    for function in functions:
        assert function(given)
        assert _says(where(Granted, function), given), function.__code__.co_firstlineno
