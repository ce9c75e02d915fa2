"""A sink that writes results to a folder, each batch exactly once, and readers for that folder.

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

import json
import shutil
from os import PathLike
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import SchemaError, StreamError
from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.matching.counts import Tally, write
from tamis.spark.runtime.records import local_folder, read_record, write_record

DRAFT: Final = "_writing-"
OWNER: Final = "_tamis/stream.json"
COLUMNS: Final = "_tamis/columns.json"
BATCH: Final = "_batch.json"


def read_results(spark: SparkSession, path: str | PathLike[str]) -> DataFrame:
    """Return the results that a stream has committed to a folder so far.

    In addition to the columns of the output there are `version`, `outcome` and `batch`.
    """
    folder = local_folder(path)
    recorded = read_record(folder / COLUMNS, dict[str, Any])
    if recorded is None:
        raise StreamError(folder, "there are no results of a stream in it yet")
    schema = T.StructType.fromJson(json.loads(recorded["schema"]))
    schema = schema.add("outcome", T.StringType()).add("batch", T.IntegerType())
    return spark.read.schema(schema).parquet(str(folder))


def read_batches(path: str | PathLike[str]) -> list[Batch]:
    """Return the batches that a stream has committed to a folder, oldest first."""
    places = sorted(local_folder(path).glob(f"batch=*/{BATCH}"))
    batches = (read_record(place, Batch) for place in places)
    return [batch for batch in batches if batch is not None]


class FolderSink:
    """A folder of Parquet."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path: Final = local_folder(path)

    @property
    def name(self) -> str:
        """Return the path."""
        return str(self.path)

    def check(self, owner: SinkOwner) -> None:
        """Raise if the folder holds something else, or lacks earlier results of the stream."""
        recorded = read_record(self.path / OWNER, dict)
        if recorded is None:
            self._require_new(owner)
        elif recorded["stream"] != owner.stream:
            raise StreamError(
                self.path,
                "it holds the results of another stream, whose checkpoint is "
                f"{recorded['checkpoint']}; name another folder",
            )

    def _require_new(self, owner: SinkOwner) -> None:
        if self.path.exists() and any(self.path.iterdir()):
            raise StreamError(self.path, "it holds something else; name a new folder for results")
        if owner.has_begun:
            raise StreamError(
                self.path,
                f"it lacks the results of the batches that the checkpoint {owner.checkpoint} has "
                "seen; to begin again, name a new checkpoint",
            )

    def open(self, owner: SinkOwner) -> None:
        """Take the folder for a stream, and remove unfinished batches."""
        record = {"stream": owner.stream, "checkpoint": str(owner.checkpoint)}
        write_record(self.path / OWNER, record)
        for draft in self.path.glob(f"{DRAFT}*"):
            shutil.rmtree(draft, ignore_errors=True)

    def has(self, pin: Pin) -> bool:
        """Return whether a batch is committed, and raise if it has other events."""
        recorded = read_record(self.place(pin.batch) / BATCH, Batch)
        if recorded is not None and recorded.offsets != pin.offsets:
            raise StreamError(
                self.path,
                f"it holds a batch {pin.batch} of other events, as if the checkpoint had been set "
                "back; begin again with a new checkpoint and a new folder of results",
            )
        return recorded is not None

    def tally(self) -> Tally:
        """Return a counter for the events of a batch."""
        return Tally()

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results with their version; require the columns of the first batch."""
        results = results.withColumn("version", F.lit(pin.version))
        self._require_columns(results)
        return results

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Write a batch to a draft folder, and rename it."""
        assert tally is not None  # noqa: S101 - `tally` made it
        draft = self.path / f"{DRAFT}{pin.batch:08}-{uuid4().hex}"
        try:
            write(results, str(draft))
            batch = Batch.of(pin, tally.counts())
            write_record(draft / BATCH, batch)
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

    def _require_columns(self, results: DataFrame) -> None:
        recorded = read_record(self.path / COLUMNS, dict[str, Any])
        if recorded is None:
            columns = {"columns": results.schema.simpleString(), "schema": results.schema.json()}
            write_record(self.path / COLUMNS, columns)
        elif recorded["columns"] != results.schema.simpleString():
            raise SchemaError(
                f"the results have other columns than those in {self.path}: "
                f"{results.schema.simpleString()}, and not {recorded['columns']}; stream what has "
                "changed with a new checkpoint to a new folder"
            )
