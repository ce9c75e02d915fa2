"""Matching files: workers get splits of them and read them by themselves.

To hand rows from Spark to Python costs several times what reading them in Python does. Where the
files are such that only Spark can read them as they are meant, Spark reads them; the results are
the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from tamis.errors import EventError, SchemaError
from tamis.filters import Mode
from tamis.spark.files.reading import Columns, read_json_lines, read_parquet
from tamis.spark.files.splits import (
    SPLIT_SIZES,
    Split,
    files_in,
    format_of_files,
    splits_of,
    tasks_of,
    usual_split_size,
)
from tamis.spark.library.library import Library, Version
from tamis.spark.matching.columns import Way, wanted_attributes, ways_to
from tamis.spark.matching.dealing import SHARE, joined
from tamis.spark.matching.matching import Source, checked_keep, key_of, matched, result_schema
from tamis.spark.matching.outputs import Output
from tamis.spark.matching.planning import Plan, Strategy
from tamis.spark.matching.questions import Question, ask
from tamis.spark.matching.running import Job, Layout, Run
from tamis.spark.matching.tallying import Tally

LOG: Final = logging.getLogger(__name__)

PLACE: Final = (
    T.StructField("file", T.StringType()),
    T.StructField("position", T.LongType()),
)
_NAMES: Final = tuple(field.name for field in PLACE)


class Reading(NamedTuple):
    """How workers read splits, and what the columns of the rows are for."""

    read: Callable[[Sequence[Split]], Iterator[pa.RecordBatch]]
    kept: list[T.StructField]
    """The first columns, which come out again."""
    width: int
    wanted: frozenset[str]
    attributes: tuple[tuple[str, int], ...] = ()
    text: int | None = None

    def layout(self, *, shared: bool) -> Layout:
        """Return what the columns are for; with shares, the share stands behind them."""
        kept = tuple((field.name, place) for place, field in enumerate(self.kept))
        if not shared:
            return Layout(kept, self.attributes, self.text)
        return Layout((*kept, (SHARE.name, self.width)), self.attributes, self.text, self.width)


class Files(NamedTuple):
    """Files of events, all or some of those below one path."""

    root: Path
    paths: list[Path]
    all: bool

    @classmethod
    def below(cls, path: str | PathLike[str]) -> Files:
        """Return all files below a path."""
        return cls(Path(str(path).removeprefix("file://")), files_in(path), all=True)

    @property
    def have_values_in_names(self) -> bool:
        """Tell whether a folder on the way is named after a value, such as `day=1`."""
        ways = (path.relative_to(self.root).parts[:-1] for path in self.paths)
        return any("=" in part for way in ways for part in way)

    def read_parquet(self, spark: SparkSession) -> DataFrame:
        """Return the rows as Spark reads them."""
        if self.all:
            return spark.read.parquet(str(self.root))
        return spark.read.option("basePath", str(self.root)).parquet(*map(str, self.paths))


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
    """Match the events in Parquet or JSON-lines files, or folders of them.

    Each result tells the file and the position in it: of Parquet the number of the row, from 0, of
    JSON lines the number of the line's first byte.
    """
    question = ask(
        library,
        output=output,
        unmatched=unmatched,
        now=now,
        tally=tally,
        plan=plan,
        memory=memory,
    )
    return matched_files(
        spark, question, Files.below(path), keep=keep, format_=format_, split_size=split_size
    )


def matched_files(
    spark: SparkSession,
    question: Question,
    files: Files,
    *,
    keep: Sequence[str],
    format_: str | None,
    split_size: int | None = None,
) -> DataFrame:
    """Answer a question about the events in files."""
    kind = known_format(format_ or format_of_files(files.paths))
    if kind == "parquet":
        events = files.read_parquet(spark)
        reason = _why_spark_must_read(events, question, files)
        LOG.info("%s: %s", files.root, reason or "workers read the row groups")
        if reason:
            return _by_spark(events, question, keep)
        reading = _parquet(events, question.version, keep)
    else:
        reading = _json_lines(question.version, keep)
    size = split_size or usual_split_size(files.paths, kind)
    tasks = tasks_of(splits_of(files.paths, kind, size), size)
    return question.finish(_results(spark, question, reading, tasks))


def known_format(name: str) -> str:
    """Return the name of a format of events in files, or say that it is none."""
    if name not in SPLIT_SIZES:
        raise EventError(f"{name!r} is not a format of events in files; they are 'parquet', 'json'")
    return name


def _why_spark_must_read(events: DataFrame, question: Question, files: Files) -> str:
    """Return why the rows must go through Spark, or nothing."""
    if files.have_values_in_names:
        return "Spark reads the files, since the names of folders hold values"
    has_key = key_of(events, question.version) is not None
    if question.planned(has_key=has_key).strategy is Strategy.KEYED:
        return "Spark reads the files, to deal events out by the key"
    return ""


def _by_spark(events: DataFrame, question: Question, keep: Sequence[str]) -> DataFrame:
    kept = checked_keep(events, keep, beside=_NAMES)
    located = events.withColumns(
        {
            "file": F.regexp_replace("_metadata.file_path", "^file:(//)?", ""),
            "position": F.col("_metadata.row_index"),
        }
    )
    return matched(located, question, Source(), [*_NAMES, *kept])


# --- by workers ----------------------------------------------------------------------------------


def _parquet(events: DataFrame, version: Version, keep: Sequence[str]) -> Reading:
    total = version.manifest.mode == Mode.TOTAL
    wanted = wanted_attributes(events, version.attributes, version.schema, total=total)
    fields = [events.schema[name] for name in checked_keep(events, keep, beside=_NAMES)]
    zone = events.sparkSession.conf.get("spark.sql.session.timeZone")
    types = [(field.name, to_arrow_type(field.dataType, timezone=zone)) for field in fields]
    ways = [way for name in sorted(wanted) for way in ways_to(events.schema, name)]
    columns = _columns(ways, types)
    first = len(PLACE) + len(fields)
    attributes = tuple((name, first + at) for at, name in enumerate(columns.held))

    def read(splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        return read_parquet(splits, columns)

    return Reading(read, [*PLACE, *fields], first + len(attributes), wanted, attributes)


def _columns(ways: Sequence[Way], kept: Sequence[tuple[str, pa.DataType]]) -> Columns:
    names = [name for name, _ in kept]
    texts = {
        way.keys[0] for way in ways if len(way.keys) == 1 and isinstance(way.type, T.StringType)
    }
    return Columns(
        read=tuple(dict.fromkeys((*names, *map(_path, ways)))),
        kept=tuple(kept),
        held=tuple(dict.fromkeys(way.keys[0] for way in ways)),
        coded=tuple(sorted(texts.difference(names))),
    )


def _path(way: Way) -> str:
    """Return what to read of a column: a field alone, unless it lies in an array."""
    return way.keys[0] if way.arrays else ".".join(way.keys)


def _json_lines(version: Version, keep: Sequence[str]) -> Reading:
    if keep:
        raise SchemaError(
            "events in JSON lines have no columns to keep; file and position are kept"
        )
    return Reading(read_json_lines, [*PLACE], 3, version.attributes, text=2)


def _results(
    spark: SparkSession, question: Question, reading: Reading, tasks: list[list[Split]]
) -> DataFrame:
    plan = question.planned(has_key=False)
    grid = plan.strategy is Strategy.GRID
    job = question.job(reading.layout(shared=grid), reading.wanted, plan)
    results = _run(spark, job, reading, tasks, plan)
    if not grid:
        return results
    return joined(results, _NAMES, [field.name for field in reading.kept], question.output)


def _run(
    spark: SparkSession, job: Job, reading: Reading, tasks: list[list[Split]], plan: Plan
) -> DataFrame:
    """Let each task read its splits, which come to it with the code, once for each share."""
    grid = plan.strategy is Strategy.GRID
    shares = len(plan.shares) if grid else 1

    def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = Run(job)
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            task, share = divmod(number, shares)
            for rows in reading.read(tasks[task]):
                yield from run.results(_with_share(rows, share) if grid else rows)

    kept = [*reading.kept, SHARE] if grid else reading.kept
    numbers = spark.range(0, len(tasks) * shares, 1, max(1, len(tasks) * shares))
    return numbers.mapInArrow(results, result_schema(job, kept))


def _with_share(rows: pa.RecordBatch, share: int) -> pa.RecordBatch:
    column = pa.repeat(pa.scalar(share, pa.int32()), rows.num_rows)
    return rows.append_column(SHARE.name, column)
