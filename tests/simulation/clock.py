"""A clock that somebody may set, and one that nobody can."""

from __future__ import annotations

from simulation.loop import SimulationLoop

BEGINNING = 1_700_000_000.0


class SimulatedClock:
    """Wall time with jumps, and monotonic time without."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self.offset = 0.0
        """How far the wall clock is wrong, in seconds."""
        self.set_at = 0.0
        """When somebody last set it, by the monotonic clock."""

    def set(self, offset: float) -> None:
        """Set the wall clock wrong, or right."""
        self.offset, self.set_at = offset, self._loop.time()

    def time(self) -> float:
        return BEGINNING + self.offset + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    def thread_time(self) -> float:
        """Return 0: what the machine takes to simulate must not decide anything."""
        return 0.0

    def process_time(self) -> float:
        """Return 0, as for a thread."""
        return 0.0
