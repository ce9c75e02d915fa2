"""The figures of a report, gathered from the results of a match run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tamis.matching import Engine
from tamis.spark.files.splits import Split, files_in, group_into_tasks, split_files
from tamis.spark.library.ids import read_ids
from tamis.spark.library.library import Version
from tamis.spark.matching.outputs import Output
from tamis.spark.report.charts import Bar, compact
from tamis.spark.runtime.versions import collect_table

# Results with some million matches: about a second of work for a task.
BYTES_PER_SPLIT: Final = 16 * 1024 * 1024
_ROWS_PER_BATCH: Final = 32_768
_BITMAPS_PER_STEP: Final = 256
_NAMES: Final = ["subscription", "matches"]

MAX_TOP: Final = 15
MAX_SHOWN: Final = 50


class TopSubscription(NamedTuple):
    """A subscription with many matches."""

    id: object
    matches: int
    filter: str


class FirstRows(NamedTuple):
    """The first rows of a table, and the number of all rows."""

    rows: list[dict[str, Any]]
    total: int


class Figures(NamedTuple):
    """The figures of a report beside the counts of the run."""

    by_subscription: list[Bar]
    """Subscriptions by number of matches; empty if the output does not name them."""
    silent: int
    """The number of subscriptions that matched nothing."""
    by_event: list[Bar]
    top: list[TopSubscription]
    rejected_events: FirstRows
    rejected_subscriptions: FirstRows
    seconds: float


def gather_figures(spark: SparkSession, results: Path, version: Version, output: Output) -> Figures:
    """Read results written by `write`, and count them by subscription and by event."""
    started = time.monotonic()
    table = spark.read.parquet(str(results))
    ids, matches = _by_subscription(spark, results / "outcome=matched", version, output)
    silent = version.subscriptions - len(matches)
    bars = [] if output is Output.COUNTS else _histogram(matches, silent, "subscriptions")
    return Figures(
        by_subscription=bars,
        silent=silent,
        by_event=_by_event(table),
        top=_top(ids, matches, version),
        rejected_events=_rejected_events(table),
        rejected_subscriptions=_rejected_subscriptions(version),
        seconds=time.monotonic() - started,
    )


# --- matches by subscription ---------------------------------------------------------------------


def _by_subscription(
    spark: SparkSession, matched: Path, version: Version, output: Output
) -> tuple[pa.ChunkedArray[Any], NDArray[np.int64]]:
    """Return the ids of subscriptions that matched, and the matches of each."""
    if output is Output.COUNTS or not matched.exists():
        return pa.chunked_array([], pa.int64()), np.empty(0, np.int64)
    by_number = output in (Output.PACKED, Output.BITMAP)
    type_ = "bigint" if by_number else version.manifest.id_type
    sums = _counted(spark, matched, output, type_)
    ids = sums.column("subscription")
    return (version.ids().take(ids) if by_number else ids), sums.column("matches").to_numpy()


def _counted(spark: SparkSession, folder: Path, output: Output, type_: str) -> pa.Table:
    tasks = group_into_tasks(
        split_files(files_in(folder), "parquet", BYTES_PER_SPLIT), BYTES_PER_SPLIT
    )

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from count_by_subscription(tasks[number], output)

    parts = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(
        counted, f"subscription {type_}, matches bigint"
    )
    return collect_table(parts.groupBy("subscription").agg(F.sum("matches").alias("matches")))


def count_by_subscription(splits: Iterable[Split], output: Output) -> Iterator[pa.RecordBatch]:
    """Yield the subscriptions in splits of results, and the matches of each."""
    column = "subscription" if output is Output.PAIRS else "subscriptions"
    parts = [
        _counts(batch.column(0), output)
        for split in splits
        for batch in pq.ParquetFile(split.path).iter_batches(
            _ROWS_PER_BATCH,
            row_groups=list(range(split.first, split.last)),
            columns=[column],
            use_threads=False,
        )
    ]
    sums = pa.Table.from_batches(parts).group_by("subscription", use_threads=False)
    yield from sums.aggregate([("matches", "sum")]).rename_columns(_NAMES).to_batches()


def _counts(column: pa.Array[Any], output: Output) -> pa.RecordBatch:
    if output in (Output.PACKED, Output.BITMAP):
        numbers = _packed(column) if output is Output.PACKED else _bits(column)
        found = np.flatnonzero(numbers)
        return pa.RecordBatch.from_arrays([pa.array(found), pa.array(numbers[found])], _NAMES)
    counted = pc.value_counts(column if output is Output.PAIRS else column.flatten())
    return pa.RecordBatch.from_arrays([counted.field("values"), counted.field("counts")], _NAMES)


def _packed(column: pa.Array[Any]) -> NDArray[np.int64]:
    """Return how often each number occurs in packed lists."""
    return np.bincount(np.frombuffer(_bytes(column), "<i4"))


def _bits(column: pa.Array[Any]) -> NDArray[np.int64]:
    """Return how often each bit is set in bitmaps."""
    rows = np.frombuffer(_bytes(column), np.uint8).reshape(len(column), -1)
    parts = (
        np.unpackbits(few, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
        for few in np.split(rows, range(_BITMAPS_PER_STEP, len(rows), _BITMAPS_PER_STEP))
    )
    return sum(parts, start=np.zeros(rows.shape[1] * 8, np.int64))


def _bytes(column: pa.Array[Any]) -> pa.Buffer:
    """Return the bytes of all values."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :]
    first, last = int(offsets[0]), int(offsets[len(column)])
    return column.buffers()[2][first:last]


