"""The outlet of a link: deliveries become events with their origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tamis.broker.publish.event_cache import EventCache, StoredEvent
from tamis.protocol import Deliver, Dropped, Ended
from tamis.storage import EventOrigin


class LinkEvent(NamedTuple):
    """An event on a link."""

    sequence: int
    """In the log of the broker that sends it, which hears of it when the event is stored."""
    origin: EventOrigin
    """Where it was published, and from where it came to the broker that sends it.

    The hop of an event that arrives is the peer that sends it, whatever it says.
    """
    publisher: str
    publisher_sequence: int
    """The publisher's own number; 0 for none."""
    format: str
    data: bytes
    """The event as it was published, without what the peer may not see."""


class LinkSink(Protocol):
    """Where the events of a link go; raise `DisconnectedError` if that is impossible."""

    async def send(self, events: Sequence[LinkEvent]) -> None:
        """Send events in the order of the log; may wait.

        They are sent again on the next connection unless they are acknowledged.
        """

    async def note_lost(self, count: int, reason: str) -> None:
        """Note that so many events for the peer are lost, as by retention; each is told once."""

    async def note_ended(self, reason: str) -> None:
        """Note that nothing more will be sent here."""


class LinkOutlet:
    """Passes the frames of a link's queue on to its sink."""

    def __init__(self, sink: LinkSink, event_cache: EventCache, broker_id: str) -> None:
        self._sink = sink
        self._event_cache = event_cache
        self._broker_id = broker_id

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        """Pass on a frame; may wait."""
        match frame:
            case Deliver():
                await self._send(frame)
            case Dropped():
                await self._sink.note_lost(frame.count, frame.reason)
            case Ended():
                await self._sink.note_ended(frame.reason)

    async def _send(self, frame: Deliver) -> None:
        found = await self._event_cache.find([one.sequence for one in frame.events])
        events = [
            LinkEvent(
                stored.sequence,
                stored.origin or self._origin(stored),
                stored.publisher,
                stored.publisher_sequence,
                delivery.format,
                bytes(delivery.data),
            )
            for delivery, stored in zip(frame.events, found, strict=True)
            # Retention may have removed it just now; the loss is told.
            if isinstance(stored, StoredEvent)
        ]
        if events:
            await self._sink.send(events)

    def _origin(self, stored: StoredEvent) -> EventOrigin:
        return EventOrigin(self._broker_id, stored.sequence, stored.time, self._broker_id)
