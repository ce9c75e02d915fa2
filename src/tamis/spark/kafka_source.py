"""A data source of Spark for Kafka that needs no Java package: `tamis_kafka`.

Its columns are those of Spark's own connector. The driver asks for offsets, and tasks read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Message
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tamis.spark.kafka_client import Cluster, tell_of
from tamis.spark.kafka_offsets import Offsets, Place, Step, of_json, tasks, to_json
from tamis.spark.kafka_options import Settings
from tamis.spark.kafka_reading import Task

NAME: Final = "tamis_kafka"

_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)
_ARROW: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)


class KafkaSource(DataSource):
    """What Spark calls a data source; this one reads streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Return the columns of what is read."""
        return _COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return what reads a stream."""
        return KafkaReader(Settings.of(self.options))


class Part(InputPartition):
    """What one task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What plans batches on the driver, and reads their parts in tasks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Made when it is needed: what is sent to tasks must not hold a connection.
        self._cluster: Cluster | None = None
        self._goal: dict[Place, int] | None = None
        self._told: set[str] = set()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new stream begins."""
        held = self._held()
        self._settings.require(held)
        return to_json(self._settings.first(held))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how many offsets a batch may have."""
        limit = self._settings.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now, which is where this run ends."""
        self._goal = {place: span.end for place, span in self._held().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the next batch."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        step = Step.after(of_json(start), self._held(), most, self._goal)
        tell_of([loss for loss in step.losses if loss not in self._told], self._settings)
        self._told.update(step.losses)
        return to_json(step.offsets)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the parts of a batch, which `end` knows alone."""
        if start == end:
            return []
        parts = tasks(of_json(end), self._settings.tasks)
        return [Part(Task(self._settings, place, span)) for place, span in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch."""
        assert isinstance(partition, Part)  # noqa: S101 - it is one of the above
        for messages in partition.task.messages():
            yield _rows(messages)

    def stop(self) -> None:
        """Hang up."""
        if self._cluster is not None:
            self._cluster.close()

    def _held(self) -> Offsets:
        if self._cluster is None:
            self._cluster = Cluster(self._settings)
        return self._cluster.held(self._settings.topics)


def _rows(messages: Sequence[Message]) -> pa.RecordBatch:
    told = (
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [message.timestamp() for message in messages],
    )
    types, times = zip(*told[-1], strict=True)
    columns = [
        *(pa.array(column, field.type) for column, field in zip(told[:-1], _ARROW, strict=False)),
        _timestamps(types, times),
        # Java counts from -1, which is none, and librdkafka from 0.
        pa.array([type_ - 1 for type_ in types], pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _timestamps(types: Sequence[int], milliseconds: Sequence[int]) -> pa.Array[Any]:
    given = zip(types, milliseconds, strict=True)
    times = pa.array([time if type_ else None for type_, time in given], pa.timestamp("ms", "UTC"))
    return times.cast(pa.timestamp("us", "UTC"))
