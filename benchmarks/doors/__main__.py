"""Ways into the engine: `python -m benchmarks.doors [--divide 100] [--only A texts] [--busy]`.

The same events as Arrow's columns, JSON lines, dicts, and one by one, against A, B, C, texts and
Boolean expressions. Beside them the counting algorithm, on flat arrays that are there beforehand
and on those that it makes of Arrow's columns; and the same in DuckDB, event-ruler and quamina's
Rust port. All have one thread: `pip install duckdb` and `benchmarks/peers/setup` make them; what is
missing is left out with a note. Every way must find the same number of matches in every event.
On a machine that is busy with other work, `--busy` leaves out what runs in another process, and
measures processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from benchmarks import harness
from benchmarks.doors.joins import is_installed, join_ways
from benchmarks.doors.ways import DoorEvents, Way, batch_ways, counting_ways, single_ways
from benchmarks.engines import engine_of
from benchmarks.harness import Contender, Row, agree, fitting, lasting, measure
from benchmarks.peers.patterns import patterns_of
from benchmarks.peers.processes import PEERS, running
from benchmarks.reporting import Sheet, bars, crossed, rates, report
from benchmarks.workloads import boolean, conjunctions
from tamis.filters import Filter

TITLE = "Ways into the engine"
EVENTS = 4_096


class DoorCase(NamedTuple):
    """A workload at one size."""

    name: str
    draw: Callable[[int, int], Any]
    size: int

    def label(self, size: int) -> str:
        """Return the name with the number of subscriptions."""
        return f"{self.name}, {size:,}"


CASES: Final = (
    *(DoorCase("A", conjunctions.workload_a, size) for size in (10_000, 100_000, 1_000_000)),
    DoorCase("texts", conjunctions.workload_texts, 100_000),
    *(DoorCase("B", conjunctions.workload_b, size) for size in (10_000, 100_000)),
    DoorCase("C", conjunctions.workload_c, 100_000),
    DoorCase("Boolean", boolean.subscriptions, 100_000),
)

ASKED: Final = (
    ("JSON lines", "Arrow", 0.25, ("A",)),
    ("JSON lines", "event-ruler", 5.0, ("A, 100", "texts")),
    ("JSON lines", "quamina's Rust port", 2.0, ("B",)),
    ("JSON lines", "event-ruler", 500.0, ("C",)),
    ("list of dicts", "Arrow", 0.15, ("A",)),
    ("one JSON event at a time", "event-ruler", 1.0, ("A, 100",)),
    ("one JSON event at a time", "event-ruler", 3.0, ("A, 1,000,000",)),
    ("one JSON event at a time", "quamina's Rust port", 2.0, ("B, 100",)),
    ("Arrow", "DuckDB join, Arrow", 2.0, ("B",)),
    ("Arrow", "counting", 1.0, ("B",)),
    ("Arrow", "counting, from Arrow", 1.0, ("B",)),
)
"""A way, what it is compared with, the ratio that is asked for, and where."""


def measured(
    case: DoorCase, size: int, repeats: int, folder: Path, *, is_busy: bool = False
) -> list[Row]:
    """Measure all ways on one workload; on a busy machine, those in this process."""
    work = case.draw(size, 1)
    engine = engine_of(work)
    filters = work.filters()
    events = DoorEvents.of(work.events(EVENTS, 2).record_batch(), filters[0])
    with ExitStack() as stack:
        together = batch_ways(engine, events)
        if isinstance(work, conjunctions.Conjunctions):
            together |= counting_ways(work, events)
        together |= join_ways(filters, events, folder) if is_installed() else {}
        singly = single_ways(engine, events)
        singly |= {} if is_busy else dict(_peers(stack, filters, events, folder))
        ways = together | singly
        most = dict.fromkeys(together, EVENTS)
        most |= {name: fitting(way, EVENTS) for name, way in singly.items()}
        counts = {name: way(most[name]) for name, way in ways.items()}
        agree(counts)
        contenders = [
            lasting(Contender(name, partial(way, most[name]), most[name], case.label(size)))
            for name, way in ways.items()
        ]
        return measure(contenders, repeats, time.process_time if is_busy else time.perf_counter)


def _peers(
    stack: ExitStack, filters: Sequence[Filter], events: DoorEvents, folder: Path
) -> Iterator[tuple[str, Way]]:
    patterns = patterns_of(filters)
    if patterns is None:
        return
    has_ranges = "numeric" in patterns[0]
    files = folder / "patterns.jsonl", folder / "events.jsonl"
    files[0].write_text("\n".join(patterns) + "\n", encoding="utf-8")
    files[1].write_bytes(events.text(len(events.lines)) + b"\n")
    for peer in PEERS:
        is_able = len(patterns) <= peer.max_patterns and (peer.has_ranges or not has_ranges)
        if peer.is_there and is_able:
            yield peer.name, stack.enter_context(running(peer, *files)).counts


def notes() -> list[str]:
    """Say which peers are left out, and how to get them."""
    missing = [] if is_installed() else ["DuckDB is not installed: pip install duckdb."]
    return missing + [
        f"{peer.name} is not built: benchmarks/peers/setup." for peer in PEERS if not peer.is_there
    ]


def ratios(rows: Sequence[Row]) -> Sheet:
    """Compare ways where a ratio is asked for."""
    found = {(row.group, row.name): row.rate for row in rows}
    lines = []
    for way, other, asked, places in ASKED:
        for group in dict.fromkeys(row.group for row in rows):
            pair = found.get((group, way)), found.get((group, other))
            if group.startswith(places) and pair[0] and pair[1]:
                is_met = "yes" if pair[0] / pair[1] >= asked else "no"
                lines.append(
                    (f"{group}: {way} / {other}", f"{pair[0] / pair[1]:.2f}", f"{asked:g}", is_met)
                )
    return Sheet(("", "ratio", "asked", "met"), lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=harness.RESULTS, help="the folder for results")
    parser.add_argument("--divide", type=int, default=1, metavar="N", help="smaller workloads")
    parser.add_argument("--repeats", type=int, default=None, metavar="N")
    parser.add_argument("--busy", action="store_true", help="measure processor time")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="some workloads")
    chosen = parser.parse_args(arguments)
    repeats = chosen.repeats or harness.REPEATS
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        for case in CASES:
            if not chosen.only or case.name in chosen.only:
                size = max(case.size // chosen.divide, 1)
                place = Path(folder) / f"{case.name}-{size}"
                place.mkdir()
                rows += measured(case, size, repeats, place, is_busy=chosen.busy)
    sheets = [
        crossed("events/s", rows, lambda row: f"{row.rate:,.0f}"),
        ratios(rows),
        rates("events", rows),
    ]
    report(
        "doors", TITLE, sheets, bars(TITLE, "events", rows), notes=notes(), folder=chosen.out,
        repeats=repeats,
    )  # fmt: skip


if __name__ == "__main__":
    main()
