"""Events on their way, without I/O: a consumer's inbox and a publisher's outbox.

The broker stores the events of a publisher in the order of their numbers, and each number once.
Publications without an answer when a connection is lost are therefore sent again under the same
numbers: those that were stored are no-ops. A few frames are in flight at a time, so that the broker
need not wait for the next one while the last is written to disk. If it refuses one of them, it
refuses those that follow, too, because their numbers do not; they are sent again when all are
answered. Publications that arrive meanwhile wait, and share the next frame. Numbers that are not
sent again, because their publications have failed or were cancelled, are left out on purpose, which
the next frame says; it is sent when nothing else is in flight.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Literal

import msgspec

from tamis.client.messages import (
    MAX_EVENTS_PER_FRAME,
    EncodedEvent,
    PublicationLimits,
    texts_of,
)
from tamis.errors import RefusedError
from tamis.protocol import Acknowledge, Code, Credit, Delivery, Publish, Published, Reject
from tamis.protocol.codes import RETRYABLE
from tamis.protocol.views import Receipt

Settlement = Acknowledge | Reject | Credit
ReportTime = Literal["now", "soon"]
"""When to tell the broker what was settled or consumed; what is told soon is collected."""

URGENT_ACKNOWLEDGEMENTS: Final = 100
_MAX_ACKNOWLEDGEMENTS_PER_FRAME: Final = 1000
# A broker sends at most a window of unacknowledged events, 1,000 by default.
_MIN_SETTLED: Final = 4096
MAX_FRAMES_IN_FLIGHT: Final = 4


class Inbox:
    """Events that arrived and wait for the application; acknowledgements that wait to be sent.

    Events are in order, within the credit, and duplicates are removed where they are known.
    """

    def __init__(self, window: int, *, settles: bool, is_kept: bool) -> None:
        self._window = window
        self._urgent_credit = max(1, window // 2)
        self._settles = settles
        """Whether events are acknowledged one by one."""
        self._is_kept = is_kept
        """Whether the broker keeps unacknowledged events and sends them again."""
        self._waiting: OrderedDict[int, Delivery] = OrderedDict()
        self._consumed = 0
        """Events whose credit has not been returned to the broker."""
        self._acknowledged: list[int] = []
        self._rejected: list[tuple[int, float | None, str]] = []
        # Acknowledgements can be lost with a connection. The broker then sends these events again,
        # but the application must not see them twice.
        self._settled: OrderedDict[int, None] = OrderedDict()
        self._max_settled = max(_MIN_SETTLED, 4 * window)
        self.last = 0
        """The highest sequence that has arrived."""

    def __len__(self) -> int:
        return len(self._waiting)

    def connect(self) -> int:
        """Reset for a new connection; return the credit to grant."""
        self._consumed = 0
        self._acknowledged.clear()
        self._rejected.clear()
        if self._is_kept:
            # The broker sends all of these again, perhaps with others before them.
            self._waiting.clear()
        return self._window - len(self._waiting)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Add events that arrived; an event that waits already is not added twice."""
        before = len(self._waiting)
        for delivery in deliveries:
            self._waiting[delivery.sequence] = delivery
            self.last = max(self.last, delivery.sequence)
        self._consumed += before + len(deliveries) - len(self._waiting)

    def take(self, limit: int) -> list[Delivery]:
        """Return the next events for the application, if there are any."""
        taken: list[Delivery] = []
        while self._waiting and len(taken) < limit:
            sequence, delivery = self._waiting.popitem(last=False)
            self._consumed += 1
            if sequence in self._settled:
                self._acknowledged.append(sequence)
            else:
                taken.append(delivery)
        return taken

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge an event, so that it is not sent again."""
        if not self._settles:
            return
        self._acknowledged.append(sequence)
        self._settled[sequence] = None
        if len(self._settled) > self._max_settled:
            self._settled.popitem(last=False)

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Reject an event, so that it is sent again."""
        if self._settles:
            self._rejected.append((sequence, delay, reason))

    def report_due(self, *, is_idle: bool) -> ReportTime | None:
        """Return when to report to the broker, None if it need not know anything.

        A caller about to wait is idle, so this is the time to send acknowledgements. Credit can
        wait even then: the broker does not miss it before half of the window is used.
        """
        has_settlements = self._rejected or self._acknowledged
        if (
            self._rejected
            or len(self._acknowledged) >= URGENT_ACKNOWLEDGEMENTS
            or self._consumed >= self._urgent_credit
            or (is_idle and has_settlements)
        ):
            return "now"
        return "soon" if has_settlements or (is_idle and self._consumed) else None

    @property
    def has_news(self) -> bool:
        """Return whether there is anything to report to the broker, be it only credit."""
        return bool(self._consumed or self._rejected or self._acknowledged)

    def frames(self, subscription: str, *, with_credit: bool = True) -> list[Settlement]:
        """Return the frames that report to the broker, once."""
        frames: list[Settlement] = []
        acknowledged = iter(self._acknowledged)
        while some := [*islice(acknowledged, _MAX_ACKNOWLEDGEMENTS_PER_FRAME)]:
            frames.append(Acknowledge(subscription=subscription, sequences=some))
        frames += [
            Reject(subscription=subscription, sequence=sequence, delay=delay, reason=reason)
            for sequence, delay, reason in self._rejected
        ]
        if self._consumed and with_credit:
            frames.append(Credit(subscription=subscription, events=self._consumed))
        self._consumed = 0
        self._acknowledged.clear()
        self._rejected.clear()
        return frames


