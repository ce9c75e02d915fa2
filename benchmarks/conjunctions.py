"""Conjunctions (BE-Gen): `python -m benchmarks.conjunctions [--subscriptions 10000 100000]`.

Workloads A, B and C of the engine's issue. The counting algorithm takes one event at a time from
flat arrays; Tamis takes batches of 4,096 from Arrow columns, or as JSON texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.baselines.counting import CountingMatcher
from benchmarks.engines import Workload, count_batch, count_texts, engine_of
from benchmarks.harness import Contender, Row, agree, measure, options
from benchmarks.reporting import bars, file_name, rates, report
from benchmarks.workloads import conjunctions
from tamis.events import Event, encode_json

TITLE = "Conjunctions"
EVENTS = 4_096

WORKLOADS = {
    "A": conjunctions.workload_a,
    "B": conjunctions.workload_b,
    "C": conjunctions.workload_c,
}


def measured(group: str, work: Workload) -> list[Row]:
    """Measure the alternatives on one workload."""
    events, engine = work.events(EVENTS, 2), engine_of(work)
    texts = [encode_json(Event(event)) for event in events.dicts()]
    counting = CountingMatcher(work.fields, work.predicates, work.programs)
    runs = {
        "counting": partial(counting.counts, events.rows),
        "Tamis, Arrow": partial(count_batch, engine, events.record_batch()),
        "Tamis, JSON": partial(count_texts, engine, texts),
    }
    agree({name: run() for name, run in runs.items()})
    return measure([Contender(name, run, EVENTS, group) for name, run in runs.items()])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the table."""
    chosen = options(__doc__, arguments, subscriptions=(100_000,))
    rows = [
        row
        for size in chosen.subscriptions
        for name, draw in WORKLOADS.items()
        for row in measured(f"{name}, {size:,}", draw(size, 1))
    ]
    name = file_name("conjunctions", chosen.subscriptions)
    plot = bars(TITLE, "events", rows)
    report(name, TITLE, [rates("events", rows)], plot, folder=chosen.out)


if __name__ == "__main__":
    main()
