"""Each pass with its own table of what goes in and what comes out."""

from __future__ import annotations

import pytest

from tamis.filters.modes import as_mode
from tamis.filters.simplify import PASSES, simplify
from tamis.languages import parse

NEGATIONS, CONSTANTS, REPEATS, MEMBERSHIPS = PASSES


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("not (a = 1 and b = 2)", "not (a = 1) or not (b = 2)"),
        ("not (a = 1 or not (b = 2))", "not (a = 1) and b = 2"),
        ("not (a = 1 xor b = 2)", "not (a = 1) xor b = 2"),
        ("not (true and a is present)", "false or a is absent"),
        ("a = 1 xor not (b = 1 and c = 1)", "a = 1 xor (not (b = 1) or not (c = 1))"),
    ],
)
def test_negations_move_to_the_atoms(before: str, after: str) -> None:
    assert str(simplify_with(NEGATIONS, before)) == after


@pytest.mark.parametrize(
    ("mode", "before", "after"),
    [
        ("sql", "a = 1 and true", "a = 1"),
        ("sql", "a = 1 or true", "true"),
        ("strict", "a = 1 or true", "a = 1 or true"),
        ("strict", "a = 1 or false", "a = 1"),
        ("sql", "a = 1 and (b = 1 or true) and not false", "a = 1"),
        ("sql", "a = 1 xor true xor true", "a = 1"),
        ("sql", "a = 1 xor true", "not (a = 1)"),
        ("sql", "true xor true", "false"),
    ],
)
def test_constants_fall_away_where_the_mode_allows(mode: str, before: str, after: str) -> None:
    assert str(simplify_with(CONSTANTS, before, mode)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1 or b = 2 or a = 1", "a = 1 or b = 2"),
        ("a = 1 xor a = 1", "a = 1 xor a = 1"),
        ("not (a = 1 and a = 1)", "not (a = 1)"),
    ],
)
def test_repeated_terms_are_kept_once(before: str, after: str) -> None:
    assert str(simplify_with(REPEATS, before)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1 or a = 2 or b = 3", "a in (1, 2) or b = 3"),
        ("a in (1, 2) or a = 2 or a in (3, 1)", "a in (1, 2, 3)"),
        ('a = 1 or a = "1"', 'a = 1 or a = "1"'),
        ("a = 1 and (a = 2 or a = 3)", "a = 1 and a in (2, 3)"),
    ],
)
def test_equalities_become_memberships(before: str, after: str) -> None:
    assert str(simplify_with(MEMBERSHIPS, before)) == after


def test_all_passes_together() -> None:
    before = parse("not (not (a = 1) and not (a = 2)) and (b is present or true)")
    assert str(simplify(before)) == "a in (1, 2)"


def simplify_with(one_pass: object, text: str, mode: str = "sql") -> object:
    return one_pass(parse(text), as_mode(mode))  # type: ignore[operator]
