"""Handed events: what one broker hands to another with a subscription that moves there.

They are records of the log, with a format of their own, so that they survive what the log survives.
Nobody gets one but the subscription that it was handed over with.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tamis.errors import StorageError
from tamis.storage import NewRecord, Record

FORMAT: Final = 3
"""Of the record: beside those of events."""
OWNER: Final = "/handed"
"""No principal has it: theirs have no slash."""


class Recipient(msgspec.Struct, frozen=True, gc=False):
    """The subscription that a handed event is for."""

    number: int
    position: int
    """Rises with each event of a move: one that is not higher has been handed before."""
    attempts: int
    """How often it was sent where it comes from."""


class HandedEvent(msgspec.Struct, frozen=True, array_like=True):
    """An event as its former home had it."""

    number: int
    """Of the subscription here."""
    position: int
    attempts: int
    broker: str
    """Where it was published: its origin."""
    origin_sequence: int
    time: float
    publisher: str
    format: int
    data: bytes

    @property
    def recipient(self) -> Recipient:
        """Return whom it is for."""
        return Recipient(self.number, self.position, self.attempts)

    def record(self) -> NewRecord:
        """Return the record that holds it."""
        return NewRecord("", 0, FORMAT, msgspec.msgpack.encode(self))


def read_handed(record: Record) -> HandedEvent:
    """Return the event that a record holds."""
    try:
        return msgspec.msgpack.decode(record.payload, type=HandedEvent)
    except msgspec.MsgspecError as error:
        raise StorageError("the log", f"event {record.sequence} cannot be read: {error}") from None
