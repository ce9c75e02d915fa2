"""An event as a subscriber gets it: a mapping, with what the broker knows of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from tamis.protocol import Delivery


class Settler(Protocol):
    """Where it is decided whether an event comes again."""

    def acknowledge(self, sequence: int) -> None:
        """Let an event not come again."""

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Let an event come again later."""


class Unsettled:
    """For events of which nobody keeps whether they came."""

    def acknowledge(self, sequence: int) -> None:
        """Do nothing."""

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Do nothing."""


class Received(Mapping[str, Any]):
    """An event that matched: its attributes as a mapping, and where and when it was stored."""

    __slots__ = ("_data", "_delivery", "_is_settled", "_settler")

    def __init__(self, delivery: Delivery, settler: Settler) -> None:
        self._delivery = delivery
        self._settler = settler
        self._data: dict[str, Any] | None = None
        self._is_settled = False

    @property
    def data(self) -> dict[str, Any]:
        """Return the event as it was published, nested objects as dictionaries."""
        if self._data is None:
            self._data = msgspec.json.decode(self._delivery.data)
        return self._data

    @property
    def text(self) -> bytes:
        """Return the event as JSON."""
        return bytes(self._delivery.data)

    @property
    def delivery(self) -> Delivery:
        """Return the event as it came."""
        return self._delivery

    @property
    def sequence(self) -> int:
        """Return its place in the broker's log."""
        return self._delivery.sequence

    @property
    def time(self) -> float:
        """Return when the broker stored it, in seconds since 1970."""
        return self._delivery.time

    @property
    def publisher(self) -> str:
        """Return who published it."""
        return self._delivery.publisher

    @property
    def attempt(self) -> int:
        """Return how often it has been sent, this time included."""
        return self._delivery.attempt

    @property
    def format(self) -> str:
        """Return `json` or `cloudevents`."""
        return self._delivery.format

    @property
    def is_settled(self) -> bool:
        """Tell whether it was acknowledged or rejected."""
        return self._is_settled

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        return f"<{type(self).__name__} {self.sequence}{again}: {self.data!r}>"

    def acknowledge(self) -> None:
        """Let it not come again; the first decision stands."""
        if not self._is_settled:
            self._is_settled = True
            self._settler.acknowledge(self.sequence)

    def reject(self, delay: float | None = None, reason: str = "") -> None:
        """Let it come again; the first decision stands."""
        if not self._is_settled:
            self._is_settled = True
            self._settler.reject(self.sequence, delay, reason)


class Message(Received):
    """An event that a subscription of `tamis.connect` gives."""

    __slots__ = ()

    async def ack(self) -> None:
        """Let it not come again; acknowledgements are sent together, a moment later."""
        self.acknowledge()

    async def nack(self, *, delay: float | None = None, reason: str = "") -> None:
        """Let it come again: after `delay` seconds, or when the broker thinks fit."""
        self.reject(delay, reason)
