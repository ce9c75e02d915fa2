"""Stored events that cannot be matched, as the operator sees them."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Final

from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.metrics import Metrics

LOG: Final = get_logger("tamis.broker")

# More than this many tell nobody anything new, and they take some megabytes.
MOST_KNOWN: Final = 100_000
PROBLEM: Final = "stored events cannot be matched"


class UnmatchableEvents:
    """Logs, counts and shows each event once, however often it is found; for any thread."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics
        self._known: set[int] = set()
        self._logged = 0
        self._lock = Lock()

    def report(self, reasons: Mapping[int, str]) -> None:
        """Report events, by sequence, with why they cannot be matched."""
        with self._lock:
            room = MOST_KNOWN - len(self._known)
            new = [sequence for sequence in reasons if sequence not in self._known][:room]
            if new:
                self._known.update(new)
                self._metrics.unmatched.inc(len(new))
                self._show(new[0], reasons[new[0]])

    def _show(self, sequence: int, reason: str) -> None:
        count = len(self._known)
        # A search through the log may find very many, a few at a time.
        if count >= 2 * self._logged:
            new, self._logged = count - self._logged, count
            LOG.warning("events cannot be matched", count=new, first=sequence, reason=reason)
        many = f"{count:,}" if count < MOST_KNOWN else f"at least {count:,}"
        self._health.warn(PROBLEM, f"{many} since the start; event {sequence}: {reason}")
