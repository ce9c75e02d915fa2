"""Reading what a stream has written so far: its rows, and what came of each batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import StreamError
from tamis.spark.matching.tallying import Counts
from tamis.spark.runtime.records import local_folder, read_record
from tamis.spark.streaming.checkpoints import Pin

CLAIM: Final = "_tamis/stream.json"
COLUMNS: Final = "_tamis/columns.json"
BATCH: Final = "_batch.json"
ADDED: Final = ("version", "outcome", "batch")


class Batch(msgspec.Struct, frozen=True):
    """A committed batch: what it went by, and what became of its events."""

    number: int
    version: int
    now: float
    offsets: str
    events: int
    matched: int
    unmatched: int
    rejected: int
    matches: int

    @classmethod
    def of(cls, pin: Pin, counts: Counts) -> Batch:
        """Return the batch that was begun with a pin and came to these counts."""
        return cls(pin.batch, pin.version, pin.now, pin.offsets, **counts._asdict())

    @property
    def counts(self) -> Counts:
        """Return what became of the events: events = matched + unmatched + rejected."""
        return Counts(self.events, self.matched, self.unmatched, self.rejected, self.matches)


def place_of(batch: int) -> str:
    """Return the name of a batch's folder, which Spark reads as a value.

    >>> place_of(7)
    'batch=00000007'
    """
    return f"batch={batch:08}"


def read_results(spark: SparkSession, path: str | PathLike[str]) -> DataFrame:
    """Return the results that a stream has committed to a folder until now.

    Beside the columns of the output are `version`, `outcome` and `batch`.
    """
    folder = local_folder(path)
    held = read_record(folder / COLUMNS, dict[str, Any])
    if held is None:
        raise StreamError(folder, "there are no results of a stream in it yet")
    schema = T.StructType.fromJson(json.loads(held["schema"]))
    schema = schema.add("outcome", T.StringType()).add("batch", T.IntegerType())
    return spark.read.schema(schema).parquet(str(folder))


def read_batches(path: str | PathLike[str]) -> list[Batch]:
    """Return the batches that a stream has committed to a folder, oldest first."""
    places = sorted(local_folder(path).glob(f"batch=*/{BATCH}"))
    found = (read_record(place, Batch) for place in places)
    return [batch for batch in found if batch is not None]


def total(batches: Iterable[Batch]) -> Counts:
    """Return what became of the events of all batches."""
    counts = [Counts(0, 0, 0, 0, 0), *(batch.counts for batch in batches)]
    return Counts(*map(sum, zip(*counts, strict=True)))
