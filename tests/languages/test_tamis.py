"""The Tamis language: what it reads, how it prints, what it says about mistakes."""

from __future__ import annotations

import time
from random import Random

import pytest

from seeds import seeds
from tamis.errors import FilterError, FilterSyntaxError, LimitError
from tamis.filters import FilterLimits
from tamis.languages import LANGUAGES, parse


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (
            "company in ('IBM', \"Dell\") and product contains 'PC' and price <= 1000",
            'company in ("IBM", "Dell") and product contains "PC" and price <= 1000',
        ),
        ("not (year between 79 and 90)", "not (year between 79 and 90)"),
        ("NAME starts WITH 'x' OR Price Is Present", 'NAME starts with "x" or Price is present'),
        ("a = 1 or b = 2 and c = 3 xor d = 4", "a = 1 or b = 2 and c = 3 xor d = 4"),
        ("(a = 1 or b = 2) and c = 3", "(a = 1 or b = 2) and c = 3"),
        ("a = 1 and (b = 2 and c = 3)", "a = 1 and b = 2 and c = 3"),
        ("not not a = 1", "a = 1"),
        ("not a is absent", "a is present"),
        ("a is not present or a is null", "a is absent or a is absent"),
        ("a is not a bit set", "not (a is a bit set)"),
        ("a not in (1) and b not contains 'x'", 'not (a in (1)) and not (b contains "x")'),
        ("5 < a and 'x' = b", 'a > 5 and b = "x"'),
        ("a == 1 and b <> 2", "a = 1 and b != 2"),
        ("a = -5 and b > +3 and c < -.5e1", "a = -5 and b > 3 and c < -5"),
        ("a between -1 and b + 1 and c = 2", "a >= -1 and a <= b + 1 and c = 2"),
        ("a not between 1 and 2", "not (a between 1 and 2)"),
        ("(price * (1 + tax)) > 2 * 500", "price * (1 + tax) > 1000"),
        ("a - (b - c) - d = 0", "a - (b - c) - d = 0"),
        ("a / b / c > a div (b * c)", "a / b / c > a div (b * c)"),
        ("-a < 1", "0 - a < 1"),
        ("`a``b` = 'q\"\\'\\\\\\n\\u0041\\ud83d\\ude00'", '`a``b` = "q\\"\'\\\\\\nA😀"'),
        ("ⅿ = true and `²` = 1", "ⅿ = true and ² = 1"),
        ("order.items.sku = 'a' and été = 1", 'order.items.sku = "a" and été = 1'),
        ("f has all bits 5 and f has any bit 0x3", "f has all bits 0b101 and f has any bit 0b11"),
        ("1 < 2 and 'a' != 'b'", "true and true"),
        ("true = a", "a = true"),
        ("true", "true"),
        ("at > timestamp '2026-11-15 04:02:00+01:00'", 'at > timestamp "2026-11-15T03:02:00Z"'),
    ],
)
def test_a_filter_prints_back_as_it_was_understood(text: str, printed: str) -> None:
    filter_ = parse(text)
    assert str(filter_) == printed
    assert parse(printed) == filter_


