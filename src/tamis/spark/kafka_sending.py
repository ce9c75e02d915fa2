"""Sending messages to Kafka, and waiting until it has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tamis.errors import SparkError
from tamis.spark.kafka_client import SECONDS_OF_A_LOOK, UNSENT_IN_TIME, away, made_right
from tamis.spark.kafka_options import Settings

_WRITING: Final = {
    # Kafka drops what a client sends twice because it did not hear the answer.
    "enable.idempotence": "true",
    # As in Java, so that a key stays in its partition whoever sends it.
    "partitioner": "murmur2_random",
}
_FOR_READING: Final = ("group.id", "isolation.level")


class Sender:
    """A client that sends messages."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._refusal: SparkError | None = None
        client = {
            "message.timeout.ms": str(round(settings.patience * 1000)),
            **_WRITING,
            **{name: one for name, one in settings.client.items() if name not in _FOR_READING},
        }
        with made_right(settings) as self._complaints:
            self._producer = Producer(
                {
                    **client,
                    "error_cb": self._complaints.note,
                    "on_delivery": self._hear,
                    # To hear of the rest would cost more than to send it.
                    "delivery.report.only.error": True,
                }
            )

    def send(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Send a message some time before `wait` ends."""
        while True:
            try:
                return self._producer.produce(topic, value, key)
            except BufferError:
                self._producer.poll(SECONDS_OF_A_LOOK)
            except KafkaException as error:
                raise _unsent(topic, error.args[0]) from None

    def wait(self) -> None:
        """Return when Kafka has all messages, or say that it has not."""
        self._producer.flush()
        if self._refusal is not None:
            raise self._refusal

    def _hear(self, error: KafkaError, message: Message) -> None:
        if error.code() == UNSENT_IN_TIME:
            self._refusal = away(self._settings, self._complaints.last or error.str())
        else:
            self._refusal = _unsent(str(message.topic()), error)


def _unsent(topic: str, error: KafkaError) -> SparkError:
    return SparkError(f"a message cannot be sent to the topic {topic}: {error.str()}")


# A worker keeps its clients: to be known to Kafka takes each of them half a second.
_SENDERS: Final[dict[tuple[tuple[str, str], ...], Sender]] = {}


def send_rows(batches: Iterable[pa.RecordBatch], settings: Settings) -> Iterator[pa.RecordBatch]:
    """Send rows with a topic, a key and a value, and tell how many when Kafka has them."""
    client = tuple(sorted(settings.client.items()))
    # One that fails is not used again.
    sender = _SENDERS.pop(client, None) or Sender(settings)
    sent = 0
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("topic", "key", "value"))
        for topic, key, value in zip(*columns, strict=True):
            sender.send(topic, key, value)
        sent += batch.num_rows
    sender.wait()
    _SENDERS[client] = sender
    yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})
