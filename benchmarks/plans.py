"""Plans for finding subscriptions: `python -m benchmarks.plans [--subscriptions 10000 100000]`.

Each workload is compiled once for each plan (`tamis.matching.compile.plans`), and once with the one
that the model of costs chooses; all match the same batch and list what they found. For
conjunctions, the counting algorithm is there as well, although it only counts. No plan may be more
than a fifth faster than the chosen one. The times are processor times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.baselines.counting import CountingMatcher
from benchmarks.engines import Counts, compiled_of
from benchmarks.harness import Contender, Row, agree, measure, options
from benchmarks.reporting import Sheet, bars, crossed, file_name, rates, report
from benchmarks.workloads import boolean, conjunctions
from tamis.events.arrow import batch_of_arrow
from tamis.events.batch import EventBatch
from tamis.matching.compile.compiled import Compiled
from tamis.matching.compile.plans import PLANS
from tamis.matching.evaluate.evaluator import Evaluator
from tamis.matching.matches import Ids, MatchedBatch, MatchedSegment, Matches

TITLE = "Plans"
EVENTS = 4_096
MOST = 1.2
CHOSEN = "chosen"

WORKLOADS: dict[str, Callable[[int, int], Any]] = {
    "A": conjunctions.workload_a,
    "B": conjunctions.workload_b,
    "C": conjunctions.workload_c,
    "growth": conjunctions.growth,
    "uneven growth": partial(conjunctions.growth, even=False),
    "Boolean": boolean.subscriptions,
}


def counts_of(evaluator: Evaluator, ids: Ids, batch: EventBatch) -> Counts:
    """Match a batch, list the numbers of what matches, and count them."""
    found = MatchedBatch(batch.length, [evaluator.evaluate(batch)])
    events, _ = Matches(batch.length, [MatchedSegment(ids, None)], [found], {}, {}).numbers()
    return np.bincount(events, minlength=batch.length)


def measured(group: str, work: Any) -> list[Row]:
    """Measure the plans on one workload."""
    events = work.events(EVENTS, 2)
    batch, ids = batch_of_arrow(events.record_batch()), Ids(np.empty(work.count, np.object_))
    names = {CHOSEN: None, **{f"keys of up to {plan} cells": plan for plan in PLANS}}
    plans: dict[str, Compiled] = {name: compiled_of(work, plan=p) for name, p in names.items()}
    runs: dict[str, Callable[[], Counts]] = {
        name: partial(counts_of, Evaluator(compiled), ids, batch)
        for name, compiled in plans.items()
    }
    if isinstance(work, conjunctions.Conjunctions):
        counting = CountingMatcher(work.fields, work.predicates, work.programs)
        runs["counting"] = partial(counting.counts, events.rows)
    agree({name: run() for name, run in runs.items()})
    contenders = [Contender(name, run, EVENTS, group) for name, run in runs.items()]
    return measure(contenders, harness.REPEATS, time.process_time)


def ratios(rows: Sequence[Row]) -> Sheet:
    """Compare the chosen plan with the best."""
    lines = []
    for group in dict.fromkeys(row.group for row in rows):
        own = {row.name: row.rate for row in rows if row.group == group}
        best = max(own, key=own.__getitem__)
        ratio = own[best] / own[CHOSEN]
        lines.append((group, best, f"{ratio:.2f}", "yes" if ratio <= MOST else "no"))
    return Sheet(("", "best", "its rate / the chosen plan's", f"at most {MOST:g}"), lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, subscriptions=(10_000, 100_000))
    rows = [
        row
        for size in chosen.subscriptions
        for name, draw in WORKLOADS.items()
        for row in measured(f"{name}, {size:,}", draw(size, 1))
    ]
    sheets = [
        ratios(rows),
        crossed("events/s", rows, lambda row: f"{row.rate:,.0f}"),
        rates("events", rows),
    ]
    name = file_name("plans", chosen.subscriptions)
    report(name, TITLE, sheets, bars(TITLE, "events", rows), folder=chosen.out)


if __name__ == "__main__":
    main()
