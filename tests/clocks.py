"""Clocks that a test sets by hand, and one that does not mind a busy machine."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


class ManualClock:
    """A clock that is advanced by hand."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return 0.0

    def process_time(self) -> float:
        return 0.0


class SettableClock(ManualClock):
    """A clock on the wall that somebody sets, beside one that only advances."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        super().__init__(now)
        self.wrong_by = 0.0

    def time(self) -> float:
        return self.now + self.wrong_by


class Stopwatch:
    """Measures time, without what threads waited for a processor: so long others were busy.

    Where threads waited at the same time, it shows less than the time that went by, so it can
    only be too kind, and only on a busy machine.
    """

    def __init__(self, *processes: int) -> None:
        """Start measuring.

        Args:
            processes: Those who do the work, by their numbers; this one is among them.
        """
        self._processes = (os.getpid(), *processes)
        self._before = self._waited()
        self._started = time.monotonic()

    def seconds(self) -> float:
        """Return the time since the start."""
        elapsed = time.monotonic() - self._started
        waited = self._waited()
        return elapsed - sum(
            max(0.0, seconds - self._before.get(thread, 0.0)) for thread, seconds in waited.items()
        )

    def _waited(self) -> dict[str, float]:
        """Return how long each thread has waited, as far as the system tells."""
        found = {}
        for process in self._processes:
            for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
                # A thread may end at any time.
                with contextlib.suppress(OSError):
                    found[str(file)] = int(file.read_text().split()[1]) / 1e9
        return found
