"""Results of a stream as messages in a topic of Kafka, each at least once, with a key to tell."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tamis.spark.checkpoints import Checkpoint, Claim, Pin
from tamis.spark.kafka_extra import require_topics, send
from tamis.spark.kafka_options import SERVERS, Address, Settings
from tamis.spark.message_sink import MessageSink


class KafkaTopic(MessageSink):
    """A sink that sends each row as JSON to a topic; rejected events may have one of their own.

    The key of a message is made of the stream, the batch and the row: a row that is sent again has
    the same. Options are those of librdkafka, with `kafka.` in front.
    """

    def __init__(
        self, servers: str, topic: str, *, rejected: str | None = None, **options: str
    ) -> None:
        super().__init__()
        self._topic: Final = topic
        self._rejected: Final = rejected or topic
        self._settings: Final = Settings.of({**options, SERVERS: servers})

    @classmethod
    def at(cls, address: str, **options: str) -> KafkaTopic:
        """Return the sink at an address, such as `kafka://host:port/topic`."""
        servers, topic = Address.of(address)
        return cls(servers, topic, **options)

    @property
    def name(self) -> str:
        """Return the names of the topics; brokers may move."""
        apart = "" if self._rejected == self._topic else f", rejected events to {self._rejected}"
        return f"the topic {self._topic} of Kafka{apart}"

    def check(self, claim: Claim, checkpoint: Checkpoint) -> None:  # noqa: ARG002
        """Raise if Kafka is away, or has no such topic."""
        require_topics(self._settings._replace(topics=(self._topic, self._rejected)))

    def _messages(self, rows: DataFrame, pin: Pin) -> DataFrame:
        topic = F.when(F.col("outcome") == "rejected", self._rejected).otherwise(self._topic)
        messages = rows.select(topic.alias("topic"), "value")
        key = F.concat(F.lit(f"{self._stream}/{pin.batch}/"), F.md5("value"))
        columns = {"key": key, "value": F.col("value")}
        return messages.select(
            "topic", *(one.cast("binary").alias(n) for n, one in columns.items())
        )

    def _send(self, messages: DataFrame, pin: Pin) -> None:  # noqa: ARG002
        send(messages, self._settings)
