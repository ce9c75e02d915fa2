"""One micro-batch of a stream: pinned, matched, written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame

from tamis.errors import LibraryError
from tamis.spark.connectors.results import Batch
from tamis.spark.connectors.sinks import Sink
from tamis.spark.library.library import Library, Version
from tamis.spark.matching.questions import Question, ask
from tamis.spark.matching.tallying import Tally
from tamis.spark.streaming.checkpoints import Checkpoint, Pin


class Wish(NamedTuple):
    """What is asked of every batch, whatever version it goes by."""

    output: str
    unmatched: bool | None
    plan: str | None
    memory: int | None

    def question(self, version: Version, now: float, tally: Tally | None = None) -> Question:
        """Return the question to a version."""
        return ask(version, now=now, tally=tally, **self._asdict())


class Stream(NamedTuple):
    """What runs micro-batches; Spark calls it for each, and again for one that was not finished."""

    library: Library
    wish: Wish
    answer: Callable[[DataFrame, Question], DataFrame]
    checkpoint: Checkpoint
    sink: Sink
    told: Callable[[Batch], None] | None

    def run(self, events: DataFrame, number: int) -> None:
        """Run a batch, unless all of it is in the sink."""
        held = self.checkpoint.pin(number)
        pin = self._new_pin(number) if held is None else held
        if self.sink.has(pin):
            return
        tally = self.sink.tally()
        question = self.wish.question(self._version(pin), pin.now, tally)
        results = self.sink.accept(self.answer(events, question), pin)
        if held is None:
            # Only now: a version that does not fit the events or the sink is never pinned.
            self.checkpoint.record(pin)
        batch = self.sink.write(results, pin, tally)
        if batch is not None and self.told is not None:
            self.told(batch)

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
