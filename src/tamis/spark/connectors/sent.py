"""The last batch that was sent, recorded in the checkpoint of its stream."""

from __future__ import annotations

from typing import Final

from tamis.errors import SparkError
from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.runtime.records import RecordFolder, read_record, write_record

_NAME: Final = "tamis/sent.json"


class SentBatches:
    """What a sink knows of the batches that it has sent to others."""

    def __init__(self) -> None:
        self._folder: RecordFolder | None = None

    def open(self, owner: SinkOwner) -> None:
        """Take the checkpoint of a stream."""
        self._folder = owner.checkpoint

    def has(self, pin: Pin) -> bool:
        """Return whether all of a batch was sent."""
        sent = read_record(self._records, _NAME, Batch)
        return sent is not None and (sent.number, sent.offsets) == (pin.batch, pin.offsets)

    def keep(self, batch: Batch) -> None:
        """Record that all of a batch was sent."""
        write_record(self._records, _NAME, batch)

    @property
    def _records(self) -> RecordFolder:
        if self._folder is None:
            raise SparkError("the sink belongs to no stream; pass it to `stream`")
        return self._folder
