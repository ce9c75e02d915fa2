"""Plots of brokers: rates and latencies, and memory while some subscribers do not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from benchmarks.broker.stalled import MEGABYTE, Sample
from benchmarks.harness import Latency, Row

COLOURS: Final = ("#4c7a9f", "#c06c3e", "#7a9f4c", "#8a6bb0")
SHADE: Final = "#c06c3e"
QUARTILES: Final = (0.25, 0.5, 0.75)


def rates_and_times(title: str, rows: Sequence[Row], found: Sequence[Latency]) -> Figure:
    """Draw rates as bars, and latencies from the median to the 99th percentile."""
    figure = Figure(figsize=(13, 1.2 + 0.5 * max(len(rows), len(found) / 2)), layout="constrained")
    left, right = figure.subplots(1, 2)
    spread = [[row.rate - row.low for row in rows], [row.high - row.rate for row in rows]]
    left.barh([row.name for row in rows], [row.rate for row in rows], xerr=spread, color=COLOURS[0])
    left.set(xlabel="events/s")
    middle, high = ([1e3 * np.quantile(one.times, q) for one in found] for q in (0.5, 0.99))
    names = [one.name for one in found]
    right.hlines(names, middle, high, color=COLOURS[0])
    right.plot(middle, names, "o", color=COLOURS[0], label="median")
    right.plot(high, names, "|", color=COLOURS[0], label="99 of 100 within", markersize=12)
    right.set(xscale="log", xlabel="ms from publisher to subscriber")
    right.legend()
    for axes in (left, right):
        axes.invert_yaxis()
    figure.suptitle(title)
    return figure


def stages(title: str, found: Sequence[Latency]) -> Figure:
    """Draw the median of each time, and the half of all that lies around it."""
    figure = Figure(figsize=(11, 1.2 + 0.4 * len(found)), layout="constrained")
    axes = figure.subplots()
    low, middle, high = ([1e6 * np.quantile(one.times, q) for one in found] for q in QUARTILES)
    names = [one.name for one in found]
    axes.barh(names, middle, color=COLOURS[0])
    axes.hlines(names, low, high, color=SHADE, linewidth=3)
    axes.set(xlabel="µs: the median, and the middle half of all")
    axes.invert_yaxis()
    figure.suptitle(title)
    return figure


def times_and_memory(
    title: str, times: Mapping[str, Sequence[Sequence[float]]], memory: Sequence[Sample]
) -> Figure:
    """Draw the distribution of latencies in each turn, and the memory of the broker over time."""
    figure = Figure(figsize=(13, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, (phase, turns) in zip(COLOURS, times.items(), strict=False):
        for number, turn in enumerate(turns):
            parts = np.linspace(0, 1, min(len(turn), 1000))
            label = None if number else phase
            left.plot(1e3 * np.quantile(turn, parts), parts, color=colour, label=label, alpha=0.7)
    left.axhline(0.99, color="grey", linewidth=0.8)
    left.set(xscale="log", xlabel="ms", ylabel="part of the events that came within")
    left.legend()
    seconds = [sample.seconds for sample in memory]
    right.plot(seconds, [sample.resident / MEGABYTE for sample in memory], color=COLOURS[0])
    _shade(right, memory, next(iter(times)))
    right.set(xlabel="seconds", ylabel="MB resident", ylim=(0, None))
    right.legend()
    figure.suptitle(title)
    return figure


def _shade(axes: Any, memory: Sequence[Sample], calm: str) -> None:
    """Shade the time in which some subscribers did not read."""
    labelled: set[str] = set()
    for phase, samples in groupby(memory, key=lambda sample: sample.phase):
        if phase in ("", calm):
            continue
        times = [sample.seconds for sample in samples]
        alpha = 0.15 + 0.15 * bool(labelled - {phase})
        label = None if phase in labelled else phase
        axes.axvspan(times[0], times[-1], color=SHADE, alpha=alpha, label=label)
        labelled.add(phase)
