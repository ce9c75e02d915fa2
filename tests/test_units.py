"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tamis.units import seconds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("500ms", 0.5),
        ("90s", 90),
        ("90 sec", 90),
        ("5 min", 300),
        ("1h", 3600),
        ("1 hour", 3600),
        ("1.5h", 5400),
        ("7d", 604_800),
        ("7 days", 604_800),
        ("2 weeks", 1_209_600),
        ("1h 30m", 5400),
        ("1h30m", 5400),
        ("30", 30),
        (" 30 ", 30),
        (30, 30),
        (0.25, 0.25),
        (timedelta(minutes=2), 120),
    ],
)
def test_a_duration_is_text_a_number_of_seconds_or_a_timedelta(
    given: object, expected: float
) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize(
    "given",
    ["", "soon", "1x", "1 h 2 h", "30m 1h", "30 20", "-1s", "1e3", "1,5h", "٣s", "inf", "1h 30"],
)
def test_other_text_is_refused_with_examples(given: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; write one like 30, 30s, 5 minutes"):
        seconds(given)


@pytest.mark.parametrize("given", ["1 year", "1H", "2 months"])
def test_the_units_are_listed(given: str) -> None:
    with pytest.raises(ValueError, match=r"7 days; the units are ms, s, m, h, d and w$"):
        seconds(given)


@pytest.mark.parametrize("given", [True, None, [1], float("nan"), float("inf"), b"1h"])
def test_other_things_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(given)
