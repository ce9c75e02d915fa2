"""Filters that parse but were probably meant otherwise, in the words of their language."""

from __future__ import annotations

import pytest

from tamis.analysis.mistakes import find_mistakes
from tamis.languages import parse


def found(text: str, language: str = "tamis") -> list[str]:
    return [one.message for one in find_mistakes(parse(text, language), text, language)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "date > 2026-01-01",
            (
                '2026-01-01 subtracts, and is 2024; write date "2026-01-01" for the day, '
                'timestamp "2026-01-01" for its beginning, '
                '"2026-01-01" for the text, or 2026 - 1 - 1 for the number'
            ),
        ),
        (
            "phone = 555-1234",
            (
                '555-1234 subtracts, and is -679; write "555-1234" for the text, or 555 - 1234 for '
                "the number"
            ),
        ),
        ("agent = 007", '007 is the number 7; write "007" for the text'),
        (
            "symbol = ACME",
            (
                "symbol = ACME: ACME is read as an attribute; a text needs quotes, as in "
                'symbol = "ACME"'
            ),
        ),
        (
            "status != open",
            (
                "status != open: open is read as an attribute; a text needs quotes, as in "
                'status != "open"'
            ),
        ),
        ("note = none", 'note = none: none is read as an attribute; write "note is absent"'),
        (
            "unit-price < 5",
            (
                "unit-price subtracts: write `unit-price` if it is one name, and unit - price if "
                "it is not"
            ),
        ),
    ],
)
def test_a_sentence_says_how_it_is_read_and_what_to_write(text: str, message: str) -> None:
    assert found(text) == [message]


@pytest.mark.parametrize(
    "text",
    [
        'day = timestamp "2026-01-01"',
        'phone = "555-1234"',
        "price > 10 - 3",
        "price - 3 > 10 or x > 1e-5 or x < 0.07 or x = 0",
        "bid < ask",
        "a = 1 and b = 2 and a = b",
        "`unit-price` < 5",
    ],
)
def test_what_is_certain_is_not_doubted(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("symbol <> ACME", ["symbol <> ACME: ", "as in symbol <> 'ACME'"]),
        ("note = none", ['write "note IS NULL"']),
        ("note <> none", ['write "note IS NOT NULL"']),
        ("phone = 555-1234", ["write '555-1234' for the text"]),
        ("day > 2026-11-10", ["write '2026-11-10' for the text, or 2026 - 11 - 10"]),
        ("mask = 010", ["010 is octal for 8; write '010' for the text"]),
        ("name LIKE '*a'", ["name like '*a': the wildcards of like are % and _"]),
        ("name <> 'it''s%'", ["name <> 'it''s%': % stands for itself here"]),
        ("a-b > 3", ["a-b subtracts; write a - b if that is meant"]),
    ],
)
def test_selectors_are_advised_in_their_own_syntax(selector: str, words: list[str]) -> None:
    [message] = found(selector, "jms")
    assert [word for word in words if word not in message] == []
    assert '"ACME"' not in message
    assert "timestamp" not in message
    assert "`" not in message
