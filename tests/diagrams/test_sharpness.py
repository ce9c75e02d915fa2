"""Single relations that must come out just so: neighbours on a line, and tests of text."""

from __future__ import annotations

import time

import pytest

from tamis.diagrams import (
    Relationship,
    compare,
    covers,
    equivalent,
    intersects,
    is_always,
    is_never,
)
from tamis.events import Event, Schema, attribute
from tamis.filters import Filter
from tamis.languages import parse

INTEGER = Schema({"x": "int"})
FLOAT = Schema({"x": "float"})
TIME = Schema({"x": "timestamp"})


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("x starts with 'ab'", "x starts with 'abc'"),
        ("x starts with 'a'", "x = 'abc'"),
        ("x contains 'b'", "x = 'abc'"),
        ("x contains 'b'", "x contains 'abc'"),
        ("x contains 'b'", "x starts with 'abc'"),
        ("x contains 'b'", "x ends with 'abc'"),
        ("x contains 'b'", "x like '%abc_d%'"),
        ("x ends with 'c'", "x ends with 'abc'"),
        ("x ends with 'c'", "x like 'a%bc'"),
        ("x starts with 'a'", "x like 'ab%c'"),
        ("x within 'xabcx'", "x within 'abc'"),
        ("x within 'a long text to look in'", "x within 'text to look'"),
        ("x within 'a long text to look in'", "x = 'long'"),
        ("x matches 'b+'", "x in ('abc', 'abbbc')"),
        ("x like 'a%'", "x starts with 'a'"),
        ("x = 'abc'", "x like 'abc'"),
        ("x contains 'bc'", "x matches 'abcd'"),
        ("x contains 'bc'", "x matches 'abcd[0-9]+'"),
        ("x starts with 'ab'", "x matches '^abc'"),
        ("x ends with 'c'", "x matches 'bc$'"),
        ("x >= 'a'", "x starts with 'ab'"),
        ("x < 'b'", "x starts with 'a'"),
        ("x != 'abc'", "x starts with 'b'"),
        ("x != 'abc'", "x ends with 'b' and x starts with 'abb'"),
        ("not (x contains 'z')", "x in ('a', 'b')"),
        ("x is text", "x matches '[a-z]'"),
        ("x is present", "x contains 'a'"),
        ("x is present", "not (x contains 'a')"),
        ("x contains 'a' or y = 1", "x contains 'ba' and z = 1"),
        ("x contains 'a' or x < 'n' or x >= 'm'", "x is text"),
        ("x has any bit 0b11", "x has all bits 0b110"),
        ("x has all bits 0b10", "x has all bits 0b110"),
        ("x in (1, 2, 3)", "x between 1 and 3 and x != 1.5 and x in (1, 2)"),
    ],
)
def test_covers_says_yes(wide: str, narrow: str) -> None:
    assert covers(parse(wide), parse(narrow)) == (True, True, None, "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 2"),
        ("x = 1", "x = true"),
        ("x = 'a'", "x contains 'b'"),
        ("x starts with 'a'", "x starts with 'b'"),
        ("x ends with 'a'", "x ends with 'ba' and x ends with 'aa'"),
        ("x ends with 'a'", "x ends with 'b'"),
        ("x within 'abc'", "x contains 'd'"),
        ("x within 'abc'", "x starts with 'ac'"),
        ("x < 'a'", "x starts with 'b'"),
        ("x like 'a%'", "x starts with 'b'"),
        ("x like '%a'", "x ends with 'b'"),
        ("x is absent", "x != 1"),
        ("x > 'a'", "x < 'a\\u0000'"),
        ("x has all bits 0b1", "not (x has any bit 0b11)"),
    ],
)
def test_intersects_says_no(one: str, other: str) -> None:
    assert intersects(parse(one), parse(other)) == (False, True, None, "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x contains 'a'", "x contains 'b'"),
        ("x starts with 'a'", "x ends with 'b'"),
        ("x starts with 'ab'", "x ends with 'ba' and x contains 'zz'"),
        ("x like 'a_c%'", "x contains 'q'"),
        ("x within 'a long text to look in'", "x starts with 'long'"),
        ("x != 'a'", "x starts with 'a'"),
        ("x > 'a'", "x < 'b'"),
        ("x matches 'abc'", "x matches 'def'"),
        ("x + y > 10", "x < 3"),
        ("x < y", "y < 0"),
        ("x > 9007199254740992", "x < 9007199254740994"),
        ("x is present", "not (x is a number) and not (x is text)"),
        ("x matches '[0-9]{3}'", "x starts with 'a'"),
        ("x matches '(a|b)c'", "not (x contains 'ac')"),
        ("x matches '^a[0-9]+$'", "x ends with '17'"),
        ("x contains 'a' and x contains 'b'", "not (x contains 'ab') and not (x contains 'ba')"),
        ("x like '%a_b%'", "x contains 'zz' and not (x contains 'axb')"),
        ("x like 'a_b%'", "x matches 'c{2}'"),
        ("x matches 'ab+'", "x matches '[cd]e'"),
        ("a contains 'a' and b contains 'b'", "c contains 'c' and d contains 'd'"),
    ],
)
def test_a_meeting_is_shown_by_an_event(one: str, other: str) -> None:
    left, right = parse(one), parse(other)
    answer = intersects(left, right)
    assert answer.exact
    event = answer.witness()
    assert event is not None
    assert left.matches(event)
    assert right.matches(event)


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("x > 1 and x < 2", INTEGER),
        ("x > 1.5 and x < 2", INTEGER),
        ("x = 1.5", INTEGER),
        ("x > 9223372036854775807", INTEGER),
        ("x < -9223372036854775808", INTEGER),
        ("x > 1 and x < 1.0000000000000002", FLOAT),
        ("x = 9007199254740993", FLOAT),
        ("x > 9007199254740992 and x < 9007199254740994", FLOAT),
        ("x > 1 and x < 1.0000000000000002", None),
        ("x > 9007199254740992 and x < 9007199254740993", None),
        ("x > timestamp '2026-01-01' and x < timestamp '2026-01-01T00:00:00.000001Z'", TIME),
        ("x > timestamp '9999-12-31T23:59:59.999999Z'", TIME),
        ("x < timestamp '0001-01-01'", TIME),
        ("x != true and x != false", None),
        ("x < ''", None),
        ("x is text", INTEGER),
    ],
)
def test_nothing_lies_between_neighbours(text: str, schema: Schema | None) -> None:
    assert is_never(parse(text), schema=schema) == (True, True, None, "")


