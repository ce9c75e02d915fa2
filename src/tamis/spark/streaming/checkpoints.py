"""What a stream records beside Spark's own checkpoint, so that a batch can be run again.

::

    checkpoint/tamis/stream.json             which stream this is
                     batches/00000007.json   the version and the time that batch 7 goes by

Spark records which events are in a batch before it runs it. The version of the library and the
time that expiry goes by are recorded here before any result is written. So a batch that runs again,
after whatever happened, gives the same rows, even if subscriptions changed in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from tamis.errors import StreamError
from tamis.spark.runtime.records import local_folder, read_record, write_record

# As many batches as Spark remembers; only the last one can run again by itself.
KEPT_PINS: Final = 100


class Pin(msgspec.Struct, frozen=True):
    """What a batch goes by, however often it runs."""

    batch: int
    version: int
    now: float
    """The time that expiry goes by, in seconds since 1970."""
    offsets: str = ""
    """The checksum of Spark's own record of the events in the batch."""


class Claim(msgspec.Struct, frozen=True):
    """Whose checkpoint this is: the id of the stream, and what makes it this one."""

    stream: str
    identity: dict[str, str]


class Checkpoint:
    """The folder in which Spark and Tamis record how far a stream has come."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path: Final = local_folder(path)
        self._claim = self.path / "tamis" / "stream.json"
        self._pins = self.path / "tamis" / "batches"

    def claim(self, identity: Mapping[str, str]) -> Claim:
        """Take the checkpoint for a stream, or say whose it is."""
        held = read_record(self._claim, Claim)
        if held is not None:
            _require_same(self, held.identity, identity)
            return held
        if (self.path / "metadata").exists() or (self.path / "offsets").exists():
            raise StreamError(
                self.path,
                "it is the checkpoint of a query that is not a stream of Tamis; name another",
            )
        return Claim(uuid4().hex, dict(identity))

    def keep(self, claim: Claim) -> None:
        """Record whose checkpoint this is."""
        write_record(self._claim, claim)

    def pin(self, batch: int) -> Pin | None:
        """Return what a batch goes by, None if it was never begun."""
        pin = read_record(self._place(batch), Pin)
        if pin is not None and pin.offsets != self.offsets(batch):
            raise StreamError(
                self.path,
                f"batch {batch} was begun with other events than it has now, as if the checkpoint "
                "had been set back; begin again with a new checkpoint and a new folder of results",
            )
        return pin

    def record(self, pin: Pin) -> None:
        """Record what a batch goes by; after this, it may write results."""
        write_record(self._place(pin.batch), pin)
        self._place(pin.batch - KEPT_PINS).unlink(missing_ok=True)

    def pins(self) -> list[Pin]:
        """Return what the last batches went by, oldest first."""
        found = (read_record(path, Pin) for path in sorted(self._pins.glob("[0-9]*.json")))
        return [pin for pin in found if pin is not None]

    def offsets(self, batch: int) -> str:
        """Return the checksum of what Spark recorded of a batch, empty where it keeps it elsewhere.

        Spark writes that file before it runs a batch, and never again.
        """
        try:
            return hashlib.sha256((self.path / "offsets" / str(batch)).read_bytes()).hexdigest()
        except FileNotFoundError:
            return ""

    def _place(self, batch: int) -> Path:
        return self._pins / f"{batch:08}.json"


def _require_same(
    checkpoint: Checkpoint, held: Mapping[str, str], given: Mapping[str, str]
) -> None:
    for name, value in given.items():
        if held.get(name) != value:
            raise StreamError(
                checkpoint.path,
                f"it is the checkpoint of another stream, whose {name} is {held.get(name)}, and "
                f"not {value}; name another checkpoint",
            )
