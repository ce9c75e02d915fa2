"""Matching while subscriptions come and go: `python -m benchmarks.churn [--subscriptions 100000]`.

Of ten operations nine are events and one adds or removes a subscription, in turns. Events come one
by one, or in batches of 90 with ten changes between two of them. What an add leaves to do is done
by the next match, so look at the times of matches as well as those of adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from random import Random
from typing import Final, NamedTuple

from benchmarks.engines import Case, Workload, count_batch, engine_of, fill
from benchmarks.harness import (
    Contender,
    Latency,
    Row,
    agree,
    fitting,
    measure,
    options,
    step,
    timed,
)
from benchmarks.reporting import bars, file_name, latencies, rates, report
from benchmarks.workloads import boolean, conjunctions
from tamis.events.batch import EventBatch
from tamis.filters import Filter
from tamis.matching import Engine

TITLE = "Churn: nine events for one change"
EVENTS = 900
EVENTS_PER_CHANGE = 9
SPARE = 1_000


class Arrival(NamedTuple):
    """How events arrive: subscriptions change after each round."""

    name: str
    batch: int
    round: int


ARRIVALS: Final = (Arrival("one event at a time", 1, 9), Arrival("batches of 90", 90, 90))

CASES: Final = {
    "boolean": Case(boolean.subscriptions),
    "conjunctions": Case(conjunctions.growth),
}

Event = Mapping[str, object]


class Subscribers:
    """Adds and removes subscriptions, and remembers which filters are in the engine."""

    def __init__(self, engine: Engine, spare: Sequence[Filter], seed: int) -> None:
        self.engine = engine
        first = len(engine)
        self.living = {number: number for number in range(first)}
        """The number of each subscription's filter in the workload."""
        self._order = list(self.living)
        self._spare = cycle(enumerate(spare, start=first))
        self._next_id = first
        self._adds = False
        self._rng = Random(seed)
        self.times: dict[str, list[float]] = {"add": [], "remove": []}

    def change(self, times: int) -> None:
        """Remove and add subscriptions in turns."""
        for _ in range(times):
            if self._adds:
                self._add()
            else:
                self._remove()
            self._adds = not self._adds

    def _add(self) -> None:
        number, filter_ = next(self._spare)
        self.times["add"] += timed([partial(self.engine.add, self._next_id, filter_)])
        self.living[self._next_id] = number
        self._order.append(self._next_id)
        self._next_id += 1

    def _remove(self) -> None:
        place = self._rng.randrange(len(self._order))
        self._order[place], self._order[-1] = self._order[-1], self._order[place]
        gone = self._order.pop()
        self.times["remove"] += timed([partial(self.engine.remove, gone)])
        del self.living[gone]


class Publisher:
    """Publishes events, a few at a time; subscribers may change something after each round."""

    def __init__(
        self, engine: Engine, events: Sequence[Event], way: Arrival, subscribers: Subscribers | None
    ) -> None:
        self._matches = [
            _match(engine, events[first : first + way.batch])
            for first in range(0, len(events), way.batch)
        ]
        self._way = way
        self._subscribers = subscribers
        self.times: list[float] = []

    def run(self, rounds: int) -> None:
        """Publish the events of some rounds."""
        matches = iter(self._matches)
        for _ in range(rounds):
            self.times += timed(islice(matches, self._way.round // self._way.batch))
            if self._subscribers:
                self._subscribers.change(self._way.round // EVENTS_PER_CHANGE)


def _match(engine: Engine, events: Sequence[Event]) -> Callable[[], object]:
    if len(events) == 1:
        return partial(engine.match, events[0])
    return lambda: engine.match_batch(events).counts()


def measured(name: str, case: Case, count: int) -> tuple[list[Row], list[Latency]]:
    """Measure one workload with and without changes."""
    work = case.draw(count + SPARE, 1)
    alone, changing = engine_of(work, case, count), engine_of(work, case, count)
    subscribers = Subscribers(changing, work.filters(count), 3)
    events, group = work.events(EVENTS, 2).dicts(), f"{name}, {count:,}"
    contenders, found = [], {}
    for way in ARRIVALS:
        calm = Publisher(alone, events, way, None)
        busy = Publisher(changing, events, way, subscribers)
        rounds = fitting(busy.run, EVENTS // way.round)
        for what, publisher in (("matching alone", calm), ("churning", busy)):
            run, things = partial(publisher.run, rounds), rounds * way.round
            contenders.append(Contender(what, run, things, f"{group}, {way.name}"))
            found[f"match, {way.name}, {what}"] = publisher.times
    for times in (*subscribers.times.values(), *found.values()):
        # Until here, kernels were compiled.
        times.clear()
    rows = measure(contenders)
    check(work, case, subscribers, events)
    return rows, [
        Latency(f"{group}: {operation}", times)
        for operation, times in (subscribers.times | found).items()
    ]


def check(work: Workload, case: Case, subscribers: Subscribers, events: Sequence[Event]) -> None:
    """Refuse the figures of an engine that lost or kept a subscription wrongly."""
    filters, anew = work.filters(), case.engine()
    with step(f"compared with {len(subscribers.living):,} subscriptions added anew"):
        fill(anew, (filters[number] for number in subscribers.living.values()))
        batch = EventBatch.of_events(events)
        agree(
            {
                "the engine after all changes": count_batch(subscribers.engine, batch),
                "a new engine": count_batch(anew, batch),
            }
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, subscriptions=(100_000,))
    rows, found = [], []
    for size in chosen.subscriptions:
        for name, case in CASES.items():
            more, times = measured(name, case, size)
            rows += more
            found += times
    sheets = [rates("events", rows), latencies(found)]
    name = file_name("churn", chosen.subscriptions)
    report(name, TITLE, sheets, bars(TITLE, "events", rows), folder=chosen.out)


if __name__ == "__main__":
    main()
