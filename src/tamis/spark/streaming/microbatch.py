"""One micro-batch of a stream: pin, match, write."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame

from tamis.errors import LibraryError
from tamis.spark.connectors.batches import Batch, Pin
from tamis.spark.connectors.sink import Sink
from tamis.spark.library.library import Library, Version
from tamis.spark.matching.request import MatchOptions, MatchRequest
from tamis.spark.streaming.checkpoint import Checkpoint


class MicroBatches(NamedTuple):
    """Runs the micro-batches of a stream; Spark calls it again for an unfinished batch."""

    library: Library
    options: MatchOptions
    match: Callable[[DataFrame, MatchRequest], DataFrame]
    checkpoint: Checkpoint
    sink: Sink
    on_batch: Callable[[Batch], None] | None

    def run(self, events: DataFrame, number: int) -> None:
        """Run a batch, unless the sink holds all of it."""
        self.checkpoint.require_last_run()
        recorded = self.checkpoint.pin(number)
        pin = self._new_pin(number) if recorded is None else recorded
        if self.sink.has(pin):
            return
        tally = self.sink.tally()
        request = self.options.request(self._version(pin), pin.now, tally)
        results = self.sink.prepare(self.match(events, request), pin)
        if recorded is None:
            # Not before: a version that does not fit the events or the sink is never pinned.
            self.checkpoint.record(pin)
        batch = self.sink.write(results, pin, tally)
        if batch is not None and self.on_batch is not None:
            self.on_batch(batch)

    def _new_pin(self, number: int) -> Pin:
        newest = self.library.latest().number
        return Pin(number, newest, time.time(), self.checkpoint.offsets(number))

    def _version(self, pin: Pin) -> Version:
        try:
            return self.library.version(pin.version)
        except LibraryError as error:
            raise LibraryError(
                error.path,
                f"batch {pin.batch} was begun with version {pin.version} and can be finished only "
                f"with it, but {error.reason}",
            ) from None
