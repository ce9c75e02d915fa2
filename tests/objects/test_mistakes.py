"""Mistakes in filters over objects are found when they are written, each with a sentence."""

# What people write by mistake is what linters find as well.
# mypy: disable-error-code="arg-type, attr-defined, call-arg, comparison-overlap, misc, name-defined, operator"
# ruff: noqa: ARG005, E501, C416, C419, F841, PLC3002, PLR0133, PLW0108, PLW0177, PT012, SIM300

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from tamis import attr
from tamis.errors import FilterError, FilterFunctionError, FilterTypeError
from tamis.objects import message, register_comparison, where

from .shop import Address, Anything, Box, Level, Priced, Row, Shape, Side, TextBox, Trade

t = message(Trade)
any_ = message()
register_comparison("mistaken", lambda value, constant: value == constant)
COMPUTED = [1, 2]
HELPER = object()

MISTAKES: list[tuple[Callable[[], Any], str]] = [
    # members
    (lambda: t.symbl, "Trade has no member 'symbl'; did you mean \"symbol\"?"),
    (lambda: t.notionel(), 'did you mean "notional"?'),
    (lambda: t.zzz, "Trade has no member 'zzz'; it has "),
    (lambda: t._secret(), "'_secret' is private to its class, so no filter may ask for it"),
    (lambda: any_._x, "'_x' is private to its class"),
    (lambda: t.address.cty, "address is Address | None, which has no member 'cty'; did you mean"),
    (lambda: t.symbol.citi, "symbol is str, which has no member 'citi'"),
    (lambda: t.meta.k, "meta is dict[str, int], which has no member 'k'; for a key write ['k']"),
    (lambda: t.tags.x, "for its elements write .any(lambda each: each.x …)"),
    (lambda: t.either.foo, "either is int | str, which has no member 'foo'"),
    (lambda: t.box.content.zzz, "content is int, which has no member 'zzz'"),
    (lambda: message(TextBox).content.foo, "content is str, which has no member 'foo'"),
    (lambda: message(Box[int]).unpacked().foo, "unpacked() is int, which has no member 'foo'"),
    (lambda: message(Priced).quantity, "Priced has no member 'quantity'"),
    (lambda: message(Row).symbol, "for a key write ['symbol']"),
    # calls
    (lambda: t.notional > 5, "notional is a method: call it, as in notional"),
    (lambda: t.notional.x, "notional is a method: call it"),
    (lambda: t.notional(5), "cannot be called with 1 arguments: too many positional"),
    (lambda: t.discounted(), "missing a required argument: 'percent'"),
    (lambda: t.discounted("5"), "the argument 'percent' of discounted"),
    (lambda: t.discounted(5, 1), "the argument 'rounded' of discounted"),
    (lambda: t.discounted(5, round=True), "cannot be called like that: got an unexpected keyword"),
    (lambda: t.discounted(t.quantity), "is a constant, not another part of a message (quantity)"),
    (lambda: t.discounted([5]), "is a constant, not [5]"),
    (lambda: t.price(), "price is Decimal, not a method: leave out the parentheses"),
    (lambda: t(), "the message is not a method that could be called"),
    (lambda: t.taxed(rate=2), "takes rate by name only, and filters give arguments in order"),
    (lambda: any_.scaled(by=2), "write the arguments of scaled in order, without names"),
    # indices and keys
    (lambda: t.symbol[t.quantity], "takes an index or a text as key, not another part"),
    (lambda: t.tags["a"], "tags is list[str], whose elements have no key 'a'"),
    (lambda: t.tags[True], "takes an index or a text as key, not True"),
    (lambda: t.tags[1:2], "takes an index or a text as key, not slice(1, 2, None)"),
    (lambda: t.meta.contains("k"), "write meta.keys().contains('k') or meta.values().contains"),
    (lambda: "k" in t.meta, "write meta.keys().contains('k') instead of `in`"),
    (lambda: t.meta.any(lambda each: each == 1), "say of what, meta.keys() or meta.values()"),
    (lambda: t.meta.values().contains("k"), "is int, which is never equal to 'k': that is text"),
    (lambda: t.meta.keys().any(lambda each: each == 1), "is str, which is never equal to 1"),
    (lambda: t.meta[5], "a key of meta is str, not 5"),
    (lambda: t.pair[2], "pair has 2 elements, so there is no [2]"),
    (lambda: t.quantity[0], "quantity is int, which has no elements or keys: leave out [0]"),
    (lambda: message(Row)["prize"], "Row has no key 'prize'; did you mean \"price\"?"),
    # comparisons
    (lambda: t.symbol == 5, "symbol is str, which is never equal to 5: that is a number"),
    (lambda: t.quantity < "5", "quantity is int, which is neither less nor more than '5': that"),
    (lambda: t.quantity == " 5 ", "that is text; write 5, without quotes"),
    (lambda: t.kind == "c", "kind is Literal['a', 'b'], which is never 'c'"),
    (lambda: t.kind != "aa", "kind is Literal['a', 'b'], which is never 'aa'"),
    (lambda: t.kind.in_("a", "d"), "kind is Literal['a', 'b'], which is never 'd'"),
    (lambda: t.tags.any(lambda each: each == t.symbol), "the element is compared with symbol"),
    (lambda: t.is_open == 1, "is_open is bool, which is never equal to 1"),
    (lambda: t.is_open < True, "< has no meaning for a boolean; only = and != have"),
    (lambda: t.on == datetime(2026, 1, 1), "which has no time zone; give it one"),
    (lambda: t.at < date(2026, 1, 1), "at is datetime | None, which is neither less nor"),
    (lambda: t.price == None, "nothing compares with None: write price.is_present()"),  # noqa: E711
    (lambda: t.price < math.nan, "cannot be compared with nan: use a finite number"),
    (lambda: t.price < Decimal("Infinity"), "price is compared with Infinity: use a finite number"),
    (lambda: t.quantity == 2**70, "does not fit in 64 bits"),
    (lambda: t.symbol == "\ud800", "lone surrogate"),
    (lambda: t.price > t.quantity, "price is compared with quantity, but a condition compares"),
    (lambda: t.tags == "x", "tags is list[str], which holds several values: write tags.contains"),
    (lambda: t.quantity == [1, 2], "quantity is compared with a list: write in_(*values)"),
    (lambda: t.address == "Wien", "address is Address | None, which is no value to compare"),
    (lambda: t.side == "buyy", "side is Side, which has no member of value 'buyy'; did you"),
    (lambda: t.side == Level.LOW, "that is a number"),
    (lambda: t.level == Side.BUY, "level is Level, which is never equal to"),
    (lambda: t.anything == object(), "a value of type 'object' is not one that Tamis knows"),
    (lambda: t.quantity == (t.price > 5), "quantity is compared with a filter: put it in paren"),
    (lambda: t.in_, "a filter over objects is needed"),
    (lambda: message() == 5, "a comparison needs a member of the message, as in message().price"),
    # membership and texts
    (lambda: t.quantity.in_(), "quantity.in_(): the list is empty, so nothing could match"),
    (lambda: t.quantity.in_([1, 2]), "in_ takes the values one by one, not a list of them"),
    (lambda: t.either.in_(1, "a"), "is compared with a number and with text in one list"),
    (lambda: t.quantity.in_(1, 2.5, "x"), "in one list; join two tests with |"),
    (lambda: t.tags.contains(5), "tags is str, which is never equal to 5"),
    (lambda: t.quantity.contains("5"), "quantity is int, which has no test 'contains': only texts"),
    (lambda: t.symbol.contains(5), "contains takes a text"),
    (lambda: t.quantity.contains(5), "quantity is int, which has no test 'contains': only texts"),
    (lambda: t.quantity.between(1, 5), "write (low <= quantity) & (quantity <= high)"),
    (lambda: t.quantity.startswith("5"), "quantity is int, which has no test 'starts with': only"),
    (lambda: t.symbol.startswith(5), "starts with takes a text"),
    (lambda: t.symbol.matches("("), "has a ( that nothing closes"),
    # classes
    (lambda: message("Trade"), "message takes a class, not 'Trade'"),
    (lambda: message(5), "message takes a class, not 5"),
    (lambda: message(int | str), "message takes a class, not int | str"),
    (lambda: t.address.is_a(Trade), "address is Address | None, never a Trade"),
    (lambda: t.address.is_a("Address"), "is_a takes a class, not 'Address'"),
    (lambda: t.anything.is_a(Priced), "Priced describes structure, and no object is derived"),
    # elements
    (lambda: t.quantity.any(lambda each: each == 1), "quantity is int, which has no elements for"),
    (lambda: t.lines.any(t.quantity == 1), "any takes a function of an element: write lines.any("),
    (lambda: t.lines.any(lambda each: each.prize > 5), "Line has no member 'prize'; did you mean"),
    (lambda: t.lines.all(lambda each: each), "which is no condition: compare it"),
    (lambda: t.tags.any(lambda each: each == 5), "is str, which is never equal to 5"),
    (lambda: t.tags.any(lambda _: True), "a filter over objects is needed, not True"),
    # comparisons of one's own
    (lambda: t.symbol.compare("mistakn", 1), "there is no comparison 'mistakn'; did you mean"),
    (lambda: t.symbol.compare("mistaken", t.price), "compares with a constant, not another part"),
    (lambda: register_comparison("mistaken", len), "there is a comparison 'mistaken' already"),
    (lambda: register_comparison("", len), "the name of a comparison is a text that is not empty"),
    (lambda: register_comparison("x", 5), "a comparison is a function of a value and a constant"),
    # combining
    (lambda: message(dict), "dict is no class of messages: a mapping is a plain event, which"),
    (lambda: message(list[int]), "list[int] is no class of messages: write a class with fields"),
    (lambda: (t.quantity == 1) & 5, "put the comparison in parentheses"),
    (lambda: (t.quantity == 1) & (attr("quantity") == 1), "is a filter over attributes, which can"),
    (lambda: bool(t.quantity == 1), "is neither true nor false before it meets an object"),
    (lambda: bool(t.is_open), "is_open is neither true nor false before there is a message"),
    (lambda: 1 < t.quantity < 5, "combine filters with & | ^ ~ instead of and, or, not"),
    (lambda: t.quantity & (t.price > 1), "quantity is int, which is no condition: compare it"),
    (lambda: t.symbol in ("a", "b"), "x in (a, b) is x.in_(a, b)"),
    (lambda: "x" in t.tags, "write tags.contains('x') instead of `in`"),
    (lambda: [each for each in t.lines], "lines cannot be iterated before there is a message"),
    (lambda: len(t.tags), "len(tags) is not known before there is a message: add a property"),
    (lambda: t.price * 2 > 5, "filters over objects do not compute with price: add a method"),
    (lambda: setattr(t, "price", 5), "a filter cannot change 'price': write == to compare"),
    (lambda: t.side == Shape.SQUARE, "side is Side, and Shape.SQUARE is not one of its members"),
]

