"""What a regular expression requires, against RE2 itself."""

from __future__ import annotations

from random import Random

import pytest
import re2

from seeds import seeds
from tamis.filters.required_literals import required_literal

PATTERNS = {
    "abc": "abc",
    "^abc$": "abc",
    "ab+c": "ab",
    "xab*cde": "cde",
    "xyzb?c": "xyz",
    "abc{0,2}d": "ab",
    "abc{2}d": "abc",
    "abc{2,}?d": "abc",
    r"a\.b\-c": "a.b-c",
    r"\d+ items of \w": " items of ",
    "(ab|cd)efg": "efg",
    "(?:abcdef)gh": "gh",
    "(?P<name>abc)de(fgh)": "de",
    "[abc]xyz[^]]": "xyz",
    "[]]ab[[:alpha:]]": "ab",
    "(a[)]b)cd": "cd",
    r"(a\)b)cd": "cd",
    "(?s)a.bc": "bc",
    "(?i)Hello": "hello",
    "(?i)größe": "",
    "a|b": "",
    "abc|": "",
    "": "",
    r"\pLabc": "",
    r"\Qabc\E": "",
    r"\x41bc": "",
    r"\101bc": "",
    "abc(?i)def": "",
    "abc(?i:def)": "abc",
    "(?-s)abc": "",
    "ab{c": "",
    r"\C\Cabc": "",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_longest_literal_is_found(pattern: str) -> None:
    assert required_literal(pattern).text == PATTERNS[pattern]


PIECES = (
    *("a", "b", "K", "s", "é", "ab", ".", r"\.", r"\d", r"\w", r"\b", "^", "$", "[ab]", "[^a]"),
    *("[]a]", "[a[:digit:]]", r"[\]b]", "(a|b)", "(?:ab)", "(a(b|s)*)", r"(\)|a)", "(?i:s)", "()"),
    *("(?P<x>a)", r"\pL", r"\x{e9}", r"\x61", "{", "|", r"\Qa\E", "(?i)", "(?s)", "(?U)", "(?-i)"),
)
REPETITIONS = ("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{0,2}", "{1,}", "{1,2}?")
# K and s also stand for the Kelvin sign and the long s, if case is ignored.
CHARACTERS = "abkKsSéÉ.)]{|1 \u212a\u017f"


@pytest.mark.parametrize("seed", seeds(6))
def test_every_text_that_matches_has_it(seed: int) -> None:
    rng, options = Random(seed), re2.Options()
    options.log_errors = False
    found = 0
    for _ in range(1_000):
        pieces = [rng.choice(PIECES) + rng.choice(REPETITIONS) for _ in range(rng.randint(1, 5))]
        pattern = rng.choice(("", "(?i)", "(?is)")) + "".join(pieces)
        try:
            compiled = re2.compile(pattern, options=options)
        except re2.error:
            continue
        literal = required_literal(pattern)
        for _ in range(25):
            text = "".join(rng.choices(CHARACTERS, k=rng.randint(0, 7)))
            if compiled.search(text):
                seen = text.casefold() if literal.ignores_case else text
                assert literal.text in seen, f"{pattern!r} on {text!r}"
                found += bool(literal.text)
    assert found > 100
