"""A bar that follows the tasks of a Spark session, as Spark itself counts them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tamis.cli.console import stderr

_SECONDS_BETWEEN_UPDATES: Final = 0.25


@contextmanager
def following(spark: SparkSession, what: str) -> Iterator[Console]:
    """Show how far the jobs that run inside have come, where somebody may be looking.

    Give the console on which to say something meanwhile.
    """
    if not sys.stderr.isatty():
        yield stderr()
        return
    done = Event()
    with _bar() as bar:
        follower = Thread(target=_follow, args=(spark, bar, what, done), daemon=True)
        follower.start()
        try:
            yield bar.console
        finally:
            done.set()
            follower.join()


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} tasks"),
        TimeElapsedColumn(),
        console=stderr(),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _follow(spark: SparkSession, bar: Progress, what: str, done: Event) -> None:
    task = bar.add_task(what, total=1)
    while not done.wait(_SECONDS_BETWEEN_UPDATES):
        completed, total = tasks_under_way(spark)
        if total:
            bar.update(task, completed=completed, total=total)


def tasks_under_way(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the stages that run are done, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
