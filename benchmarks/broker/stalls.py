"""Moments in which the machine itself stood still, so that no program on it could answer.

Linux gives ordinary processes 50 ms of each second, also before those of real-time priority, if
these leave them nothing else. On a machine that others share, that happens all the time, and a
virtual machine may be stopped by its host. A process that goes before all others notices it: it
wakes up too late.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Final, NamedTuple

from benchmarks.broker.priorities import run_first
from benchmarks.broker.workers import Worker, worker

WATCH_SECONDS: Final = 0.002
LATE_SECONDS: Final = 0.0015
RECOVERY_SECONDS: Final = 0.02
"""How long what was held up takes to be done."""


class Stall(NamedTuple):
    """When a core stood still."""

    begin: float
    end: float


class StallWatch:
    """Wakes up every few milliseconds on one core, and notes when it was late."""

    def __init__(self, core: int) -> None:
        os.sched_setaffinity(0, {core})
        self._found: list[Stall] = []
        Thread(target=self._watch, daemon=True).start()

    def take(self) -> list[Stall]:
        """Return what was found since the last call."""
        found, self._found = self._found, []
        return found

    def _watch(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(WATCH_SECONDS)
            now = time.monotonic()
            if now - last > WATCH_SECONDS + LATE_SECONDS:
                self._found.append(Stall(last, now))
            last = now


class StallWatches:
    """One watch for each core."""

    def __init__(self, watches: Sequence[Worker]) -> None:
        self._watches = watches

    def outside(self, times: Sequence[tuple[float, float]]) -> list[float]:
        """Return the latencies of what was due at some time and met no stall since the last call.

        If everything met one, return all.
        """
        stalls = [Stall(*one) for watch in self._watches for one in watch.call("take")]
        kept = [
            latency
            for due, latency in times
            if not any(s.begin < due + latency and due < s.end + RECOVERY_SECONDS for s in stalls)
        ]
        return kept or [latency for _, latency in times]


@contextmanager
def watched() -> Iterator[StallWatches]:
    """Watch all cores."""
    with ExitStack() as stack:
        watches = [
            stack.enter_context(worker(StallWatch, core)) for core in os.sched_getaffinity(0)
        ]
        run_first(*(one.pid for one in watches), steps=2)
        yield StallWatches(watches)
