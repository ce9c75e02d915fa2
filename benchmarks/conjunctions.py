"""Conjunctions (BE-Gen): `python -m benchmarks.conjunctions [--subscriptions 100000]`.

Workloads A, B and C of the engine's issue. The counting algorithm takes one event at a time from
flat arrays; Tamis takes batches of 4,096 from Arrow columns, or as JSON texts.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from benchmarks.baselines.counting import CountingMatcher
from benchmarks.harness import Contender, arguments, measure, report
from benchmarks.workloads import conjunctions
from benchmarks.workloads.conjunctions import Workload
from tamis.events import Event, decode_json, encode_json
from tamis.matching import Engine, Subscription

EVENTS = 4_096

WORKLOADS = {
    "A": conjunctions.workload_a,
    "B": conjunctions.workload_b,
    "C": conjunctions.workload_c,
}


def engine_of(work: Workload) -> Engine:
    """Return an engine with all subscriptions of a workload."""
    engine = Engine()
    added = engine.add_many(Subscription(n, filter_) for n, filter_ in enumerate(work.filters()))
    assert not added.rejected  # noqa: S101 - a benchmark of nothing would be fast
    return engine


def match_table(engine: Engine, table: pa.RecordBatch) -> int:
    """Match columns, and count the matches."""
    return int(engine.match_batch(table).counts().sum())


def match_texts(engine: Engine, texts: list[str]) -> int:
    """Match JSON texts, and count the matches."""
    return int(engine.match_batch([decode_json(text) for text in texts]).counts().sum())


def contenders(name: str, work: Workload) -> list[Contender]:
    """Return the alternatives for one workload."""
    events, engine = work.events(EVENTS, 2), engine_of(work)
    table = events.record_batch()
    texts = [encode_json(Event(event)) for event in events.dicts()]
    counting = CountingMatcher(work.fields, work.predicates, work.programs)
    wanted = int(counting.counts(events.rows).sum())
    for found in (match_table(engine, table), match_texts(engine, texts)):
        assert found == wanted, f"{name}: {found} matches instead of {wanted}"  # noqa: S101
    return [
        Contender(f"{name}: counting", partial(counting.counts, events.rows), EVENTS),
        Contender(f"{name}: Tamis, Arrow", partial(match_table, engine, table), EVENTS),
        Contender(f"{name}: Tamis, JSON", partial(match_texts, engine, texts), EVENTS),
    ]


def main() -> None:
    """Measure, print and write the table."""
    options = arguments("Conjunctions", subscriptions=100_000)
    count = options.subscriptions
    rows = []
    for name, draw in WORKLOADS.items():
        rows += measure(contenders(name, draw(count, 1)))
    report(
        f"conjunctions-{count}",
        f"Conjunctions, {count:,} subscriptions",
        "events",
        rows,
        folder=options.out,
    )


if __name__ == "__main__":
    main()