@pytest.mark.parametrize(
    ("text", "reason", "hint", "caret"),
    [
        ("price <", "a condition or value is missing at the end", "", 7),
        ("", "the filter is empty", "", 0),
        ('product contans "PC"', "expected an operator", '"contains"', 8),
        ("a = 1 && b = 2", "expected an operator", 'write "and"', 6),
        ("! a = 1", "expected a condition or value", 'write "not"', 0),
        ("(a = 1", 'this "(" is never closed', "", 0),
        ("a = 1)", 'this ")" has no matching "("', "", 5),
        ("1 < a < 5", "two comparisons in a row", '"between"', 6),
        ('a = "abc', 'this " is never closed', "", 4),
        ('a = "abc\\"', 'this " is never closed', "", 4),
        ("`a = 1", "this ` is never closed", "", 0),
        ("in = 5", '"in" is a reserved word', "write `in`", 0),
        ("active and b = 1", "active is not a condition", "write active = true", 0),
        ("b = 1 and active", "active is not a condition", "write active = true", 10),
        ("a + 1", "a + 1 is not a condition", "", 2),
        ("items[0].sku = 1", "elements are tested, and not counted", "write items.… for any", 6),
        ("items[*].sku = 1", "elements are tested, and not counted", "write items.… for any", 6),
        ('a in (1, "a")', "a is compared with a number and with text", "", 12),
        ("a in (b)", 'expected a value, found "b"', "", 6),
        ("a in 1", '"(" is missing after "in"', "", 5),
        ("a in (1 2)", '")" is missing at the end of the list', "", 8),
        ("a = 9223372036854775808", "does not fit in 64 bits", "", 4),
        ("a = 99999999999999999999999", "does not fit in 64 bits", "decimal point", 4),
        ("a = 1e999", "beyond the largest float", "", 4),
        ("a between 1", '"between" needs "and"', "", 2),
        ("a is presnt", 'expected "present"', '"present"', 5),
        ("a = 1 b", 'expected an operator, found "b"', "", 6),
        ("a matches '('", "has a ( that nothing closes", "", 10),
        ("(a = 1) + 2 > 3", 'on both sides of "+"', "", 8),
        ("a contains 5", '"contains" takes a text in quotes', "", 11),
        ("a < true", "< has no meaning for a boolean", "", 2),
        ("a = '\\q'", "stands for nothing", "two backslashes", 4),
        ("a = '\\ud800'", "lone surrogate", "", 4),
        ("a like 'x\\\\'", "a backslash precedes the end", "", 7),
        ("a = #", 'found "#"', "", 4),
        ("a = timestamp 'soon'", "'soon' is not a timestamp", "", 14),
        ("a has all bits 1.5", "a bit mask such as 0b101", "", 15),
        ("a has all bits 'x'", "a bit mask such as 0b101, found the text 'x'", "", 15),
        ("a has all bits 0x10000000000000000", "64 bits at the most", "", 15),
        ("a / 0 = 1 / 0", "1 / 0 has no value", "", 10),
        ("5 contains 'a'", '"contains" belongs after an attribute', "", 2),
        ("-'a' = b", 'only a number can have a "-"', "", 1),
        ("a + 'b' > 1", '"b" is not a number', "", 2),
        ("٣ = a", 'found "٣"', "", 0),
        # What other languages have.
        ("x ~ 'a'", 'expected an operator, found "~"', 'write "matches"', 2),
        ("x ~ not in ('a')", 'found "~"', 'write "not ~in"', 2),
        ("x ~not starts with 'a'", 'found "~"', 'write "not ~starts with"', 2),
        ("x ~not = 'a'", 'found "~"', 'write "not" before the attribute', 2),
        ("x ~ = 'a'", 'found "~"', 'write "~="', 2),
        ("x ~ Contains 'a'", 'found "~"', 'write "~contains"', 2),
        ("x ~ ends with 'a'", 'found "~"', 'write "~ends with"', 2),
        ("x ~is present", 'found "~"', '"is" has no variant that ignores case', 2),
        ("x ~has all bits 3", 'found "~"', '"has" has no variant that ignores case', 2),
        ("x ~~ 'b'", 'found "~"', 'write "like"', 2),
        ("x ~~* 'b'", 'found "~"', 'write "~like"', 2),
        ("x ~* 'b'", 'found "~"', 'write "~matches"', 2),
        ("x ~regex 'b'", 'found "~"', 'write "~matches"', 2),
        ("x ~startswith 'b'", 'found "~"', 'write "~starts with"', 2),
        ("x !~* 'b'", 'found "!~"', 'write "not ~matches"', 2),
        ("x !~~ 'b'", 'found "!~"', 'write "not like"', 2),
        ("x =~ 'a'", 'expected an operator, found "=~"', 'write "matches"', 2),
        ("x !~ 'a'", 'expected an operator, found "!~"', 'write "not matches"', 2),
        ("~ x = 1", 'expected a condition or value, found "~"', 'write "not"', 0),
        ("x not = 3", '"not" cannot stand before "="', 'write "!="', 2),
        ("x not < 3", '"not" cannot stand before "<"', 'write "not" before the whole comp', 2),
        ("x ! = 3", 'expected an operator, found "!"', 'write "!="', 2),
        ("x === 3", 'found "==="', 'write "="', 2),
        ("x => 3", 'found "=>"', 'write ">="', 2),
        ("x =< 3", 'found "=<"', 'write "<="', 2),
        ("x % 2 = 1", 'found "%"', "there is no remainder operator", 2),
        ("x regexp 'a'", 'found "regexp"', 'write "matches"', 2),
        ("x icontains 'a'", 'found "icontains"', 'write "~contains"', 2),
        ("x equals 5", 'found "equals"', 'write "="', 2),
        ("lower(x) = 'a'", 'found "("', "there are no functions", 5),
        ("x = 1; y = 2", 'found ";"', 'join conditions with "and"', 5),
        ("x = 1, y = 2", 'found ","', 'join conditions with "and"', 5),
        ("x = “a”", 'found "“"', "write straight quotes", 4),
        ("x = 1 # cheap", 'found "#"', "a filter has no comments", 6),
        ("x in [1, 2]", '"(" is missing after "in"', "write ( and ) around the list", 5),
        ('x in "10.0.0.0/8"', "a network has no quotes", 'write "in 10.0.0.0/8"', 5),
        ("x not in '2001:db8::/32'", "a network has no quotes", 'write "in 2001:db8::/32"', 9),
        ("x in 10.0.0/8", '"10.0.0/8" is not a network: the', 'write "in 10.0.0.0/8"', 5),
        ("x in (10/8)", '"10/8" is not a network: the', 'write "in 10.0.0.0/8"', 6),
        ("x in 192.168/16 and y = 1", "four numbers", 'write "in 192.168.0.0/16"', 5),
        ("x = 10.0.0.0/8", 'a network stands after "in": write "in 10.0.0.0/8"', "", 4),
        ('x in "a"', '"(" is missing after "in"', "", 5),
        ("x = [1, 2]", 'found "["', 'write "in (…)"', 4),
        ("x is 5", 'after "is"', 'write "="', 5),
        ("x > 5 and < 10", 'found "<"', "name the attribute again", 10),
        ("x = 1 or 2", "2 is not a condition", 'write a whole comparison, or "in (…)"', 9),
        ("x not null", 'found "null"', 'write "is null" or "is not null"', 6),
    ],
)
def test_a_mistake_is_shown_in_its_place(text: str, reason: str, hint: str, caret: int) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert reason in caught.value.reason
    assert hint in caught.value.hint
    assert caught.value.offset == caret


