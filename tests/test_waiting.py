"""No test sleeps without a reason: it waits for a condition, with `eventually`."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from clocks import Stopwatch
from waiting import eventually

TESTS = Path(__file__).parent


def test_a_sleep_gives_its_reason_on_the_same_line() -> None:
    without = [
        f"{file.relative_to(TESTS)}:{number}"
        for file in TESTS.rglob("*.py")
        if file.name not in ("waiting.py", "test_waiting.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"\bsleep\(", line) and "#" not in line
    ]
    assert without == []


def test_eventually_returns_the_first_true_value_and_fails_when_there_is_none() -> None:
    values = iter([0, "", 7, 8])
    assert eventually(lambda: next(values)) == 7
    with pytest.raises(AssertionError, match="no luck"):
        eventually(lambda: False, "no luck", timeout=0.02)


def test_a_stopwatch_shows_the_time_that_goes_by() -> None:
    watch = Stopwatch()
    started = time.monotonic()
    time.sleep(0.05)  # as long as is measured
    assert 0.0 < watch.seconds() <= time.monotonic() - started + 0.01
