"""A sink that writes results to a store of objects, which has no rename, each batch exactly once.

::

    results/_tamis/stream.json                      the stream that owns the results
                   columns.json                     the columns of the results
                   batches/00000007/<attempt>.json  commits batch 7: version, time, counts
            batch=00000007/attempt=<attempt>/       the rows of an attempt to write batch 7
                outcome=matched/                    Parquet

Spark writes the rows of an attempt, and then a record names it. Readers take the attempts that
records name, so a batch is there as a whole or not at all. What an attempt that did not finish has
written stays, and nobody reads it.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame

from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.results import COMMITS, Commit, ResultRecords
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.matching.counts import Tally, write
from tamis.spark.runtime.records import write_record

# Spark reads no path without objects, and an attempt may have no rows.
_MARK: Final = "_tamis"


class StoreSink:
    """Parquet below an address in a store, which Spark writes and `read_results` reads."""

    def __init__(self, url: str) -> None:
        self._records: Final = ResultRecords(url)
        self._folder: Final = self._records.folder

    @property
    def name(self) -> str:
        """Return the address."""
        return self._folder.location

    def check(self, owner: SinkOwner) -> None:
        """Raise if the address holds something else, or lacks earlier results of the stream."""
        self._records.check(owner, lambda: not self._folder.names(""))

    def open(self, owner: SinkOwner) -> None:
        """Take the address for a stream."""
        self._records.take(owner)

    def has(self, pin: Pin) -> bool:
        """Return whether a batch is committed, and raise if it has other events."""
        folder = f"{COMMITS}/{pin.batch:08}"
        return any(
            self._records.has(f"{folder}/{name}", pin) for name in self._folder.names(folder)
        )

    def tally(self) -> Tally:
        """Return a counter for the events of a batch."""
        return Tally()

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results with their version; require the columns of the first batch."""
        return self._records.prepared(results, pin)

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Write the rows of an attempt, and the record that commits it."""
        assert tally is not None  # noqa: S101 - `tally` made it
        commit = Commit(pin.batch, uuid4().hex)
        write(results, f"{self._folder.location}/{commit.rows}")
        self._folder.write(f"{commit.rows}/{_MARK}", b"")
        batch = Batch.of(pin, tally.counts())
        # A driver believed dead may have committed it meanwhile.
        if not self.has(pin):
            write_record(self._folder, commit.name, batch)
        return batch
