"""The Spark data source `tamis`: events from a Tamis broker.

The driver asks for positions in the broker's log, and tasks read between them. Reading a range
again gives the same events, so a stream that records positions has every event once.
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
from pyspark.sql.types import StructType

from tamis.errors import SparkError
from tamis.protocol import Delivery
from tamis.spark.connectors.broker_log import BrokerLog, BrokerOptions
from tamis.spark.connectors.broker_stream import NAME
from tamis.spark.runtime.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from tamis.spark.runtime.versions import require_spark

LOG: Final = logging.getLogger("tamis.spark.broker")

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
    """The data source, for batches and streams."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return a reader for a batch job."""
        return BatchReader(BrokerOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return a reader for a stream."""
        options = BrokerOptions.parse(self.options)
        if options.limit is not None:
            require_spark((4, 2), "the option maxEventsPerTrigger takes")
        return StreamReader(options)


class LogRange(InputPartition):
    """The range of sequences that one task reads; the end is not part of it."""

    def __init__(self, options: BrokerOptions, start: int, end: int) -> None:
        super().__init__((options, start, end))
        self.options = options
        self.start = start
        self.end = end

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the matching events."""
        log = BrokerLog(self.options)
        for deliveries in log.pages(self.start, self.end):
            yield _rows(deliveries)
        # Only now is it certain that nothing was removed meanwhile.
        report_loss(self.options, self.start, log.position("earliest"))


class BatchReader(DataSourceReader):
    """Reads the log from `start` to `end`."""

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the range of each task."""
        log = BrokerLog(self._options)
        return _ranges(
            self._options, log.position(self._options.start), log.position(self._options.end)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range; without any, Spark asks for a partition all the same."""
        return partition.rows() if isinstance(partition, LogRange) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver, and reads them in tasks."""

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        self._last: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the position at which a new stream begins."""
        return {_SEQUENCE: self._position(self._options.start)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the maximum number of events of the log in a batch."""
        limit = self._options.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the current end of the log, where this run ends."""
        self._last = self._position("latest")

    def latestOffset(  # noqa: N802
        self, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        """Return the position at which the next batch ends; before 4.2, Spark gives no start."""
        end = self._position("latest") if self._last is None else self._last
        if start is None:
            return {_SEQUENCE: end}
        begin = start[_SEQUENCE]
        report_loss(self._options, begin, self._position("earliest"))
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return {_SEQUENCE: max(begin, end)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the range of each task."""
        return _ranges(self._options, start[_SEQUENCE], end[_SEQUENCE])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range."""
        assert isinstance(partition, LogRange)  # noqa: S101 - `partitions` made it
        return partition.rows()

    def _position(self, text: str) -> int:
        return BrokerLog(self._options).position(text)


def report_loss(options: BrokerOptions, start: int, first: int) -> None:
    """Raise or warn if events were removed before they were read."""
    if start >= first:
        return
    lost = (
        f"the broker at {options.url} has removed the events {start:,} to {first - 1:,} before "
        "they were read"
    )
    if options.fails_on_loss:
        raise SparkError(
            f"{lost}; keep them longer there (retention_age, retention_bytes), or set the option "
            "failOnDataLoss to false to continue without them"
        )
    LOG.warning("%s", lost)


def _ranges(options: BrokerOptions, start: int, end: int) -> list[LogRange]:
    tasks = min(options.tasks, end - start)
    if tasks < 1:
        return []
    cuts = [start + (end - start) * number // tasks for number in range(tasks + 1)]
    return [LogRange(options, *span) for span in pairwise(cuts)]


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
