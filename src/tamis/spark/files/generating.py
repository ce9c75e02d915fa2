"""Subscriptions and events of a workload, drawn by Spark tasks: each draws its own numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tamis.errors import SparkError
from tamis.events.json_text import schema_data
from tamis.workloads import Workload

FORMATS: Final = {"parquet": "parquet", "jsonl": "json"}

# Some seconds' work for a task; drawing a filter takes as long as drawing ten events.
SUBSCRIPTIONS_PER_TASK: Final = 50_000
EVENTS_PER_TASK: Final = 500_000
# Spark's own batches are as large; workloads with a thousand attributes bear no more.
ROWS_AT_ONCE: Final = 10_000

Draw = Callable[[Workload, int, int], pa.RecordBatch]


class Generated(NamedTuple):
    """What was written, and where."""

    subscriptions: int
    events: int
    subscriptions_path: Path
    events_path: Path
    schema_path: Path
    seconds: float


def generate(
    spark: SparkSession,
    workload: Workload | str | Path,
    to: str | PathLike[str],
    *,
    subscriptions: int,
    events: int,
    seed: int = 1,
    density: float | None = None,
    format_: str = "parquet",
    tasks: int | None = None,
    overwrite: bool = False,
) -> Generated:
    """Write subscriptions and events of a workload, and its schema, into a folder.

    The rows and their order depend on the workload, the seed and the density alone, whatever the
    number of tasks.
    """
    if format_ not in FORMATS:
        raise SparkError(f"{format_!r} is not a format to write; they are {', '.join(FORMATS)}")
    started, folder, source = time.monotonic(), Path(to), _loaded(workload)
    written = {
        "subscriptions": subscription_rows(spark, source, subscriptions, seed=seed, tasks=tasks),
        "events": event_rows(spark, source, events, seed=seed, density=density, tasks=tasks),
    }
    mode = "overwrite" if overwrite else "error"
    for name, rows in written.items():
        rows.write.format(FORMATS[format_]).mode(mode).save(str(folder / name))
    schema = folder / "schema.json"
    schema.write_text(json.dumps(schema_data(source.schema), indent=1), encoding="utf-8")
    seconds = time.monotonic() - started
    return Generated(
        subscriptions, events, folder / "subscriptions", folder / "events", schema, seconds
    )


def subscription_rows(
    spark: SparkSession,
    workload: Workload | str | Path,
    count: int,
    *,
    seed: int = 1,
    tasks: int | None = None,
) -> DataFrame:
    """Return the subscriptions of a workload up to below a number: id and filter."""
    draw = partial(_draw_subscriptions, seed=seed)
    return _drawn(
        spark, _loaded(workload), draw, count, tasks or -(-count // SUBSCRIPTIONS_PER_TASK)
    )


def event_rows(
    spark: SparkSession,
    workload: Workload | str | Path,
    count: int,
    *,
    seed: int = 1,
    density: float | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Return the events of a workload up to below a number, a column for each attribute."""
    if density is not None and not 0 <= density <= 1:
        raise SparkError(f"the density {density} should lie between 0 and 1")
    draw = partial(_draw_events, seed=seed, density=density)
    return _drawn(spark, _loaded(workload), draw, count, tasks or -(-count // EVENTS_PER_TASK))


def _loaded(workload: Workload | str | Path) -> Workload:
    return workload if isinstance(workload, Workload) else Workload.load(workload)


def _drawn(
    spark: SparkSession, workload: Workload, draw: Draw, count: int, tasks: int
) -> DataFrame:
    if count < 0:
        raise SparkError(f"{count:,} is not a number of rows to draw")
    text, source = workload.text, workload.source

    def drawn(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = _read_once(text, source)
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            first = number * ROWS_AT_ONCE
            yield draw(read, first, min(first + ROWS_AT_ONCE, count))

    numbers = spark.range(0, -(-count // ROWS_AT_ONCE), 1, max(1, tasks))
    return numbers.mapInArrow(drawn, from_arrow_schema(draw(workload, 0, 0).schema))


# --- inside a worker -----------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _read_once(text: str, source: str) -> Workload:
    """Return a workload; to read one takes as long as to draw from it."""
    return Workload(text, source)


def _draw_subscriptions(workload: Workload, first: int, last: int, *, seed: int) -> pa.RecordBatch:
    return workload.subscriptions(first, last, seed)


def _draw_events(
    workload: Workload, first: int, last: int, *, seed: int, density: float | None
) -> pa.RecordBatch:
    return workload.events(first, last, seed, density)
