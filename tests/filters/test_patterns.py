"""A pattern that RE2 refuses is explained in a sentence."""

from __future__ import annotations

import pytest

from tamis.errors import FilterTypeError
from tamis.filters.patterns import compile_pattern


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(a", "has a ( that nothing closes"),
        ("a)", "has a ) that nothing opened"),
        ("[a", "has a [ that nothing closes"),
        ("*a", "has a * with nothing before it to repeat"),
        ("a**", "repeats a repetition: **"),
        ("a{2000}", "repeats too often: {2000}; the most is 1000"),
        (r"\k", r"has \k, which RE2 does not know"),
        ("[z-a]", "has z-a, which is not a range of characters"),
        ("(?=a)", "has (?=, which RE2 does not know; it cannot look ahead or behind"),
        ("a\\", "ends with a single backslash"),
    ],
)
def test_the_mistake_is_named(pattern: str, words: str) -> None:
    with pytest.raises(FilterTypeError) as refused:
        compile_pattern(pattern)
    assert str(refused.value).startswith(f"the pattern {pattern!r} {words}")
