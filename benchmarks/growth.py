"""Time per event against the number of subscriptions: `python -m benchmarks.growth`.

Conjunctions of three equalities, of which every event matches about ten, however many there are:
the cardinalities grow with them, all three alike, or with `--one-key` only the first, as
the number of users would. The slope is that of a line through the points on logarithmic scales:
0 is time that does not grow, 1 is time that grows as the number of subscriptions does.
`--largest 10000000` continues to ten million, in about as many gigabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from benchmarks.baselines.counting import CountingMatcher
from benchmarks.engines import Counts, count_batch, count_singly, engine_of
from benchmarks.harness import Contender, DisagreementError, Row, agree, fitting, measure, options
from benchmarks.reporting import Sheet, crossed, file_name, lines, point, rates, report
from benchmarks.workloads import conjunctions

TITLE = "Time per event at ten matches each"
SIZES: Final = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
EVENTS = 4_096


def contenders(count: int, *, even: bool) -> list[Contender]:
    """Return the alternatives for a number of subscriptions."""
    work = conjunctions.growth(count, 1, even=even)
    engine, events = engine_of(work), work.events(EVENTS, 2)
    dicts, rows = events.dicts(), events.rows
    counting = CountingMatcher(work.fields, work.predicates, work.programs)
    counted = fitting(lambda n: counting.counts(rows.part(0, n)), EVENTS)
    single = fitting(lambda n: count_singly(engine, dicts[:n]), EVENTS)
    runs = {
        "counting": partial(counting.counts, rows.part(0, counted)),
        "Tamis, one event at a time": partial(count_singly, engine, dicts[:single]),
        "Tamis, Arrow": partial(count_batch, engine, events.record_batch()),
    }
    counts = {name: run() for name, run in runs.items()}
    agree(counts)
    check_matches(count, counts["Tamis, Arrow"])
    return [Contender(name, run, len(counts[name]), f"{count:,}") for name, run in runs.items()]


def check_matches(count: int, counts: Counts) -> None:
    """Refuse figures in which the matches per event grow too."""
    if not 0.5 * conjunctions.MATCHES < counts.mean() < 2 * conjunctions.MATCHES:
        raise DisagreementError(f"at {count:,} an event has {counts.mean():.1f} matches, not ten")


def measured(sizes: Sequence[int], *, even: bool) -> list[Row]:
    """Measure all sizes in turns, because the sizes are compared."""
    return measure([each for size in sizes for each in contenders(size, even=even)])


def slopes(sizes: Sequence[int], rows: Sequence[Row]) -> Sheet:
    """Return how the time of each alternative grows, between all sizes and from end to end."""
    table = []
    for name, found in by_name(rows).items():
        times = [1 / row.rate for row in found]
        slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
        table.append((name, f"{slope:.2f}", f"{times[-1] / times[0]:.2f}"))
    return Sheet(
        ("growth of time per event", "slope", f"{sizes[-1]:,} against {sizes[0]:,}"), table
    )


def by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each alternative, by size."""
    return {
        name: [row for row in rows if row.name == name]
        for name in dict.fromkeys(row.name for row in rows)
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, largest=3_000_000, one_key=False)
    # A slope needs two sizes.
    sizes = [size for size in SIZES if size <= max(SIZES[1], chosen.largest)]
    rows = measured(sizes, even=not chosen.one_key)
    series = {
        name: [point(size, row, 1e6) for size, row in zip(sizes, found, strict=True)]
        for name, found in by_name(rows).items()
    }
    sheets = [
        slopes(sizes, rows),
        crossed("µs per event", rows, lambda row: f"{1e6 / row.rate:,.2f}"),
        rates("events", rows),
    ]
    name = file_name("growth-one-key" if chosen.one_key else "growth", sizes[-1:])
    plot = lines(TITLE, {"": series}, "subscriptions", "µs per event")
    report(name, TITLE, sheets, plot, folder=chosen.out)


if __name__ == "__main__":
    main()
