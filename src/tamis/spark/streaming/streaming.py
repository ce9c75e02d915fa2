"""Streaming: every micro-batch of events is matched, and its results are written exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tamis.errors import EventError
from tamis.spark.connectors.results import Batch
from tamis.spark.connectors.sinks import Target, require_free, sink_of
from tamis.spark.files.files import Files, known_format, matched_files
from tamis.spark.files.splits import files_in, format_of_files
from tamis.spark.library.library import Library
from tamis.spark.matching.matching import Source, matched
from tamis.spark.matching.outputs import Output
from tamis.spark.matching.questions import Question
from tamis.spark.streaming.checkpoints import Checkpoint
from tamis.spark.streaming.microbatches import Stream, Wish
from tamis.spark.streaming.sources import source_of

_FILES: Final = "path string, modificationTime timestamp, length long, content binary"


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
    told: Callable[[Batch], None] | None = None,
) -> StreamingQuery:
    """Match a streaming DataFrame, batch by batch, with the newest version at the time.

    Results go to a folder that `read_results` reads, to a function of the results and their `Pin`,
    or to a `BrokerSink`. Batches follow one another, or come `every` so many seconds; `once` ends
    with what is there. `told` hears of every batch, unless a function has it.
    """
    source = Source(json, variant)

    def answer(batch: DataFrame, question: Question) -> DataFrame:
        return matched(batch, question, source, keep)

    shelf = library if isinstance(library, Library) else Library(library)
    wish = Wish(output, unmatched, plan, memory)
    question = wish.question(shelf.latest(), now=0)
    identity = {
        "source": source_of(events),
        **_identity(shelf, question, keep),
        "column with the event": source.name or "none",
    }
    no_events = events.sparkSession.createDataFrame([], events.schema)
    require_free(answer(no_events, question).columns)
    made = Stream(shelf, wish, answer, Checkpoint(checkpoint), sink_of(to), told)
    return _started(made, events, identity, every=every, once=once)


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
    told: Callable[[Batch], None] | None = None,
) -> StreamingQuery:
    """Match the Parquet or JSON-lines files in a folder, and those that are moved into it.

    Spark tells which files are new, and workers read them; each result has its file and position.
    The rest is as in `stream`.
    """
    root = Path(str(path).removeprefix("file://")).absolute()
    kind = known_format(format_ or _format_in(root))

    def answer(batch: DataFrame, question: Question) -> DataFrame:
        paths = [Path(row["path"].removeprefix("file:")) for row in batch.collect()]
        files = Files(root, sorted(paths), all=False)
        return matched_files(spark, question, files, keep=keep, format_=kind)

    shelf = library if isinstance(library, Library) else Library(library)
    wish = Wish(output, unmatched, plan, memory)
    question = wish.question(shelf.latest(), now=0)
    require_free(list(keep))
    new_files = _new_files(spark, root, files_per_batch)
    identity = {
        "source": f"{source_of(new_files)}, {kind}",
        **_identity(shelf, question, keep),
    }
    made = Stream(shelf, wish, answer, Checkpoint(checkpoint), sink_of(to), told)
    return _started(made, new_files, identity, every=every, once=once)


def _identity(library: Library, question: Question, keep: Sequence[str] | None) -> dict[str, str]:
    """Return what must stay the same for a stream to go on: what its rows depend on."""
    return {
        "library": str(library.path),
        "output": str(question.output),
        "choice of columns": "all" if keep is None else ", ".join(keep) or "none",
        "treatment of unmatched events": "to keep them" if question.unmatched else "to drop them",
    }


def _format_in(root: Path) -> str:
    try:
        return format_of_files(files_in(root))
    except EventError as error:
        if root.is_dir() and not any(root.iterdir()):
            raise EventError(
                f"there is no file in {root} yet to tell the format; name it: 'parquet' or 'json'"
            ) from None
        raise error from None


def _new_files(spark: SparkSession, root: Path, files_per_batch: int | None) -> DataFrame:
    """Return a stream of the names of files; nobody asks for their content, so it is not read."""
    if not root.is_dir():
        raise EventError(f"there is no folder {root} of events")
    reader = spark.readStream.format("binaryFile").schema(_FILES)
    reader = reader.option("recursiveFileLookup", "true")
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    return reader.load(str(root)).select("path")


def _started(
    made: Stream, events: DataFrame, identity: Mapping[str, str], *, every: float | None, once: bool
) -> StreamingQuery:
    """Take the checkpoint and the sink for the stream, once all else is right, and start it."""
    if every is not None and once:
        raise ValueError("a stream runs `every` so many seconds or `once`, not both")
    claim = made.checkpoint.claim({**identity, "sink": made.sink.name})
    made.sink.check(claim, made.checkpoint)
    made.checkpoint.keep(claim)
    made.sink.open(claim, made.checkpoint)
    writer = events.writeStream.foreachBatch(made.run)
    writer = writer.option("checkpointLocation", str(made.checkpoint.path))
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=f"{round(every * 1000)} milliseconds")
    return writer.queryName(f"tamis {made.checkpoint.path}").start()
