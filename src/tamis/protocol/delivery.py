"""One event on its way to a subscriber."""

from __future__ import annotations

import msgspec


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that matched, with what the broker knows of it."""

    sequence: int
    """Its place in the broker's log; events of one publisher come in this order."""
    time: float
    """When the broker stored it, in seconds since 1970."""
    publisher: str
    data: msgspec.Raw
    """The event as it was published, without what the subscriber may not see."""
    attempt: int = 1
    format: str = "json"
