"""A data source of Spark for the events of a Tamis broker: `tamis`.

The driver asks for places in the broker's log, and tasks read between them. What is read is the
same whenever it is read again, so a stream that keeps these places has every event once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
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

from tamis.errors import SparkError
from tamis.protocol import Delivery
from tamis.spark.connectors.broker_log import BrokerLog
from tamis.spark.connectors.broker_options import Settings

LOG: Final = logging.getLogger("tamis.spark.broker")

NAME: Final = "tamis"
COLUMNS: Final = "value string, sequence long, time timestamp, publisher string, format string"

_SEQUENCE: Final = "sequence"
_ARROW: Final = pa.schema(
    [
        ("value", pa.string()),
        (_SEQUENCE, pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("publisher", pa.string()),
        ("format", pa.string()),
    ]
)

Offset = dict[str, Any]


class BrokerSource(DataSource):
    """What Spark calls a data source: this one reads batches and streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Return the columns of what is read."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return what reads all there is."""
        return BatchReader(Settings.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return what reads a stream."""
        return StreamReader(Settings.of(self.options))


class Part(InputPartition):
    """What one task reads: the log from one place up to but without another."""

    def __init__(self, settings: Settings, start: int, end: int) -> None:
        super().__init__((settings, start, end))
        self.settings = settings
        self.start = start
        self.end = end

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the events that match."""
        log = BrokerLog(self.settings)
        for deliveries in log.pieces(self.start, self.end):
            yield _rows(deliveries)
        # Only now is it known that nothing was removed while this was reading.
        tell_loss(self.settings, self.start, log.place("earliest"))


class BatchReader(DataSourceReader):
    """Reads what the log has, from `start` to `end`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        log = BrokerLog(self._settings)
        return _parts(
            self._settings, log.place(self._settings.start), log.place(self._settings.end)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part; where there is none, Spark asks for that too."""
        return partition.rows() if isinstance(partition, Part) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, and reads their parts in tasks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._goal: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return where a new stream begins."""
        return {_SEQUENCE: self._place(self._settings.start)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how many events of the log a batch may have."""
        limit = self._settings.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now, which is where this run ends."""
        self._goal = self._place("latest")

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return where the next batch ends."""
        begin = start[_SEQUENCE]
        end = self._place("latest") if self._goal is None else self._goal
        tell_loss(self._settings, begin, self._place("earliest"))
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return {_SEQUENCE: max(begin, end)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the parts of a batch."""
        return _parts(self._settings, start[_SEQUENCE], end[_SEQUENCE])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part of a batch."""
        assert isinstance(partition, Part)  # noqa: S101 - it is one of the above
        return partition.rows()

    def _place(self, text: str) -> int:
        return BrokerLog(self._settings).place(text)


def tell_loss(settings: Settings, start: int, first: int) -> None:
    """Say that events were removed before they were read."""
    if start >= first:
        return
    lost = (
        f"the broker at {settings.url} has removed the events {start:,} to {first - 1:,} before "
        "they were read"
    )
    if settings.fails_on_loss:
        raise SparkError(
            f"{lost}; let it keep them longer (retention_age, retention_bytes), or set the option "
            "failOnDataLoss to false to go on without them"
        )
    LOG.warning("%s", lost)


def _parts(settings: Settings, start: int, end: int) -> list[Part]:
    tasks = min(settings.tasks, end - start)
    if tasks < 1:
        return []
    cuts = [start + (end - start) * number // tasks for number in range(tasks + 1)]
    return [Part(settings, *span) for span in pairwise(cuts)]


def _rows(deliveries: Sequence[Delivery]) -> pa.RecordBatch:
    columns = (
        [bytes(one.data).decode() for one in deliveries],
        [one.sequence for one in deliveries],
        [round(one.time * 1_000_000) for one in deliveries],
        [one.publisher for one in deliveries],
        [one.format for one in deliveries],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
