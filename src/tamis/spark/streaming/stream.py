"""Streams: every micro-batch of events is matched, and its results are written exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tamis.errors import EventError
from tamis.spark.connectors.batches import Batch
from tamis.spark.connectors.broker_log import SCHEMES
from tamis.spark.connectors.broker_sink import BrokerSink
from tamis.spark.connectors.folder import FolderSink
from tamis.spark.connectors.sink import FunctionSink, Sink, SinkFunction, SinkOwner, require_free
from tamis.spark.files.match_files import EventFiles, known_format, match_event_files
from tamis.spark.files.splits import files_in, format_of_files
from tamis.spark.library.library import Library
from tamis.spark.matching.match import EventColumn, match_frame
from tamis.spark.matching.outputs import Output
from tamis.spark.matching.request import MatchOptions, MatchRequest
from tamis.spark.streaming.checkpoint import Checkpoint
from tamis.spark.streaming.microbatch import MicroBatches
from tamis.spark.streaming.source_names import source_names

_FILE_COLUMNS: Final = "path string, modificationTime timestamp, length long, content binary"

Target = str | PathLike[str] | SinkFunction | Sink


def stream(
    events: DataFrame,
    library: Library | str | PathLike[str],
    *,
    to: Target,
    checkpoint: str | PathLike[str],
    output: str = Output.IDS,
    keep: Sequence[str] | None = None,
    json: str | None = None,
    variant: str | None = None,
    unmatched: bool | None = None,
    every: float | None = None,
    once: bool = False,
    plan: str | None = None,
    memory: int | None = None,
    on_batch: Callable[[Batch], None] | None = None,
) -> StreamingQuery:
    """Match a streaming DataFrame, each batch against the version that is newest at the time.

    Results go to a folder, which `read_results` reads, to a function of the results and their
    `Pin`, or to a `BrokerSink`. Batches follow one another, or start `every` few seconds; `once`
    ends with the events that are there. `on_batch` is called after every batch, unless the sink is
    a function.
    """
    source = EventColumn(json, variant)

    def match(batch: DataFrame, request: MatchRequest) -> DataFrame:
        return match_frame(batch, request, source, keep)

    options = MatchOptions(output, unmatched, plan, memory)
    sink, records = sink_of(to), Checkpoint(checkpoint)
    start = _Start(options, every, once, keep, sink, records, on_batch)
    opened = library if isinstance(library, Library) else Library(library)
    identity = {"source": source_names(events), "column with the event": source.name or "none"}
    no_events = events.sparkSession.createDataFrame([], events.schema)
    require_free(match(no_events, options.request(opened, now=0)).columns)
    return start.run(events, opened, match, identity)


def stream_files(
    spark: SparkSession,
    library: Library | str | PathLike[str],
    path: str | PathLike[str],
    *,
    to: Target,
    checkpoint: str | PathLike[str],
    output: str = Output.IDS,
    keep: Sequence[str] = (),
    format_: str | None = None,
    files_per_batch: int | None = None,
    unmatched: bool | None = None,
    every: float | None = None,
    once: bool = False,
    plan: str | None = None,
    memory: int | None = None,
    on_batch: Callable[[Batch], None] | None = None,
) -> StreamingQuery:
    """Match the Parquet or JSON-lines files in a folder, and those moved into it later.

    Spark finds new files and workers read them; each result has its file and position. Otherwise
    this is like `stream`.
    """
    root = Path(str(path).removeprefix("file://")).absolute()
    kind = known_format(format_ or _format_in(root))

    def match(batch: DataFrame, request: MatchRequest) -> DataFrame:
        paths = [Path(row["path"].removeprefix("file:")) for row in batch.collect()]
        files = EventFiles(root, sorted(paths), all=False)
        return match_event_files(spark, request, files, keep=keep, format_=kind)

    options = MatchOptions(output, unmatched, plan, memory)
    sink, records = sink_of(to), Checkpoint(checkpoint)
    start = _Start(options, every, once, keep, sink, records, on_batch)
    opened = library if isinstance(library, Library) else Library(library)
    require_free(list(keep))
    new_files = _new_files(spark, root, files_per_batch)
    identity = {"source": f"{source_names(new_files)}, {kind}"}
    return start.run(new_files, opened, match, identity)


def sink_of(to: Target) -> Sink:
    """Return the sink for a target."""
    if isinstance(to, Sink):
        return to
    if isinstance(to, str) and to.startswith(SCHEMES):
        return BrokerSink(to)
    return FolderSink(to) if isinstance(to, str | PathLike) else FunctionSink(to)


class _Start(NamedTuple):
    """The options that all kinds of streams start with."""

    options: MatchOptions
    every: float | None
    once: bool
    keep: Sequence[str] | None
    sink: Sink
    checkpoint: Checkpoint
    on_batch: Callable[[Batch], None] | None

    def run(
        self,
        events: DataFrame,
        library: Library,
        match: Callable[[DataFrame, MatchRequest], DataFrame],
        identity: Mapping[str, str],
    ) -> StreamingQuery:
        """Check everything, take the checkpoint and the sink, and start the query."""
        if self.every is not None and self.once:
            raise ValueError("a stream runs `every` few seconds or `once`, not both")
        sink, checkpoint = self.sink, self.checkpoint
        request = self.options.request(library, now=0)
        claim = checkpoint.claim({**identity, **self._identity(library, request)})
        owner = SinkOwner(claim.stream, checkpoint.path, bool(checkpoint.pins()))
        sink.check(owner)
        checkpoint.keep(claim)
        sink.open(owner)
        batches = MicroBatches(library, self.options, match, checkpoint, sink, self.on_batch)
        return self._query(events, batches)

    def _identity(self, library: Library, request: MatchRequest) -> dict[str, str]:
        """Return what the rows depend on, which must not change while a stream goes on."""
        keep = self.keep
        return {
            "library": str(library.path),
            "output": str(request.output),
            "choice of columns": "all" if keep is None else ", ".join(keep) or "none",
            "treatment of unmatched events": (
                "to keep them" if request.unmatched else "to drop them"
            ),
            "sink": self.sink.name,
        }

    def _query(self, events: DataFrame, batches: MicroBatches) -> StreamingQuery:
        path = batches.checkpoint.path
        writer = events.writeStream.foreachBatch(batches.run)
        writer = writer.option("checkpointLocation", str(path))
        if self.once:
            writer = writer.trigger(availableNow=True)
        elif self.every is not None:
            writer = writer.trigger(processingTime=f"{round(self.every * 1000)} milliseconds")
        return writer.queryName(f"tamis {path}").start()


def _format_in(root: Path) -> str:
    try:
        return format_of_files(files_in(root))
    except EventError as error:
        if root.is_dir() and not any(root.iterdir()):
            raise EventError(
                f"there is no file in {root} yet that implies a format; name it: 'parquet' or "
                "'json'"
            ) from None
        raise error from None


def _new_files(spark: SparkSession, root: Path, files_per_batch: int | None) -> DataFrame:
    """Return a stream of paths; Spark does not read the content, which nobody selects."""
    if not root.is_dir():
        raise EventError(f"there is no folder {root} of events")
    reader = spark.readStream.format("binaryFile").schema(_FILE_COLUMNS)
    reader = reader.option("recursiveFileLookup", "true")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(str(root)).select("path")
