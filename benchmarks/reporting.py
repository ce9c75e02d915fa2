"""Figures as tables, on the screen and in a file, with a plot."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.harness import Latency, Row

# Bars that differ by more than this factor are drawn on a logarithmic scale.
WIDEST_LINEAR_RATIO = 30


class Sheet(NamedTuple):
    """A table; the first column labels the line, the others hold numbers."""

    columns: Sequence[str]
    lines: Sequence[Sequence[str]]


class Point(NamedTuple):
    """A point in a plot, with its spread."""

    x: float
    y: float
    low: float
    high: float


Panels = Mapping[str, Mapping[str, Sequence[Point]]]


# --- tables ----------------------------------------------------------------------------------


def rates(unit: str, rows: Iterable[Row]) -> Sheet:
    """Return a line for each alternative."""
    return Sheet(
        ("", f"{unit}/s, median", "lowest to highest", "ratio"),
        [
            (
                label(row),
                f"{row.rate:,.0f}",
                f"{row.low:,.0f} to {row.high:,.0f}",
                f"{row.ratio:.2f}",
            )
            for row in rows
        ],
    )


def durations(rows: Iterable[Row]) -> Sheet:
    """Return a line for each alternative, with the time per thing."""
    return Sheet(
        ("", "ms, median", "lowest to highest"),
        [
            (label(row), f"{1e3 / row.rate:,.1f}", f"{1e3 / row.high:,.1f} to {1e3 / row.low:,.1f}")
            for row in rows
        ],
    )


def latencies(found: Iterable[Latency]) -> Sheet:
    """Return a line for each kind of operation."""
    return Sheet(
        ("", "µs, median", "99 of 100 within", "longest", "operations"),
        [
            (
                latency.name,
                *(f"{1e6 * np.quantile(latency.times, q):,.0f}" for q in (0.5, 0.99, 1)),
                f"{len(latency.times):,}",
            )
            for latency in found
        ],
    )


def crossed(title: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> Sheet:
    """Return a line for each group and a column for each alternative."""
    names = list(dict.fromkeys(row.name for row in rows))
    groups = dict.fromkeys(row.group for row in rows)
    cells = {(row.group, row.name): cell(row) for row in rows}
    return Sheet(
        (title, *names),
        [(group, *(cells.get((group, name), "") for name in names)) for group in groups],
    )


def label(row: Row) -> str:
    """Return the label of a row."""
    return f"{row.group}: {row.name}" if row.group else row.name


# --- plots -----------------------------------------------------------------------------------


def bars(title: str, unit: str, rows: Sequence[Row]) -> Figure:
    """Draw a bar for each alternative."""
    figure = Figure(figsize=(8, 0.35 * len(rows) + 1.2), layout="constrained")
    axes = figure.subplots()
    spread = [[row.rate - row.low for row in rows], [row.high - row.rate for row in rows]]
    found = [row.rate for row in rows]
    axes.barh([label(row) for row in rows], found, xerr=spread, color="#4c7a9f")
    if found and max(found) > WIDEST_LINEAR_RATIO * min(found):
        axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel(f"{unit}/s")
    figure.suptitle(title)
    return figure


def lines(title: str, panels: Panels, x: str, y: str) -> Figure:
    """Draw series in panels side by side, on logarithmic scales."""
    figure = Figure(figsize=(5 * len(panels) + 3, 5), layout="constrained")
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, series) in zip(every, panels.items(), strict=True):
        for key, points in series.items():
            middle = [point.y for point in points]
            spread = [[p.y - p.low for p in points], [p.high - p.y for p in points]]
            axes.errorbar([p.x for p in points], middle, spread, label=key, marker="o", capsize=3)
        axes.set(xscale="log", yscale="log", xlabel=x, title=name)
        axes.grid(visible=True, which="both", alpha=0.3)
    every[0].set_ylabel(y)
    figure.legend(*_legend(every), loc="outside right upper")
    figure.suptitle(title)
    return figure


def _legend(every: Iterable[Any]) -> tuple[Sequence[Any], Sequence[str]]:
    """Return the series of all panels, each once."""
    handles: dict[str, Any] = {}
    for axes in every:
        handles |= {
            name: handle for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
        }
    return list(handles.values()), list(handles)


def point(x: float, row: Row, scale: float) -> Point:
    """Return the point at `x` for the time that `scale` things take."""
    return Point(x, scale / row.rate, scale / row.high, scale / row.low)


# --- files -----------------------------------------------------------------------------------


def report(
    name: str,
    title: str,
    sheets: Sequence[Sheet],
    figure: Figure,
    *,
    notes: Sequence[str] = (),
    folder: Path,
    repeats: int | None = None,
) -> None:
    """Print the tables, and write them and the plot to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    console.print(title, style="bold")
    for sheet in sheets:
        console.print(_screen(sheet))
    footer = [*notes, machine(repeats or harness.REPEATS)]
    console.print(*footer, sep="\n")
    text = "\n\n".join([*map(_markdown, sheets), "\n".join(footer)])
    (folder / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
    # No date and no random ids, so that the same figures give the same file.
    with mpl.rc_context({"svg.hashsalt": "tamis"}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def file_name(name: str, sizes: Iterable[int]) -> str:
    """Return a file name that contains the sizes, so that results of other sizes are kept."""
    return "-".join((name, *map(str, sizes)))


def _screen(sheet: Sheet) -> Table:
    table = Table()
    for number, column in enumerate(sheet.columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for line in sheet.lines:
        table.add_row(*line)
    return table


def _markdown(sheet: Sheet) -> str:
    def line(cells: Sequence[Any]) -> str:
        return f"| {' | '.join(cells)} |"

    ruler = f"|---|{'---:|' * (len(sheet.columns) - 1)}"
    return "\n".join([line(sheet.columns), ruler, *map(line, sheet.lines)])


def machine(repeats: int) -> str:
    """Return the machine and the versions that produced a figure."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return f"{cpu}, Python {platform.python_version()}, medians of {repeats} runs in turns."