def _top(
    ids: pa.ChunkedArray[Any], matches: NDArray[np.int64], version: Version
) -> list[TopSubscription]:
    best = np.argsort(-matches, kind="stable")[:MAX_TOP]
    chosen = ids.take(pa.array(best)).to_pylist()
    filters = _filters(version, chosen)
    return [
        TopSubscription(id_, int(matches[at]), filters[id_])
        for id_, at in zip(chosen, best, strict=True)
    ]


def _filters(version: Version, ids: list[Any]) -> dict[Any, str]:
    """Return the filters of ids, from the shards."""
    found: dict[Any, str] = {}
    for shard in version.manifest.shards:
        known = read_ids(version.file(shard.ids))
        places = pc.index_in(pa.array(ids, known.type), known).to_pylist()
        here = {id_: place for id_, place in zip(ids, places, strict=True) if place is not None}
        if here:
            engine = Engine.load(version.file(shard.snapshot))
            found |= {id_: str(engine.filter(place)[0]) for id_, place in here.items()}
    return found


# --- matches by event ----------------------------------------------------------------------------


def _by_event(table: DataFrame) -> list[Bar]:
    """Return events by number of matches; for pairs that would take a sort, so none."""
    if "matches" not in table.columns:
        return []
    counted = collect_table(table.filter("matches is not null").groupBy("matches").count())
    matches, events = (counted.column(name).to_numpy() for name in ("matches", "count"))
    silent = int(events[matches == 0].sum())
    return _histogram(matches[matches > 0], silent, "events", events[matches > 0])


def _histogram(
    numbers: NDArray[Any], zeros: int, what: str, weights: NDArray[Any] | None = None
) -> list[Bar]:
    """Return bars for 0, then for 1, 2 to 4, 5 to 9, 10 to 19 and so on."""
    edges = [1]
    while edges[-1] <= numbers.max(initial=0):
        edges.append(edges[-1] * 5 // 2 if str(edges[-1])[0] == "2" else edges[-1] * 2)
    heights, _ = np.histogram(numbers, [*edges[:-1], edges[-1] - 0.5], weights=weights)
    bars = [Bar("0", zeros, f"{zeros:,} {what} without a match")] if zeros else []
    for (low, next_), height in zip(pairwise(edges), heights.tolist(), strict=True):
        span = "1 match" if next_ == 2 else f"{low:,} to {next_ - 1:,} matches"
        bars.append(Bar(compact(low), int(height), f"{int(height):,} {what} with {span}"))
    return bars


# --- rejected ------------------------------------------------------------------------------------


def _rejected_events(table: DataFrame) -> FirstRows:
    rejected = table.filter("outcome = 'rejected'")
    places = [name for name in ("file", "position") if name in table.columns]
    shown = rejected.select(*places, "error").limit(MAX_SHOWN)
    first = collect_table(shown).to_pylist()
    return FirstRows(first, rejected.count() if len(first) == MAX_SHOWN else len(first))


def _rejected_subscriptions(version: Version) -> FirstRows:
    table = version.rejected_rows()
    return FirstRows(table.sort_by("row").slice(0, MAX_SHOWN).to_pylist(), table.num_rows)
