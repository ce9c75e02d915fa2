"""The reference semantics, case by case: what a filter means on an event."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from tamis.errors import EventError, FilterError, FilterTypeError, LimitError, SchemaError
from tamis.events import Bits, Schema, attribute
from tamis.filters import FALSE, TRUE, Filter, FilterLimits, all_of, any_of, attr
from tamis.languages import parse

BIG = 2**53


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        # Integers and floats compare exactly.
        (f"x = {BIG}", BIG + 1, False),
        (f"x = {BIG}", float(BIG), True),
        (f"x > {BIG}.0", BIG + 1, True),
        ("x = 1", 1.0, True),
        ("x < 0.3", 0.1 + 0.2, False),
        ("x <= 9223372036854775807", 2**63 - 1, True),
        ("x >= -9223372036854775808", -(2**63), True),
        # NaN satisfies no comparison, and no negation of one.
        ("x = 1", math.nan, False),
        ("x != 1", math.nan, False),
        ("not (x = 1)", math.nan, False),
        ("x is present", math.nan, True),
        ("x is a number", math.nan, False),
        ("x < 1", -math.inf, True),
        # A value of another kind counts as absent.
        ("x = 1", True, False),
        ("x = true", 1, False),
        ("x != 1", "1", False),
        ("not (x = 1)", "1", False),
        ("x is text", "1", True),
        # Texts.
        ("x < 'b'", "a", True),
        ("x < 'b'", "B", True),
        ("x contains 'PC'", "a PC AT", True),
        ("x within 'abc'", "bc", True),
        ("x within 'abc'", "", True),
        ("x within 'abc'", "ac", False),
        ("x starts with 'ab'", "abc", True),
        ("x ends with 'bc'", "abc", True),
        ("x like 'a_c%'", "abcd", True),
        ("x like 'a_c'", "abcd", False),
        ("x like '%'", "with\nnewline", True),
        ("x like '10\\\\%'", "10%", True),
        ("x like '10\\\\%'", "100", False),
        ("x like '_'", "é", True),
        ("x matches 'b+'", "abba", True),
        ("x matches '^b'", "abba", False),
        ("x between 1 and 2", 2, True),
        ("x between 2 and 1", 1.5, False),
        ("x in (1, 2)", 2.0, True),
        # Several values: some value passes; `!=` is some other value, `not` is none equal.
        ("x = 1", [1, 2], True),
        ("x != 1", [1, 2], True),
        ("not (x = 1)", [1, 2], False),
        ("x < 2 and x > 8", [1, 9], True),
        ("x between 2 and 8", [1, 9], False),
        ("x = 1", ["1", 1], True),
        ("x is present", [], False),
        ("x has all bits 0b11", [Bits([0]), Bits([1])], False),
        ("x has any bit 0b11", [Bits([2]), Bits([1])], True),
        ("x has all bits 0b101", Bits([0, 1, 2]), True),
        ("x has all bits 0", Bits(), True),
        ("x has any bit 0", Bits([1]), False),
        ("x > timestamp '2026-01-01'", datetime(2026, 1, 1, 0, 0, 0, 1, UTC), True),
        ("x + 1 > 2", [0, 2], True),
        ("x * x = 4", [2, -2], True),
        ("x / 0 = 1 or x = 2", 2, True),
        ("not (x / 0 = 1)", 2, False),
        (f"x * {BIG} > 0 or not (x * {BIG} > 0)", BIG, False),
        ("x div 2 = 3", 7, True),
        ("x div 2 = -3", -7, True),
        ("x / 2 = 3.5", 7, True),
        ("x = x", "a", True),
        ("x < x", True, False),
    ],
)
def test_a_filter_on_one_attribute(text: str, value: object, expected: bool) -> None:
    assert parse(text).matches({"x": value}) is expected


def test_too_many_combinations_of_values_leave_a_comparison_unknown() -> None:
    many = list(range(16))
    filter_ = parse("a < b or not (a < b)")
    assert filter_.matches({"a": many[:8], "b": many})
    assert not filter_.matches({"a": many, "b": many})


TRUTH_TABLE = [
    # x absent is unknown: not, and, or, xor as in SQL.
    ("not (x = 1)", {}, False),
    ("x = 1 or y = 1", {"y": 1}, True),
    ("x = 1 and y = 1", {"y": 1}, False),
    ("not (x = 1 and y = 1)", {"y": 2}, True),
    ("not (x = 1 and y = 1)", {"y": 1}, False),
    ("x = 1 xor y = 1", {"y": 1}, False),
    ("x = 1 xor y = 1", {"x": 2, "y": 1}, True),
    ("x is absent", {}, True),
    ("not (x is present)", {}, True),
    ("true", {}, True),
    ("false or not false", {}, True),
]


@pytest.mark.parametrize(("text", "event", "expected"), TRUTH_TABLE)
def test_absence_in_mode_sql(text: str, event: dict[str, object], expected: bool) -> None:
    assert parse(text).matches(event) is expected


@pytest.mark.parametrize(
    ("text", "event", "expected"),
    [
        ("x = 1 or y = 1", {"y": 1}, False),
        ("not (x = 1)", {"x": "1"}, False),
        ("x is absent or y = 1", {"y": 1}, True),
        ("x is absent", {}, True),
        ("x / y > 1 or x = 1", {"x": 1, "y": 0}, False),
    ],
)
def test_strict_asks_for_everything_compared(
    text: str, event: dict[str, object], expected: bool
) -> None:
    assert parse(text).matches(event, mode="strict") is expected


def test_default_puts_the_schemas_values_for_what_is_absent() -> None:
    schema = Schema({"x": attribute("int", default=1), "y": "int"})
    assert parse("x = 1").matches({}, "default", schema)
    assert parse("x is present").matches({}, "default", schema)
    assert not parse("x = 1").matches({"x": 2}, "default", schema)
    assert parse("not (y = 1)").matches({}, "default", schema)


def test_total_needs_a_schema_and_every_attribute() -> None:
    schema = Schema({"x": "int", "y": "int"})
    with pytest.raises(SchemaError, match="needs a schema"):
        parse("x = 1").matches({"x": 1}, "total")
    with pytest.raises(EventError, match="y: the event lacks it"):
        parse("x = 1").matches({"x": 1}, "total", schema)
    assert parse("x = 1").matches({"x": 1, "y": 2}, "total", schema)


def test_an_unknown_mode_is_named_with_those_there_are() -> None:
    with pytest.raises(FilterError, match="'total', 'strict', 'default', 'sql'"):
        parse("x = 1").matches({}, "maybe")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("prise < 5", "no attribute 'prise'; did you mean \"price\"?"),
        ("price = 'a'", "price = \"a\" asks for text, but the schema declares price as 'float'"),
        ("name < 5", "declares name as 'str'"),
        ("at > 'yesterday'", "declared as 'timestamp', but 'yesterday' is not a timestamp"),
        ("at contains '2026'", "declared as 'timestamp', which has no"),
        ("price < name", "compares a number with text"),
        ("price + name > 3", "name is text, so price + name has no value"),
        ("flags = flags", "= has no meaning for a bit set"),
    ],
)
def test_a_filter_that_contradicts_the_schema_is_refused(text: str, reason: str) -> None:
    schema = Schema({"price": "float", "name": "str", "at": "timestamp", "flags": "bits"})
    with pytest.raises(FilterTypeError) as caught:
        parse(text).bind(schema)
    assert reason in str(caught.value)


def test_texts_become_timestamps_where_the_schema_says_so() -> None:
    schema = Schema({"at": "timestamp"})
    bound = parse("at >= '2026-01-01' and at in ('2026-01-02') or at between '2025' and '2027'")
    with pytest.raises(FilterTypeError):
        bound.bind(schema)
    bound = parse("at >= '2026-01-01' and at between '2025-01-01' and '2027-01-01T01:00+01:00'")
    assert str(bound.bind(schema)) == (
        'at >= timestamp "2026-01-01T00:00:00Z" and at between '
        'timestamp "2025-01-01T00:00:00Z" and timestamp "2027-01-01T00:00:00Z"'
    )


def test_filters_are_built_in_python_as_they_are_parsed() -> None:
    price, company = attr("price"), attr("company")
    built = (price < 1000) & company.in_("IBM", "Dell") | ~price.between(1, 2) ^ (price == 5)
    assert built == parse(
        'price < 1000 and company in ("IBM", "Dell") or (not (price between 1 and 2) xor price = 5)'
    )
    assert (price < 5) == parse("price < 5")
    assert (2 * price + 1 >= attr("cost")) == parse("2 * price + 1 >= cost")
    assert (-price / 2 > 1) == parse("(0 - price) / 2 > 1")
    assert all_of() is TRUE
    assert any_of() is FALSE
    assert all_of(TRUE) is TRUE


@pytest.mark.parametrize(
    "misuse",
    [
        lambda f: f and f,
        lambda f: not f,
        bool,
        lambda _: 1 < attr("x") < 5,
    ],
)
def test_a_filter_used_as_a_truth_value_says_what_to_write_instead(misuse: object) -> None:
    with pytest.raises(TypeError, match=r"combine filters with & \| \^ ~"):
        misuse(attr("x") == 1)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: attr("x") == None, "is_present() or is_absent()"),  # noqa: E711
        (lambda: attr("x") < math.inf, "cannot be compared with inf"),
        (lambda: attr("x").in_(math.nan), "cannot be compared with nan"),
        (lambda: attr("x") == 2**63, "does not fit in 64 bits"),
        (lambda: attr("x") < True, "< has no meaning for a boolean"),
        (lambda: attr("x") == Bits([1]), "use has_all_bits"),
        (lambda: attr("x").in_(), "the list is empty"),
        (lambda: attr("x").in_(1, "a"), "a number and with text"),
        (lambda: attr("x").between(True, False), "no order of a boolean"),
        (lambda: attr("x").contains(5), "contains takes a text"),  # type: ignore[arg-type]
        (lambda: attr("x").matches("("), "has a ( that nothing closes"),
        (lambda: attr("x").has_all_bits([64]), "from 0 to 63"),
        (lambda: attr("x") == "\ud800", "lone surrogate"),
        (lambda: attr(""), "not empty"),
        (lambda: attr("x") == datetime(2026, 1, 1), "no time zone"),
        (lambda: attr("x") + 1 / attr("y") > 1j, "a value of type 'complex'"),
    ],
)
def test_a_constant_that_no_filter_can_hold_is_refused(build: object, reason: str) -> None:
    with pytest.raises(FilterTypeError) as caught:
        build()  # type: ignore[operator]
    assert reason in str(caught.value)


def test_equal_filters_are_equal_and_the_kind_of_a_constant_counts() -> None:
    assert parse("x = 1.0") == parse("x = 1")
    assert parse("x = true") != parse("x = 1")
    assert parse("x * 2.0 > y") != parse("x * 2 > y")
    assert len({parse("x = 1"), parse("x = true"), parse("x=1")}) == 2


def test_limits_hold_for_filters_built_in_python_too() -> None:
    def deeper(filter_: Filter, levels: int) -> Filter:
        for number in range(levels):
            filter_ = (filter_ & (attr("x") == number)) | (attr("y") == number)
        return filter_

    assert deeper(attr("x") == 0, 100).depth == 200
    with pytest.raises(LimitError, match="levels inside the filter"):
        deeper(attr("x") == 0, 101)
    with pytest.raises(LimitError, match="atoms in the filter"):
        FilterLimits().check(attr("x").in_(*range(1025)))
    with pytest.raises(LimitError, match="levels inside the filter: 2 exceeds the limit of 1"):
        FilterLimits(depth=1).check(~((attr("x") == 1) & (attr("y") == 1)))


# --- three truth values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("price < 5", "sql", True),
        ("price > 5", "sql", False),
        ("size > 5", "sql", None),
        ("not (size > 5)", "sql", None),
        ("price = 'x'", "sql", None),
        ("price > 5 and size > 5", "sql", False),
        ("price < 5 or size > 5", "sql", True),
        ("price > 5 or size > 5", "sql", None),
        ("size is present", "sql", False),
        ("price < 5 or size > 5", "strict", None),
        ("price < 5", "strict", True),
        ("size > 5", "default", False),
        ("not (size > 5)", "default", True),
    ],
)
def test_the_truth_of_a_filter_is_true_false_or_unknown(
    text: str, mode: str, expected: bool | None
) -> None:
    filter_ = parse(text)
    assert filter_.truth({"price": 4}, mode) is expected
    assert filter_.matches({"price": 4}, mode) is (expected is True)


def test_the_truth_of_a_filter_follows_the_schema() -> None:
    schema = Schema({"at": "timestamp", "size": attribute("int", default=9)})
    assert parse("at < '2026-01-01'").truth({"at": "2025-01-01"}, schema=schema) is True
    assert parse("size > 5").truth({}, "default", schema) is True
    assert parse("size > 5").truth({}, "sql", schema) is None
