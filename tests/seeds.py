"""Seeds of random tests: a few by default, all of them in the slow suite."""

from __future__ import annotations

import pytest


def seeds(count: int, by_default: int = 1) -> list[object]:
    """Return numbers from 0 as parameters of a test, of which only the first run by default."""
    return [
        pytest.param(number, marks=() if number < by_default else pytest.mark.slow)
        for number in range(count)
    ]
