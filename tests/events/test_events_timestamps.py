"""Timestamps as text."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given

from tamis.events.values import format_timestamp, parse_rfc3339, parse_timestamp

from . import event_strategies as some

MORNING = some.moment(2026, 11, 15, 4, 2)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-15", some.moment(2026, 11, 15)),
        ("2026-11-15T04:02", MORNING),
        ("2026-11-15 04:02:00", MORNING),
        ("2026-11-15T04:02:00Z", MORNING),
        ("2026-11-15t04:02:00z", MORNING),
        ("2026-11-15T05:32:00+01:30", MORNING),
        ("2026-11-14T23:02:00-05:00", MORNING),
        ("2026-11-15T04:02:00-00:00", MORNING),
        ("2026-11-15T04:02:00.5Z", MORNING.replace(microsecond=500_000)),
        ("2026-11-15T04:02:00.123456999Z", MORNING.replace(microsecond=123_456)),
        ("2026-11-15T04:02:00.0000000000000009Z", MORNING),
        ("0001-01-01T00:00:00Z", some.moment(1, 1, 1)),
        ("9999-12-31T23:59:59.999999Z", some.moment(9999, 12, 31, 23, 59, 59, 999_999)),
        ("2024-02-29T00:00:00Z", some.moment(2024, 2, 29)),
    ],
)
def test_a_timestamp_names_one_instant_in_utc(text: str, moment: datetime) -> None:
    parsed = parse_timestamp(text)
    assert parsed == moment
    assert parsed.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026",
        "2026-W46-7",
        "20261115",
        "2026-11-15T",
        "2026-11-15T04",
        "2026-11-15T04:02.5",  # a fraction of a minute
        "2026-11-15T04:02:00.Z",
        "2026-11-15T24:00:00Z",
        "2026-11-15T04:60:00Z",
        "2026-11-15T04:02:60Z",
        "2026-02-29",
        "2026-13-01",
        "0000-01-01",
        "2026-11-15T04:02:00+24:00",
        "2026-11-15T04:02:00+01:60",
        "2026-11-15T04:02:00+01",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-11-15T04:02:00Z ",
        "2026-11-15T04:02:00Z\n",
        "２０２６-11-15",
    ],
)
def test_what_is_no_timestamp_is_refused_and_shown(text: str) -> None:
    with pytest.raises(ValueError, match="is not a timestamp") as caught:
        parse_timestamp(text)
    assert repr(text)[1:-1] in str(caught.value)


def test_a_long_text_is_cut_in_the_sentence() -> None:
    with pytest.raises(ValueError, match="is not a timestamp") as caught:
        parse_timestamp("9" * 1_000_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text", ["2026-11-15", "2026-11-15T04:02Z", "2026-11-15 04:02:00Z", "2026-11-15T04:02:00", ""]
)
def test_a_full_timestamp_has_a_day_seconds_and_an_offset(text: str) -> None:
    with pytest.raises(ValueError, match="is not a full RFC 3339 timestamp"):
        parse_rfc3339(text)


@given(some.timestamps)
def test_a_formatted_timestamp_names_the_same_instant(moment: datetime) -> None:
    text = format_timestamp(moment)
    assert parse_timestamp(text) == moment
    assert parse_rfc3339(text) == moment
