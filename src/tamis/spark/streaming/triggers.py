"""Starting queries whose batches are functions."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery


def start_batches(
    events: DataFrame,
    run: Callable[[DataFrame, int], None],
    checkpoint: str,
    *,
    every: float | None = None,
    once: bool = False,
) -> StreamingQuery:
    """Start a query: a batch every some seconds, or of what is there now, or one after another."""
    writer = events.writeStream.foreachBatch(run).option("checkpointLocation", checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=f"{round(every * 1000)} milliseconds")
    return writer.queryName(f"tamis {checkpoint}").start()


def check_trigger(*, every: float | None, once: bool) -> None:
    """Raise if a stream is to run in two ways."""
    if every is not None and once:
        raise ValueError("a stream runs `every` few seconds or `once`, not both")
