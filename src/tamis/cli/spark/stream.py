"""`tamis spark stream`: the files in a folder or the events of a broker, batch by batch."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from tamis.cli.console import say
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import argument, mistake, no_default
from tamis.cli.spark.jobs import spark_job, write_summary
from tamis.cli.spark.options import (
    FileFormat,
    KeptColumns,
    LibraryFolder,
    Master,
    OnlyMatched,
    OutputForm,
    PlanName,
)
from tamis.units import seconds

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from tamis.spark import Batch, Counts

EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark stream events/ --library subscriptions/ --to matches/ --checkpoint checkpoint/
tamis spark stream events/ -L subscriptions/ --to matches/ --checkpoint checkpoint/ --every 10s
tamis spark stream http://broker:8765 -L subscriptions/ --to matches/ --checkpoint at/

[bold]Exit code[/bold]

0 an event matched
1 no event matched
2 a mistake, or an error of Spark"""

_KAFKA: Final = "kafka://"
_BROKER: Final = ("http://", "https://")
_POLL_SECONDS: Final = 1


def stream(
    events: Annotated[
        str,
        argument("EVENTS", "A folder of Parquet or JSON lines, or the URL of a broker."),
    ],
    *,
    library: LibraryFolder,
    to: Annotated[
        str,
        no_default(
            "--to",
            metavar="FOLDER",
            help="Where to write results: a folder, or the URL of a broker.",
        ),
    ],
    checkpoint: Annotated[
        str,
        no_default(metavar="FOLDER", help="Where the stream records its progress."),
    ],
    once: Annotated[bool, typer.Option("--once", help="Stop after the events there are.")] = False,
    every: Annotated[
        str | None,
        no_default(metavar="TIME", help="How often to look for events: 500ms, 10s, 5m, 1h."),
    ] = None,
    files_per_batch: Annotated[
        int | None,
        no_default(min=1, metavar="N", help="Maximum number of files."),
    ] = None,
    events_per_batch: Annotated[
        int | None,
        no_default(min=1, metavar="N", help="Maximum number of events from a broker."),
    ] = None,
    option: Annotated[
        list[str] | None,
        no_default(metavar="NAME=VALUE", help="An option of reading a broker; repeatable."),
    ] = None,
    to_option: Annotated[
        list[str] | None,
        no_default(metavar="NAME=VALUE", help="An option of publishing to a broker; repeatable."),
    ] = None,
    output: OutputForm = "ids",
    keep: KeptColumns = None,
    only_matched: OnlyMatched = False,
    plan: PlanName = None,
    format_: FileFormat = None,
    master: Master = "local[*]",
) -> int:
    """Match the files in a folder, and those moved into it, until Ctrl-C.

    Each batch uses the newest version of the library, and is written to a folder exactly once,
    whatever fails: started again with the same checkpoint, the stream continues.
    """
    from tamis import spark as tamis_spark  # noqa: PLC0415 - pyspark is an extra
    from tamis.spark.connectors.broker_stream import POSITION  # noqa: PLC0415 - as above

    from_broker, to_broker = events.startswith(_BROKER), to.startswith(_BROKER)
    if events.startswith(_KAFKA) or to.startswith(_KAFKA):
        raise mistake(
            "the command line does not stream Kafka; a program does, with Spark's own connector: "
            "see docs/how-to/stream-on-spark.md"
        )
    if once and every is not None:
        raise mistake("a stream runs --once or --every so often, not both")
    for name, given, fits, purpose in (
        ("--files-per-batch", files_per_batch, not from_broker, "files"),
        ("--format", format_, not from_broker, "files"),
        ("--events-per-batch", events_per_batch, from_broker, "brokers"),
        ("--option", option, from_broker, "brokers"),
        ("--to-option", to_option, to_broker, "results that go to a broker"),
    ):
        if given and not fits:
            raise mistake(f"{name} is for {purpose}")
    batches: list[Batch] = []
    source_options, sink_options = parse_options(option or ()), parse_options(to_option or ())
    shared: dict[str, Any] = {
        "checkpoint": checkpoint,
        "output": output,
        "unmatched": False if only_matched else None,
        "every": _duration(every),
        "once": once,
        "plan": plan,
    }
    spark, started = tamis_spark.local_session(master), time.monotonic()

    def so_far() -> tuple[int, int]:
        counts = tamis_spark.total(batches)
        return counts.events, counts.matches

    with spark_job(spark, "streaming", so_far) as console:
        shared["to"] = tamis_spark.BrokerSink(to, **sink_options) if to_broker else to
        shared["on_batch"] = _reporter(batches, console)
        if from_broker:
            if events_per_batch is not None:
                source_options["maxEventsPerTrigger"] = str(events_per_batch)
            messages = tamis_spark.read_broker(spark, events, **source_options)
            columns = tuple(dict.fromkeys((*POSITION, *(keep or ()))))
            query = tamis_spark.stream(messages, library, json="value", keep=columns, **shared)
        else:
            query = tamis_spark.stream_files(
                spark,
                library,
                events,
                keep=keep or (),
                format_=format_,
                files_per_batch=files_per_batch,
                **shared,
            )
        _wait(query, console)
    counts = tamis_spark.total(batches)
    write_summary(_facts(batches, counts, to, time.monotonic() - started))
    return FINE if counts.matched else FINDING


def _facts(
    batches: list[Batch], counts: Counts, to: str, elapsed: float
) -> dict[str, int | float | str]:
    versions = sorted({batch.version for batch in batches})
    return {
        "batches": len(batches),
        "versions": ", ".join(map(str, versions)) or "none",
        **counts._asdict(),
        "seconds": elapsed,
        "events per second": round(counts.events / elapsed),
        "written to": to,
    }


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return seconds(text)
    except ValueError as error:
        raise mistake(f"--every: {error}") from None


def parse_options(given: Sequence[str]) -> dict[str, str]:
    """Return options given as `NAME=VALUE`.

    >>> parse_options(["start=earliest", "filter=symbol = 'ACME'"])
    {'start': 'earliest', 'filter': "symbol = 'ACME'"}
    """
    for one in given:
        if "=" not in one:
            raise mistake(f"{one!r} is not an option; write it as NAME=VALUE")
    return dict(one.split("=", 1) for one in given)


def _reporter(batches: list[Batch], console: Console) -> Callable[[Batch], None]:
    def report(batch: Batch) -> None:
        batches.append(batch)
        say(console, f"batch {batch.number}, version {batch.version}: {batch.counts}")

    return report


def _wait(query: StreamingQuery, console: Console) -> None:
    """Wait for the end or for Ctrl-C; an interrupted batch runs again at the next start."""
    with _interruptions() as interrupted:
        while not query.awaitTermination(_POLL_SECONDS):
            if interrupted.is_set():
                query.stop()
                say(console, "stopped; the next start continues from here")
                return


@contextmanager
def _interruptions() -> Iterator[Event]:
    """Catch Ctrl-C, on which Spark would cancel all jobs and make the stream fail."""
    interrupted = Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
