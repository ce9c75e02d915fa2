"""The contract between a stream and the sink of its results, and a sink that is a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from pyspark.sql import DataFrame

from tamis.errors import SchemaError
from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.matching.counts import Tally
from tamis.spark.runtime.records import RecordFolder

ADDED: Final = ("version", "outcome", "batch")

SinkFunction = Callable[[DataFrame, Pin], None]


class SinkOwner(NamedTuple):
    """The stream that writes to a sink."""

    stream: str
    """The id of the stream."""
    checkpoint: RecordFolder
    has_begun: bool
    """Whether the stream has begun a batch before."""


@runtime_checkable
class Sink(Protocol):
    """Takes the results of batches."""

    @property
    def name(self) -> str:
        """Return what distinguishes this sink from others."""

    def check(self, owner: SinkOwner) -> None:
        """Raise if the sink belongs to another stream."""

    def open(self, owner: SinkOwner) -> None:
        """Take the sink for a stream."""

    def has(self, pin: Pin) -> bool:
        """Return whether the sink holds all of a batch, so that it need not run again."""

    def tally(self) -> Tally | None:
        """Return a counter for the events of a batch, if they can be counted."""

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:
        """Return results in the form in which they are written, or raise if they do not fit."""

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> Batch | None:
        """Write a batch; return its counts, if they are known."""


class FunctionSink:
    """A sink that passes the results and the pin of each batch to a function."""

    def __init__(self, function: SinkFunction) -> None:
        self._function = function

    @property
    def name(self) -> str:
        """Return the full name of the function."""
        function: Any = self._function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"{function.__module__}.{name}"

    def check(self, owner: SinkOwner) -> None:
        """Accept any stream: nothing is known about the function."""

    def open(self, owner: SinkOwner) -> None:
        """Prepare nothing."""

    def has(self, pin: Pin) -> bool:  # noqa: ARG002
        """Return False: the function must tolerate a second call for a batch."""
        return False

    def tally(self) -> None:
        """Count nothing: a tally would wait forever if the function computes nothing."""

    def prepare(self, results: DataFrame, pin: Pin) -> DataFrame:  # noqa: ARG002
        """Return the results unchanged."""
        return results

    def write(self, results: DataFrame, pin: Pin, tally: Tally | None) -> None:  # noqa: ARG002
        """Call the function."""
        self._function(results, pin)


def require_free(names: list[str]) -> None:
    """Raise if a kept column has the name of one that sinks add."""
    for name in names:
        if name in ADDED:
            raise SchemaError(
                f"the column {name!r} cannot be kept because the results have one of that name; "
                "rename it, or name in `keep` the columns to keep"
            )