def test_a_mistake_in_a_later_line_shows_that_line_with_a_caret() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse("price < 5 and\n  product contans 'PC'\n  and x = 1")
    assert str(caught.value) == (
        'expected an operator, found "contans"; did you mean "contains"? '
        "(line 2, column 11)\n    product contans 'PC'\n            ^"
    )


def test_a_long_line_is_shown_around_the_caret() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse("x = 1 and " * 60 + "? and " + "x = 1 and " * 60 + "x = 1")
    _, line, caret = str(caught.value).split("\n")
    assert len(line) < 110
    assert line[caret.index("^")] == "?"


def test_a_language_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(FilterError, match='did you mean "tamis"'):
        parse("a = 1", language="tammis")


ADVERSARIAL = {
    "parentheses": "(" * 16_000,
    "closed parentheses": "(" * 8_000 + "a = 1" + ")" * 8_000,
    "nots": "not " * 4_000 + "a = 1",
    "minuses": "- " * 8_000 + "a = 1",
    "many atoms": " or ".join(["a=1"] * 2_000),
    "a long list": "a in (" + ",".join(["1"] * 8_000) + ")",
    "a long sum": "+".join(["a"] * 8_000) + " = 1",
    "open quotes": '"\\' * 8_000,
    "quotes": "'" * 16_000,
    "backticks": "`" * 16_001,
    "digits": "a = " + "9" * 16_000,
    "a long name": "a" * 16_000,
    "dots": "a" + ".a" * 8_000 + ".",
    "a regular expression": "a matches '" + "(a*)*" * 3_000 + "('",
    "counted repetition": "a matches '((a{100}){100}){100}'",
    "too long": "a = 1 " * 10_000,
    "misspelt words": "a containz 'x' or " * 800,
    "wildcards": "a like '" + "%a" * 8_000 + "\\\\'",
}


