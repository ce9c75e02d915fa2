"""Streams: every micro-batch of events is matched, and its results are written exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple, TypedDict, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tamis.errors import EventError
from tamis.events.schema import did_you_mean
from tamis.spark.connectors.batches import Batch
from tamis.spark.connectors.broker_log import SCHEMES
from tamis.spark.connectors.broker_sink import BrokerSink
from tamis.spark.connectors.folder import FolderSink
from tamis.spark.connectors.sink import FunctionSink, Sink, SinkFunction, SinkOwner, require_free
from tamis.spark.connectors.store_sink import StoreSink
from tamis.spark.files.match_files import EventFiles, known_format, match_event_files
from tamis.spark.files.splits import NAMES, absolute_path, files_in, format_of_files
from tamis.spark.library.library import Library
from tamis.spark.matching.match import EventColumn, match_frame
from tamis.spark.matching.outputs import Output
from tamis.spark.matching.request import MatchOptions, MatchRequest
from tamis.spark.runtime.addresses import escape_glob, is_remote
from tamis.spark.streaming.checkpoint import Checkpoint
from tamis.spark.streaming.microbatch import MicroBatches
from tamis.spark.streaming.source_names import source_names
from tamis.spark.streaming.triggers import check_trigger, start_batches

_FILE_COLUMNS: Final = "path string, modificationTime timestamp, length long, content binary"

_NEW_NAMES: Final = {"told": "it is now 'on_batch'"}

Target = str | PathLike[str] | SinkFunction | Sink


class _StreamPlaces(TypedDict):
    """What every stream needs; `Required` is not seen at run time where annotations are text."""

    to: Target
    """A folder or an address in a store, which `read_results` reads; a function of the results and
    their `Pin`; the URL of a Tamis broker; or a `Sink`, such as `TableSink`."""
    checkpoint: str | PathLike[str]
    """The folder or address in which Spark and Tamis record the progress of the stream."""


class StreamOptions(_StreamPlaces, total=False):
    """The options of every stream."""

    output: str
    unmatched: bool | None
    every: float | None
    """Seconds between batches; by default they follow one another."""
    once: bool
    """Whether to stop after the events that are available now."""
    plan: str | None
    memory: int | None
    on_batch: Callable[[Batch], None] | None
    """Called after every batch, unless the sink is a function."""


def stream(
    events: DataFrame,
    library: Library | str | PathLike[str],
    *,
    keep: Sequence[str] | None = None,
    json: str | None = None,
    variant: str | None = None,
    xml: str | None = None,
    **options: Unpack[StreamOptions],
) -> StreamingQuery:
    """Match a streaming DataFrame, each batch against the version that is newest at the time.

    `keep`, `json`, `variant`, `xml`, `output`, `unmatched`, `plan` and `memory` are those of
    `match`; for the others see `StreamOptions`.
    """
    _check_names("stream", options)
    source = EventColumn(json, variant, xml)

    def match(batch: DataFrame, request: MatchRequest) -> DataFrame:
        return match_frame(batch, request, source, keep)

    start = _Start.of(library, keep, options)
    identity = {"source": source_names(events), "column with the event": source.name or "none"}
    no_events = events.sparkSession.createDataFrame([], events.schema)
    require_free(match(no_events, start.request).columns)
    return start.run(events, match, identity)


def stream_files(
    spark: SparkSession,
    library: Library | str | PathLike[str],
    path: str | PathLike[str],
    *,
    keep: Sequence[str] = (),
    format_: str | None = None,
    files_per_batch: int | None = None,
    **options: Unpack[StreamOptions],
) -> StreamingQuery:
    """Match the Parquet, JSON-lines or XML files in a folder, and those moved into it later.

    Spark finds new files and workers read them; each result has its file and position. Otherwise
    this is like `stream`.
    """
    _check_names("stream_files", options)
    root = absolute_path(path)
    kind = known_format(format_ or _format_in(root))

    def match(batch: DataFrame, request: MatchRequest) -> DataFrame:
        paths = [Path(row["path"].removeprefix("file:")) for row in batch.collect()]
        files = EventFiles(root, sorted(paths), all=False)
        return match_event_files(spark, request, files, keep=keep, format_=kind)

    start = _Start.of(library, keep, options)
    require_free(list(keep))
    new_files = _new_files(spark, root, files_per_batch)
    return start.run(new_files, match, {"source": f"{source_names(new_files)}, {kind}"})


def _check_names(function: str, options: StreamOptions) -> None:
    """Raise the TypeError that Python raises for keywords that are not gathered in `options`."""
    for name in options.keys() - StreamOptions.__annotations__.keys():
        hint = _NEW_NAMES.get(name) or did_you_mean(name, StreamOptions.__annotations__)
        reason = f"{function}() has no option {name!r}"
        raise TypeError(f"{reason}; {hint}" if hint else reason)
    missing = sorted(StreamOptions.__required_keys__ - options.keys())
    if missing:
        raise TypeError(f"{function}() needs {' and '.join(map(repr, missing))}")


def sink_of(to: Target) -> Sink:
    """Return the sink for a target."""
    if isinstance(to, Sink):
        return to
    if isinstance(to, str) and to.startswith(SCHEMES):
        return BrokerSink(to)
    if not isinstance(to, str | PathLike):
        return FunctionSink(to)
    return StoreSink(str(to)) if is_remote(to) else FolderSink(to)


class _Start(NamedTuple):
    """Everything that is known of a stream before it starts."""

    library: Library
    keep: Sequence[str] | None
    options: StreamOptions
    matching: MatchOptions
    request: MatchRequest
    """A request to the newest version, to check that the options fit it."""

    @classmethod
    def of(
        cls,
        library: Library | str | PathLike[str],
        keep: Sequence[str] | None,
        options: StreamOptions,
    ) -> _Start:
        """Check the options that concern the library."""
        opened = library if isinstance(library, Library) else Library(library)
        matching = MatchOptions(
            output=options.get("output", Output.IDS),
            unmatched=options.get("unmatched"),
            plan=options.get("plan"),
            memory=options.get("memory"),
        )
        return cls(opened, keep, options, matching, matching.request(opened, now=0))

    def run(
        self,
        events: DataFrame,
        match: Callable[[DataFrame, MatchRequest], DataFrame],
        identity: Mapping[str, str],
    ) -> StreamingQuery:
        """Take the checkpoint and the sink, once everything is checked, and start the query."""
        every, once = self.options.get("every"), self.options.get("once", False)
        check_trigger(every=every, once=once)
        sink, checkpoint = sink_of(self.options["to"]), Checkpoint(self.options["checkpoint"])
        claim = checkpoint.claim({**identity, **self._identity(sink)})
        owner = SinkOwner(claim.stream, checkpoint.folder, bool(checkpoint.pins()))
        sink.check(owner)
        checkpoint.keep(claim)
        sink.open(owner)
        on_batch = self.options.get("on_batch")
        batches = MicroBatches(self.library, self.matching, match, checkpoint, sink, on_batch)
        return start_batches(events, batches.run, checkpoint.location, every=every, once=once)

    def _identity(self, sink: Sink) -> dict[str, str]:
        """Return what the rows depend on, which must not change during the life of a stream."""
        return {
            "library": self.library.location,
            "output": str(self.request.output),
            "choice of columns": ("all" if self.keep is None else ", ".join(self.keep) or "none"),
            "treatment of unmatched events": (
                "to keep them" if self.request.unmatched else "to drop them"
            ),
            "sink": sink.name,
        }


def _format_in(root: Path) -> str:
    try:
        return format_of_files(files_in(root))
    except EventError as error:
        if root.is_dir() and not any(root.iterdir()):
            raise EventError(
                f"there is no file in {root} yet that implies a format; name it: {NAMES}"
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
    return reader.load(escape_glob(root)).select("path")
