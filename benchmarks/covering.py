"""A covering index and comparing with all: `python -m benchmarks.covering [--filters 100000]`.

Filters of a market and Boolean expressions are added one by one; then filters are removed and
others added in turns. The index keeps its roots right after each change. Comparing with all is
extrapolated: one addition asks two questions about each filter that is there, of which a random
sample is timed. Before anything is measured, both find the same roots among a few filters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from statistics import median
from typing import Final, NamedTuple

from benchmarks.harness import DisagreementError, Latency, Row, options, step, timed
from benchmarks.reporting import Sheet, bars, file_name, latencies, report
from benchmarks.workloads.drawn import collector_paused
from tamis.covering import CoveringIndex, ExhaustiveCoveringIndex
from tamis.diagrams import Space
from tamis.diagrams.relations import RelationOptions
from tamis.filters import Filter
from tamis.workloads import Workload

TITLE = "Covering: roots kept right while filters come and go"
CHANGES = 1_000
COMPARED = 30
PAIRS = 400
SHARES = 5
# One thread of this process does it all, so that other load can be left out.
CLOCK = time.process_time


class Figures(NamedTuple):
    """What was measured of one workload."""

    name: str
    roots: int
    added: Latency
    removed: Latency
    pair: float
    """The seconds of one comparison, in the mean of the sample."""
    filters: int

    @property
    def all_rate(self) -> float:
        """Return additions per second by comparing with all, extrapolated."""
        return 1 / (2 * self.filters * self.pair)


def agree(filters: Sequence[Filter], given: RelationOptions) -> None:
    """Refuse an index that finds other roots than comparing with all."""
    fast, slow = CoveringIndex(**given), ExhaustiveCoveringIndex(**given)
    for number, filter_ in enumerate(filters):
        fast.add(number, filter_)
        slow.add(number, filter_)
    for number in range(0, len(filters), 3):
        fast.remove(number)
        slow.remove(number)
    if fast.roots() != slow.roots():
        raise DisagreementError(f"{len(fast.roots())} roots are not {len(slow.roots())}")


def fill(index: CoveringIndex, filters: Sequence[Filter], show: Callable[[str], None]) -> None:
    """Add filters one by one."""
    for number, filter_ in enumerate(filters):
        index.add(number, filter_)
        if number % 1_000 == 0:
            show(f"{number:,}")


def seconds_per_pair(filters: Sequence[Filter], given: RelationOptions) -> float:
    """Return the mean time of a comparison, over random pairs."""
    rng, space = Random(5), Space(**given)
    pairs = [rng.choices(filters, k=2) for _ in range(PAIRS)]
    for one, other in pairs[:10]:
        space.covers(one, other)
    return sum(timed((partial(space.covers, *pair) for pair in pairs), CLOCK)) / PAIRS


def measured(name: str, count: int, *, typed: bool) -> Figures:
    """Fill an index and change it."""
    workload = Workload.load(name)
    given: RelationOptions = {"schema": workload.schema} if typed else {}
    changes = min(CHANGES, count // 2)
    with collector_paused():
        filters = workload.filters(0, count + changes, 1)
    with step(f"compared {COMPARED} filters of {name} with all"):
        agree(filters[:COMPARED], given)
    index = CoveringIndex(**given)
    with step(f"added {count:,} filters of {name}") as show, collector_paused():
        fill(index, filters[:count], show)
    rng = Random(3)
    added, removed = list[float](), list[float]()
    with step(f"changed {changes:,} of them"), collector_paused():
        for number, gone in enumerate(rng.sample(range(count), changes), count):
            removed += timed([partial(index.remove, gone)], CLOCK)
            added += timed([partial(index.add, number, filters[number])], CLOCK)
    return Figures(
        f"{name}, {count:,}",
        len(index.roots()),
        Latency(f"{name}, {count:,}: add", added),
        Latency(f"{name}, {count:,}: remove", removed),
        seconds_per_pair(filters, given),
        count,
    )


def rows(figures: Figures) -> list[Row]:
    """Return the rates of the index and of comparing with all."""
    found = figures.added.times
    part = len(found) // SHARES
    shares = [part / sum(found[n * part : (n + 1) * part]) for n in range(SHARES)]
    rate, all_ = median(shares), figures.all_rate
    return [
        Row(figures.name, "comparing with all (extrapolated)", all_, all_, all_, 1.0),
        Row(figures.name, "covering index", rate, min(shares), max(shares), rate / all_),
    ]


def sheet(found: Sequence[Row], every: Sequence[Figures]) -> Sheet:
    """Return a line for each alternative."""
    roots = {figures.name: f"{figures.roots:,}" for figures in every}
    return Sheet(
        ("", "adds/s, median", "lowest to highest", "ratio", "roots"),
        [
            (
                f"{row.group}: {row.name}",
                f"{row.rate:,.4g}",
                f"{row.low:,.4g} to {row.high:,.4g}",
                f"{row.ratio:,.0f}",
                roots[row.group],
            )
            for row in found
        ],
    )


CASES: Final = {"market": True, "abe": False}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, filters=(100_000,))
    every = [
        measured(name, count, typed=typed)
        for count in chosen.filters
        for name, typed in CASES.items()
    ]
    found = [row for figures in every for row in rows(figures)]
    times = [latency for one in every for latency in (one.added, one.removed)]
    report(
        file_name("covering", chosen.filters),
        TITLE,
        [sheet(found, every), latencies(times)],
        bars(TITLE, "adds", found),
        notes=[
            f"Comparing with all: the mean of {PAIRS} random pairs, two for each filter.",
            "Processor time is counted.",
        ],
        folder=chosen.out,
        repeats=SHARES,
    )


if __name__ == "__main__":
    main()
