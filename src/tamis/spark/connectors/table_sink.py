"""A sink that appends results to a Delta or Iceberg table, each batch exactly once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tamis.errors import SchemaError
from tamis.spark.connectors.batches import Pin
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.matching.columns import quoted
from tamis.spark.matching.counts import Tally, outcome

DELTA: Final = "delta"
ICEBERG: Final = "iceberg"

# What a snapshot of Iceberg says about the batch that made it.
_STREAM: Final = "tamis-stream"
_BATCH: Final = "tamis-batch"


class TableSink:
    """A table of Delta or Iceberg, which is made if there is none.

    A commit of either is all of a batch or nothing, and names the stream and the batch, so a batch
    that runs again after its commit writes nothing: Delta compares `txnAppId` and `txnVersion`
    itself; for Iceberg, the properties of the snapshots tell. The stream does not count events.
    """

    def __init__(self, table: str, format_: str, **options: str) -> None:
        if format_ not in (DELTA, ICEBERG):
            raise SchemaError(
                f"a table is in the format 'delta' or 'iceberg', and not in {format_!r}; for "
                "another, pass a function that can write a batch twice without harm"
            )
        self.table: Final = table
        self.format: Final = format_
        self._options: Final = options
        self._stream = ""

    @property
    def name(self) -> str:
        """Return the name of the table."""
        return f"the {self.format} table {self.table}"

    def check(self, owner: SinkOwner) -> None:
        """Accept any stream: several may append to one table."""

    def open(self, owner: SinkOwner) -> None:
        """Remember the stream, whose id is new with a new checkpoint, as its batches are."""
        self._stream = owner.stream

    def has(self, pin: Pin) -> bool:
        """Return whether a snapshot of Iceberg holds a batch; Delta skips it when it writes."""
        spark = SparkSession.active()
        if self.format == DELTA or not spark.catalog.tableExists(self.table):
            return False
        snapshots = spark.table(f"{self.table}.snapshots").where(
            F.col("summary")[_STREAM] == self._stream
        )
        newest = snapshots.select(F.max(F.col("summary")[_BATCH].cast("long"))).first()
        return newest is not None and newest[0] is not None and int(newest[0]) >= pin.batch

    def tally(self) -> Tally | None:
        """Count nothing: a tally would wait forever for a batch that Delta skips."""
        return None

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results with what sinks add to them."""
        added = {
            "version": F.lit(pin.version),
            "outcome": outcome(results),
            "batch": F.lit(pin.batch).cast("long"),
        }
        return results.withColumns(added)

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> None:  # noqa: ARG002
        """Append a batch, unless the table has it."""
        if self.format == DELTA:
            options = {"txnAppId": f"tamis/{self._stream}", "txnVersion": str(pin.batch)}
            self._append(results.write.format(DELTA).mode("append").options(**options))
            return
        self._create(results)
        marks = {_STREAM: self._stream, _BATCH: str(pin.batch)}
        options = {f"snapshot-property.{name}": value for name, value in marks.items()}
        results.writeTo(self.table).options(**options, **self._options).append()

    def _append(self, writer: DataFrameWriter) -> None:
        writer = writer.options(**self._options)
        if "/" in self.table:
            writer.save(self.table)
        else:
            writer.saveAsTable(self.table)

    def _create(self, results: DataFrame) -> None:
        """Make a table of Iceberg without rows; an append does not, and a query might fail."""
        if not results.sparkSession.catalog.tableExists(self.table):
            columns = ", ".join(
                f"{quoted(field.name)} {field.dataType.simpleString()}" for field in results.schema
            )
            results.sparkSession.sql(
                f"CREATE TABLE IF NOT EXISTS {self.table} ({columns}) USING iceberg"
            )