class PendingPublication(msgspec.Struct, eq=False):
    """Events that are stored all or none."""

    sequence: int
    end: int
    """The number after its last event."""
    events: Sequence[EncodedEvent]
    size: int
    """The bytes of the events, each with a comma."""
    done: asyncio.Future[Receipt]
    max_per_frame: int = MAX_EVENTS_PER_FRAME
    """How many may share a frame; halved after a refusal, to find the one that caused it."""
    is_counted: bool = True
    """Whether it counts towards the limits of the outbox."""
    is_in_flight: bool = False


class Outbox:
    """Publications without an answer, limited in events and bytes."""

    def __init__(
        self,
        publisher: str,
        max_events: int,
        max_bytes: int,
        *,
        first: int | None = 1,
        is_patient: bool = False,
    ) -> None:
        """Make an outbox; `first` is the first number, None if the broker may know the name."""
        self._publisher = publisher
        self._retried = RETRYABLE if is_patient else frozenset({Code.UNAVAILABLE})
        """The refusal codes after which events are sent again."""
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events = 0
        self._bytes = 0
        self._waiting: deque[PendingPublication] = deque()
        self._in_flight: dict[int, list[PendingPublication]] = {}
        """The publications of each frame without an answer, by its `ref`."""
        self._refused: list[PendingPublication] = []
        """Those to send again when all frames are answered."""
        self._answered = first
        """The number that follows the last one accepted; None before the first answer."""
        self._following = first
        """The number that follows the last one sent, if all that is in flight is accepted."""
        self._follows_failed = False
        """Whether frames are in flight that follow one which failed."""
        self._was_shared = False
        """Whether the last frame had several publications."""
        self.has_changed = asyncio.Event()
        """Set after an answer: there may be room again, or nothing left."""

    @property
    def events(self) -> int:
        """Return the number of events without an answer."""
        return self._events

    @property
    def is_busy(self) -> bool:
        """Return whether a publication had better wait a moment, for others to share its frame.

        That is while frames are on their way, and after a frame that several did share.
        """
        return bool(self._in_flight) or self._was_shared

    def has_room(self, events: int, size: int) -> bool:
        """Return whether these events fit; an empty outbox takes a publication of any size."""
        fits = self._events + events <= self._max_events and self._bytes + size <= self._max_bytes
        return fits or not self._events

    def add(
        self, sequence: int, events: Sequence[EncodedEvent], done: asyncio.Future[Receipt]
    ) -> PendingPublication:
        """Append a publication, whose first event has this number."""
        count = len(events)
        size = count + sum(map(len, texts_of(events)))
        publication = PendingPublication(sequence, sequence + count, events, size, done)
        self._waiting.append(publication)
        self._events += count
        self._bytes += size
        done.add_done_callback(lambda _: self._forget_cancelled(publication))
        return publication

    def next(self, ref: int, limits: PublicationLimits) -> Publish | None:
        """Return the next frame to send; None while enough of them are in flight."""
        if len(self._in_flight) >= MAX_FRAMES_IN_FLIGHT or self._refused:
            return None
        waiting = self._waiting
        while waiting and (
            waiting[0].done.cancelled() or waiting[0].size - 1 > limits.largest_frame
        ):
            # Its size was checked when it was published, but after a reconnect the limit may be
            # lower. A cancelled one only makes room.
            self._fail([waiting.popleft()], _too_large(limits.largest_frame))
        skips = bool(waiting) and waiting[0].sequence != self._following
        if not waiting or (skips and self._in_flight):
            return None
        sharing: list[PendingPublication] = []
        events: list[msgspec.Raw] = []
        room = limits.batch_bytes
        while waiting and (not sharing or _shares_frame(waiting[0], sharing, room, limits.events)):
            publication = waiting.popleft()
            sharing.append(publication)
            events.extend(map(msgspec.Raw, texts_of(publication.events)))
            publication.is_in_flight = True
            room -= publication.size
        self._in_flight[ref] = sharing
        self._following = sharing[-1].end
        self._was_shared = len(sharing) > 1
        return Publish(
            ref=ref,
            events=events,
            publisher=self._publisher,
            sequence=sharing[0].sequence,
            skip=skips,
            format=sharing[0].events[0].format,
        )

    def _forget_cancelled(self, publication: PendingPublication) -> None:
        """Make room for others; a publication in flight counts until it is answered."""
        if publication.done.cancelled() and not publication.is_in_flight:
            self._remove(publication)

    def knows(self, ref: int) -> bool:
        """Return whether an answer is to a frame in flight."""
        return ref in self._in_flight

    def accepted(self, reply: Published) -> None:
        """Resolve the publications of a frame in flight: they are on the broker's disk."""
        # Duplicates are always the lowest numbers.
        known = reply.duplicates
        place = reply.first
        for publication in self._in_flight.pop(reply.ref, ()):
            count = len(publication.events)
            duplicates = min(known, count)
            known -= duplicates
            new = count - duplicates
            first = place if new else None
            place = None if place is None else place + new
            self._answered = publication.end
            self._remove(publication)
            if not publication.done.done():
                publication.done.set_result(Receipt(count, duplicates, first))
        self._send_refused_again()

    def refused(self, ref: int, error: RefusedError) -> bool:
        """Handle the refusal of a frame; return whether it is temporary."""
        publications = self._in_flight.pop(ref, [])
        is_temporary = error.code in self._retried
        if error.code == Code.CONFLICT:
            # Somebody else publishes under this name. Later the broker might know only the numbers,
            # and take events that it does not have for repetitions.
            self._waiting.extendleft(reversed(publications))
            self.fail(error)
            return False
        # Those that follow a refused frame are not to blame.
        is_first = not self._refused and not self._follows_failed
        if is_first and not is_temporary and len(publications) == 1:
            self._fail(publications, error)
            self._follows_failed = bool(self._in_flight)
        else:
            half = max(1, len(publications) // 2) if is_first else MAX_EVENTS_PER_FRAME
            for publication in publications:
                publication.max_per_frame = min(half, publication.max_per_frame)
            self._refused += publications
        self._send_refused_again()
        return is_temporary

    def disconnected(self) -> None:
        """Requeue the publications of all frames in flight."""
        self._refused += [one for some in self._in_flight.values() for one in some]
        self._in_flight.clear()
        self._send_refused_again()

    def _send_refused_again(self) -> None:
        """Requeue what was refused when all frames are answered."""
        if self._in_flight:
            return
        unanswered = sorted(self._refused, key=lambda one: one.sequence)
        self._refused, self._follows_failed, self._following = [], False, self._answered
        self._waiting.extendleft(reversed(unanswered))
        for publication in unanswered:
            publication.is_in_flight = False
            self._forget_cancelled(publication)

    def fail(self, error: RefusedError) -> None:
        """Fail all publications."""
        self.disconnected()
        self._fail(self._waiting, error)
        self._waiting.clear()

    def _fail(self, publications: Iterable[PendingPublication], error: RefusedError) -> None:
        for publication in publications:
            self._remove(publication)
            if not publication.done.done():
                publication.done.set_exception(error)

    def _remove(self, publication: PendingPublication) -> None:
        if publication.is_counted:
            publication.is_counted = False
            self._events -= len(publication.events)
            self._bytes -= publication.size
            self.has_changed.set()


def _shares_frame(
    one: PendingPublication, sharing: Sequence[PendingPublication], room: int, max_events: int
) -> bool:
    """Return whether a publication may share a frame with those before it."""
    first, last = sharing[0], sharing[-1]
    return (
        not one.done.cancelled()
        and len(sharing) < min(first.max_per_frame, one.max_per_frame)
        and last.end == one.sequence
        and one.end - first.sequence <= max_events
        and one.size <= room
        and one.events[0].format == first.events[0].format
    )


def _too_large(most: int) -> RefusedError:
    return RefusedError(
        Code.TOO_LARGE, f"the publication exceeds the broker's limit of {most:,} bytes"
    )
