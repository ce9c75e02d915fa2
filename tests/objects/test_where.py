"""A function that is read as a filter says what it says when it is called."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from seeds import in_volume, seeds
from tamis.errors import FilterFunctionError, FilterTypeError
from tamis.objects import message, where

from .random_functions import FunctionTexts, Order, function_of, random_order
from .shop import Address, BlockTrade, Line, Side, Sku, Trade

LIMIT = 5
SYMBOLS = ["ACME", "AB"]
DAY = date(2026, 1, 2)
FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda t: t.symbol.startswith("AC") and 1 < t.price < 5,
    lambda t: t.symbol == "ACME" or t.quantity >= LIMIT,
    lambda t: not (t.quantity != 3),  # noqa: SIM202
    lambda t: not t.is_open or t.symbol.endswith("E"),
    lambda t: "block" in t.tags,
    lambda t: "block" not in t.tags and "A" in t.symbol,
    lambda t: t.symbol in ("ACME", "X"),
    lambda t: t.symbol not in SYMBOLS,
    lambda t: t.address is not None and t.address.city == "Wien",
    lambda t: t.address is None,
    lambda t: any(line.price > 5 and line.quantity == 1 for line in t.lines),
    lambda t: all(line.cost() > 5 for line in t.lines if line.quantity != 2),
    lambda t: not any(line.price > 5 for line in t.lines),
    lambda t: any(line.price > 5 for line in t.lines if line.quantity == 1),
    lambda t: isinstance(t, BlockTrade),
    lambda t: t.side == Side.SELL,
    lambda t: t.side is not None and t.side != Side.BUY,
    lambda t: t.notional() > 2 * LIMIT - 1,
    lambda t: t.price == Decimal("0.1") or t.price > Decimal("2.5"),
    lambda t: t.discounted(50) < 1,
    lambda t: 5 > t.quantity > -1,
    lambda t: t.on is not None and t.on >= DAY,
    lambda t: (t.quantity == 1) ^ (t.symbol == "AB"),
    lambda t: (t.quantity == 1) & t.is_open | (t.quantity == 3),
    lambda t: t.pair[0] == 1 and t.pair[1] == "x",
    lambda t: t.symbol.lower().startswith("ac"),
    lambda t: t.quantity > -2,
    lambda t: any(tag in ("a", "b") for tag in t.tags),
    lambda t: t.version() == 7 and t.either == 1,
]


def random_trade(rng: Random) -> Trade:
    lines = [
        Line(Sku("s"), rng.choice((1.0, 6.0)), rng.randrange(1, 4)) for _ in range(rng.randrange(3))
    ]
    return rng.choice((Trade, BlockTrade))(
        rng.choice(("ACME", "AB", "ace", "XE")),
        rng.choice(tuple(map(Decimal, ("0.1", "2", "2.5", "4", "5", "0.10000000000000000001")))),
        rng.randrange(6),
        rng.choice(tuple(Side)),
        rng.choice(([], ["block"], ["a", "block"], ["c"])),
        rng.choice((None, Address("Wien"), Address("Graz", 8010))),
        lines,
        on=rng.choice((None, date(2026, 1, 1), DAY)),
        pair=rng.choice(((1, "x"), (1, "y"), (2, "x"))),
        either=rng.choice((1, "a")),
        is_open=rng.random() < 0.5,
    )


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_the_filter_says_what_the_function_says(number: int) -> None:
    rng, function = Random(number), FUNCTIONS[number]
    filter_ = where(Trade, function)
    truths = set()
    for _ in range(60):
        trade = random_trade(rng)
        expected = bool(function(trade))
        truths.add(expected)
        assert filter_.matches(trade) is expected, (filter_, trade)
    assert len(truths) == 2 or number in (26, 28)


def test_a_named_function_is_read_as_well() -> None:
    def is_cheap(trade: Trade) -> bool:
        """Say so in a docstring."""
        return trade.price < 5

    assert where(Trade, is_cheap) == (message(Trade).price < 5)


def test_a_function_of_several_statements_is_refused() -> None:
    def is_cheap(trade: Trade) -> bool:
        price = trade.price
        return price < 5

    with pytest.raises(FilterFunctionError, match="nothing but one return statement"):
        where(Trade, is_cheap)


def test_the_right_one_of_two_lambdas_on_a_line_is_read() -> None:
    # fmt: off
    one, two = where(Trade, lambda t: t.quantity == 1), where(Trade, lambda t: t.quantity == 2)
    # fmt: on
    assert repr(one) == "message(Trade).quantity == 1"
    assert repr(two) == "message(Trade).quantity == 2"


def test_what_a_function_closes_over_is_a_constant() -> None:
    def above(limit: int) -> object:
        return where(Trade, lambda t: t.quantity > limit)

    assert [above(3), above(4)] == [message(Trade).quantity > 3, message(Trade).quantity > 4]


def test_a_function_is_never_called() -> None:
    def fails(trade: Trade) -> bool:
        return trade.broken() > 1

    assert repr(where(Trade, fails)) == "message(Trade).broken() > 1"


def test_a_function_without_a_class_is_a_filter_by_name() -> None:
    assert where(None, lambda t: t.priority() >= 3) == (message().priority() >= 3)


# --- outer variables inside of any and all ------------------------------------------------------

OUTER: list[Callable[[Any], Any]] = [
    lambda t: any(x.price > 5 and t.quantity > 1 for x in t.lines),
    lambda t: all(x.price > 5 or t.quantity > 1 for x in t.lines),
    lambda t: any((t.quantity > 1 and x.price > 5) or x.quantity == 2 for x in t.lines),
    lambda t: any(x.price > 5 for x in t.lines if t.quantity > 1),
    lambda t: all(x.price > 5 for x in t.lines if t.quantity > 1),
    lambda t: not any(not (x.price > 5 or t.quantity > 1) for x in t.lines),
    lambda t: any(x.price > 5 and any(tag == "block" for tag in t.tags) for x in t.lines),
    lambda t: any(any(tag == "a" and x.price > 5 for tag in t.tags) for x in t.lines),
    lambda t: any(x.price > 5 and isinstance(t, BlockTrade) for x in t.lines),
    lambda t: any(t.price > 5 for t in t.lines),
]
NOT_MOVED: list[Callable[[Any], Any]] = [
    lambda t: all(t.quantity > 1 for _ in t.lines),
    lambda t: any(t.quantity > 1 for _ in t.lines),
    lambda t: any(x.price > 5 or t.quantity > 1 for x in t.lines),
    lambda t: all(x.price > 5 and t.quantity > 1 for x in t.lines),
    lambda t: any((x.price > 5) ^ (t.quantity > 1) for x in t.lines),
    lambda t: any(any(x.price > 5 for _ in t.tags) for x in t.lines),
]


@pytest.mark.parametrize("function", OUTER)
def test_an_outer_variable_inside_of_any_is_not_the_element(function: Callable[[Any], Any]) -> None:
    rng = Random(7)
    filter_ = where(Trade, function)
    truths = set()
    for _ in range(200):
        trade = random_trade(rng)
        truths.add(bool(function(trade)))
        assert filter_.matches(trade) is bool(function(trade)), (filter_, trade)
    assert len(truths) == 2


@pytest.mark.parametrize("function", NOT_MOVED)
def test_what_depends_on_the_collection_being_empty_is_refused(
    function: Callable[[Any], Any],
) -> None:
    with pytest.raises(FilterFunctionError, match="does not ask about the element") as caught:
        where(Trade, function)
    assert "test_where.py" in str(caught.value)
    assert " for " in caught.value.text


def test_a_stand_in_of_the_message_is_not_the_element_either() -> None:
    t = message(Trade)
    moved = t.lines.any(lambda each: (each.price > 5) & (t.quantity > 1))
    assert moved == (t.lines.any(lambda each: each.price > 5) & (t.quantity > 1))
    loose = message()
    with pytest.raises(FilterTypeError, match="does not ask about the element"):
        loose.lines.any(lambda _: loose.quantity > 1)
    with pytest.raises(FilterTypeError, match="does not ask about the element"):
        loose.nodes.any(lambda node: node.leaves.any(lambda leaf: (leaf.a > 1) | (node.b > 1)))


def check_random_functions(seed: int, count: int) -> None:
    """A function that is read says what it says when called; otherwise it is refused."""
    rng = Random(seed)
    read = refused = 0
    refusals: set[str] = set()
    for number in range(count):
        body = FunctionTexts(rng).condition({"t": Order}, 4)
        function = function_of(body, number)
        try:
            filter_ = where(Order, function)
        except FilterFunctionError as error:
            refusals.add(error.reason.partition("does not ask")[1])
            refused += 1
            continue
        read += 1
        for _ in range(25):
            order = random_order(rng)
            assert filter_.matches(order) is bool(function(order)), (body, filter_, order)
    assert refusals == {"does not ask"}
    assert read > count / 3
    assert refused > count / 50


@pytest.mark.parametrize("seed", seeds(200))
def test_random_functions_say_what_they_say_when_called(seed: int) -> None:
    check_random_functions(seed, in_volume(200))
