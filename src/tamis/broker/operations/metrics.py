"""The broker's metrics, for Prometheus. No label contains data from an event or a filter."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

LabelledValues = Mapping[str, float]
"""By the value of a label."""


class SizedQueue(Protocol):
    """A queue that tells its length."""

    def qsize(self) -> int:
        """Return how much waits in it."""


class SecondsHistogram(Collector):
    """A histogram for one thread at a time, which also counts many observations at once.

    Those on the way of every publication count by themselves: Prometheus's takes longer for an
    observation than the engine for an event.
    """

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self.bounds = (*Histogram.DEFAULT_BUCKETS,)
        self.counts = [0] * len(self.bounds)
        """How many observations lie between one bound and the next."""
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count an observation."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def collect(self) -> Iterable[Metric]:
        """Return the histogram as Prometheus reads it."""
        buckets = zip(map(floatToGoString, self.bounds), accumulate(self.counts), strict=True)
        yield HistogramMetricFamily(self._name, self._text, [*buckets], self.sum)


class _LabelledGauge(Collector):
    """A gauge whose labels come and go."""

    def __init__(
        self, name: str, text: str, label: str, look: Callable[[], LabelledValues]
    ) -> None:
        self._name = name
        self._text = text
        self._label = label
        self._look = look

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(self._name, self._text, labels=[self._label])
        for value, number in self._look().items():
            gauge.add_metric([value], number)
        yield gauge


class Metrics:
    """The counters of one broker; several brokers in a process do not share them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.published = self._counter("published_events", "Events stored")
        self.duplicates = self._counter("duplicate_events", "Events that had already been stored")
        self.refused = self._counter("refusals", "Requests refused", "code")
        self.matched = self._counter("matches", "Matching pairs of an event and a subscription")
        self.delivered = self._counter("delivered_events", "Events sent to connections")
        self.redelivered = self._counter("redelivered_events", "Deliveries of events sent before")
        self.acknowledged = self._counter("acknowledged_events", "Events acknowledged")
        self.dropped = self._counter("dropped_events", "Events dropped", "reason")
        self.residue = self._counter(
            "residue_events", "Events that a filter let through, and its exact check did not"
        )
        self.dead = self._counter("dead_letters", "Events that became dead letters")
        self.unmatched = self._counter("unmatched_events", "Stored events that cannot be matched")
        self.suspended = self._counter(
            "suspensions", "Subscriptions suspended because their filters take too long"
        )
        self.refused_arrivals = self._counter(
            "refused_peer_events", "Events of peers that may not or cannot be stored here"
        )
        self.failures = self._counter("failures", "Tasks that failed by an error", "part")
        self.commit_seconds = self._histogram("commit_seconds", "Time of one write and sync")
        self.match_seconds = self._histogram("match_seconds", "Time to match a batch of events")
        self.delivery_seconds = self._histogram(
            "delivery_seconds", "Time from storing an event to sending it"
        )
        self._queues = Gauge("tamis_queue", "Length of a queue", ["queue"], registry=self.registry)

    def watch_queue(self, name: str, queue: SizedQueue) -> None:
        """Set the length of a queue."""
        self._queues.labels(name).set_function(queue.qsize)

    def watch(self, name: str, text: str, look: Callable[[], float]) -> None:
        """Add a gauge whose value a function returns when it is read."""
        Gauge(f"tamis_{name}", text, registry=self.registry).set_function(look)

    def watch_each(
        self, name: str, text: str, label: str, look: Callable[[], LabelledValues]
    ) -> None:
        """Add a gauge with a label; a function returns its values when they are read."""
        self.registry.register(_LabelledGauge(f"tamis_{name}", text, label, look))

    def queues(self) -> dict[str, int]:
        """Return the length of each queue."""
        samples = next(iter(self._queues.collect())).samples
        return {sample.labels["queue"]: int(sample.value) for sample in samples}

    def totals(self) -> dict[str, int]:
        """Return the counters without labels, and how many events were dropped for any reason."""
        counters = {
            "published": self.published,
            "matched": self.matched,
            "delivered": self.delivered,
            "redelivered": self.redelivered,
            "acknowledged": self.acknowledged,
            "dead": self.dead,
            "unmatched": self.unmatched,
        }
        totals = {name: _value(counter) for name, counter in counters.items()}
        return {**totals, "dropped": _sum(self.dropped)}

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tamis_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> SecondsHistogram:
        histogram = SecondsHistogram(f"tamis_{name}", text)
        self.registry.register(histogram)
        return histogram


def _value(counter: Counter) -> int:
    return int(next(iter(counter.collect())).samples[0].value)


def _sum(counter: Counter) -> int:
    samples = next(iter(counter.collect())).samples
    return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))
