"""What matching files will take, told before it runs: a sample is matched here, without Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from tamis.filters.printing import ANY
from tamis.spark.files.match_files import EventFiles, known_format
from tamis.spark.files.readers import read_json_lines
from tamis.spark.files.splits import (
    Split,
    default_split_size,
    format_of_files,
    group_into_tasks,
    split_files,
)
from tamis.spark.library.library import Library, Version
from tamis.spark.matching.columns import paths_to, text_names
from tamis.spark.matching.outputs import Output, ShardMatches, result_columns
from tamis.spark.matching.plan import (
    PRIVATE_BYTES_PER_SUBSCRIPTION,
    Machine,
    Plan,
    Strategy,
    choose_plan,
)
from tamis.spark.matching.request import MatchOptions, MatchRequest, numbers_of
from tamis.spark.matching.shard_cache import SHARDS
from tamis.spark.matching.worker import EventDecoder

SAMPLE_EVENTS: Final = 20_000
# Files differ, so the sample comes from several places.
SAMPLE_SPLITS: Final = 4
# Measured: what a worker of Python has before it opens a library.
WORKER_BYTES: Final = 150_000_000
_MANY_MATCHES: Final = 100
_MANY_SHARDS: Final = 8


class Forecast(NamedTuple):
    """What matching some files is expected to take."""

    plan: Plan
    events: int
    tasks: int
    cores: int
    seconds: float
    """For matching on all cores, without starting Spark and without writing."""
    matches_per_event: float
    rejected: float
    """The fraction of events that are rejected."""
    sample: int
    """How many events were matched to find out."""
    shared_bytes: int
    """The files that all workers of a machine map into memory."""
    worker_bytes: int
    """What each worker has beside them."""
    advice: tuple[str, ...]
    """What would make it cheaper."""


def forecast_files(
    library: Library | Version | str | PathLike[str],
    path: str | PathLike[str],
    *,
    output: str = Output.IDS,
    format_: str | None = None,
    plan: str | None = None,
    memory: int | None = None,
    cores: int | None = None,
) -> Forecast:
    """Match a sample of the events in files on one core, and say what all of them will take."""
    request = MatchOptions(output, None, plan, memory).request(library)
    files = EventFiles.below(path)
    kind = known_format(format_ or format_of_files(files.paths))
    size = default_split_size(files.paths, kind)
    splits = split_files(files.paths, kind, size)
    sample = _EventSample(request, kind, files.paths)
    places = sorted({len(splits) * at // SAMPLE_SPLITS for at in range(SAMPLE_SPLITS)})
    measured = sample.measure([splits[at] for at in places if at < len(splits)])
    plan_ = choose_plan(
        request.version,
        Machine.like_this(memory),
        has_key=kind == "parquet" and _has_key(request.version, sample.columns),
        wanted=plan,
    )
    events = _count(files.paths, kind, measured)
    tasks, used = len(group_into_tasks(splits, size)), cores or os.cpu_count() or 1
    rounds = len(plan_.shard_groups) if plan_.strategy is Strategy.GRID else 1
    busy = min(used, max(1, tasks * rounds))
    forecast = Forecast(
        plan=plan_,
        events=events,
        tasks=tasks * rounds,
        cores=used,
        # A grid reads and decodes every event once for each group.
        seconds=rounds * measured.seconds * events / max(1, measured.events) / busy,
        matches_per_event=measured.matches / max(1, measured.events),
        rejected=measured.rejected / max(1, measured.events),
        sample=measured.events,
        shared_bytes=request.version.size,
        worker_bytes=WORKER_BYTES + _private_bytes(request.version, plan_),
        advice=(),
    )
    return forecast._replace(advice=tuple(_advice(forecast, request, kind)))


class _Measured(NamedTuple):
    events: int = 0
    seconds: float = 0.0
    matches: int = 0
    rejected: int = 0
    bytes: int = 0

    def plus(self, other: _Measured) -> _Measured:
        return _Measured(
            self.events + other.events,
            self.seconds + other.seconds,
            self.matches + other.matches,
            self.rejected + other.rejected,
            self.bytes + other.bytes,
        )


class _EventSample:
    """Reads and matches events as a worker does."""

    def __init__(self, request: MatchRequest, kind: str, paths: Sequence[Path]) -> None:
        self._request, self._kind = request, kind
        self._numbers = numbers_of(request.version)
        self.columns: T.StructType | None = None
        wanted = request.version.attributes
        if kind == "parquet":
            self.columns = from_arrow_schema(pq.read_schema(paths[0]))
            texts = text_names(self.columns) if ANY in wanted else ()
            wanted = frozenset({*wanted, *texts} - {ANY}) | frozenset(request.version.schema or ())
        self._wanted = wanted
        total = request.version.manifest.mode == "total"
        self._decoder = EventDecoder(request.version.schema, total, wanted)

    def measure(self, splits: Sequence[Split]) -> _Measured:
        """Match events of some splits; the first of them twice, as kernels load at first use."""
        share = max(1, SAMPLE_EVENTS // max(1, len(splits)))
        for rows in islice(self._rows(splits[:1], 100), 1):
            self._match(rows)
        return reduce(_Measured.plus, (self._measure(one, share) for one in splits), _Measured())

    def _measure(self, split: Split, share: int) -> _Measured:
        found = _Measured()
        rows = self._rows([split], share)
        while found.events < share:
            started = time.process_time()
            batch = next(rows, None)
            if batch is None:
                break
            batch = batch.slice(0, share - found.events)
            matched = self._match(batch)
            seconds = time.process_time() - started
            text = batch.column(batch.num_columns - 1)
            size = text.nbytes if self._kind == "json" else 0
            found = found.plus(
                _Measured(
                    batch.num_rows, seconds, int(matched.counts.sum()), len(matched.errors), size
                )
            )
        return found

    def _rows(self, splits: Sequence[Split], share: int) -> Iterator[pa.RecordBatch]:
        if self._kind == "json":
            yield from read_json_lines(splits)
            return
        assert self.columns is not None  # noqa: S101 - Parquet has them
        paths = [path for name in sorted(self._wanted) for path in paths_to(self.columns, name)]
        names = list(dict.fromkeys(path.keys[0] for path in paths))
        for split in splits:
            file = pq.ParquetFile(split.path)
            groups = list(range(split.first, split.last))
            yield from file.iter_batches(share, row_groups=groups, columns=names, use_threads=False)

    def _match(self, rows: pa.RecordBatch) -> ShardMatches:
        version, request = self._request.version, self._request
        text: pa.Array[Any] = rows.column(rows.num_columns - 1)
        batch = (
            self._decoder.from_json(text)
            if self._kind == "json"
            else self._decoder.from_columns(rows)
        )
        shards = SHARDS.open(version.place, version.manifest.shards)
        found = ShardMatches(batch, shards, request.now)
        result_columns(found, request.output, self._numbers, unmatched=request.unmatched)
        return found


def _has_key(version: Version, columns: T.StructType | None) -> bool:
    key = version.manifest.key
    found = [] if key is None or columns is None else list(paths_to(columns, key))
    return len(found) == 1 and isinstance(found[0].type, T.StringType) and not found[0].arrays


def _count(paths: Sequence[Path], kind: str, measured: _Measured) -> int:
    """Return how many events there are, by the footers of Parquet or the length of lines."""
    if kind == "parquet":
        return sum(pq.read_metadata(path).num_rows for path in paths)
    if not measured.events:
        return 0
    line = measured.bytes / measured.events
    return round(sum(path.stat().st_size for path in paths) / line)


def _private_bytes(version: Version, plan: Plan) -> int:
    shards = version.manifest.shards
    held = (sum(shards[at].subscriptions for at in group) for group in plan.shard_groups)
    return PRIVATE_BYTES_PER_SUBSCRIPTION * max(held, default=0)


def _advice(forecast: Forecast, request: MatchRequest, kind: str) -> Iterator[str]:
    shards = len(request.version.manifest.shards)
    listing = request.output in (Output.IDS, Output.PAIRS)
    if forecast.tasks < forecast.cores:
        yield (
            f"there are {forecast.tasks} tasks for {forecast.cores} cores: write more files, or "
            "Parquet with smaller row groups"
        )
    if kind == "json":
        yield "events in Parquet are read several times as fast as JSON lines"
    if listing and forecast.matches_per_event > _MANY_MATCHES:
        yield (
            f"an event has {forecast.matches_per_event:,.0f} matches: the outputs packed and "
            "counts write far less"
        )
    if forecast.plan.strategy is Strategy.GRID:
        yield (
            f"every event meets {len(forecast.plan.shard_groups)} groups of shards: a machine with "
            "more memory, or a library compiled with a key that events have, avoids that"
        )
    elif shards > _MANY_SHARDS and forecast.plan.strategy is Strategy.SINGLE:
        yield f"an event meets {shards} shards, one after another: compile fewer, larger ones"
