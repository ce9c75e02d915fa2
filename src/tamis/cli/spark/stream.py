"""What `tamis spark stream` does, once it is known that Spark is there."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from tamis.cli.console import say
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import mistake
from tamis.cli.spark.progress import following
from tamis.cli.spark.summary import write_summary
from tamis.spark import (
    Batch,
    BrokerSink,
    local_session,
    read_broker,
    stream,
    stream_files,
    total,
)
from tamis.spark.connectors.broker_log import SCHEMES
from tamis.spark.connectors.broker_source import POSITION
from tamis.spark.runtime.failures import readable_errors

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(_SECONDS)})")
_SECONDS_BETWEEN_LOOKS: Final = 1


class Order(NamedTuple):
    """What the command line asked for."""

    events: str
    library: Path
    to: str
    checkpoint: Path
    output: str
    keep: tuple[str, ...]
    only_matched: bool
    once: bool
    every: float | None
    files_per_batch: int | None
    events_per_batch: int | None
    plan: str | None
    format: str | None
    options: dict[str, str]
    to_options: dict[str, str]


def seconds_of(duration: str | None) -> float | None:
    """Return a duration such as `10s` in seconds.

    >>> seconds_of("500ms"), seconds_of("1.5 m"), seconds_of(None)
    (0.5, 90.0, None)
    """
    if duration is None:
        return None
    found = _DURATION.fullmatch(duration.strip())
    if found is None:
        raise mistake(f"{duration!r} is not a duration; write it as 500ms, 10s, 5m or 1h")
    return float(found[1]) * _SECONDS[found[2]]


def options_of(given: Sequence[str]) -> dict[str, str]:
    """Return options that were given as `NAME=VALUE`.

    >>> options_of(["start=earliest", "filter=symbol = 'ACME'"])
    {'start': 'earliest', 'filter': "symbol = 'ACME'"}
    """
    for one in given:
        if "=" not in one:
            raise mistake(f"{one!r} is not an option; write it as NAME=VALUE")
    return dict(one.split("=", 1) for one in given)


def run_stream(order: Order, master: str) -> int:
    """Stream until all is done or somebody ends it, and say what came of it."""
    _require_sense(order)
    spark = local_session(master)
    batches: list[Batch] = []
    started = time.monotonic()
    with readable_errors(), following(spark, "streaming") as console:
        query = _started(spark, order, _teller(batches, console))
        _wait(query, console)
    write_summary(_facts(batches, order.to, time.monotonic() - started))
    return FINE if total(batches).matched else FINDING


def _require_sense(order: Order) -> None:
    if order.once and order.every is not None:
        raise mistake("a stream runs --once or --every so often, not both")
    if "kafka://" in (order.events[:8], order.to[:8]):
        raise mistake(
            "Kafka is not for the command line: a program reads it with Spark's own connector, "
            "see docs/how-to/stream-on-spark.md"
        )
    is_remote, goes_far = (one.startswith(SCHEMES) for one in (order.events, order.to))
    only_here = {
        "--files-per-batch": (order.files_per_batch, "files", not is_remote),
        "--format": (order.format, "files", not is_remote),
        "--events-per-batch": (order.events_per_batch, "brokers", is_remote),
        "--option": (order.options, "brokers", is_remote),
        "--to-option": (order.to_options, "results that go to a broker", goes_far),
    }
    for name, (given, what, fits) in only_here.items():
        if given and not fits:
            raise mistake(f"{name} is for {what}")


def _started(spark: SparkSession, order: Order, tell: Callable[[Batch], None]) -> StreamingQuery:
    given: dict[str, Any] = {
        "to": _sink(order),
        "checkpoint": order.checkpoint,
        "output": order.output,
        "unmatched": False if order.only_matched else None,
        "every": order.every,
        "once": order.once,
        "plan": order.plan,
        "on_batch": tell,
    }
    if order.events.startswith(SCHEMES):
        messages = read_broker(spark, order.events, **_options(order))
        keep = tuple(dict.fromkeys((*POSITION, *order.keep)))
        return stream(messages, order.library, json="value", keep=keep, **given)
    return stream_files(
        spark,
        order.library,
        order.events,
        keep=order.keep,
        format_=order.format,
        files_per_batch=order.files_per_batch,
        **given,
    )


def _sink(order: Order) -> str | BrokerSink:
    if order.to.startswith(SCHEMES):
        return BrokerSink(order.to, **order.to_options)
    return order.to


def _options(order: Order) -> dict[str, str]:
    if order.events_per_batch is None:
        return order.options
    return {**order.options, "maxEventsPerTrigger": str(order.events_per_batch)}


def _teller(batches: list[Batch], console: Console) -> Callable[[Batch], None]:
    def tell(batch: Batch) -> None:
        batches.append(batch)
        say(console, f"batch {batch.number}, version {batch.version}: {batch.counts}")

    return tell


def _wait(query: StreamingQuery, console: Console) -> None:
    """Wait for the end, or for Ctrl-C; a batch that this cuts short runs again the next time."""
    with _interruptions() as interrupted:
        while not query.awaitTermination(_SECONDS_BETWEEN_LOOKS):
            if interrupted.is_set():
                query.stop()
                say(console, "stopped; the next start goes on from here")
                return


@contextmanager
def _interruptions() -> Iterator[Event]:
    """Note Ctrl-C, where Spark would cancel all jobs and let the stream fail."""
    interrupted = Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _facts(batches: list[Batch], to: str, seconds: float) -> dict[str, int | float | str]:
    counts = total(batches)
    versions = sorted({batch.version for batch in batches})
    return {
        "batches": len(batches),
        "versions": ", ".join(map(str, versions)) or "none",
        **counts._asdict(),
        "seconds": seconds,
        "events per second": round(counts.events / seconds),
        "written to": to,
    }
