"""LIKE means what its translation to a regular expression means, and is refused where slow."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import LimitError
from tamis.filters import attr, like
from tamis.filters.like import MAX_GAPPED_CHARACTERS, LikePattern, like_parts
from tamis.languages import parse

WILDCARDS = {"%": ".*", "_": "."}


def translated(pattern: str) -> re2._Regexp:
    parts = (WILDCARDS[wild] if wild else re2.escape(text) for text, wild in like_parts(pattern))
    return re2.compile(f"(?s)\\A{''.join(parts)}\\z")


def assert_same(pattern: str, text: str) -> None:
    found = translated(pattern).search(text) is not None
    for tried_one_by_one in (0, 1 << 30):
        with patch.object(like, "MAX_TRIED_ONE_BY_ONE", tried_one_by_one):
            assert LikePattern(pattern).fits(text) == found, (pattern, text)


@given(st.text("%_ab\n\\%é😀", max_size=12), st.text("ab\né😀", max_size=30))
def test_it_fits_what_its_translation_finds(pattern: str, text: str) -> None:
    escaped = pattern.replace("\\", "\\\\")
    assert_same(escaped, text)


@pytest.mark.parametrize("seed", range(20))
def test_it_fits_what_its_translation_finds_in_volume(seed: int) -> None:
    rng = Random(seed)
    for _ in range(200):
        pattern = "".join(rng.choices("%_ab", weights=(2, 2, 3, 3), k=rng.randint(0, 14)))
        assert_same(pattern, "".join(rng.choices("ab", k=rng.randint(0, 40))))


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [("%abc%de", "abc"), ("_a_", "a"), ("%%", ""), ("", ""), ("x%", "x"), (r"a\%b_", "a%b")],
)
def test_its_longest_literal_is_in_every_text_that_fits(pattern: str, literal: str) -> None:
    assert LikePattern(pattern).literal == literal


def test_too_many_characters_between_underscores_are_refused() -> None:
    most = "%" + "a_" * (MAX_GAPPED_CHARACTERS - 1) + "b%"
    assert parse(f"t like '{most}'").matches({"t": "a" * 125 + "cb"})
    with pytest.raises(
        LimitError, match=r"characters with _ between them in the LIKE .*: 65 exceeds the limit of"
    ):
        attr("t").like("%a_" + most[1:])
    # At either end a piece has only one place.
    assert attr("t").like("a_" * 500).matches({"t": "ab" * 500})
    assert attr("t").like("%" + "a" * 5000 + "%b%").matches({"t": "a" * 5001 + "b"})


@pytest.mark.parametrize("language", ["tamis", "jms"])
def test_it_is_the_same_in_every_language(language: str) -> None:
    filter_ = parse("t like '%a_c%d'", language)
    assert [filter_.matches({"t": t}) for t in ("xabcxd", "acd", "abcd", "abcdx")] == [
        *(True, False, True, False)
    ]
