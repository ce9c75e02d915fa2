"""The rate of a broker with one subscription and with very many.

Workload A: three equalities on eight fields. Every event satisfies one subscription, and somebody
is connected to receive it; all others satisfy none, but share values with the events as in the
workload. All are durable, and the subscriber acknowledges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import msgspec

from benchmarks import harness
from benchmarks.broker.servers import Server, tamis
from benchmarks.broker.wire import Wire
from benchmarks.broker.workers import Worker, worker
from benchmarks.harness import Contender, DisagreementError, Row, measure, step
from benchmarks.reporting import Sheet, rates
from tamis.protocol import Acknowledge, Credit, Deliver, Publish, Published, Subscribe, Subscribed
from tamis.protocol.management import NewSubscription
from tamis.workloads import Workload

EVENTS_PER_PUBLICATION: Final = 250
PUBLICATIONS_IN_FLIGHT: Final = 8
SUBSCRIPTIONS_IN_FLIGHT: Final = 256
CREDIT: Final = 100_000
PLANTED: Final = (0, 0, 0)
"""The values of the one subscription that all events satisfy."""
# The clients answer no pings between two turns.
PING_SECONDS: Final = 3600
LEAST_RATIO: Final = 0.9


class ManyResult(NamedTuple):
    """The results."""

    rows: list[Row]
    costs: list[float]
    """CPU seconds of the broker per event; other load hardly changes them."""
    installing: float
    """Subscriptions installed per second."""


# --- in other processes ----------------------------------------------------------------------


class Publisher:
    """Publishes events, many in a frame and several frames at a time."""

    def __init__(self, port: int, count: int) -> None:
        self._wire = Wire(port)
        texts = [msgspec.Raw(msgspec.json.encode(event)) for event in events(count)]
        self._frames = [
            texts[i : i + EVENTS_PER_PUBLICATION] for i in range(0, count, EVENTS_PER_PUBLICATION)
        ]
        self._next = 1

    def publish(self) -> None:
        """Publish all events, and return when all are on the broker's disk."""
        waiting = 0
        for ref, frame in enumerate(self._frames):
            publication = Publish(ref=ref, events=frame, publisher="p", sequence=self._next)
            self._next += len(frame)
            self._wire.send(publication)
            waiting += 1
            while waiting >= PUBLICATIONS_IN_FLIGHT:
                waiting -= self._answers()
        while waiting:
            waiting -= self._answers()

    def _answers(self) -> int:
        return sum(isinstance(reply, Published) for reply in self._wire.replies())


class Subscriber:
    """Receives what matches the planted subscription, and acknowledges it."""

    def __init__(self, port: int) -> None:
        self._wire = Wire(port)
        self._wire.send(
            Subscribe(
                ref=1, filter=text(PLANTED), durable="wanted", acknowledge="manual", credit=CREDIT
            )
        )
        self._wire.expect(Subscribed)
        self._last = 0

    def receive(self, count: int) -> int:
        """Return once a number of events have arrived, each once and in order."""
        received = 0
        while received < count:
            for reply in self._wire.replies():
                if isinstance(reply, Deliver):
                    received += self._take(reply)
        return received

    def _take(self, reply: Deliver) -> int:
        sequences = [event.sequence for event in reply.events]
        if sequences != sorted({*sequences}) or sequences[0] <= self._last:
            raise DisagreementError(f"after event {self._last} came {sequences[:5]} …")
        self._last = sequences[-1]
        self._wire.send(Acknowledge(subscription=reply.subscription, up_to=self._last))
        self._wire.send(Credit(subscription=reply.subscription, events=len(sequences)))
        return len(sequences)


# --- the workload ------------------------------------------------------------------------------


def events(count: int) -> Iterator[dict[str, int | float | str]]:
    """Yield events that satisfy the planted subscription."""
    planted = {f"f{place}": value for place, value in enumerate(PLANTED)}
    for event in Workload.load("be-a").events(0, count, 2).to_pylist():
        yield event | planted


def others(count: int) -> Iterator[str]:
    """Yield filters of workload A that no event satisfies."""
    drawn = Workload.load("be-a").subscriptions(0, count, 1).column("filter").to_pylist()
    nearly, *rest = PLANTED
    for filter_ in drawn:
        yield text((nearly + 1, *rest)) if filter_ == text(PLANTED) else filter_


