"""Building, keeping and changing engines: `python -m benchmarks.building`.

Filters go into an engine (`--filters` of each workload), on one core: as texts, which are parsed,
and already made. These rates are of processor time, so that two versions can be compared on a busy
machine. Then an engine of the paper's workload (`--subscriptions`) is built in a separate process,
saved, loaded, and changed one subscription at a time. Memory is the growth of a fresh process.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final, NamedTuple, ParamSpec, TypeVar

from benchmarks.engines import Case, Counts, count_batch, engine_of, fill
from benchmarks.harness import Contender, Latency, Row, agree, measure, options, timed
from benchmarks.reporting import Sheet, bars, durations, file_name, latencies, rates, report
from benchmarks.workloads import boolean, conjunctions, paper
from benchmarks.workloads.events import schema_of
from tamis.events.batch import EventBatch
from tamis.filters import Filter, Mode
from tamis.matching import Engine

TITLE = "Building"
CHANGES = 200
# Few, because the results of a batch take memory too.
EVENTS = 64

PAPER: Final = Case(paper.subscriptions, schema_of(paper.FIELDS), Mode.TOTAL)
CASES: Final = {
    "paper": PAPER,
    "boolean": Case(boolean.subscriptions),
    "conjunctions A": Case(conjunctions.workload_a),
}

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


# --- filters per second ----------------------------------------------------------------------


def built(case: Case, filters: Sequence[Filter] | Sequence[str]) -> Engine:
    """Return an engine of some filters, ready to match."""
    engine = case.engine()
    fill(engine, filters)
    engine.compact()
    return engine


def building_rates(count: int) -> list[Row]:
    """Measure how fast the filters of each workload go into an engine."""
    contenders = []
    for name, case in CASES.items():
        filters = case.draw(count, 1).filters()
        texts = [str(filter_) for filter_ in filters]
        contenders += [
            Contender(f"{name}, from text", partial(built, case, texts), count),
            Contender(f"{name}, already made", partial(built, case, filters), count),
        ]
    return measure(contenders, clock=process_time)


# --- memory ----------------------------------------------------------------------------------


class Holding(NamedTuple):
    """The memory of an engine in a process, and the matches it found."""

    resident: int
    counts: Counts


def in_fresh_process(
    work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Run a function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def build_and_save(count: int, path: Path) -> Holding:
    """Build an engine and save it."""

    def build() -> Engine:
        engine = engine_of(PAPER.draw(count, 1), PAPER)
        engine.save(path)
        return engine

    return _held_by(build)


def load(path: Path) -> Holding:
    """Load an engine that was saved."""
    return _held_by(partial(Engine.load, path))


def _held_by(make: Callable[[], Engine]) -> Holding:
    _load_code()
    before = _resident()
    engine = make()
    counts = _matched(engine)
    return Holding(_resident() - before, counts)


def _load_code() -> None:
    """Run everything on a small engine, so that the code itself is already in memory."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.tamis"
        engine = engine_of(PAPER.draw(EVENTS, 1), PAPER)
        engine.save(path)
        for each in (engine, Engine.load(path)):
            _matched(each)


def _matched(engine: Engine) -> Counts:
    events = PAPER.draw(1, 1).events(EVENTS, 2)
    return count_batch(engine, EventBatch.of_events(events.dicts(), PAPER.schema, total=True))


def _resident() -> int:
    """Return the resident memory of this process after freeing what can be freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


# --- one engine ------------------------------------------------------------------------------


def single_changes(engine: Engine) -> list[Latency]:
    """Time single changes, and the match after each."""
    rng, ids = Random(4), engine.ids()
    gone = rng.sample(ids, min(CHANGES, len(ids)))
    spare = PAPER.draw(len(gone), 9).filters()
    event = PAPER.draw(1, 1).events(1, 2).dicts()
    match = partial(engine.match_batch, event)
    match()
    times: dict[str, list[float]] = {}
    for number, (id_, filter_) in enumerate(zip(gone, spare, strict=True), start=len(ids)):
        for name, operation in (
            ("match one event", match),
            ("add one", partial(engine.add, number, filter_)),
            ("match one event after an add", match),
            ("remove one", partial(engine.remove, id_)),
            ("match one event after a remove", match),
        ):
            times.setdefault(name, []).extend(timed([operation]))
    return [Latency(name, found) for name, found in times.items()]


def kept(count: int) -> list[Sheet]:
    """Build, save, load and change an engine with a number of subscriptions."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "engine.tamis"
        new = in_fresh_process(build_and_save, count, path)
        loaded = in_fresh_process(load, path)
        agree({"the engine that was built": new.counts, "the one that was loaded": loaded.counts})
        sizes = {
            "file": path.stat().st_size,
            "memory, built": new.resident,
            "memory, loaded and used": loaded.resident,
        }
        engine = Engine.load(path)
        rows = measure(
            [
                Contender("load", partial(Engine.load, path), 1),
                Contender("save", partial(engine.save, path.with_name("again")), 1),
            ]
        )
        found = single_changes(engine)
    memory = Sheet(
        (f"paper, {count:,} subscriptions", "bytes each"),
        [(name, f"{size / count:,.0f}") for name, size in sizes.items()],
    )
    return [memory, durations(rows), latencies(found)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, filters=100_000, subscriptions=1_000_000)
    rows = building_rates(chosen.filters)
    sheets = [rates("filters", rows), *kept(chosen.subscriptions)]
    name = file_name("building", [chosen.subscriptions])
    report(name, TITLE, sheets, bars(TITLE, "filters", rows), folder=chosen.out)


if __name__ == "__main__":
    main()
