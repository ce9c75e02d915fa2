"""How a figure is made: alternatives take turns, and the median and spread of each are kept."""

from __future__ import annotations

import argparse
import gc
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import matplotlib as mpl
from rich.console import Console
from rich.table import Table

mpl.use("Agg")
from matplotlib import pyplot as plt

REPEATS = 7
RESULTS = Path("benchmarks/results")


class Contender(NamedTuple):
    """One alternative: what it is called, what it does, and how many things one run does."""

    name: str
    run: Callable[[], object]
    things: int


class Row(NamedTuple):
    """The rate of one alternative in things per second."""

    name: str
    rate: float
    low: float
    high: float


def measure(contenders: Sequence[Contender], repeats: int = REPEATS) -> list[Row]:
    """Run the alternatives in turns, so that what else the machine does falls on all of them."""
    for contender in contenders:
        contender.run()
    rates: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for _ in range(repeats):
        for contender in contenders:
            rates[contender.name].append(contender.things / _seconds(contender.run))
    return [Row(name, median(found), min(found), max(found)) for name, found in rates.items()]


def _seconds(run: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def report(
    name: str,
    title: str,
    unit: str,
    rows: Sequence[Row],
    *,
    notes: Sequence[str] = (),
    folder: Path = RESULTS,
) -> None:
    """Print the table, and write it and a plot to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    first = rows[0].rate
    table = Table("", f"{unit}/s, median", "lowest to highest", "ratio", title=title)
    lines = [f"| | {unit}/s, median | lowest to highest | ratio |", "|---|---:|---:|---:|"]
    for row in rows:
        cells = (
            row.name,
            f"{row.rate:,.0f}",
            f"{row.low:,.0f} to {row.high:,.0f}",
            f"{row.rate / first:.2f}",
        )
        table.add_row(*cells)
        lines.append(f"| {' | '.join(cells)} |")
    Console().print(table, *notes, machine(), sep="\n")
    text = "\n".join([*lines, "", *notes, machine(), ""])
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    _plot(folder / f"{name}.svg", title, f"{unit}/s", rows)


def _plot(path: Path, title: str, unit: str, rows: Sequence[Row]) -> None:
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(rows) + 1.2), layout="constrained")
    spread = [[row.rate - row.low for row in rows], [row.high - row.rate for row in rows]]
    axes.barh([row.name for row in rows], [row.rate for row in rows], xerr=spread, color="#4c7a9f")
    axes.invert_yaxis()
    axes.set_title(title)
    axes.set_xlabel(unit)
    # No date and no random ids, so that the same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "tamis"}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def machine() -> str:
    """Return the machine and the versions that a figure was made with."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return f"{cpu}, Python {platform.python_version()}, medians of {REPEATS} runs in turns."


def arguments(title: str, **numbers: int) -> argparse.Namespace:
    """Read the command line: where results go, and numbers that have a default."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder for results")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()
