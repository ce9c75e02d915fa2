"""Publications on their way, in order, each kept until the broker has answered.

The broker stores an event only if its number is above all that it has stored of this publisher. So
what was not answered before a connection was lost is sent again under the same numbers: what had
been stored is then a no-op. And nothing is sent before all that went ahead of it is answered: if
the broker refused an earlier event and stored a later one, it would take the earlier one, sent
again, for a repetition. What is published meanwhile waits, and goes together in the next frame.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from tamis.client.publishing import BESIDE_EVENTS, EVENTS_IN_A_FRAME, Encoded
from tamis.errors import RefusedError
from tamis.protocol import Code, Publish, Published
from tamis.protocol.codes import WORTH_A_RETRY
from tamis.protocol.views import Receipt


class Publication:
    """Events that are stored all or none."""

    __slots__ = ("count", "done", "events", "is_counted", "most_together", "sequence", "size")

    def __init__(
        self, sequence: int, events: Sequence[Encoded], done: asyncio.Future[Receipt]
    ) -> None:
        self.sequence = sequence
        self.events = events
        self.done = done
        self.count = len(events)
        self.size = sum(len(event.text) + 1 for event in events)
        self.most_together = EVENTS_IN_A_FRAME
        """With how many it may go; fewer after a refusal, until it is known which was meant."""
        self.is_counted = True
        """Whether it takes up room in the outbox."""

    @property
    def end(self) -> int:
        """Return the number of the event that follows."""
        return self.sequence + self.count


class Outbox:
    """Publications that have not been answered, no more than fit."""

    def __init__(
        self, publisher: str, most_events: int, most_bytes: int, *, is_patient: bool = False
    ) -> None:
        self._publisher = publisher
        self._kept = WORTH_A_RETRY if is_patient else frozenset({Code.UNAVAILABLE})
        """The refusals after which events are sent again."""
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._events = 0
        self._bytes = 0
        self._waiting: deque[Publication] = deque()
        self._sent: list[Publication] = []
        self._ref = 0
        """That of what was sent."""
        self.has_changed = asyncio.Event()
        """Set when something was answered: there may be room, or nothing left."""

    @property
    def events(self) -> int:
        """Return how many events have not been answered."""
        return self._events

    def has_room(self, events: int, size: int) -> bool:
        """Tell whether so many events fit; whatever its size, one publication always does."""
        fits = self._events + events <= self._most_events and self._bytes + size <= self._most_bytes
        return fits or not self._events

    def add(self, publication: Publication) -> None:
        """Take one more, after all others."""
        self._waiting.append(publication)
        self._events += publication.count
        self._bytes += publication.size
        publication.done.add_done_callback(lambda _: self._forget_cancelled(publication))

    def next(self, ref: int, largest_frame: int) -> Publish | None:
        """Return what is to be sent now; nothing while an answer is awaited."""
        if self._sent:
            return None
        self._drop_cancelled()
        room = largest_frame - BESIDE_EVENTS
        while self._waiting and self._goes_along(self._waiting[0], room):
            publication = self._waiting.popleft()
            self._sent.append(publication)
            room -= publication.size
            self._drop_cancelled()
        if not self._sent:
            return None
        self._ref = ref
        first = self._sent[0]
        return Publish(
            ref=ref,
            events=[msgspec.Raw(event.text) for one in self._sent for event in one.events],
            publisher=self._publisher,
            sequence=first.sequence,
            format=first.events[0].format,
        )

    def _forget_cancelled(self, publication: Publication) -> None:
        """Make room for others; what is on its way takes it up until it is answered."""
        if publication.done.cancelled() and publication not in self._sent:
            self._remove(publication)

    def _drop_cancelled(self) -> None:
        while self._waiting and self._waiting[0].done.cancelled():
            self._remove(self._waiting.popleft())

    def _goes_along(self, one: Publication, room: int) -> bool:
        if not self._sent:
            return True
        first, last = self._sent[0], self._sent[-1]
        return (
            len(self._sent) < min(first.most_together, one.most_together)
            and last.end == one.sequence
            and one.end - first.sequence <= EVENTS_IN_A_FRAME
            and one.size <= room
            and one.events[0].format == first.events[0].format
        )

    def knows(self, ref: int) -> bool:
        """Tell whether an answer belongs here."""
        return bool(self._sent) and ref == self._ref

    def accepted(self, reply: Published) -> None:
        """Take note that what was sent is on disk."""
        # Numbers that were known are the lowest ones.
        known = reply.duplicates
        place = reply.first
        for publication in self._sent:
            duplicates = min(known, publication.count)
            known -= duplicates
            new = publication.count - duplicates
            first = place if new else None
            place = None if place is None else place + new
            self._remove(publication)
            if not publication.done.done():
                publication.done.set_result(Receipt(publication.count, duplicates, first))
        self._sent = []

    def refused(self, error: RefusedError) -> bool:
        """Take note of a refusal; tell whether it is only for now."""
        is_for_now = error.code in self._kept
        if is_for_now or len(self._sent) > 1:
            most = max(1, len(self._sent) // 2)
            for publication in self._sent:
                publication.most_together = most
            self.disconnected()
        else:
            self._fail(self._sent, error)
            self._sent = []
        return is_for_now

    def disconnected(self) -> None:
        """Let what was not answered be sent again."""
        unanswered, self._sent = self._sent, []
        self._waiting.extendleft(reversed(unanswered))
        for publication in unanswered:
            self._forget_cancelled(publication)

    def fail(self, error: RefusedError) -> None:
        """Give up all."""
        self.disconnected()
        self._fail(self._waiting, error)
        self._waiting.clear()

    def _fail(self, publications: Iterable[Publication], error: RefusedError) -> None:
        for publication in publications:
            self._remove(publication)
            if not publication.done.done():
                publication.done.set_exception(error)

    def _remove(self, publication: Publication) -> None:
        if publication.is_counted:
            publication.is_counted = False
            self._events -= publication.count
            self._bytes -= publication.size
            self.has_changed.set()
