"""Boolean expressions (ABE-Gen): `python -m benchmarks.boolean [--subscriptions 100000 1000000]`.

The A-Tree takes one event at a time and so does a scan, from flat arrays; Tamis takes a batch of
4,096, as its own columns or Arrow's, or one event at a time as dicts. Deeper and wider
expressions are only compiled, to measure their memory per atom.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.baselines.atree import ATreeMatcher
from benchmarks.baselines.scan import ScanMatcher
from benchmarks.engines import compiled_of, count_batch, count_singly, engine_of, nbytes
from benchmarks.harness import Contender, Row, agree, fitting, measure, options, step
from benchmarks.reporting import Sheet, bars, file_name, rates, report
from benchmarks.workloads import boolean
from benchmarks.workloads.boolean import Shape
from tamis.events.batch import EventBatch

TITLE = "Boolean expressions"
EVENTS = 4_096

SHAPES = {
    "depth 3, 4 children": Shape(),
    "depth 6, 4 children": Shape(depth=6),
    "depth 3, 12 children": Shape(children=12),
}


def measured(count: int) -> list[Row]:
    """Measure the alternatives on a number of expressions."""
    work = boolean.subscriptions(count, 1)
    engine, events = engine_of(work), work.events(EVENTS, 2)
    batch, dicts = EventBatch.of_events(events.dicts()), events.dicts()
    with step(f"built the baselines for {count:,}"):
        tree = ATreeMatcher(work.fields, work.predicates, work.programs)
        scan = ScanMatcher(work.fields, work.predicates, work.programs)
    scanned = fitting(lambda n: scan.counts(events.rows.part(0, n)), EVENTS)
    single = fitting(lambda n: count_singly(engine, dicts[:n]), EVENTS)
    asked = fitting(lambda n: tree.counts(events.rows.part(0, n)), EVENTS)
    runs = {
        "A-Tree": partial(tree.counts, events.rows.part(0, asked)),
        "scan": partial(scan.counts, events.rows.part(0, scanned)),
        "Tamis, one event at a time": partial(count_singly, engine, dicts[:single]),
        "Tamis, batch": partial(count_batch, engine, batch),
        "Tamis, Arrow": partial(count_batch, engine, events.record_batch()),
    }
    counts = {name: run() for name, run in runs.items()}
    agree(counts)
    return measure(
        [Contender(name, run, len(counts[name]), f"{count:,}") for name, run in runs.items()]
    )


def memory(count: int) -> Sheet:
    """Compare the memory of the shapes per atom, counted without any sharing."""
    per_atom = {name: bytes_per_atom(count, shape) for name, shape in SHAPES.items()}
    default, *_ = per_atom.values()
    return Sheet(
        (f"{count:,} expressions of", "bytes per atom", "memory per atom vs default"),
        [(name, f"{size:.1f}", f"{size / default:.2f}") for name, size in per_atom.items()],
    )


def bytes_per_atom(count: int, shape: Shape) -> float:
    """Return the compiled size of an atom, given a number of expressions."""
    work = boolean.subscriptions(count, 1, shape)
    atoms = int((work.programs.code >= 0).sum())
    return nbytes(compiled_of(work).arrays) / atoms


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, subscriptions=(100_000,), shapes=2_000)
    rows = [row for size in chosen.subscriptions for row in measured(size)]
    sheets = [rates("events", rows), memory(chosen.shapes)]
    name = file_name("boolean", chosen.subscriptions)
    report(name, TITLE, sheets, bars(TITLE, "events", rows), folder=chosen.out)


if __name__ == "__main__":
    main()
