"""A test that hangs fails: its process shows where all threads are, and ends."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from typing import Final

import pytest

SECONDS: Final = 120.0
"""Several times as long as a test takes when it has a processor."""
SECONDS_OF_SLOW: Final = 2 * 3600.0


def seconds_for(*, is_slow: bool) -> float:
    """Return how long a test may take: longer, the more processes there are to a processor."""
    # The largest of the averages over 1, 5 and 15 minutes: who was busy may soon be so again.
    load = max(os.getloadavg()) / (os.cpu_count() or 1)
    return (SECONDS_OF_SLOW if is_slow else SECONDS) * max(1.0, load)


class HangGuard:
    """Ends the process when a test takes too long; pytest-xdist then reports the test as failed.

    A thread of the interpreter itself does it, which needs no turn of Python's threads.
    """

    def __init__(self) -> None:
        # While a test runs, its output is captured.
        self._stderr: Final = os.dup(2)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Give a test, with its fixtures, its time."""
        seconds = seconds_for(is_slow=item.get_closest_marker("slow") is not None)
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
