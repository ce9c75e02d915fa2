"""A sink that sends the results of a stream to a topic of Kafka, each exactly once.

Spark's own sink is at least once. Kafka commits messages and an offset of a consumer group in one
transaction, and the offset tells which batch the messages belong to::

    transactional id  tamis-<stream>-<publisher>    a publisher that starts again ends the old one
    group             tamis-<stream>-<publisher>    its offset in partition 0: the batches it sent

A batch that runs again has the same rows, each with the same publisher. A publisher first ends
whatever an earlier process left behind under its id, then reads the offset, and sends its rows only
if their batch is not among those it sent. There is no transaction over several producers in Kafka,
so a reader may see a part of a batch, but never a row twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import md5
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from tamis.errors import SchemaError, SparkError
from tamis.lazy import require_extra
from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.messages import by_publisher, messages_of
from tamis.spark.connectors.sent import SentBatches
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.matching.counts import Tally

if TYPE_CHECKING:
    from confluent_kafka import Producer

# Shorter than later timeouts: the caller who starts a stream is waiting.
_CHECK_SECONDS: Final = 10.0
_TIMEOUT_SECONDS: Final = 60.0
# What exactly once depends on.
_OURS: Final = ("bootstrap.servers", "transactional.id", "group.id", "isolation.level")


class KafkaSink:
    """A topic of Kafka, to which each row goes as JSON, with its checksum for a key.

    Readers need `isolation.level=read_committed`. The options are those of librdkafka, such as
    `security.protocol` and `ssl.ca.location`; `publishers` is the number of tasks that send, and
    must not change during the life of a stream. The stream's checkpoint records the last batch.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        publishers: int = 2,
        timeout: float = _TIMEOUT_SECONDS,
        options: Mapping[str, str] | None = None,
    ) -> None:
        require_extra("kafka")
        for name in _OURS:
            if name in (options or {}):
                raise SchemaError(f"the option {name!r} of Kafka belongs to the sink; leave it out")
        if publishers < 1:
            raise SchemaError(f"a sink needs a publisher, and not {publishers}")
        self._publishers: Final = publishers
        self._target = KafkaTarget(servers, topic, timeout, dict(options or {}))
        self._sent: Final = SentBatches()

    @property
    def name(self) -> str:
        """Return what must not change; the servers may move."""
        return f"the topic {self._target.topic} of Kafka, by {self._publishers} publishers"

    def check(self, owner: SinkOwner) -> None:  # noqa: ARG002
        """Raise if the servers cannot be reached."""
        self._target.check()

    def open(self, owner: SinkOwner) -> None:
        """Remember the stream, whose id is new with a new checkpoint, as its batches are."""
        self._target = self._target._replace(stream=owner.stream)
        self._sent.open(owner)

    def has(self, pin: Pin) -> bool:
        """Return whether all of a batch is known to be sent."""
        return self._sent.has(pin)

    def tally(self) -> Tally:
        """Return a counter for the events of a batch."""
        return Tally()

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results as JSON, each with its publisher, in the order of sending."""
        return messages_of(results, pin, self._publishers)

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Send a batch, and record that it is sent."""
        assert tally is not None  # noqa: S101 - `tally` made it
        target, batch = self._target, pin.batch

        def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sent = sum(target.send(who, batch, values) for who, values in by_publisher(batches))
            yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})

        results.mapInArrow(send, "sent long").write.format("noop").mode("overwrite").save()
        done = Batch.of(pin, tally.counts())
        self._sent.keep(done)
        return done


class KafkaTarget(NamedTuple):
    """A topic, and how to reach it from any process."""

    servers: str
    topic: str
    timeout: float
    options: dict[str, str]
    stream: str = ""

    def __repr__(self) -> str:
        return f"<KafkaTarget {self.topic} at {self.servers}>"  # without passwords

    def check(self) -> None:
        """Raise if the servers do not answer."""
        from confluent_kafka import Producer  # noqa: PLC0415 - an extra

        with self._errors():
            known = Producer(self._settings).list_topics(timeout=min(_CHECK_SECONDS, self.timeout))
            if not known.brokers:
                raise SparkError(f"Kafka at {self.servers} names no servers")

    def send(self, publisher: int, batch: int, values: Iterable[str]) -> int:
        """Send the rows of a publisher in one transaction, unless it did so before."""
        from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: PLC0415 - an extra

        name = f"tamis-{self.stream}-{publisher}"
        with self._errors():
            producer = Producer({**self._settings, "transactional.id": name})
            # From here on, no older process can commit under this name.
            producer.init_transactions(self.timeout)
            group = {"group.id": name, "isolation.level": "read_committed"}
            consumer = Consumer({**self._settings, **group})
            try:
                [before] = consumer.committed([TopicPartition(self.topic, 0)], self.timeout)
                if before.offset > batch:
                    return 0
                producer.begin_transaction()
                sent = self._produce(producer, values)
                mark = [TopicPartition(self.topic, 0, batch + 1)]
                of_group = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(mark, of_group, self.timeout)
                producer.commit_transaction(self.timeout)
            finally:
                consumer.close()
        return sent

    def _produce(self, producer: Producer, values: Iterable[str]) -> int:
        sent = 0
        for value in values:
            data = value.encode()
            while True:
                try:
                    producer.produce(self.topic, data, key=_key(data))
                except BufferError:
                    # As much as may wait is waiting.
                    producer.poll(1.0)
                else:
                    break
            producer.poll(0)
            sent += 1
        return sent

    @property
    def _settings(self) -> dict[str, str]:
        return {"log_level": "3", **self.options, "bootstrap.servers": self.servers}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra

        try:
            yield
        except KafkaException as error:
            first = error.args[0] if error.args else error
            reason = first.str() if hasattr(first, "str") else str(first)
            raise SparkError(
                f"results cannot be sent to the topic {self.topic} of Kafka at {self.servers}: "
                f"{reason}"
            ) from None


def _key(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).hexdigest().encode()
