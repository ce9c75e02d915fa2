"""Time and memory of the baselines alone: `python -m benchmarks.baselines.figures paper`.

Figures for orientation: medians of five runs, one event at a time on one core. For claims, use the
benchmarks of the engine, which run the same baselines in turns with it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from benchmarks.baselines.atree import ATreeMatcher
from benchmarks.baselines.counting import CountingMatcher
from benchmarks.baselines.plain_bdd import Bdd, Builder
from benchmarks.baselines.scan import ScanMatcher
from benchmarks.workloads import boolean, conjunctions, paper
from benchmarks.workloads.events import Events

REPEATS = 5
SEED = 1


def seconds(run: Callable[[], object]) -> float:
    """Return the median time of a run, after a warm-up."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return median(times)


def show_paper(count: int) -> None:
    """Print the nodes per filter and the times of the paper's algorithms."""
    workload = paper.subscriptions(count, SEED)
    events = {density: workload.events(200, SEED, density) for density in (1.0, 0.154)}
    scan = ScanMatcher(workload.fields, workload.predicates, workload.programs)
    rate = scan.counts(events[1.0].rows).mean() / count
    print(f"paper, {count:,} filters; {rate:.1%} of the pairs match")
    for every, name in ((False, "= < > as variables"), (True, "208 variables")):
        builder = Builder(workload.programs, every=every)
        _show_bdd(f"{name}, plain", builder.bdd(), count, events)
        builder.restrict()
        _show_bdd(f"{name}, restricted", builder.bdd(), count, events)


def _show_bdd(name: str, bdd: Bdd, count: int, events: dict[float, Events]) -> None:
    print(f"  {name}: {bdd.node_count / count:.2f} nodes per filter; ms per 1,000 messages:")
    for form, split in (("records", False), ("split", True)):
        times = [
            seconds(partial(bdd.evaluate, events[1.0].rows, split=split)),
            seconds(partial(bdd.evaluate, events[1.0].rows, split=split, partial=True)),
            seconds(partial(bdd.evaluate, events[0.154].rows, split=split, partial=True)),
        ]
        total, total_mv, partial_mv = (1e6 * taken / len(events[1.0]) for taken in times)
        print(
            f"    {form:8} EvalBDD {total:7,.0f}   MVEvalBDD 100 % {total_mv:7,.0f}"
            f"   15.4 % {partial_mv:7,.0f}"
        )


def show_boolean(count: int) -> None:
    """Print the speed and size of the A-Tree, and the speed of a scan."""
    workload = boolean.subscriptions(count, SEED)
    start = time.perf_counter()
    tree = ATreeMatcher(workload.fields, workload.predicates, workload.programs)
    built = time.perf_counter() - start
    events = workload.events(500, SEED)
    rate = tree.counts(events.rows).mean() / count
    print(f"boolean, {count:,} expressions; {rate:.2%} of the pairs match")
    print(
        f"  A-Tree {_rate(tree, events):,.0f} events/s, {tree.node_count / count:.1f} nodes and "
        f"{tree.nbytes / count:,.0f} bytes per expression, built in {built:.1f} s"
    )
    scan = ScanMatcher(workload.fields, workload.predicates, workload.programs)
    print(f"  scan   {_rate(scan, workload.events(20, SEED)):,.1f} events/s")


def show_conjunctions(count: int) -> None:
    """Print the speed and size of counting, and the speed of a scan."""
    for name, draw in (
        ("A", conjunctions.workload_a),
        ("B", conjunctions.workload_b),
        ("C", conjunctions.workload_c),
        ("growth, even", conjunctions.growth),
        ("growth, one key", partial(conjunctions.growth, even=False)),
    ):
        workload = draw(count, SEED)
        counting = CountingMatcher(workload.fields, workload.predicates, workload.programs)
        scan = ScanMatcher(workload.fields, workload.predicates, workload.programs)
        events = workload.events(1000, SEED)
        matches = counting.counts(events.rows).mean()
        print(
            f"{name}, {count:,} conjunctions; {matches:,.2f} matches per event: counting "
            f"{_rate(counting, events):,.0f} events/s, {counting.nbytes / count:,.0f} bytes each; "
            f"scan {_rate(scan, workload.events(20, SEED)):,.0f} events/s"
        )


def _rate(matcher: ATreeMatcher | CountingMatcher | ScanMatcher, events: Events) -> float:
    return len(events) / seconds(lambda: matcher.counts(events.rows))


SHOW = {"paper": show_paper, "boolean": show_boolean, "conjunctions": show_conjunctions}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of one workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=SHOW)
    parser.add_argument("counts", type=int, nargs="*", default=[100_000])
    chosen = parser.parse_args(arguments)
    for count in chosen.counts:
        SHOW[chosen.workload](count)


if __name__ == "__main__":
    main()
