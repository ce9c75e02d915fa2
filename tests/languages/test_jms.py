"""JMS selectors: the standard's cases are in `conformance/jms-*.json`; here is the rest."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from languages.jms_reference import Chance, is_computable, text_of, value_of
from seeds import seeds
from tamis.errors import FilterSyntaxError, LimitError
from tamis.events import Event, Schema
from tamis.filters import FilterLimits
from tamis.languages import parse

CONFORMANCE = Path(__file__).parent.parent.parent / "conformance"


def test_there_are_at_least_150_conformance_cases_and_each_names_its_rule() -> None:
    cases = [
        case
        for path in CONFORMANCE.glob("jms-*.json")
        for case in json.loads(path.read_text(encoding="utf-8"))["filters"]
    ]
    assert len(cases) >= 150
    assert all(case.get("why") for case in cases)


@pytest.mark.parametrize("seed", seeds(8))
def test_random_selectors_mean_what_an_evaluator_written_from_the_standard_says(seed: int) -> None:
    chance = Chance(seed=seed)
    pairs = matching = 0
    while pairs < 4_000:
        selector = chance.condition(depth=3)
        if not is_computable(selector):
            continue
        text = text_of(selector)
        filter_ = parse(text, "jms", limits=FilterLimits(atoms=100_000))
        for _ in range(5):
            message = chance.message()
            expected = value_of(selector, message) is True
            assert filter_.matches(message) is expected, (text, message, str(filter_))
            pairs += 1
            matching += expected
    assert 0.2 < matching / pairs < 0.8


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "reason", "caret"),
    [
        ("name < 'a'", "text can be compared with = and <> only", 5),
        ("a = 1 AND name >= 'a'", "text can be compared with = and <> only", 15),
        ("flag > FALSE", "a boolean can be compared with = and <> only", 5),
        ("x = 'open", "this ' is never closed", 4),
        ("a IN ('x', 5)", '"IN" takes text in single quotes, not "5"', 11),
        ("a LIKE b", '"LIKE" takes text in single quotes, not "b"', 7),
        ("a LIKE 'x' ESCAPE '!!'", '"ESCAPE" takes one character, not 2', 18),
        (
            "a LIKE 'x!y' ESCAPE '!'",
            "the escape character ! precedes y; it may precede %, _ or itself",
            7,
        ),
        ("a NOT IS NULL", '"NOT" belongs after "IS"', 2),
        ("a IS 5", 'expected "NULL" or "NOT NULL" after "IS"', 5),
        ("a = 012389", "012389 is not a number as Java writes it", 4),
        ("a + 'x' > 3", '"x" is not a number, so a + "x" has no value', 2),
        ("b = 1 AND a = NULL", '"NULL" is a reserved word and cannot be used here', 14),
        ('a = "x"', "text is written in single quotes, not in double quotes", 4),
        ("a NOT BETWEEN 1", '"BETWEEN" needs "AND" and a second value', 6),
        ("a = b +", "a condition or value is missing at the end", 7),
        ("x > ½", '"½" is not allowed in a name, as in "½"', 4),
        ("x AND 5", "5 is not a condition", 6),
        ("x = 'a' < 5", "two comparisons in a row", 8),
    ],
)
def test_an_error_says_what_is_wrong_and_points_at_it(
    selector: str, reason: str, caret: int
) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(selector, "jms")
    assert caught.value.reason.lower() == reason.lower()
    assert caught.value.offset == caret


def test_an_error_shows_the_line_with_a_caret() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse("colour = 'blue'\nAND weight => 5", "jms")
    assert str(caught.value).endswith("  AND weight => 5\n             ^")


@pytest.mark.parametrize(
    ("selector", "hint"),
    [
        ("a != 5", 'write "<>"'),
        ("a = NULL", 'test for it with "IS NULL" or "IS NOT NULL"'),
        ("a = 09", "a leading 0 makes it octal, with the digits 0 to 7"),
        ("a betwen 1 AND 2", 'did you mean "between"?'),
        ("a NOT = 5", 'write "<>"'),
        (
            "REGEX('a+', name)",
            'REGEX is an extension of ActiveMQ; use LIKE, or the language tamis with "matches"',
        ),
        (
            "a = 1 AND XPATH '//b'",
            "XPATH is an extension of ActiveMQ; Tamis does not look into XML",
        ),
        ("XQUERY 'x'", "XQUERY is an extension of ActiveMQ; Tamis does not look into XML"),
        ("a % 2 = 1", "there is no remainder operator"),
        ("UPPER(a) = 'X'", "there are no functions"),
        ("a =~ 'x'", 'use LIKE, or the language tamis with "matches"'),
        ("a ~ 'x'", 'use LIKE, or the language tamis with "matches"'),
    ],
)
def test_an_error_helps_where_it_can(selector: str, hint: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(selector, "jms")
    assert caught.value.hint == hint


@pytest.mark.parametrize("blank", ["\xa0", "\x0b", "\x1c", "\x85", "\u2003", "\u2028", "\u3000"])
def test_only_javas_white_space_is_white_space(blank: str) -> None:
    """The standard lists space, tab, form feed and line ends, as Java has them."""
    assert parse("a\t=\f1\r\nAND b = 2", "jms") == parse("a = 1 AND b = 2", "jms")
    for selector in (f"a{blank}= 1", f"a = 1{blank}", blank, f"a = 1 AND{blank}b = 2"):
        with pytest.raises(FilterSyntaxError) as caught:
            parse(selector, "jms")
        assert f"U+{ord(blank):04X}" in caught.value.reason
        assert caught.value.text[caught.value.offset] == blank
    assert parse(f"a = '{blank}'", "jms").matches({"a": blank})


# --- the translation ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "filter_"),
    [
        ("JMSType = 'car' AND weight > 2500", 'JMSType = "car" and weight > 2500'),
        ("age BETWEEN 15 AND 19", "age between 15 and 19"),
        ("age NOT BETWEEN 15 AND 19", "age < 15 or age > 19"),
        ("flag OR NOT (price IS NULL)", "flag = true or price is present"),
        ("NOT (x = 5)", "not (x = 5 and (x is a number or x is absent))"),
        ("NOT (x = 5 AND NOT (y = 5))",
         "not (x = 5 and (x is a number or x is absent) and not (y = 5))"),
        ("a < b", "a < b and a is a number and b is a number"),
        ("+x > 1", "0 + x > 1"),
    ],
)  # fmt: skip
def test_only_what_is_negated_is_made_longer(selector: str, filter_: str) -> None:
    assert str(parse(selector, "jms")) == filter_


def test_the_translation_reads_back_in_the_tamis_language_with_the_same_meaning() -> None:
    chance = Chance(seed=3)
    for _ in range(300):
        selector = chance.condition(depth=2)
        if is_computable(selector):
            filter_ = parse(text_of(selector), "jms")
            again = parse(str(filter_))
            message = Event(chance.message())
            assert again.matches(message) == filter_.matches(message)


def test_text_compares_with_timestamps_where_the_schema_has_them() -> None:
    schema = Schema({"at": "timestamp"})
    filter_ = parse("NOT (at = '2024-05-01T00:00:00Z')", "jms")
    assert filter_.matches({"at": "2024-05-02T00:00:00Z"}, schema=schema)
    assert not filter_.matches({"at": "2024-05-01T02:00:00+02:00"}, schema=schema)
    assert not filter_.matches({}, schema=schema)


# --- limits ---------------------------------------------------------------------------------


def test_deep_nesting_is_refused_without_recursion() -> None:
    with pytest.raises(LimitError):
        parse("(" * 10_000 + "a" + ")" * 4_000, "jms", limits=FilterLimits(text=100_000))


def test_the_atoms_that_the_translation_adds_are_counted() -> None:
    selector = "NOT (" + " OR ".join(f"x = {n}" for n in range(400)) + ")"
    with pytest.raises(LimitError, match="atoms"):
        parse(selector, "jms")
    assert parse(selector, "jms", limits=FilterLimits(atoms=1200)).matches({"x": 500})


@pytest.mark.timing
@pytest.mark.parametrize(
    "text",
    ["1" * 15_000, "1_" * 8_000, "'" * 16_001, "a." * 8_000, "0x" + "f" * 16_000, "- " * 8_000],
    ids=["digits", "underscores", "quotes", "dots", "hexadecimal", "signs"],
)
def test_long_nonsense_is_refused_in_linear_time(text: str) -> None:
    began = time.thread_time()
    with pytest.raises((FilterSyntaxError, LimitError)):
        parse(f"a = {text}"[: 16 * 1024], "jms")
    assert time.thread_time() - began < 1
