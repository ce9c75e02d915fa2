"""How figures are measured: alternatives take turns; each keeps its median and spread."""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

REPEATS = 7
# Slow alternatives do fewer operations in a run, so that a run takes about this many seconds.
SECONDS_PER_RUN = 0.4
# Quick ones are repeated where `lasting` is asked for.
SHORTEST_RUN_SECONDS = 0.1
RESULTS = Path("benchmarks/results")

_progress = Console(stderr=True)


class Contender(NamedTuple):
    """One alternative: its name, a function to run, and how many things one run does."""

    name: str
    run: Callable[[], object]
    things: int
    group: str = ""
    """The comparison it takes part in; ratios are to the first contender of a group."""


class Row(NamedTuple):
    """The rate of one alternative in things per second, and its ratio to the group's first."""

    group: str
    name: str
    rate: float
    low: float
    high: float
    ratio: float


class Latency(NamedTuple):
    """The times of single operations, in seconds."""

    name: str
    times: Sequence[float]


class DisagreementError(Exception):
    """Alternatives that find different matches, so that their figures cannot be compared."""


def measure(
    contenders: Sequence[Contender],
    repeats: int = REPEATS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Row]:
    """Run the alternatives in turns, so that other load on the machine affects all of them.

    Each turn begins with another: what runs after a slow one finds less of its own in the caches.
    Where all of them run on one thread of this process, `time.process_time` leaves that load out.
    """
    rates: list[list[float]] = [[] for _ in contenders]
    groups = dict.fromkeys(contender.group for contender in contenders)
    with step(f"measured {'; '.join(groups)}".rstrip()) as show, _everything_here_kept():
        for contender in contenders:
            contender.run()
        for turn in range(repeats):
            show(f"turn {turn + 1} of {repeats}")
            for offset in range(len(contenders)):
                number = (turn + offset) % len(contenders)
                contender = contenders[number]
                rates[number].append(contender.things / _seconds(contender.run, clock))
    return _rows(contenders, rates)


@contextmanager
def _everything_here_kept() -> Iterator[None]:
    """Keep the garbage collector away from millions of filters that stay alive."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _rows(contenders: Sequence[Contender], rates: Sequence[Sequence[float]]) -> list[Row]:
    rows = []
    firsts: dict[str, float] = {}
    for contender, found in zip(contenders, rates, strict=True):
        rate = median(found)
        ratio = rate / firsts.setdefault(contender.group, rate)
        rows.append(Row(contender.group, contender.name, rate, min(found), max(found), ratio))
    return rows


def _seconds(run: Callable[[], object], clock: Callable[[], float]) -> float:
    gc.collect()
    start = clock()
    run()
    return clock() - start


def fitting(run: Callable[[int], object], most: int) -> int:
    """Return how many of the operations a run has time for."""
    run(1)
    count = 1
    while count < most and sum(timed([partial(run, count)])) < SECONDS_PER_RUN / 2:
        count = min(2 * count, most)
    return count


def lasting(contender: Contender) -> Contender:
    """Return a contender that repeats what is over too soon to be measured.

    Once is enough for what comes first to find nothing of its own in the caches, and too little to
    tell what a stream of the same would take.
    """
    [seconds] = timed([contender.run])
    times = max(1, round(SHORTEST_RUN_SECONDS / max(seconds, 1e-9)))

    def run() -> None:
        for _ in range(times):
            contender.run()

    return contender._replace(run=run, things=contender.things * times)


def timed(
    operations: Iterable[Callable[[], object]], clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Run each operation once and return the times."""
    times = []
    for operation in operations:
        start = clock()
        operation()
        times.append(clock() - start)
    return times


def agree(counts: Mapping[str, NDArray[np.int64]]) -> None:
    """Refuse alternatives that find different matches in some event, or none at all.

    Slow ones may have counted the first few events only.
    """
    most, wanted = max(counts.items(), key=lambda item: len(item[1]))
    if not wanted.any():
        raise DisagreementError(f"{most} finds no match in {len(wanted):,} events")
    for name, found in counts.items():
        if not len(found) or not np.array_equal(found, wanted[: len(found)]):
            raise DisagreementError(
                f"{name} finds {found.sum():,} matches in {len(found):,} events, where {most} "
                f"finds {wanted[: len(found)].sum():,}, or not in the same events"
            )


@contextmanager
def step(name: str) -> Iterator[Callable[[str], None]]:
    """Show the progress of a long step, and the time it took when it is done."""
    start = time.perf_counter()
    with _progress.status(name) as status:
        yield lambda done: status.update(f"{name}: {done}")
    _progress.print(f"{name}: {time.perf_counter() - start:.1f} s", style="dim")


def options(
    title: str | None,
    arguments: Sequence[str] | None,
    **defaults: bool | int | tuple[int, ...] | None,
) -> argparse.Namespace:
    """Read the command line: where results go, flags, numbers, lists of numbers, other folders."""
    parser = argparse.ArgumentParser(
        description=title, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder for results")
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
            continue
        if default is None:
            parser.add_argument(option, type=Path, metavar="FOLDER")
            continue
        several = default if isinstance(default, tuple) else None
        parser.add_argument(
            option,
            type=_count,
            default=default,
            nargs="+" if several else None,
            metavar="N",
            help=f"default: {' '.join(map(str, several or (default,)))}",
        )
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    count = int(text.replace("_", ""))
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is no number of anything")
    return count
