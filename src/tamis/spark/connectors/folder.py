"""A sink that writes results to a folder, each batch exactly once.

::

    results/_tamis/stream.json      the stream that owns the folder
                   columns.json     the columns of the results
            batch=00000007/         a committed batch, which never changes
                _batch.json         the version, the time, the counts
                outcome=matched/    Parquet
                outcome=rejected/   rejected events, and the reasons
            _writing-…/             a batch that is not committed

A batch is written to a draft folder and renamed. So it is there as a whole or not at all, and a
batch that runs again after its commit writes nothing.
"""

from __future__ import annotations

import shutil
from os import PathLike
from pathlib import Path
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame

from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.results import BATCH, ResultRecords
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.matching.counts import Tally, write
from tamis.spark.runtime.records import LocalFolder, write_record

DRAFT: Final = "_writing-"


class FolderSink:
    """A folder of Parquet."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._records: Final = ResultRecords(path)
        assert isinstance(self._records.folder, LocalFolder)  # noqa: S101 - a store has its own
        self.path: Final = self._records.folder.path

    @property
    def name(self) -> str:
        """Return the path."""
        return str(self.path)

    def check(self, owner: SinkOwner) -> None:
        """Raise if the folder holds something else, or lacks earlier results of the stream."""
        self._records.check(owner, lambda: not self.path.exists() or not any(self.path.iterdir()))

    def open(self, owner: SinkOwner) -> None:
        """Take the folder for a stream, and remove unfinished batches."""
        self._records.take(owner)
        for draft in self.path.glob(f"{DRAFT}*"):
            shutil.rmtree(draft, ignore_errors=True)

    def has(self, pin: Pin) -> bool:
        """Return whether a batch is committed, and raise if it has other events."""
        return self._records.has(f"{self.place(pin.batch).name}/{BATCH}", pin)

    def tally(self) -> Tally:
        """Return a counter for the events of a batch."""
        return Tally()

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results with their version; require the columns of the first batch."""
        return self._records.prepared(results, pin)

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Write a batch to a draft folder, and rename it."""
        assert tally is not None  # noqa: S101 - `tally` made it
        draft = self.path / f"{DRAFT}{pin.batch:08}-{uuid4().hex}"
        try:
            write(results, str(draft))
            batch = Batch.of(pin, tally.counts())
            write_record(LocalFolder(draft), BATCH, batch)
            self.commit(draft, pin.batch)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return batch

    def commit(self, draft: Path, batch: int) -> None:
        """Make a batch visible, all at once."""
        try:
            draft.rename(self.place(batch))
        except OSError:
            # A driver believed dead may have committed the batch; its rows are the same.
            if not (self.place(batch) / BATCH).exists():
                raise

    def place(self, batch: int) -> Path:
        """Return the folder of a committed batch; Spark reads its name as a value."""
        return self.path / f"batch={batch:08}"
