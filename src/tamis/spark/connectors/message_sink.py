"""What sinks have in common that send each row of a stream's results as a message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.spark.connectors.results import Batch
from tamis.spark.matching.columns import quoted
from tamis.spark.matching.tallying import Tally, outcome
from tamis.spark.runtime.records import read_record, write_record
from tamis.spark.streaming.checkpoints import Checkpoint, Claim, Pin


class MessageSink(ABC):
    """A sink that notes in the stream's checkpoint which batch was sent last."""

    def __init__(self) -> None:
        self._stream = ""
        self._sent = Path()

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
        return self._messages(rows.select("outcome", value.alias("value")), pin)

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Send a batch, and note that it is sent."""
        assert tally is not None  # noqa: S101 - it is the one made above
        self._send(results, pin)
        batch = Batch.of(pin, tally.counts())
        write_record(self._sent, batch)
        return batch

    @abstractmethod
    def _messages(self, rows: DataFrame, pin: Pin) -> DataFrame:
        """Return rows, of which the outcome and the JSON are given, as they are sent."""

    @abstractmethod
    def _send(self, messages: DataFrame, pin: Pin) -> None:
        """Send messages, and return when they have arrived."""


def _told(field: T.StructField) -> Column:
    """Return a column as it is sent; ids in order, since another plan may find them in another."""
    column = F.col(quoted(field.name))
    sent = F.array_sort(column) if field.name == "subscriptions" and _is_ids(field) else column
    return sent.alias(field.name)


def _is_ids(field: T.StructField) -> bool:
    return isinstance(field.dataType, T.ArrayType)