def test_constants_that_are_no_floats_fall_between_those_that_are() -> None:
    assert covers(parse("x > 9007199254740995"), parse("x = 9007199254740996"), schema=FLOAT)
    assert equivalent(parse("x <= 9007199254740995"), parse("x < 9007199254740996"), schema=FLOAT)


def test_between_one_and_two_lie_floats_but_no_integer() -> None:
    between = parse("x > 1 and x < 2")
    assert is_never(between, schema=INTEGER)
    assert not is_never(between, schema=FLOAT)
    assert not is_never(between)


@pytest.mark.parametrize(
    ("mode", "expected"), [("sql", False), ("strict", False), ("default", True), ("total", True)]
)
def test_the_paradox_of_example_five(mode: str, expected: bool) -> None:
    joined = parse("price < 1000 or price > 500")
    integers = Schema({"price": attribute("int", default=0)})
    assert bool(is_always(joined, mode=mode, schema=integers)) is expected
    # Of floats it is never always true, because NaN satisfies no comparison.
    assert not is_always(joined, mode=mode, schema=Schema({"price": "float"}))


def test_several_values_meet_what_one_cannot() -> None:
    low, high = parse("x < 5"), parse("x > 10")
    assert not intersects(low, high)
    answer = intersects(low, high, many=True)
    assert answer
    assert answer.witness() == Event({"x": [0, 11]})
    assert covers(parse("x < 5 or x >= 5"), parse("x is a number"), many=True)
    assert equivalent(parse("not (x < 5)"), parse("x >= 5"))
    assert not equivalent(parse("not (x < 5)"), parse("x >= 5"), many=True)
    assert covers(parse("x has all bits 1"), parse("x has all bits 3"), many=True)
    assert not covers(
        parse("x has all bits 3"), parse("x has all bits 1 and x has all bits 2"), many=True
    )


@pytest.mark.parametrize(
    ("one", "other", "relationship"),
    [
        ("x < 5", "x < 5.0", Relationship.EQUAL),
        ("x < 5", "x < 3", Relationship.COVERS),
        ("x = 3", "x < 5", Relationship.COVERED),
        ("x < 5", "x > 3", Relationship.OVERLAPS),
        ("x < 5", "x > 7", Relationship.DISJOINT),
    ],
)
def test_compare_names_the_relationship(one: str, other: str, relationship: Relationship) -> None:
    found = compare(parse(one), parse(other))
    assert found.relationship is relationship
    assert found.exact


def parity(count: int, shift: int) -> Filter:
    return parse(" xor ".join(f"a{n} = {n + shift} or b{n} < {n}" for n in range(count)))


@pytest.mark.timing
def test_past_the_budget_the_answer_is_the_safe_one_and_says_so() -> None:
    one, other = parity(60, 0), parity(60, 1)
    start = time.thread_time()
    for answer, safe in (
        (covers(one, other, budget=200), False),
        (intersects(one, other, budget=200), True),
        (equivalent(one, other, budget=200), False),
        (is_never(one, budget=200), False),
        (is_always(one, budget=200), False),
    ):
        assert answer.yes is safe
        assert not answer.exact
        assert "budget of 200" in repr(answer)
    assert time.thread_time() - start < 5


@pytest.mark.timing
def test_filters_as_large_as_the_limits_allow_are_compared_in_bounded_time() -> None:
    members = ", ".join(str(n) for n in range(0, 2_000, 2))
    wide, narrow = parse(f"x in ({members})"), parse(f"x in ({members}) and y < 5")
    assert covers(wide, narrow).exact
    texts = " or ".join(f"x contains 't{n}'" for n in range(300))
    start = time.thread_time()
    covers(parse(texts), parse(texts.replace("contains", "ends with")))
    assert time.thread_time() - start < 10


def test_each_attribute_has_its_own_part_in_a_witness() -> None:
    text = " and ".join(f"{name} contains '{name}{name}'" for name in "abcdefgh")
    answer = is_never(parse(text))
    assert answer.exact
    assert answer.witness() == Event({name: name * 2 for name in "abcdefgh"})