def text(values: Sequence[int]) -> str:
    """Return the filter for given values of the first fields."""
    return " and ".join(f"f{place} = {value}" for place, value in enumerate(values))


def install(server: Server, count: int) -> float:
    """Create durable subscriptions, many in a request; return the seconds it took."""
    new = [NewSubscription(id=f"other-{n}", filter=one) for n, one in enumerate(others(count))]
    with server.connected() as bus, step(f"installed {count:,} subscriptions"):
        start = perf_counter()
        refused = [one for one in bus.create_subscriptions(new) if one.code is not None]
        if refused:
            raise DisagreementError(f"{len(refused):,} were refused: {refused[0].message}")
        return perf_counter() - start


def install_by_frames(server: Server, count: int) -> float:
    """Create durable subscriptions over one connection, each with a frame of its own."""
    start = perf_counter()
    with Wire(server.port) as wire, step(f"installed {count:,} subscriptions") as show:
        waiting: deque[int] = deque()
        for ref, filter_ in enumerate(others(count)):
            wire.send(Subscribe(ref=ref, filter=filter_, durable=f"other-{ref}"))
            waiting.append(ref)
            while len(waiting) >= SUBSCRIPTIONS_IN_FLIGHT:
                _grant(wire, waiting)
            if not ref % 1000:
                show(f"{ref:,}")
        while waiting:
            _grant(wire, waiting)
        return perf_counter() - start


def _grant(wire: Wire, waiting: deque[int]) -> None:
    for reply in wire.replies():
        if isinstance(reply, Subscribed):
            waiting.popleft()


# --- measuring -----------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A broker with its publisher and subscriber."""

    server: Server
    publisher: Worker
    subscriber: Worker

    def run(self, count: int) -> None:
        """Send a number of events from one to the other."""
        self.subscriber.begin("receive", count)
        self.publisher.call("publish")
        if self.subscriber.result() != count:
            raise DisagreementError(f"not {count:,} events came")


def measured(folder: Path, subscriptions: int, count: int) -> ManyResult:
    """Measure the two brokers in turns."""
    with ExitStack() as stack:
        pairs = []
        for name in ("one", "many"):
            server = stack.enter_context(tamis(folder / name, ping_interval=PING_SECONDS))
            subscriber = stack.enter_context(worker(Subscriber, server.port))
            publisher = stack.enter_context(worker(Publisher, server.port, count))
            pairs.append(Pair(server, publisher, subscriber))
        one, many = pairs
        installing = (subscriptions - 1) / install(many.server, subscriptions - 1)
        begun = [pair.server.cpu_seconds() for pair in pairs]
        group = f"{count:,} events"
        rows = measure(
            [
                Contender("1 subscription", partial(one.run, count), count, group),
                Contender(
                    f"{subscriptions:,} subscriptions", partial(many.run, count), count, group
                ),
            ],
            harness.REPEATS,
        )
        published = [
            check(pair.server, due) for pair, due in zip(pairs, (1, subscriptions), strict=True)
        ]
        costs = [
            (pair.server.cpu_seconds() - start) / events
            for pair, start, events in zip(pairs, begun, published, strict=True)
        ]
    return ManyResult(rows, costs, installing)


def check(server: Server, subscriptions: int) -> int:
    """Return the number of events; fail if subscriptions or matches are missing or too many."""
    status = server.status()
    there, matched, published = (status[n] for n in ("subscriptions", "matched", "published"))
    if (there, matched) != (subscriptions, published):
        raise DisagreementError(
            f"{there:,} subscriptions found {matched:,} matches in {published:,} events, where "
            f"{subscriptions:,} are to find one in each"
        )
    return int(published)


def sheets(found: ManyResult) -> list[Sheet]:
    """Return the rates and the requirements."""
    one, many = found.rows
    return [
        rates("events", found.rows),
        Sheet(
            ("", "µs of CPU per event"),
            [
                (row.name, f"{1e6 * cost:.1f}")
                for row, cost in zip(found.rows, found.costs, strict=True)
            ],
        ),
        Sheet(
            ("required", "found", "asked"),
            [
                (f"events/s, {many.name} / {one.name}", f"{many.ratio:.2f}", f"≥ {LEAST_RATIO}"),
                ("installing", f"{found.installing:,.0f} subscriptions/s", ""),
            ],
        ),
    ]
