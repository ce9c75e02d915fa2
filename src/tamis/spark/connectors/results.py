"""What results of a stream have beside their rows, in a folder or in a store, and their readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from os import PathLike
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import SchemaError, StreamError
from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.runtime.addresses import escape_glob
from tamis.spark.runtime.records import LocalFolder, read_record, record_folder, write_record
from tamis.spark.runtime.stores import ObjectStore, StoredObject

OWNER: Final = "_tamis/stream.json"
COLUMNS: Final = "_tamis/columns.json"
BATCH: Final = "_batch.json"
_RECORD: Final = ".json"
COMMITS: Final = "_tamis/batches"
"""In a store, the folder of records, each of which commits a batch."""


class Commit(NamedTuple):
    """A batch that a store holds: its number, and the attempt whose rows count."""

    batch: int
    attempt: str

    @property
    def name(self) -> str:
        """Return the name of the record."""
        return f"{COMMITS}/{self.batch:08}/{self.attempt}{_RECORD}"

    @property
    def rows(self) -> str:
        """Return the folder of the rows; Spark reads the parts of its name as values."""
        return f"batch={self.batch:08}/attempt={self.attempt}"


class ResultRecords:
    """The owner of results, their columns, and what is committed."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.folder: Final = record_folder(path)

    def check(self, owner: SinkOwner, is_empty: Callable[[], bool]) -> None:
        """Raise if the folder holds something else, or lacks earlier results of the stream."""
        recorded = read_record(self.folder, OWNER, dict)
        if recorded is None:
            self._require_new(owner, is_empty)
        elif recorded["stream"] != owner.stream:
            raise StreamError(
                self.folder.location,
                "it holds the results of another stream, whose checkpoint is "
                f"{recorded['checkpoint']}; name another folder",
            )

    def _require_new(self, owner: SinkOwner, is_empty: Callable[[], bool]) -> None:
        if not is_empty():
            raise StreamError(
                self.folder.location, "it holds something else; name a new folder for results"
            )
        if owner.has_begun:
            raise StreamError(
                self.folder.location,
                f"it lacks the results of the batches that the checkpoint "
                f"{owner.checkpoint.location} has seen; to begin again, name a new checkpoint",
            )

    def take(self, owner: SinkOwner) -> None:
        """Record the stream that owns the results."""
        record = {"stream": owner.stream, "checkpoint": owner.checkpoint.location}
        # HDFS must remove a record to replace it, and without it nobody owns the results.
        if read_record(self.folder, OWNER, dict) != record:
            write_record(self.folder, OWNER, record)

    def has(self, name: str, pin: Pin) -> bool:
        """Return whether the record of a batch is there, and raise if it has other events."""
        recorded = read_record(self.folder, name, Batch)
        if recorded is not None and recorded.offsets != pin.offsets:
            raise StreamError(
                self.folder.location,
                f"it holds a batch {pin.batch} of other events, as if the checkpoint had been set "
                "back; begin again with a new checkpoint and a new folder of results",
            )
        return recorded is not None

    def prepared(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results with their version; require the columns of the first batch."""
        results = results.withColumn("version", F.lit(pin.version))
        recorded = read_record(self.folder, COLUMNS, dict[str, Any])
        if recorded is None:
            columns = {"columns": results.schema.simpleString(), "schema": results.schema.json()}
            write_record(self.folder, COLUMNS, columns)
        elif recorded["columns"] != results.schema.simpleString():
            raise SchemaError(
                f"the results have other columns than those in {self.folder.location}: "
                f"{results.schema.simpleString()}, and not {recorded['columns']}; stream what has "
                "changed with a new checkpoint to a new folder"
            )
        return results


def commits_in(store: ObjectStore) -> list[Commit]:
    """Return the batches in a store, in order; of two records of a batch, the older one.

    Two drivers may have written a batch at once. Who has read the first does not see it change.
    """
    found: dict[int, Commit] = {}
    for one in sorted(store.objects(COMMITS), key=_age):
        number, _, attempt = one.name.partition("/")
        # Other programs may leave marks of their own; an empty record is not written yet.
        if number.isdigit() and attempt.endswith(_RECORD) and one.size:
            found.setdefault(int(number), Commit(int(number), attempt.removesuffix(_RECORD)))
    return [found[number] for number in sorted(found)]


def _age(record: StoredObject) -> tuple[datetime, str]:
    return record.modified or datetime.max.replace(tzinfo=UTC), record.name


def read_results(spark: SparkSession, path: str | PathLike[str]) -> DataFrame:
    """Return the results that a stream has committed to a folder or a store so far.

    In addition to the columns of the output there are `version`, `outcome` and `batch`.
    """
    folder = record_folder(path)
    recorded = read_record(folder, COLUMNS, dict[str, Any])
    if recorded is None:
        raise StreamError(folder.location, "there are no results of a stream in it yet")
    schema = T.StructType.fromJson(json.loads(recorded["schema"]))
    schema = schema.add("outcome", T.StringType()).add("batch", T.IntegerType())
    reader = spark.read.schema(schema)
    if isinstance(folder, LocalFolder):
        return reader.parquet(escape_glob(folder.location))
    assert isinstance(folder, ObjectStore)  # noqa: S101 - there are no others
    places = [escape_glob(f"{folder.location}/{commit.rows}") for commit in commits_in(folder)]
    if not places:
        return spark.createDataFrame([], schema)
    return reader.option("basePath", folder.location).parquet(*places).select(*schema.names)


def read_batches(path: str | PathLike[str]) -> list[Batch]:
    """Return the batches that a stream has committed to a folder or a store, oldest first."""
    folder = record_folder(path)
    if isinstance(folder, LocalFolder):
        places = sorted(folder.path.glob(f"batch=*/{BATCH}"))
        names = [str(place.relative_to(folder.path)) for place in places]
    else:
        assert isinstance(folder, ObjectStore)  # noqa: S101 - there are no others
        names = [commit.name for commit in commits_in(folder)]
    found = (read_record(folder, name, Batch) for name in names)
    return [batch for batch in found if batch is not None]
