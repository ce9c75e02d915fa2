"""The figures of an experiment as CSV, Parquet, Markdown and a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tamis.filters import Mode
from tamis.spark.report.charts import Point, line_chart, standalone

NAME: Final = "density"

# Seconds for 1,000 messages on a 200 MHz PentiumPro, from the table in section 8.
PAPER: Final = {
    25_000: {0.077: 1.56, 0.154: 3.81, 0.231: 5.86, 0.308: 8.23, 1.0: 27.64},
    50_000: {0.077: 3.56, 0.154: 7.63, 0.231: 10.92, 0.308: 14.74, 1.0: 55.66},
    75_000: {0.077: 6.65, 0.154: 12.49, 0.231: 18.11, 0.308: 22.56, 1.0: 89.93},
    100_000: {0.077: 9.01, 0.154: 15.57, 0.231: 21.4, 0.308: 30.83, 1.0: 121.32},
}
PAPER_TOTAL: Final = {25_000: 20.12, 50_000: 41.58, 75_000: 61.75, 100_000: 81.64}


class Measurement(NamedTuple):
    """The time of jobs that match events of one density against some filters."""

    filters: int
    mode: str
    density: float
    events: int
    matches: int
    seconds: float
    """The median."""
    fastest: float
    slowest: float

    @property
    def rate(self) -> float:
        """Return the events per second."""
        return self.events / self.seconds

    @property
    def in_the_paper(self) -> float | None:
        """Return the paper's seconds for 1,000 messages, if it has this case."""
        if self.mode == Mode.TOTAL:
            return PAPER_TOTAL.get(self.filters)
        return PAPER.get(self.filters, {}).get(self.density)


COLUMNS: Final = (
    *("filters", "mode", "density", "matches per event", "events per second"),
    *("ms for 1,000", "fastest to slowest", "the paper, ms"),
)


def cells(one: Measurement) -> tuple[str, ...]:
    """Return a row of the table, formatted."""
    fastest, median, slowest = (
        f"{1e6 * seconds / one.events:,.1f}" for seconds in (one.fastest, one.seconds, one.slowest)
    )
    paper = one.in_the_paper
    return (
        f"{one.filters:,}",
        one.mode,
        f"{one.density:.1%}",
        f"{one.matches / one.events:,.1f}",
        f"{one.rate:,.0f}",
        median,
        f"{fastest} to {slowest}",
        "" if paper is None else f"{1e3 * paper:,.0f}",
    )


def write_tables(found: Sequence[Measurement], folder: Path, workload: str) -> None:
    """Write the table in three formats, and the plot."""
    table = pa.Table.from_pylist([one._asdict() for one in found])
    pq.write_table(table, folder / f"{NAME}.parquet")
    pyarrow.csv.write_csv(table, folder / f"{NAME}.csv")
    (folder / f"{NAME}.md").write_text(_markdown(found, workload), encoding="utf-8")
    (folder / f"{NAME}.svg").write_text(_plot(found), encoding="utf-8")


def _markdown(found: Iterable[Measurement], workload: str) -> str:
    lines = (COLUMNS, ("---:",) * len(COLUMNS), *map(cells, found))
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"# Density of events, {workload}\n\n{table}\n\n![plot]({NAME}.svg)\n"


def _plot(found: Iterable[Measurement]) -> str:
    series: dict[str, list[Point]] = {}
    for one in found:
        y, low, high = (1e6 * s / one.events for s in (one.seconds, one.fastest, one.slowest))
        name = f"{one.filters:,} {one.mode}"
        series.setdefault(name, []).append(Point(100 * one.density, y, low, high))
    return standalone(line_chart(series, "density of events, %", "ms for 1,000 events"))
