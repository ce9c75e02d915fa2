"""Where a stream's results go: to a folder, batch by batch, a function, or a broker.

::

    results/_tamis/stream.json      whose results these are
                   columns.json     their columns
            batch=00000007/         a committed batch, which never changes
                _batch.json         the version, the time, the counts
                outcome=matched/    Parquet
                outcome=rejected/   events that could not be taken, and why
            _writing-…/             a batch that is not committed

A batch is written beside its place and renamed into it. So it is there as a whole or not at all,
and a batch that runs again after it was committed writes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tamis.errors import SchemaError, StreamError
from tamis.spark.connectors.broker_options import SCHEMES
from tamis.spark.connectors.broker_sink import BrokerSink
from tamis.spark.connectors.results import ADDED, BATCH, CLAIM, COLUMNS, Batch, place_of
from tamis.spark.matching.tallying import Tally, write
from tamis.spark.runtime.records import local_folder, read_record, write_record
from tamis.spark.streaming.checkpoints import Checkpoint, Claim, Pin

DRAFT: Final = "_writing-"

Function = Callable[[DataFrame, Pin], None]


@runtime_checkable
class Sink(Protocol):
    """What takes the results of batches."""

    @property
    def name(self) -> str:
        """Return what tells this sink from others."""

    def check(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """Raise if the sink is another stream's."""

    def open(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """Take the sink for a stream."""

    def has(self, pin: Pin) -> bool:
        """Tell whether all of a batch is there, so that it need not run again."""

    def tally(self) -> Tally | None:
        """Return what is to count the events of a batch, where they can be counted."""

    def accept(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results as they are to be written, or say why they cannot be."""

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch | None:
        """Write all of a batch; return what came of it, where that is known."""


class Folder:
    """A sink of Parquet in a folder."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path: Final = local_folder(path)

    @property
    def name(self) -> str:
        """Return the path."""
        return str(self.path)

    def check(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """Raise if the folder holds something else, or lacks what was written before."""
        held = read_record(self.path / CLAIM, dict)
        if held is None:
            self._require_empty(checkpoint)
        elif held["stream"] != claim.stream:
            raise StreamError(
                self.path,
                "it holds the results of another stream, whose checkpoint is "
                f"{held['checkpoint']}; name another folder",
            )

    def _require_empty(self, checkpoint: Checkpoint) -> None:
        if self.path.exists() and any(self.path.iterdir()):
            raise StreamError(self.path, "it holds something else; name a new folder for results")
        if checkpoint.pins():
            raise StreamError(
                self.path,
                f"it lacks the results of the batches that the checkpoint {checkpoint.path} has "
                "seen; to begin again, name a new checkpoint",
            )

    def open(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """Take the folder for a stream, and clear away what was not finished."""
        owner = {"stream": claim.stream, "checkpoint": str(checkpoint.path)}
        write_record(self.path / CLAIM, owner)
        for draft in self.path.glob(f"{DRAFT}*"):
            shutil.rmtree(draft, ignore_errors=True)

    def has(self, pin: Pin) -> bool:
        """Tell whether a batch is committed, and of the same events."""
        held = read_record(self.place(pin.batch) / BATCH, Batch)
        if held is not None and held.offsets != pin.offsets:
            raise StreamError(
                self.path,
                f"it holds a batch {pin.batch} of other events, as if the checkpoint had been set "
                "back; begin again with a new checkpoint and a new folder of results",
            )
        return held is not None

    def tally(self) -> Tally:
        """Return what counts the events of a batch while they are written."""
        return Tally()

    def accept(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results with their version; the columns must be those of the first batch."""
        told = results.withColumn("version", F.lit(pin.version))
        self._require_columns(told)
        return told

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch:
        """Write a batch beside its place, and rename it into it."""
        assert tally is not None  # noqa: S101 - it is the one made above
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
        """Let a batch be seen, all at once."""
        try:
            draft.rename(self.place(batch))
        except OSError:
            # A driver that was taken for dead may have been faster; its rows are the same.
            if not (self.place(batch) / BATCH).exists():
                raise

    def place(self, batch: int) -> Path:
        """Return where a batch is once it is committed."""
        return self.path / place_of(batch)

    def _require_columns(self, results: DataFrame) -> None:
        held = read_record(self.path / COLUMNS, dict[str, Any])
        if held is None:
            columns = {"columns": results.schema.simpleString(), "schema": results.schema.json()}
            write_record(self.path / COLUMNS, columns)
        elif held["columns"] != results.schema.simpleString():
            raise SchemaError(
                f"the results have other columns than those in {self.path}: "
                f"{results.schema.simpleString()}, and not {held['columns']}; stream what has "
                "changed with a new checkpoint to a new folder"
            )


class FunctionSink:
    """A sink that is a function of the results and of what the batch goes by."""

    def __init__(self, function: Function) -> None:
        self._function = function

    @property
    def name(self) -> str:
        """Return the function's full name."""
        function: Any = self._function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{function.__module__}.{name}"

    def check(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """Take any stream: nothing is known of what the function does."""

    def open(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """Prepare nothing."""

    def has(self, pin: Pin) -> bool:  # noqa: ARG002
        """Tell that it may lack the batch: the function must bear being called again."""
        return False

    def tally(self) -> None:
        """Count nothing: if the function computes nothing, a tally would wait for ever."""

    def accept(self, results: DataFrame, pin: Pin) -> DataFrame:  # noqa: ARG002
        """Return results as they are."""
        return results

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> None:  # noqa: ARG002
        """Hand over the results."""
        self._function(results, pin)


Target = str | PathLike[str] | Function | Sink


def sink_of(to: Target) -> Sink:
    """Return the sink that a caller means."""
    if isinstance(to, Sink):
        return to
    if isinstance(to, str) and to.startswith(SCHEMES):
        return BrokerSink(to)
    return Folder(to) if isinstance(to, str | PathLike) else FunctionSink(to)


def require_free(names: list[str]) -> None:
    """Refuse columns that would be taken for those that the results get here."""
    for name in names:
        if name in ADDED:
            raise SchemaError(
                f"the column {name!r} cannot be kept, since results have one of that name; rename "
                "it, or name in `keep` the columns to keep"
            )
