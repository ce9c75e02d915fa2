"""Results of a stream as events of a Tamis broker, each exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Final, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tamis.client import ConnectOptions, SyncBus, connect_sync
from tamis.errors import SparkError, TamisError
from tamis.spark.connectors.broker_log import tls_of
from tamis.spark.connectors.broker_options import Settings
from tamis.spark.connectors.message_sink import MessageSink
from tamis.spark.streaming.checkpoints import Checkpoint, Claim, Pin

# Numbers of the events of a batch; the next batch begins above all of them.
_BITS: Final = 32
_NOBODY: Final = -1
# Whoever starts a stream is waiting.
_AT_START: Final = 10.0


class BrokerSink(MessageSink):
    """A sink that publishes each row as a JSON event.

    A batch that runs again has the same rows, and publishes them in the same order, by the same
    publishers and with the same numbers: the broker knows them, and stores none twice. Options are
    `token`, `ca`, `publishers` and `patience`.
    """

    def __init__(self, url: str, **options: str) -> None:
        super().__init__()
        self._settings: Final = Settings.of({**options, "url": url})

    @property
    def name(self) -> str:
        """Return what tells this sink from others; a broker may move, its publishers stay."""
        return f"a Tamis broker, by {self._settings.publishers} publishers"

    def check(self, claim: Claim, checkpoint: Checkpoint) -> None:  # noqa: ARG002
        """Raise if the broker is away."""
        with _connected(self._settings, timeout=min(_AT_START, self._settings.patience)):
            pass

    def _messages(self, rows: DataFrame, pin: Pin) -> DataFrame:  # noqa: ARG002
        key = F.md5("value")
        publisher = F.pmod(F.crc32(key), F.lit(self._settings.publishers))
        messages = rows.select("value", key.alias("key"), publisher.alias("publisher"))
        # Spark leaves out all that comes before an exchange without rows, and with it the counting.
        return (
            messages.unionByName(_nobody(rows))
            .repartition(self._settings.publishers, "publisher")
            # Two rows with the same key are the same, so this is one order and no other.
            .sortWithinPartitions("publisher", "key")
        )

    def _send(self, messages: DataFrame, pin: Pin) -> None:
        settings, stream, batch = self._settings, self._stream, pin.batch

        def published(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            first = ((batch + 1) << _BITS) + 1
            sent = sum(
                _publish(settings, f"spark/{stream}/{publisher}", first, values)
                for publisher, values in _by_publisher(batches)
            )
            yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})

        messages.mapInArrow(published, "sent long").write.format("noop").mode("overwrite").save()


def _nobody(rows: DataFrame) -> DataFrame:
    """Return a row that nobody publishes."""
    value, key = (F.lit("").alias(name) for name in ("value", "key"))
    return rows.sparkSession.range(1).select(value, key, F.lit(_NOBODY).alias("publisher"))


def _by_publisher(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[str]]]:
    rows = (
        row
        for batch in batches
        for row in zip(*(batch.column(n).to_pylist() for n in ("publisher", "value")), strict=True)
    )
    for publisher, some in groupby(rows, itemgetter(0)):
        if publisher != _NOBODY:
            yield publisher, map(itemgetter(1), some)


def _publish(settings: Settings, publisher: str, first: int, values: Iterator[str]) -> int:
    with _connected(
        settings, publisher=publisher, sequence=first, timeout=settings.patience
    ) as bus:
        return bus.publish_many(values).count


@contextmanager
def _connected(settings: Settings, **options: Unpack[ConnectOptions]) -> Iterator[SyncBus]:
    """Connect with a broker; what goes wrong is said in a sentence."""
    options |= {"token": settings.token, "patient": True}
    try:
        with connect_sync(settings.url, tls=tls_of(settings), **options) as bus:
            yield bus
    except TamisError as error:
        raise SparkError(f"results cannot be published at {settings.url}: {error}") from None
