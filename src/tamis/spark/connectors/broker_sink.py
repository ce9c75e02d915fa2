"""A sink that publishes the results of a stream to a Tamis broker, each exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, Unpack

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.client import ConnectOptions, SyncBus, connect_sync
from tamis.errors import SparkError, TamisError
from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.broker_log import BrokerOptions, tls_context
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.matching.columns import quoted
from tamis.spark.matching.counts import Tally, outcome
from tamis.spark.runtime.records import read_record, write_record

# The bits that number the events of a batch; the next batch begins above all of them.
_EVENT_BITS: Final = 32
_NO_PUBLISHER: Final = -1
# Shorter than later timeouts: the caller who starts a stream is waiting.
_CHECK_SECONDS: Final = 10.0


class BrokerSink:
    """A sink that publishes each row as a JSON event.

    A batch that runs again has the same rows, and publishes them in the same order, with the same
    publishers and numbers, so the broker recognises them and stores none twice. The options are
    `token`, `ca`, `publishers` and `patience`. The stream's checkpoint records the last batch.
    """

    def __init__(self, url: str, **options: str) -> None:
        self._options: Final = BrokerOptions.parse({**options, "url": url})
        self._stream = ""
        self._sent = Path()

    @property
    def name(self) -> str:
        """Return the number of publishers, which must not change; the broker may move."""
        return f"a Tamis broker, by {self._options.publishers} publishers"

    def check(self, owner: SinkOwner) -> None:  # noqa: ARG002
        """Raise if the broker cannot be reached."""
        with _connected(self._options, timeout=min(_CHECK_SECONDS, self._options.patience)):
            pass

    def open(self, owner: SinkOwner) -> None:
        """Remember the stream whose results are published."""
        self._stream = owner.stream
        self._sent = owner.checkpoint / "tamis" / "sent.json"

    def has(self, pin: Pin) -> bool:
        """Return whether all of a batch was published."""
        sent = read_record(self._sent, Batch)
        return sent is not None and (sent.number, sent.offsets) == (pin.batch, pin.offsets)

    def tally(self) -> Tally:
        """Return a counter for the events of a batch."""
        return Tally()

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results as JSON, each with its publisher, in the order of publishing."""
        added = {
            "version": F.lit(pin.version),
            "outcome": outcome(results),
            "batch": F.lit(pin.batch),
        }
        rows = results.withColumns(added)
        columns = [_ordered(field) for field in rows.schema if field.name != "nth"]
        rows = rows.select(F.to_json(F.struct(*columns)).alias("value"))
        key = F.md5("value")
        publisher = F.pmod(F.crc32(key), F.lit(self._options.publishers))
        messages = rows.select("value", key.alias("key"), publisher.alias("publisher"))
        # Spark skips everything before an exchange without rows, and with it the counting.
        return (
            messages.unionByName(_unpublished_row(rows))
            .repartition(self._options.publishers, "publisher")
            # Rows with the same key are equal, so this order is unique.
            .sortWithinPartitions("publisher", "key")
        )

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Publish a batch, and record that it is published."""
        assert tally is not None  # noqa: S101 - `tally` made it
        self._publish(results, pin)
        batch = Batch.of(pin, tally.counts())
        write_record(self._sent, batch)
        return batch

    def _publish(self, messages: DataFrame, pin: Pin) -> None:
        options, stream, batch = self._options, self._stream, pin.batch

        def publish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            first = ((batch + 1) << _EVENT_BITS) + 1
            sent = sum(
                _publish_values(options, f"spark/{stream}/{publisher}", first, values)
                for publisher, values in _by_publisher(batches)
            )
            yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})

        messages.mapInArrow(publish, "sent long").write.format("noop").mode("overwrite").save()


def _ordered(field: T.StructField) -> Column:
    """Return a column; sort arrays of ids, which another plan may find in another order."""
    column = F.col(quoted(field.name))
    is_ids = field.name == "subscriptions" and isinstance(field.dataType, T.ArrayType)
    return (F.array_sort(column) if is_ids else column).alias(field.name)


def _unpublished_row(rows: DataFrame) -> DataFrame:
    value, key = (F.lit("").alias(name) for name in ("value", "key"))
    return rows.sparkSession.range(1).select(value, key, F.lit(_NO_PUBLISHER).alias("publisher"))


def _by_publisher(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[str]]]:
    rows = (
        row
        for batch in batches
        for row in zip(*(batch.column(n).to_pylist() for n in ("publisher", "value")), strict=True)
    )
    for publisher, some in groupby(rows, itemgetter(0)):
        if publisher != _NO_PUBLISHER:
            yield publisher, map(itemgetter(1), some)


def _publish_values(
    options: BrokerOptions, publisher: str, first: int, values: Iterator[str]
) -> int:
    with _connected(options, publisher=publisher, sequence=first, timeout=options.patience) as bus:
        return bus.publish_many(values).count


@contextmanager
def _connected(options: BrokerOptions, **given: Unpack[ConnectOptions]) -> Iterator[SyncBus]:
    """Connect to a broker, and raise a `SparkError` if anything goes wrong."""
    given |= {"token": options.token, "patient": True}
    try:
        with connect_sync(options.url, tls=tls_context(options), **given) as bus:
            yield bus
    except TamisError as error:
        raise SparkError(f"results cannot be published at {options.url}: {error}") from None
