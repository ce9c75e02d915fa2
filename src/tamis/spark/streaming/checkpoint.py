"""The records of a stream beside Spark's own checkpoint, which make a batch repeatable.

::

    checkpoint/tamis/stream.json             the stream that owns the checkpoint
                     run.json                the run of it that began last
                     batches/00000007.json   the version and the time of batch 7

Spark records which events are in a batch before it runs the batch. Tamis records the version of the
library, and the time by which subscriptions expire, before it writes any result. So a batch that
runs again gives the same rows, even if subscriptions changed in between.

A driver that was believed dead may still run when the stream is started again. Before each batch, a
run looks whether it is the last that began, and ends if it is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from os import PathLike
from typing import Final
from uuid import uuid4

import msgspec

from tamis.errors import StreamError
from tamis.spark.connectors.batches import Pin
from tamis.spark.runtime.records import read_record, record_folder, write_record

# As many batches as Spark remembers; Spark itself runs only the last one again.
MAX_PINS: Final = 100
_CLAIM: Final = "tamis/stream.json"
_RUN: Final = "tamis/run.json"
_PINS: Final = "tamis/batches"


class Claim(msgspec.Struct, frozen=True):
    """The owner of a checkpoint: the id of the stream, and what identifies it."""

    stream: str
    identity: dict[str, str]


class Checkpoint:
    """The folder, here or in a store, in which Spark and Tamis record the progress of a stream."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.folder: Final = record_folder(path)
        self.location: Final = self.folder.location
        self._run: Final = {"run": uuid4().hex}

    def claim(self, identity: Mapping[str, str]) -> Claim:
        """Return the claim of a stream, new or recorded, or raise if another stream owns it."""
        recorded = read_record(self.folder, _CLAIM, Claim)
        if recorded is not None:
            _require_same(self, recorded.identity, identity)
            return recorded
        if self.folder.read("metadata") is not None or self.folder.names("offsets"):
            raise StreamError(
                self.location,
                "it is the checkpoint of a query that is not a stream of Tamis; name another",
            )
        return Claim(uuid4().hex, dict(identity))

    def keep(self, claim: Claim) -> None:
        """Record the owner of the checkpoint, and that a run of it begins."""
        # Again, because another may have come while the sink was looked at.
        recorded = read_record(self.folder, _CLAIM, Claim)
        if recorded is None:
            write_record(self.folder, _CLAIM, claim)
        elif recorded != claim:
            raise StreamError(
                self.location, "another stream has just taken it for its checkpoint; start again"
            )
        write_record(self.folder, _RUN, self._run)

    def require_last_run(self) -> None:
        """Raise if the stream was started again, so that this run must write nothing more."""
        begun = read_record(self.folder, _RUN, dict[str, str])
        if begun is not None and begun != self._run:
            raise StreamError(
                self.location, "the stream was started again elsewhere, so this run of it ends"
            )

    def pin(self, batch: int) -> Pin | None:
        """Return the pin of a batch, None if it was never begun."""
        pin = read_record(self.folder, _pin_name(batch), Pin)
        if pin is not None and pin.offsets != self.offsets(batch):
            raise StreamError(
                self.location,
                f"batch {batch} was begun with other events than it has now, as if the checkpoint "
                "had been set back; begin again with a new checkpoint and a new folder of results",
            )
        return pin

    def record(self, pin: Pin) -> None:
        """Record the pin of a batch; after this, it may write results."""
        write_record(self.folder, _pin_name(pin.batch), pin)
        if pin.batch >= MAX_PINS:
            self.folder.delete(_pin_name(pin.batch - MAX_PINS))

    def pins(self) -> list[Pin]:
        """Return the pins of the last batches, oldest first."""
        names = (name for name in self.folder.names(_PINS) if name[:1].isdigit())
        found = (read_record(self.folder, f"{_PINS}/{name}", Pin) for name in names)
        return [pin for pin in found if pin is not None]

    def offsets(self, batch: int) -> str:
        """Return the checksum of Spark's record of a batch, empty if Spark keeps it elsewhere.

        Spark writes the record before it runs a batch, and never again.
        """
        data = self.folder.read(f"offsets/{batch}")
        return "" if data is None else hashlib.sha256(data).hexdigest()


def _pin_name(batch: int) -> str:
    return f"{_PINS}/{batch:08}.json"


def _require_same(
    checkpoint: Checkpoint, recorded: Mapping[str, str], given: Mapping[str, str]
) -> None:
    for name, value in given.items():
        if recorded.get(name) != value:
            raise StreamError(
                checkpoint.location,
                f"it is the checkpoint of another stream, whose {name} is {recorded.get(name)}, "
                f"and not {value}; name another checkpoint",
            )
