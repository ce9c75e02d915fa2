"""Siena filters: most cases are in `conformance/siena-*.json`; here is the rest."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tamis.errors import FilterSyntaxError, FilterTypeError, LimitError
from tamis.filters import FilterLimits
from tamis.languages import parse
from tamis.languages.siena import OPERATORS, apply, covers, intersects, triple


@pytest.mark.parametrize(
    ("filter_", "reason", "caret"),
    [
        ("(x, >)", '">" takes a value', 4),
        ("(x, >, )", 'expected a value, found ")"', 7),
        ("(x any 5)", '"any" takes no value', 3),
        ("(a = 1) (x < true)", "x < true: < has no meaning for a boolean; only = and != have", 11),
        ("(x = 1", '")" is missing at the end of the triple', 6),
        ("(x = 1) 5", 'expected a triple, found "5"', 8),
        ('[["x", ">"]]', '">" takes a value', 7),
        ('[["a", "=", 1], ["x", "*", 5]]', "x contains 5: contains takes a text", 27),
        ('[["x", "=", 1]', '"," or "]" is missing in the array', 14),
        ('[["x", "=" 1]]', '"," or "]" is missing in the array', 11),
        ('[["x", "=", tru]]', "this is not JSON: expecting value", 12),
        ('[["x", "=", 1e999]]', "1e999 is too large for a float", 12),
        ('[["x", "=", {}]]', "a triple holds texts, numbers and booleans only", 12),
        ('[\n  ["", "=", 1]]', "the name of an attribute is a text that is not empty", 5),
        ('[{"attribute": "x", "value": 1}]', 'the triple lacks its "op"', 1),
        (
            '[["x", "=", 123456789012345678901234567890]]',
            "an integer of 30 digits does not fit in 64 bits; send it as text or as a float",
            12,
        ),
    ],
)
def test_an_error_says_what_is_wrong_and_points_at_it(
    filter_: str, reason: str, caret: int
) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(filter_, "siena")
    assert caught.value.reason == reason
    assert caught.value.offset == caret


def test_text_that_is_not_unicode_is_refused_in_its_place() -> None:
    with pytest.raises(FilterSyntaxError, match="lone surrogate") as caught:
        parse('[["x", "=", "\\ud800"]]', "siena")
    assert caught.value.offset == 12


@pytest.mark.parametrize(
    ("filter_", "hint"),
    [
        ("(x = Stein)", 'text is written in quotes: "Stein"'),
        ("  ", "the filter that every event matches is {}"),
        ('{"attribute": "x"}', 'in JSON a filter is an array of triples: [["author", "=", "x"]]'),
    ],
)
def test_an_error_helps_where_it_can(filter_: str, hint: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(filter_, "siena")
    assert caught.value.hint == hint


def random_triples(rng: Random) -> list[list[Any]]:
    triples = []
    for _ in range(rng.randrange(4)):
        op = rng.choice(OPERATORS)
        if op == "any":
            triples.append([rng.choice("ab"), op])
            continue
        values: list[Any] = [0, -3, 2.5, "x", 'say "hi"\\']
        if op in ("=", "!="):
            values.append(True)
        elif op in ("*", ">*", "*<"):
            values = ["", "x", "ä\n"]
        elif op.endswith(("bit", "bits")):
            values = [0, 5, 2**64 - 1]
        triples.append([rng.choice("ab"), op, rng.choice(values)])
    return triples


def as_text(triples: list[list[Any]], rng: Random) -> str:
    """Write triples in one of the many ways there are."""
    comma = rng.choice((", ", " ", ","))

    def part(value: Any) -> str:
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)

    inside = rng.choice((" ", ", ", "")).join(
        f"({comma.join([name, op, *map(part, value)])})" for name, op, *value in triples
    )
    return f"{{{inside}}}" if not triples or rng.random() < 0.5 else inside


def test_json_and_text_in_all_their_forms_say_the_same() -> None:
    rng = Random(5)
    for _ in range(2_000):
        triples = random_triples(rng)
        objects = [dict(zip(("attribute", "op", "value"), t, strict=False)) for t in triples]
        expected = parse(json.dumps(triples), "siena")
        assert parse(json.dumps(objects), "siena") == expected
        text = as_text(triples, rng)
        assert parse(text, "siena") == expected, text


def test_a_filter_with_too_many_triples_is_refused() -> None:
    with pytest.raises(LimitError, match="atoms"):
        parse("(x any)" * 5, "siena", limits=FilterLimits(atoms=4))


def test_a_text_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(LimitError, match="characters"):
        parse("[" * 20_000, "siena")


@pytest.mark.parametrize("opening", ["[", '[{"attribute":', '[["x","=",', "{", "(", "(x,"])
def test_nonsense_without_end_is_a_syntax_error(opening: str) -> None:
    with pytest.raises(FilterSyntaxError):
        parse(opening * (16_000 // len(opening)), "siena")


# --- the procedures of the paper ------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        (">", 5, 7, True),
        (">", 7, 5, False),
        ("*", "Stein", "John Steinbeck", True),
        (">*", "John", "John Steinbeck", True),
        ("*<", "beck", "John Steinbeck", True),
        ("any", None, False, True),
        ("=", 1, True, False),
        ("!=", "a", 5, False),
        ("all-bits", 0b101, 0b111, True),
        ("any-bit", 0b101, 0b010, False),
    ],
)
def test_apply_puts_the_value_of_the_event_on_the_left(
    op: str, a: Any, b: Any, expected: bool
) -> None:
    assert apply(op, a, b) is expected


def test_table_2_of_the_paper() -> None:
    assert intersects("=", 3, "<", 5)
    assert not intersects("=", 5, "<", 5)
    assert intersects("<", 3, "<", 5)
    assert intersects(">", 3, ">", 5)
    assert intersects("<", 5, ">", 3)
    assert not intersects("<", 3, ">", 3)


def test_covers_and_intersects_report_whether_they_are_certain() -> None:
    answer = covers("*", "a", ">*", "ba")
    assert answer
    assert answer.exact
    assert covers("any", None, "!=", 5)
    assert not covers("!=", 5, "any", None)


def test_an_operator_that_is_none_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(FilterTypeError, match=r"all-bits"):
        triple("x", "like", "a")
