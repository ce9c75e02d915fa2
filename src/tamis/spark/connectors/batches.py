"""The micro-batches of a stream: what identifies each one, and its result."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tamis.spark.matching.counts import Counts


class Pin(msgspec.Struct, frozen=True):
    """The version and the time of a batch, fixed however often it runs."""

    batch: int
    version: int
    now: float
    """The time by which subscriptions expire, in seconds since 1970."""
    offsets: str = ""
    """The checksum of Spark's own record of the events in the batch."""


class Batch(msgspec.Struct, frozen=True):
    """A committed batch: its pin, and the counts of its events."""

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
        """Return the batch with a pin and counts."""
        return cls(pin.batch, pin.version, pin.now, pin.offsets, **counts._asdict())

    @property
    def counts(self) -> Counts:
        """Return the events by outcome: events = matched + unmatched + rejected."""
        return Counts(self.events, self.matched, self.unmatched, self.rejected, self.matches)


def total(batches: Iterable[Batch]) -> Counts:
    """Return the counts of all batches together."""
    counts = [Counts(0, 0, 0, 0, 0), *(batch.counts for batch in batches)]
    return Counts(*map(sum, zip(*counts, strict=True)))
