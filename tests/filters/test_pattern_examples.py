"""Examples of texts that regular expressions match."""

from __future__ import annotations

import pytest

from tamis.filters.pattern_examples import MAX_EXAMPLES, pattern_examples
from tamis.filters.patterns import compile_pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "[0-9]{3}",
        "(a|b)c",
        "^(?:GET|POST) /[a-z]+$",
        r"\d{1,3}\.\d{1,3}",
        r"(?i)power(shell)?\.exe",
        r"(?P<name>x+)y*?z",
        r"[^abc\d]",
        r"[]a]b",
        r"[[:alpha:]][[:digit:]]",
        r"a{2,}b{0,1}c{3}",
        r"\Aend\z",
        r"\bword\b",
        "",
        "a||b",
        "[a-z-]x",
        r"tab\there",
        "(((a)))",
        ".{5}",
    ],
)
def test_an_example_of_a_usual_pattern_matches_it(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    examples = pattern_examples(pattern)
    assert 1 <= len(examples) <= MAX_EXAMPLES
    assert any(compiled.search(example.text) is not None for example in examples)


@pytest.mark.parametrize(
    "pattern", [r"\pL", r"\Qa.b\E", r"[\x{41}]", "x" * 5000, "(a{1000}){1000}"]
)
def test_what_is_unusual_or_large_has_no_example(pattern: str) -> None:
    assert pattern_examples(pattern) == ()


def test_an_example_knows_where_it_may_stand() -> None:
    assert pattern_examples("^ab")[0] == ("ab", True, False)
    assert pattern_examples("ab$")[0] == ("ab", False, True)