FUNCTIONS: list[tuple[Callable[[], Any], str]] = [
    (lambda: where(Trade, lambda t: t.symbl == "A"), "Trade has no member 'symbl'; did you mean"),
    (lambda: where(Trade, lambda t: t.symbol == 5), "symbol is str, which is never equal to 5"),
    (
        lambda: where(Trade, lambda t: len(t.tags) > 3),
        "len is <built-in function len>, which is no constant",
    ),
    (lambda: where(Trade, lambda t: t.price * 2 > 3), "filters over objects do not compute with"),
    (lambda: where(Trade, lambda t: 1 if t.is_open else 0), "a filter has no `if`"),
    (lambda: where(Trade, lambda t: f"{t.symbol}" == "A"), "a text with {…} is not read"),
    (lambda: where(Trade, lambda t: (x := t.price) > 5), "a filter assigns nothing"),
    (lambda: where(Trade, lambda t: t.price is True), "`is` compares with None only"),
    (lambda: where(Trade, lambda t: t.symbol in "abc"), "`in` asks for an element of the message"),
    (lambda: where(Trade, lambda t: 1 < 2), "neither side is a part of the message"),
    (lambda: where(Trade, lambda t: HELPER == t.price), "which is no constant of a filter"),
    (lambda: where(Trade, lambda t: len(t.tags) > 1), "add a property that returns the length"),
    (lambda: where(Trade, lambda t: t.price > 5 if t.tags else t.price > 6), "has no `if`"),
    (lambda: where(Trade, lambda t: nowhere == t.price), "the name 'nowhere' has no meaning here"),  # noqa: F821
    (lambda: where(Trade, lambda t: t.symbol), "symbol is str, which is no condition"),
    (lambda: where(Trade, lambda t: t.tags[1:] == "a"), "a part of a sequence is not read"),
    (lambda: where(Trade, lambda t: any(t.tags)), "any takes a condition on each element"),
    (lambda: where(Trade, lambda t: any(x > 1 for x in COMPUTED)), "any goes over a part of the"),
    (lambda: where(Trade, lambda t: any([x == "a" for x in t.tags])), "any takes a condition on"),
    (lambda: where(Trade, lambda t: isinstance(t.address)), "isinstance takes a part of the mess"),
    (lambda: where(Trade, lambda t: -t.quantity > 5), "a constant is needed here"),
    (lambda: where(Trade, lambda t: t.quantity > 1 / 0), "this cannot be computed: division by"),
    (lambda: where(Trade, lambda t: t.quantity > 10**9), "this is not computed: do it before"),
    (lambda: where(Trade, lambda t: t.symbol.startswith(t.kind)), "a constant is needed here"),
    (lambda: where(Trade, lambda t: "abc".startswith(t.symbol)), "is no member of the message"),
    (lambda: where(Trade, lambda t: t._secret() == 1), "'_secret' is private to its class"),
    (lambda: where(Trade, lambda t, u: t.price > u), "a filter is a function of one message"),
    (lambda: where(Trade, lambda: True), "a filter is a function of one message"),
    (lambda: where(Trade, lambda t: (lambda: 1)() == t.price), "a function inside of a filter is"),
    (lambda: where(Trade, lambda t: {"a": 1} == t.meta), "a dictionary is no constant"),
    (lambda: where(Trade, lambda t: t.address == None), "in where `address is not None` or `addr"),  # noqa: E711
    (lambda: where(Trade, lambda t: t.quantity > -Side.BUY), "only a number has a sign"),
]


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES, ids=[s[:50] for _, s in MISTAKES])
def test_a_mistake_is_refused_when_the_filter_is_written(
    mistake: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises((FilterError, TypeError)) as caught:
        found = mistake()
        # A filter is asked for where the mistake is to use no filter.
        _ = (t.quantity == 1) & found
    assert sentence in str(caught.value)
    assert isinstance(caught.value, FilterTypeError), caught.value


@pytest.mark.parametrize(("mistake", "sentence"), FUNCTIONS, ids=[s[:50] for _, s in FUNCTIONS])
def test_a_function_that_cannot_be_read_is_refused_with_its_place(
    mistake: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises(FilterFunctionError) as caught:
        mistake()
    # The whole error shows the line, which has the sentence as well.
    assert sentence in str(caught.value).splitlines()[0]
    assert caught.value.file == __file__
    line, caret = str(caught.value).splitlines()[1:3]
    assert "where(Trade" in line
    assert 0 < caret.index("^") < len(line)


def test_there_are_many_mistakes() -> None:
    assert len(MISTAKES) + len(FUNCTIONS) >= 60
    assert len({sentence for _, sentence in (*MISTAKES, *FUNCTIONS)}) > 100


@pytest.mark.parametrize("given", [5, len, "lambda t: t.price > 5", Address])
def test_where_takes_functions_only(given: Any) -> None:
    with pytest.raises(FilterTypeError, match="where takes a lambda or a function"):
        where(Trade, given)


def test_a_function_without_source_is_refused() -> None:
    code = compile("lambda t: t.price > 5", "<made up>", "eval")
    with pytest.raises(FilterFunctionError, match=r"write the filter with message\(\) instead"):
        where(Trade, eval(code))  # noqa: S307 - our own text


def test_an_object_that_answers_everything_may_be_asked_everything() -> None:
    assert (message(Anything).whatever > 5).matches(Anything())
