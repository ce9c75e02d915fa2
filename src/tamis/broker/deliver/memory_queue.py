"""The queue of a subscription whose events may overflow: a buffer with nothing behind it."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.broker.deliver.queues import DeliveryQueue, InFlightEvent, QueuedEvent


class MemoryQueue(DeliveryQueue):
    """A buffer; when it is full, new events push out the oldest."""

    __slots__ = ("_ready",)

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self._ready: list[QueuedEvent] = []

    @property
    def waiting(self) -> int:
        """Return how many events wait."""
        return len(self._ready)

    def offer(self, sequences: Sequence[int]) -> None:
        """Add events; the oldest make room."""
        self._ready.extend(map(QueuedEvent, sequences))
        excess = max(0, len(self._ready) - self.window)
        del self._ready[:excess]
        self.dropped += excess
        self.wake()

    def offer_ahead(self, sequences: Sequence[int]) -> bool:
        """Add events if there is room, so that none of them overflows; return whether there was."""
        if len(self._ready) + len(sequences) > self.window:
            return False
        self._ready.extend(map(QueuedEvent, sequences))
        return True

    async def take(
        self, limit: int, now: float, lease: float, reader: str = "", holder: object = None
    ) -> list[QueuedEvent]:
        """Return the events to send now; they are then in flight."""
        return self.take_now(limit, now, lease, reader, holder)

    def take_now(
        self,
        limit: int,
        now: float,
        lease: float,
        reader: str = "",  # noqa: ARG002 - nothing is kept for others
        holder: object = None,
    ) -> list[QueuedEvent]:
        """Return the events to send now; they are then in flight."""
        taken = self._take_due(limit, now)
        room = max(0, limit - len(taken))
        taken += self._ready[:room]
        del self._ready[:room]
        for queued in taken:
            self.in_flight[queued.sequence] = InFlightEvent(
                queued.attempts + 1, lease, queued.due, holder
            )
        return taken

    def leave(
        self,
        hidden: Sequence[QueuedEvent],
        reader: str,  # noqa: ARG002 - nothing is kept for others
    ) -> None:
        """Forget events that the reader may not see."""
        for queued in hidden:
            self.in_flight.pop(queued.sequence, None)

    def forget_sent(self, holder: object = None) -> None:
        """Send nothing again that an attachment had in flight."""
        self._take_held(holder)
