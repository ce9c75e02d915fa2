"""What the broker counts, for Prometheus. No label holds what an event or a filter says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """The counters of one broker; several brokers in a process do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.published = self._counter("published_events", "Events stored")
        self.duplicates = self._counter("duplicate_events", "Events that were stored before")
        self.refused = self._counter("refusals", "Requests refused", "code")
        self.matched = self._counter("matches", "Pairs of event and subscription found")
        self.delivered = self._counter("delivered_events", "Events handed to connections")
        self.redelivered = self._counter("redelivered_events", "Of these, not for the first time")
        self.acknowledged = self._counter("acknowledged_events", "Events that need not come again")
        self.dropped = self._counter("dropped_events", "Events that will not come", "reason")
        self.dead = self._counter("dead_letters", "Events given up after too many attempts")
        self.commit_seconds = self._histogram("commit_seconds", "One write with its sync")
        self.match_seconds = self._histogram("match_seconds", "Matching a batch of events")
        self.delivery_seconds = self._histogram("delivery_seconds", "From storing to handing over")
        self._queues = Gauge(
            "tamis_queue", "What waits in a queue", ["queue"], registry=self.registry
        )

    def watch_queue(self, name: str, queue: asyncio.Queue[Any]) -> None:
        """Show how much waits in a queue."""
        self._queues.labels(name).set_function(queue.qsize)

    def watch(self, name: str, text: str, look: Callable[[], float]) -> None:
        """Show what a function tells at the moment of asking."""
        Gauge(f"tamis_{name}", text, registry=self.registry).set_function(look)

    def queues(self) -> dict[str, int]:
        """Return how much waits in each queue."""
        samples = next(iter(self._queues.collect())).samples
        return {sample.labels["queue"]: int(sample.value) for sample in samples}

    def totals(self) -> dict[str, int]:
        """Return the counters that have no label."""
        counters = {
            "published": self.published,
            "matched": self.matched,
            "delivered": self.delivered,
            "redelivered": self.redelivered,
            "acknowledged": self.acknowledged,
            "dead": self.dead,
        }
        return {name: _value(counter) for name, counter in counters.items()}

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tamis_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"tamis_{name}", text, registry=self.registry)


def _value(counter: Counter) -> int:
    return int(next(iter(counter.collect())).samples[0].value)
