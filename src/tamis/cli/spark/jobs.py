"""Spark jobs of a command: the session, a progress bar, errors as sentences, a summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tamis.cli.console import printable, stderr, stdout
from tamis.units import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UPDATE_SECONDS: Final = 0.25


Watched = Callable[[], tuple[int, int]]
"""How many events and matches there are so far."""


@contextmanager
def spark_job(spark: SparkSession, what: str, watched: Watched | None = None) -> Iterator[Console]:
    """Show the progress of the jobs inside, if stderr is a terminal.

    Yield the console for messages. Errors of Spark become a `SparkError` with one sentence.
    """
    from tamis.spark.runtime.failures import readable_errors  # noqa: PLC0415 - pyspark is an extra

    with readable_errors():
        if not sys.stderr.isatty():
            yield stderr()
            return
        done = Event()
        with _progress() as bar:
            given = (spark, bar, what, done, watched)
            follower = Thread(target=_follow, args=given, daemon=True)
            follower.start()
            try:
                yield bar.console
            finally:
                done.set()
                follower.join()


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} tasks"),
        TextColumn("{task.fields[found]}"),
        TimeElapsedColumn(),
        console=stderr(),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _follow(
    spark: SparkSession, bar: Progress, what: str, done: Event, watched: Watched | None
) -> None:
    task = bar.add_task(what, total=1, found="")
    started = time.monotonic()
    while not done.wait(_UPDATE_SECONDS):
        completed, total = running_tasks(spark)
        if total:
            bar.update(task, completed=completed, total=total)
        if watched is not None:
            bar.update(task, found=found_so_far(*watched(), time.monotonic() - started))


def found_so_far(events: int, matches: int, elapsed: float) -> str:
    """Return what to say of a job that runs; nothing before its first task has ended.

    >>> found_so_far(30_000, 1_234, 2.0)
    '30,000 events, 15,000 per second, 1,234 matches'
    """
    if not events:
        return ""
    rate = round(events / elapsed)
    return f"{count(events, 'event')}, {rate:,} per second, {count(matches, 'match')}"


def running_tasks(spark: SparkSession) -> tuple[int, int]:
    """Return the number of finished tasks of the active stages, and of all their tasks."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def write_summary(facts: Mapping[str, int | float | str]) -> None:
    """Write facts, one per line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="left", overflow="fold")
    for name, value in facts.items():
        table.add_row(name, Text(_shown(value)))
    stdout().print(table)


def _shown(value: float | str) -> str:
    if isinstance(value, str):
        return printable(value)
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
