"""Seeds and examples of random tests: a few by default, many in the slow suite."""

from __future__ import annotations

import os
from typing import Final

import pytest

VOLUME_VARIABLE: Final = "TESTS_VOLUME"
"""The variable of the environment that says how many times as many examples to try."""


class SlowSeeds:
    """Whether seeds of the slow suite become tests."""

    are_collected = True
    """If not, they are left out: thousands of tests take seconds to collect in each process."""


def seeds(count: int, by_default: int = 1) -> list[object]:
    """Return numbers from 0 as parameters of a test, of which only the first run by default."""
    return [
        pytest.param(number, marks=() if number < by_default else pytest.mark.slow)
        for number in range(count if SlowSeeds.are_collected else min(count, by_default))
    ]


def in_volume(count: int) -> int:
    """Return how many examples to try: `tests/test_volume.py` runs such tests with more of them."""
    return count * int(os.environ.get(VOLUME_VARIABLE, "1"))
