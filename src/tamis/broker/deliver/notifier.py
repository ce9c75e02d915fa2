"""The notifier: sends queued events to connections, each at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from tamis.broker.deliver.acknowledgements import AcknowledgementWriter
from tamis.broker.deliver.attachments import Attachment, DeliverySink, EventReader, may_read
from tamis.broker.deliver.exact_checks import ExactChecks
from tamis.broker.deliver.preparation import DeliveryPreparer
from tamis.broker.deliver.queues import (
    DeliveryOutcome,
    DiskQueue,
    InFlightEvent,
    QueuedEvent,
)
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.deliver.visibility import is_visible, visible_data
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import RETENTION, EventCache, StoredEvent
from tamis.broker.publish.payloads import NUMBER_OF
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import Code, Deliver, Delivery, Dropped, Ended
from tamis.storage import DeadLetter, Retry

MAX_EVENTS_PER_TAKE: Final = 256
# A fetch that does not wait may check events for so long, and for the time of the last check.
MIN_CHECK_SECONDS: Final = 1.0
# A frame holds one event or events of this size; between two frames changed rights take effect.
FRAME_EVENT_BYTES: Final = 256 * 1024
# The lease of events that are being prepared: it begins when they are returned.
UNSENT: Final = 1e300
# How long `end` waits for a connection to take the last frame.
END_NOTICE_SECONDS: Final = 0.2
# Why events are lost by a full buffer.
SLOW: Final = "slow"
TAKEN_OVER: Final = "taken over by another connection"
FAILED: Final = "the broker cannot send its events because of an error, which is in its log"


class FetchedEvents(list[Delivery]):
    """Fetched events, and how many the subscriber learns to be lost."""

    def __init__(self, events: Iterable[Delivery] = ()) -> None:
        super().__init__(events)
        self.dropped = 0


class DeferredEvents(Protocol):
    """Makes deferred matches pending."""

    def hurry(self, subscription: ActiveSubscription) -> None:
        """Begin with those of a subscription."""

    async def flush(self, subscription: ActiveSubscription) -> None:
        """Return when a subscription has none."""


class Notifier:
    """Sends events to connections, and sends them again until they are settled."""

    def __init__(
        self,
        *,
        event_cache: EventCache,
        acknowledgement_writer: AcknowledgementWriter,
        settings: BrokerSettings,
        metrics: Metrics,
        clock: Callable[[], float],
        steady_clock: Callable[[], float],
        supervisor: Supervisor,
        exactness: ExactChecks,
    ) -> None:
        self._supervisor = supervisor
        self._event_cache = event_cache
        self._acknowledgement_writer = acknowledgement_writer
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._preparer = DeliveryPreparer(event_cache, acknowledgement_writer, exactness, metrics)
        self._steady_clock = steady_clock
        """Measures leases and pauses, whatever happens to the other clock."""
        self.deferred: DeferredEvents | None = None
        """Asked for the deferred matches of a subscription that somebody reads; set once."""
        self.leased: set[ActiveSubscription] = set()
        """Subscriptions with fetched events that may not be settled."""
        self._members = 0
        metrics.watch("group_members", "Members of groups", lambda: self._members)

    # --- connections -----------------------------------------------------------------------------

    async def attach(
        self,
        subscription: ActiveSubscription,
        reader: EventReader,
        sink: DeliverySink,
        credit: int,
        *,
        manual: bool,
        member: str = "",
    ) -> Attachment:
        """Start sending to a sink, and stop sending to the previous one; a group has several."""
        is_shared, now = subscription.queue.is_shared, self._clock()
        # Another may have come while the previous one was notified.
        while before := [
            one for one in subscription.attachments if not is_shared or one.is_same(reader, member)
        ]:
            await self.end_one(before[0], TAKEN_OVER)
        self.require_place(subscription, reader, member)
        attachment = Attachment(
            subscription, reader, sink, credit, manual=manual, member=member, connected_at=now
        )
        subscription.attachments += (attachment,)
        self._members += is_shared
        subscription.queue.is_attended = True
        if subscription.queue.is_deferred and self.deferred is not None:
            self.deferred.hurry(subscription)
        attachment.task = self._supervisor.start("delivery", self._send_all(attachment))
        return attachment

    async def detach(self, attachment: Attachment) -> None:
        """Stop sending; events without an outcome are delivered again on the next connection."""
        subscription, task = attachment.subscription, attachment.task
        if attachment in subscription.attachments:
            rest = tuple(one for one in subscription.attachments if one is not attachment)
            subscription.attachments = rest
            subscription.queue.is_attended = bool(rest)
            self._members -= subscription.queue.is_shared
        try:
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                # From now on it sends nothing, but an exact check in a thread has to end first.
                # Whoever connects meanwhile gets these events before later ones.
                attachment.let_go()
                await asyncio.wait([task])
        finally:
            attachment.let_go()

    def require_place(
        self, subscription: ActiveSubscription, reader: EventReader, member: str
    ) -> None:
        """Refuse a new member of a group that has as many as it may have."""
        most = self._settings.group_members
        others = [one for one in subscription.attachments if not one.is_same(reader, member)]
        if subscription.queue.is_shared and len(others) >= most:
            raise RefusedError(
                Code.TOO_MANY,
                f"the group {subscription.stored.name!r} has {most:,} members, which is the limit; "
                "end one of them, or let members handle several events at a time",
            )

    def stop(self, attachment: Attachment) -> None:
        """Send nothing more from this moment on, without telling the connection."""
        attachment.is_waiting = False
        if attachment.task is not None:
            attachment.task.cancel()

    async def end(self, subscription: ActiveSubscription, reason: str) -> None:
        """Stop sending and say why; a connection that does not read delays nobody else."""
        await asyncio.gather(*(self.end_one(one, reason) for one in subscription.attachments))

    async def end_one(self, attachment: Attachment, reason: str) -> None:
        """Stop sending to one connection, and say why."""
        await self.detach(attachment)
        notice = self._supervisor.start("end notice", _send_end(attachment, reason))
        await asyncio.wait([notice], timeout=END_NOTICE_SECONDS)

    async def _send_all(self, attachment: Attachment) -> None:
        """Send queued events and wait for more, until the connection is gone."""
        subscription, queue = attachment.subscription, attachment.subscription.queue
        reader = attachment.reader
        try:
            with queue.listening() as wake_up:
                while True:
                    wake_up.clear()
                    if queue.dropped:
                        self._count_overflow(subscription)
                    if subscription.untold:
                        await self._tell_losses(attachment)
                    now = self._steady_clock()
                    taken: list[QueuedEvent] = []
                    may_send = attachment.credit > 0 and not subscription.is_suspended
                    # It is purged in the matcher's turn.
                    may_send = may_send and subscription.stored.expires_at > now
                    if may_send:
                        limit = min(attachment.credit, MAX_EVENTS_PER_TAKE)
                        # A connected subscriber may take as long as it likes over an event.
                        digest = reader.rights.digest
                        taken = await queue.take(limit, now, inf, digest, attachment)
                    if taken:
                        await self._send(attachment, taken)
                        if queue.is_shared:
                            # Sending need not wait, and the other members come first now.
                            await asyncio.sleep(0)
                    elif may_send and subscription.suspended_from and not queue.unsettled:
                        await self.end_one(attachment, subscription.suspension)
                        return
                    elif may_send and queue.retries:
                        await self._wait(wake_up, subscription, now)
                    else:
                        attachment.is_waiting = True
                        await wake_up.wait()
                        attachment.is_waiting = False
        except DisconnectedError:
            await self.detach(attachment)
        except Exception:
            await self.end_one(attachment, FAILED)
            raise
        finally:
            attachment.is_waiting = False

    def send_at_once(self, subscription: ActiveSubscription) -> bool:
        """Send an event that was offered to one who waits for it, without the turn of a task.

        Whatever is not that simple is left to the task of the attachment: return False to wake it.
        """
        queue, expires_at = subscription.queue, subscription.stored.expires_at
        now = 0.0 if expires_at == inf else self._steady_clock()
        if len(subscription.attachments) != 1 or queue.is_shared or subscription.is_checked:
            return False
        [attachment] = subscription.attachments
        sink, rights = attachment.direct, attachment.reader.rights
        if (
            sink is None
            or not attachment.is_waiting
            or attachment.credit <= 0
            or queue.dropped
            or queue.retries
            or subscription.untold
            or subscription.is_suspended
            or expires_at <= now
        ):
            return False
        taken = queue.take_now(1, now, inf, rights.digest, attachment)
        stored = self._event_cache.recent.get(taken[0].sequence) if taken else None
        if stored is None:
            queue.return_taken(taken)
            return False
        payload, attempt = stored.payload, taken[0].attempts + 1
        data: bytes | None = payload.text
        try:
            if rights.hides_anything:
                data = visible_data(subscription.filter_at(stored.sequence), rights, payload)
            raw = msgspec.Raw(data or b"")
            event = Delivery(
                stored.sequence, stored.time, stored.publisher, raw, attempt, payload.format
            )
            frame = Deliver(subscription=subscription.stored.name, events=[event])
            is_sent = data is not None and sink.send_now(frame)
        except Exception:
            # The task meets the same error, which ends the attachment.
            is_sent = False
        if is_sent:
            attachment.credit -= 1
            if attachment.manual and isinstance(queue, DiskQueue):
                queue.unwritten[event.sequence] = queue.in_flight[event.sequence]
                self._acknowledgement_writer.unwritten.queues[queue] = None
                self._acknowledgement_writer.unwritten.work.set()
            self._note_sent(attachment, [event])
        else:
            queue.return_taken(taken)
        return is_sent

    async def _send(self, attachment: Attachment, taken: Sequence[QueuedEvent]) -> None:
        """Send events frame by frame; prepare them again if the rights have changed."""
        subscription, sink, reader = attachment.subscription, attachment.sink, attachment.reader
        queue = subscription.queue
        while taken:
            attachment.unsent, rights = taken, reader.rights
            found = await self._preparer.find(subscription, taken)
            deliveries, sizes, queued, *_ = self._preparer.prepare(
                subscription, reader, taken, found
            )
            sent = 0
            while sent < len(deliveries) and reader.rights is rights:
                end, size = sent + 1, sizes[sent]
                while end < len(sizes) and (size := size + sizes[end]) <= FRAME_EVENT_BYTES:
                    end += 1
                # Some may have been acknowledged while they were prepared.
                events = [one for one in deliveries[sent:end] if one.sequence in queue.in_flight]
                if not events:
                    sent = end
                    continue
                attachment.credit -= len(events)
                if attachment.manual and isinstance(queue, DiskQueue):
                    # Before they are sent: their acknowledgements may arrive before sending ends.
                    queue.unwritten.update(
                        {one.sequence: queue.in_flight[one.sequence] for one in events}
                    )
                    self._acknowledgement_writer.unwritten.queues[queue] = None
                    self._acknowledgement_writer.unwritten.work.set()
                attachment.unsent = queued[end:]
                await sink.send(Deliver(subscription=subscription.stored.name, events=events))
                self._note_sent(attachment, events)
                sent = end
            attachment.unsent = taken = queued[sent:]

    def _note_sent(self, attachment: Attachment, events: Sequence[Delivery]) -> None:
        """Count what was sent, and settle it unless the subscriber does."""
        self._metrics.delivered.inc(len(events))
        self._metrics.redelivered.inc(sum([one.attempt > 1 for one in events]))
        now, waits = self._clock(), self._metrics.delivery_seconds
        # Events that were stored together waited equally long. No call for each of them: this is on
        # the way of every delivery.
        for stored_at, count in Counter([one.time for one in events]).items():
            waits.counts[bisect_left(waits.bounds, now - stored_at)] += count
            waits.sum += max(0.0, now - stored_at) * count
        if not attachment.manual:
            held = [one for one in events if attachment.holds(one.sequence, one.attempt)]
            known = attachment.subscription.queue.settle([one.sequence for one in held], 0)
            self._metrics.acknowledged.inc(len(known))

    def _count_overflow(self, subscription: ActiveSubscription) -> None:
        count, subscription.queue.dropped = subscription.queue.dropped, 0
        subscription.lose(count, SLOW)
        self._metrics.dropped.labels(SLOW).inc(count)

    async def _tell_losses(self, attachment: Attachment) -> None:
        """Send a reader the number of lost events, unless some may be hidden from it."""
        subscription = attachment.subscription
        if not subscription.shows_all_to(attachment.reader.rights):
            return
        writer = self._acknowledgement_writer
        # Meanwhile, nobody else tells them.
        untold, subscription.untold = subscription.untold, {}
        try:
            while untold:
                reason, count = next(iter(untold.items()))
                dropped = Dropped(subscription=attachment.id, count=count, reason=reason)
                await attachment.sink.send(dropped)
                writer.note_reported(subscription, {reason: untold.pop(reason)})
        finally:
            subscription.keep_unreported(untold)

    # --- fetching --------------------------------------------------------------------------------

    async def fetch(
        self, subscription: ActiveSubscription, reader: EventReader, limit: int, wait: float
    ) -> FetchedEvents:
        """Return queued events, waiting up to `wait` seconds for the first, or for a loss.

        The loss is still to be reported.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        until, checked_until = started + wait, started + max(wait, MIN_CHECK_SECONDS)
        if subscription.queue.is_deferred and self.deferred is not None:
            self.deferred.hurry(subscription)
        with subscription.queue.listening() as wake_up:
            while True:
                wake_up.clear()
                now = self._steady_clock()
                taken = await self._lease(
                    subscription, reader, min(limit, MAX_EVENTS_PER_TAKE), now
                )
                try:
                    found = await self._preparer.find(
                        subscription, taken, lambda: loop.time() >= checked_until
                    )
                    prepared = self._preparer.prepare(subscription, reader, taken, found)
                except BaseException:
                    subscription.queue.return_taken(taken)
                    raise
                deliveries, rest = prepared.deliveries, until - loop.time()
                has_lost = subscription.untold and subscription.shows_all_to(reader.rights)
                is_done = subscription.suspended_from and not subscription.queue.unsettled
                if is_done and not (taken or has_lost):
                    name = subscription.stored.name
                    raise RefusedError(Code.CONFLICT, f"{name!r} is {subscription.suspension}")
                is_late = rest <= 0 and (not taken or loop.time() >= checked_until)
                is_over = subscription.has_ended or is_late
                if deliveries or has_lost or is_over:
                    return self._fetched(subscription, deliveries)
                if not taken:
                    await self._wait(wake_up, subscription, now, rest)

    def _fetched(
        self, subscription: ActiveSubscription, deliveries: Sequence[Delivery]
    ) -> FetchedEvents:
        if deliveries:
            self._metrics.delivered.inc(len(deliveries))
            self._metrics.redelivered.inc(sum(one.attempt > 1 for one in deliveries))
            now = self._clock()
            for delivery in deliveries:
                self._metrics.delivery_seconds.observe(max(0.0, now - delivery.time))
            number, in_flight = subscription.number, subscription.queue.in_flight
            lease = self._steady_clock() + self._settings.ack_timeout
            for one in deliveries:
                in_flight[one.sequence] = replace(in_flight[one.sequence], lease=lease)
            sent = {
                one.sequence: Retry(number, one.sequence, one.attempt, in_flight[one.sequence].due)
                for one in deliveries
            }
            self._acknowledgement_writer.write(subscription, {**sent})
        return FetchedEvents(deliveries)

    def take_back(self, subscription: ActiveSubscription, fetched: FetchedEvents) -> None:
        """Put back fetched events that nobody was told of: that was no attempt."""
        queue, written = subscription.queue, dict[int, DeliveryOutcome]()
        for one in fetched:
            sent = queue.in_flight.get(one.sequence)
            if sent is not None and sent.holder is None and sent.attempts == one.attempt:
                before = sent.attempts - 1
                queue.put_back(one.sequence, before, sent.due)
                written[one.sequence] = Retry(subscription.number, one.sequence, before, sent.due)
        self._acknowledgement_writer.write(subscription, written)

    async def _lease(
        self, subscription: ActiveSubscription, reader: EventReader, limit: int, now: float
    ) -> list[QueuedEvent]:
        if not may_read(subscription, reader):
            return []
        taken = await subscription.queue.take(limit, now, UNSENT, reader.rights.digest)
        # Not before: a subscription without events in flight is removed from the set.
        self.leased.add(subscription)
        return taken

    async def _wait(
        self,
        wake_up: asyncio.Event,
        subscription: ActiveSubscription,
        now: float,
        rest: float | None = None,
    ) -> None:
        """Wait for events after nothing could be taken at a time, or until a retry is due."""
        due = subscription.queue.next_due()
        # What was due already was not taken, so time does not help: there is no room for it.
        if now < due < inf:
            until_due = max(0.0, due - self._steady_clock())
            rest = until_due if rest is None else min(rest, until_due)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest):
                await wake_up.wait()

    # --- settling --------------------------------------------------------------------------------

    def count_removed(self, subscription: ActiveSubscription, count: int) -> None:
        """Report events to a subscriber that retention removed before they were matched."""
        self._acknowledgement_writer.count_lost(subscription, count, RETENTION)

    def drop_below(self, subscription: ActiveSubscription, sequence: int, count: int) -> None:
        """Forget events that retention has removed; some of them had not been settled."""
        if isinstance(subscription.queue, DiskQueue):
            subscription.queue.drop_below(sequence)
        self._acknowledgement_writer.count_lost(subscription, count, RETENTION)

    async def acknowledge_stored(
        self,
        subscription: ActiveSubscription,
        reader: EventReader,
        sequences: Sequence[int],
        up_to: int,
        *,
        received: bool = False,
    ) -> None:
        """Acknowledge events on disk that memory does not have: they were sent before a restart.

        With `received`, only those that were sent, and nobody has rejected.
        """
        queue = subscription.queue
        if not isinstance(queue, DiskQueue):
            return
        if queue.is_deferred and self.deferred is not None:
            # They were sent before a power failure, say, and have been matched again.
            await self.deferred.flush(subscription)
        if not sequences and queue.has_passed(up_to, reader.rights.digest):
            return
        found, after = [0], 0
        while found:
            found = await queue.find_stored(sequences, up_to, after, received=received)
            visible = found
            if not subscription.shows_all_to(reader.rights):
                visible = await self.visible_among(subscription, reader, found)
            if received:
                visible = queue.others_among(visible)
            self._acknowledgement_writer.acknowledge_stored(subscription, queue, visible)
            after = found[-1] if found else after

    async def reject(
        self, subscription: ActiveSubscription, sequence: int, delay: float | None, reason: str
    ) -> None:
        """Send an event again later, or give it up after too many attempts."""
        sent = subscription.queue.in_flight.get(sequence)
        if sent is None:
            return
        # Of what is only being prepared, an earlier attempt is rejected.
        attempts = sent.attempts - _is_unsent(sequence, sent)
        if not attempts:
            return
        most = subscription.stored.max_attempts or self._settings.max_attempts
        if attempts >= most:
            await self._bury(subscription, sequence, sent, reason)
            return
        pause = self._backoff(attempts) if delay is None else max(0.0, delay)
        due = self._steady_clock() + pause
        subscription.queue.put_back(sequence, attempts, due)
        retry = Retry(subscription.number, sequence, attempts, due)
        self._acknowledgement_writer.write(subscription, {sequence: retry})

    async def reject_late(self) -> None:
        """Send again what was fetched and not settled in time."""
        now = self._steady_clock()
        for subscription in [*self.leased]:
            if not subscription.queue.in_flight:
                self.leased.discard(subscription)
            for sequence in subscription.queue.late(now):
                await self.reject(subscription, sequence, None, "not acknowledged in time")

    async def _bury(
        self, subscription: ActiveSubscription, sequence: int, sent: InFlightEvent, reason: str
    ) -> None:
        [stored] = await self._event_cache.find([sequence])
        if subscription.queue.in_flight.get(sequence) is not sent:
            # It was acknowledged, rejected or returned to the queue meanwhile.
            return
        subscription.queue.settle([sequence], 0)
        if isinstance(stored, str):
            self._preparer.lose(subscription, {sequence: stored})
            return
        self._metrics.dead.inc()
        letter = DeadLetter(
            number=subscription.number,
            sequence=sequence,
            died_at=self._clock(),
            attempts=sent.attempts,
            reason=reason or "rejected",
            time=stored.time,
            publisher=stored.publisher,
            publisher_sequence=0,
            format=NUMBER_OF[stored.payload.format],
            payload=stored.payload.text,
        )
        self._acknowledgement_writer.write(subscription, {sequence: letter})

    def _backoff(self, attempts: int) -> float:
        wait: float = self._settings.backoff_first * 2.0 ** min(attempts - 1, 30)
        return min(wait, self._settings.backoff_most)

    async def visible_among(
        self, subscription: ActiveSubscription, reader: EventReader, sequences: Sequence[int]
    ) -> list[int]:
        """Return those of a subscription's events that a reader may see now."""
        found = await self._event_cache.find(sequences)
        return [
            stored.sequence
            for stored in found
            if isinstance(stored, StoredEvent) and is_visible(subscription, reader.rights, stored)
        ]


def _is_unsent(sequence: int, sent: InFlightEvent) -> bool:
    """Return whether an event in flight is only being prepared."""
    if isinstance(sent.holder, Attachment):
        return any(queued.sequence == sequence for queued in sent.holder.unsent)
    return sent.lease == UNSENT


async def _send_end(attachment: Attachment, reason: str) -> None:
    with contextlib.suppress(DisconnectedError):
        await attachment.sink.send(Ended(subscription=attachment.id, reason=reason))