@pytest.mark.timing
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_an_adversarial_filter_is_refused_at_once(name: str) -> None:
    def seconds() -> float:
        # Of this thread alone: what else the machine does is not the parser's.
        start = time.thread_time()
        with pytest.raises((FilterSyntaxError, LimitError)):
            parse(ADVERSARIAL[name])
        return time.thread_time() - start

    # A few milliseconds; where time grows with the square of the length, many seconds.
    assert min(seconds() for _ in range(3)) < 0.050


def test_limits_are_configurable() -> None:
    text = " or ".join(["a = 1"] * 2_000)
    with pytest.raises(LimitError, match="atoms in the filter: 1,025 exceeds the limit of 1,024"):
        parse(text, limits=FilterLimits(text=20_000))
    limits = FilterLimits(text=20_000, atoms=2_000)
    assert len(list(parse(text, limits=limits).atoms())) == 2_000
    with pytest.raises(LimitError, match="characters in the filter: 9 exceeds the limit of 8"):
        parse("abc = 123", limits=FilterLimits(text=8))


# Whole words and single characters, so that garbage comes close to the grammar.
PIECES = [
    *("a", "b.c", "`", "`x`", "(", ")", ",", ".", "{", "}", "[", "]", ":", "#", "?", "\\"),
    *("=", "!=", "<", "<=", ">", ">=", "<>", "==", "+", "-", "*", "/", "&", "|", "!", "~", "^"),
    *("'", '"', "'x'", '"y"', "'2026-01-01'", "0", "1", "-5", "1.5", "1e9", ".5", "0b1", "0x"),
    *("9999999999999999999", "and", "or", "xor", "not", "in", "between", "contains", "within"),
    *("starts", "ends", "with", "like", "matches", "is", "has", "all", "any", "bits", "bit"),
    *("present", "absent", "null", "true", "false", "timestamp", "div", "AND", "OR", "NOT"),
    *("IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", ">*", "*<"),
    *("\x00", "\ud800", "é", "😀", '[["a", "=", 1]]', "a number", "(a, *, 'x')"),
]


def garbage(rng: Random) -> str:
    if rng.random() < 0.3:
        return "".join(
            chr(rng.choice((rng.randrange(128), rng.randrange(0x3000))))
            for _ in range(rng.randrange(30))
        )
    return rng.choice((" ", "", "\n")).join(rng.choices(PIECES, k=rng.randrange(1, 14)))


def feed_garbage(seed: int, count: int) -> int:
    rng = Random(seed)
    languages = list(LANGUAGES)
    understood = 0
    for _ in range(count):
        text, language = garbage(rng), rng.choice(languages)
        try:
            filter_ = parse(text, language)
        except (FilterError, LimitError):
            continue
        understood += 1
        assert parse(str(filter_)) == filter_, text
    return understood


@pytest.mark.parametrize("seed", seeds(2))
def test_garbage_gives_an_error_and_nothing_else(seed: int) -> None:
    assert feed_garbage(seed, 10_000) > 0


@pytest.mark.slow
def test_a_million_garbage_strings() -> None:
    understood = feed_garbage(99, 1_000_000)
    print(f"\ngarbage: 1,000,000 strings, 0 crashes, {understood:,} happened to be filters")
