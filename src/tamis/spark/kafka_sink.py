"""Results of a stream as messages in a topic of Kafka, each at least once, with a key to tell."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.spark.checkpoints import Checkpoint, Claim, Pin
from tamis.spark.columns import quoted
from tamis.spark.kafka_extra import require_topics, send
from tamis.spark.kafka_options import SERVERS, Address, Settings
from tamis.spark.records import read_record, write_record
from tamis.spark.results import Batch
from tamis.spark.tallying import Tally, outcome


class KafkaTopic:
    """A sink that sends each row as JSON to a topic; rejected events may have one of their own.

    The key of a message is made of the stream, the batch and the row: a row that is sent again has
    the same. Options are those of librdkafka, with `kafka.` in front.
    """

    def __init__(
        self, servers: str, topic: str, *, rejected: str | None = None, **options: str
    ) -> None:
        self._topic: Final = topic
        self._rejected: Final = rejected or topic
        self._settings: Final = Settings.of({**options, SERVERS: servers})
        self._stream = ""
        self._sent = Path()

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

    def open(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """Note whose results are sent."""
        self._stream = claim.stream
        self._sent = checkpoint.path / "tamis" / "sent.json"

    def has(self, pin: Pin) -> bool:
        """Tell whether all of a batch was sent."""
        held = read_record(self._sent, Batch)
        return held is not None and (held.number, held.offsets) == (pin.batch, pin.offsets)

    def tally(self) -> Tally:
        """Return what counts the events of a batch while they are sent."""
        return Tally()

    def accept(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results as messages."""
        told = {
            "version": F.lit(pin.version),
            "outcome": outcome(results),
            "batch": F.lit(pin.batch),
        }
        rows = results.withColumns(told)
        value = F.to_json(F.struct(*(_told(field) for field in rows.schema if field.name != "nth")))
        topic = F.when(F.col("outcome") == "rejected", self._rejected).otherwise(self._topic)
        messages = rows.select(topic.alias("topic"), value.alias("value"))
        key = F.concat(F.lit(f"{self._stream}/{pin.batch}/"), F.md5("value"))
        columns = {"key": key, "value": F.col("value")}
        return messages.select(
            "topic", *(one.cast("binary").alias(n) for n, one in columns.items())
        )

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Send a batch, and note that it is sent."""
        assert tally is not None  # noqa: S101 - it is the one made above
        send(results, self._settings)
        batch = Batch.of(pin, tally.counts())
        write_record(self._sent, batch)
        return batch


def _told(field: T.StructField) -> Column:
    """Return a column as it is sent; ids in order, since another plan may find them in another."""
    column = F.col(quoted(field.name))
    sent = F.array_sort(column) if field.name == "subscriptions" and _is_ids(field) else column
    return sent.alias(field.name)


def _is_ids(field: T.StructField) -> bool:
    return isinstance(field.dataType, T.ArrayType)
