"""A sink that publishes the results of a stream to a Tamis broker, each exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame

from tamis.client import ConnectOptions, SyncBus, connect_sync
from tamis.errors import SparkError, TamisError
from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.broker_log import BrokerOptions, tls_context
from tamis.spark.connectors.messages import by_publisher, messages_of
from tamis.spark.connectors.sent import SentBatches
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.matching.counts import Tally

# The bits that number the events of a batch; the next batch begins above all of them.
_EVENT_BITS: Final = 32
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
        self._sent: Final = SentBatches()

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
        self._sent.open(owner)

    def has(self, pin: Pin) -> bool:
        """Return whether all of a batch was published."""
        return self._sent.has(pin)

    def tally(self) -> Tally:
        """Return a counter for the events of a batch."""
        return Tally()

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results as JSON, each with its publisher, in the order of publishing."""
        return messages_of(results, pin, self._options.publishers)

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Publish a batch, and record that it is published."""
        assert tally is not None  # noqa: S101 - `tally` made it
        self._publish(results, pin)
        batch = Batch.of(pin, tally.counts())
        self._sent.keep(batch)
        return batch

    def _publish(self, messages: DataFrame, pin: Pin) -> None:
        options, stream, batch = self._options, self._stream, pin.batch

        def publish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            first = ((batch + 1) << _EVENT_BITS) + 1
            sent = sum(
                _publish_values(options, f"spark/{stream}/{publisher}", first, values)
                for publisher, values in by_publisher(batches)
            )
            yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})

        messages.mapInArrow(publish, "sent long").write.format("noop").mode("overwrite").save()


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
