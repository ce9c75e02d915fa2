"""Matching files: workers get splits of them and read the splits themselves.

Handing rows from Spark to Python costs several times as much as reading them in Python. Spark reads
the files only where it must; the results are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import EventError, SchemaError
from tamis.filters import Mode
from tamis.spark.files.readers import (
    ParquetColumns,
    read_documents,
    read_json_lines,
    read_parquet,
)
from tamis.spark.files.splits import (
    NAMES,
    SPLIT_BYTES,
    Split,
    absolute_path,
    default_split_size,
    files_in,
    format_of_files,
    group_into_tasks,
    split_files,
)
from tamis.spark.library.library import Library, Version
from tamis.spark.matching.columns import AttributePath, paths_to, wanted_attributes
from tamis.spark.matching.counts import Tally
from tamis.spark.matching.match import EventColumn, checked_keep, key_column, match_frame
from tamis.spark.matching.outputs import Output
from tamis.spark.matching.plan import Machine, Plan, Strategy, choose_plan
from tamis.spark.matching.request import MatchInput, MatchOptions, MatchRequest
from tamis.spark.matching.shuffle import GROUP
from tamis.spark.matching.worker import MatchJob, RowMatcher
from tamis.spark.runtime.addresses import escape_glob
from tamis.spark.runtime.versions import arrow_type

LOG: Final = logging.getLogger(__name__)

LOCATION: Final = (
    T.StructField("file", T.StringType()),
    T.StructField("position", T.LongType()),
)
_LOCATION_NAMES: Final = tuple(field.name for field in LOCATION)


class EventFiles(NamedTuple):
    """Files of events, all or some of those below one path."""

    root: Path
    paths: list[Path]
    all: bool

    @classmethod
    def below(cls, path: str | PathLike[str]) -> EventFiles:
        """Return all files below a path."""
        return cls(absolute_path(path), files_in(path), all=True)

    @property
    def have_values_in_names(self) -> bool:
        """Return whether a folder below the root is named after a value, such as `day=1`."""
        folders = (path.relative_to(self.root).parts[:-1] for path in self.paths)
        return any("=" in part for parts in folders for part in parts)

    def read_parquet(self, spark: SparkSession) -> DataFrame:
        """Return the rows as Spark reads them."""
        if self.all:
            return spark.read.parquet(escape_glob(self.root))
        return spark.read.option("basePath", str(self.root)).parquet(*map(escape_glob, self.paths))


def match_files(
    spark: SparkSession,
    library: Library | Version | str | PathLike[str],
    path: str | PathLike[str],
    *,
    output: str = Output.IDS,
    keep: Sequence[str] = (),
    format_: str | None = None,
    unmatched: bool | None = None,
    now: float | datetime | None = None,
    tally: Tally | None = None,
    plan: str | None = None,
    memory: int | None = None,
    split_size: int | None = None,
) -> DataFrame:
    """Match the events in a Parquet, JSON-lines or XML file, or a folder of them.

    Each result has the file and the position in it: for Parquet the number of the row, from 0, for
    JSON lines the offset of the line's first byte. A file of XML is one document.
    """
    request = MatchOptions(output, unmatched, plan, memory).request(library, now, tally)
    files = EventFiles.below(path)
    return match_event_files(
        spark, request, files, keep=keep, format_=format_, split_size=split_size
    )


def match_event_files(
    spark: SparkSession,
    request: MatchRequest,
    files: EventFiles,
    *,
    keep: Sequence[str],
    format_: str | None,
    split_size: int | None = None,
) -> DataFrame:
    """Match the events in files."""
    kind = known_format(format_ or format_of_files(files.paths))
    size = split_size or default_split_size(files.paths, kind)
    if kind in ("json", "xml"):
        rows = _text_rows(spark, request.version, keep, kind)
    else:
        events = files.read_parquet(spark)
        reason = _why_spark_reads(events, request, files)
        LOG.info("%s: %s", files.root, reason or "workers read the row groups")
        if reason:
            return _match_with_spark(events, request, keep)
        rows = _parquet_rows(events, request.version, keep)
    tasks = group_into_tasks(split_files(files.paths, kind, size), size)
    return request.match(rows(tasks))


def known_format(name: str) -> str:
    """Return the name of a format of event files, or raise if there is no such format."""
    if name not in SPLIT_BYTES:
        raise EventError(f"{name!r} is not a format of events in files; they are {NAMES}")
    return name


def _why_spark_reads(events: DataFrame, request: MatchRequest, files: EventFiles) -> str:
    """Return the reason why Spark must read the files, or an empty string."""
    if files.have_values_in_names:
        return "Spark reads the files because the names of folders hold values"
    if key_column(events, request.version) is None:
        return ""
    machine = Machine.like_this(request.memory)
    plan = choose_plan(request.version, machine, has_key=True, wanted=request.plan)
    if plan.strategy is Strategy.KEYED:
        return "Spark reads the files to shuffle events by the key"
    return ""


def _match_with_spark(events: DataFrame, request: MatchRequest, keep: Sequence[str]) -> DataFrame:
    kept = checked_keep(events, keep, beside=_LOCATION_NAMES)
    # A URL, in which a plus is a plus, but not to the function that decodes it.
    path = F.regexp_replace("_metadata.file_path", "^file:(//)?", "")
    located = events.withColumns(
        {
            "file": F.url_decode(F.regexp_replace(path, r"\+", "%2B")),
            "position": F.col("_metadata.row_index"),
        }
    )
    return match_frame(located, request, EventColumn(), [*_LOCATION_NAMES, *kept])


# --- read by workers -----------------------------------------------------------------------------

Tasks = list[list[Split]]


@dataclass(frozen=True)
class FileInput(MatchInput):
    """Events in splits of files, which workers read."""

    spark: SparkSession
    read: Callable[[Sequence[Split]], Iterator[pa.RecordBatch]]
    tasks: Tasks

    event_id = _LOCATION_NAMES

    def added_fields(self, strategy: Strategy) -> list[T.StructField]:
        """Return the columns that a strategy adds."""
        return [GROUP] if strategy is Strategy.GRID else []

    def run(self, job: MatchJob, plan: Plan, schema: T.StructType) -> DataFrame:
        """Run a task for each list of splits and each shard group; splits travel with the code."""
        grid = plan.strategy is Strategy.GRID
        groups = len(plan.shard_groups) if grid else 1
        # As bytes, so that a task does not make objects of the splits of all others.
        tasks, read = [msgspec.msgpack.encode(task) for task in self.tasks], self.read

        def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            matcher = RowMatcher(job)
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                task, group = divmod(number, groups)
                for rows in read(msgspec.msgpack.decode(tasks[task], type=list[Split])):
                    yield from matcher.results(_with_group(rows, group) if grid else rows)

        count = len(tasks) * groups
        return self.spark.range(0, count, 1, max(1, count)).mapInArrow(results, schema)


def _with_group(rows: pa.RecordBatch, group: int) -> pa.RecordBatch:
    column = pa.repeat(pa.scalar(group, pa.int32()), rows.num_rows)
    return rows.append_column(GROUP.name, column)


def _parquet_rows(
    events: DataFrame, version: Version, keep: Sequence[str]
) -> Callable[[Tasks], FileInput]:
    total = version.manifest.mode == Mode.TOTAL
    wanted = wanted_attributes(events, version.attributes, version.schema, total=total)
    fields = [events.schema[name] for name in checked_keep(events, keep, beside=_LOCATION_NAMES)]
    zone = events.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
    types = [(field.name, arrow_type(field.dataType, zone)) for field in fields]
    paths = [path for name in sorted(wanted) for path in paths_to(events.schema, name)]
    columns = _parquet_columns(paths, types)
    first = len(LOCATION) + len(fields)
    attributes = tuple((name, first + at) for at, name in enumerate(columns.event))

    def read(splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        return read_parquet(splits, columns)

    kept, width = [*LOCATION, *fields], first + len(attributes)
    spark = events.sparkSession
    return lambda tasks: FileInput(kept, width, wanted, attributes, None, spark, read, tasks)


def _parquet_columns(
    paths: Sequence[AttributePath], kept: Sequence[tuple[str, pa.DataType]]
) -> ParquetColumns:
    names = [name for name, _ in kept]
    texts = {
        path.keys[0]
        for path in paths
        if len(path.keys) == 1 and isinstance(path.type, T.StringType)
    }
    return ParquetColumns(
        read=tuple(dict.fromkeys((*names, *map(_dotted, paths)))),
        kept=tuple(kept),
        event=tuple(dict.fromkeys(path.keys[0] for path in paths)),
        dictionaries=tuple(sorted(texts.difference(names))),
    )


def _dotted(path: AttributePath) -> str:
    """Return the part of a column to read: the field alone, unless it lies in an array."""
    return path.keys[0] if path.arrays else ".".join(path.keys)


def _text_rows(
    spark: SparkSession, version: Version, keep: Sequence[str], kind: str
) -> Callable[[Tasks], FileInput]:
    is_xml = kind == "xml"
    if keep:
        what = "documents" if is_xml else "events in JSON lines"
        raise SchemaError(f"{what} have no columns to keep; file and position are kept")
    kept, read = [*LOCATION], read_documents if is_xml else read_json_lines
    names = version.attributes
    return lambda tasks: FileInput(kept, 3, names, (), 2, spark, read, tasks, xml=is_xml)
