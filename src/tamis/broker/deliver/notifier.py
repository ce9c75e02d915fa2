"""The notifier: sends queued events to connections, each at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, NamedTuple, Protocol

import msgspec

from tamis.access import Rights
from tamis.broker.deliver.acknowledgements import AcknowledgementWriter
from tamis.broker.deliver.queues import DiskQueue, InFlightEvent, QueuedEvent
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import EventCache, StoredEvent
from tamis.broker.publish.payloads import NUMBER_OF, Payload
from tamis.errors import DisconnectedError
from tamis.filters import Filter
from tamis.protocol import Deliver, Delivery, Dropped, Ended
from tamis.storage import DeadLetter

MAX_EVENTS_PER_TAKE: Final = 256
# A frame holds one event or events of this size; between two frames changed rights take effect.
FRAME_EVENT_BYTES: Final = 256 * 1024
# How long `end` waits for a connection to take the last frame.
END_NOTICE_SECONDS: Final = 0.2
FAILED: Final = "the broker cannot send its events because of an error, which is in its log"


class DeliverySink(Protocol):
    """Where the frames of one subscription go, such as a connection."""

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        """Send a frame; may wait."""


class PreparedDeliveries(NamedTuple):
    """Queued events, sorted by whether they can be sent."""

    deliveries: list[Delivery]
    taken: list[QueuedEvent]
    """The queued events of the deliveries."""
    gone: list[int]
    """Events that the log no longer has."""
    hidden: list[int]
    """Events that the subscriber may no longer see."""


class Attachment:
    """A subscription that is being sent to a connection."""

    def __init__(
        self, subscription: ActiveSubscription, sink: DeliverySink, credit: int, *, manual: bool
    ) -> None:
        self.subscription = subscription
        self.sink = sink
        self.credit = credit
        self.manual = manual
        """Whether the subscriber acknowledges events; otherwise sending them does."""
        self.task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Return the subscription's name."""
        return self.subscription.stored.name

    def give_credit(self, events: int) -> None:
        """Allow this many more events to be sent."""
        self.credit += events
        self.subscription.queue.wake_up.set()


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
    ) -> None:
        self._supervisor = supervisor
        self._event_cache = event_cache
        self._acknowledgement_writer = acknowledgement_writer
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._steady_clock = steady_clock
        """Measures leases and pauses, whatever happens to the other clock."""
        self.leased: set[ActiveSubscription] = set()
        """Subscriptions with fetched events that may not be settled."""

    # --- connections -----------------------------------------------------------------------------

    async def attach(
        self, subscription: ActiveSubscription, sink: DeliverySink, credit: int, *, manual: bool
    ) -> Attachment:
        """Start sending to a sink, and stop sending to the previous one."""
        if subscription.attachment is not None:
            await self.end(subscription, "taken over by another connection")
        attachment = Attachment(subscription, sink, credit, manual=manual)
        subscription.attachment = attachment
        subscription.queue.is_attended = True
        attachment.task = self._supervisor.start("delivery", self._send_all(attachment))
        return attachment

    async def detach(self, attachment: Attachment) -> None:
        """Stop sending; events without an outcome are delivered again on the next connection."""
        subscription = attachment.subscription
        if subscription.attachment is not attachment:
            return
        subscription.attachment = None
        subscription.queue.is_attended = False
        task = attachment.task
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        subscription.queue.forget_sent()

    def stop(self, attachment: Attachment) -> None:
        """Send nothing more from this moment on, without telling the connection."""
        if attachment.task is not None:
            attachment.task.cancel()

    async def end(self, subscription: ActiveSubscription, reason: str) -> None:
        """Stop sending and say why; a connection that does not read delays nobody else."""
        attachment = subscription.attachment
        if attachment is None:
            return
        await self.detach(attachment)
        notice = self._supervisor.start("end notice", _send_end(attachment, reason))
        await asyncio.wait([notice], timeout=END_NOTICE_SECONDS)

    async def _send_all(self, attachment: Attachment) -> None:
        """Send queued events and wait for more, until the connection is gone."""
        subscription, queue = attachment.subscription, attachment.subscription.queue
        wake_up = queue.listen()
        try:
            while True:
                wake_up.clear()
                if queue.dropped:
                    await self._report_overflow(attachment)
                taken: list[QueuedEvent] = []
                may_send = attachment.credit > 0 and not subscription.is_suspended
                if may_send:
                    limit = min(attachment.credit, MAX_EVENTS_PER_TAKE)
                    # A connected subscriber may take as long as it likes over an event.
                    taken = await queue.take(limit, self._steady_clock(), lease=inf)
                if taken:
                    await self._send(attachment, taken)
                elif may_send and queue.retries:
                    await _wait(wake_up, queue.next_due() - self._steady_clock())
                else:
                    await wake_up.wait()
        except DisconnectedError:
            await self.detach(attachment)
        except Exception:
            await self.end(subscription, FAILED)
            raise

    async def _send(self, attachment: Attachment, taken: Sequence[QueuedEvent]) -> None:
        """Send events frame by frame; prepare them again if the rights have changed."""
        subscription, sink = attachment.subscription, attachment.sink
        while taken:
            rights = subscription.rights
            deliveries, queued, gone, _ = await self._prepare(subscription, taken)
            if gone:
                await sink.send(
                    Dropped(subscription=attachment.id, count=len(gone), reason="retention")
                )
            sent = 0
            while sent < len(deliveries) and subscription.rights is rights:
                end, size = sent + 1, len(memoryview(deliveries[sent].data))
                while end < len(deliveries):
                    size += len(memoryview(deliveries[end].data))
                    if size > FRAME_EVENT_BYTES:
                        break
                    end += 1
                events = deliveries[sent:end]
                attachment.credit -= len(events)
                await sink.send(Deliver(subscription=subscription.stored.name, events=events))
                self._metrics.delivered.inc(len(events))
                now = self._clock()
                for delivery in events:
                    self._metrics.delivery_seconds.observe(max(0.0, now - delivery.time))
                    if delivery.attempt > 1:
                        self._metrics.redelivered.inc()
                if not attachment.manual:
                    sequences = [delivery.sequence for delivery in events]
                    self._acknowledgement_writer.acknowledge(subscription, sequences)
                sent = end
            taken = queued[sent:]

    async def _report_overflow(self, attachment: Attachment) -> None:
        queue = attachment.subscription.queue
        count, queue.dropped = queue.dropped, 0
        self._count_dropped(attachment.subscription, count, "slow")
        dropped = Dropped(subscription=attachment.id, count=count, reason="slow")
        await attachment.sink.send(dropped)

    # --- fetching --------------------------------------------------------------------------------

    async def fetch(
        self, subscription: ActiveSubscription, limit: int, wait: float
    ) -> list[Delivery]:
        """Return queued events, waiting up to `wait` seconds for the first."""
        until = asyncio.get_running_loop().time() + wait
        wake_up = subscription.queue.listen()
        while True:
            wake_up.clear()
            taken = await self._lease(subscription, min(limit, MAX_EVENTS_PER_TAKE))
            deliveries = (await self._prepare(subscription, taken)).deliveries
            if deliveries:
                self._metrics.delivered.inc(len(deliveries))
                self._metrics.redelivered.inc(sum(one.attempt > 1 for one in deliveries))
                for delivery in deliveries:
                    age = self._clock() - delivery.time
                    self._metrics.delivery_seconds.observe(max(0.0, age))
                return deliveries
            if taken:
                continue
            try:
                async with asyncio.timeout_at(until):
                    await wake_up.wait()
            except TimeoutError:
                return []

    async def _lease(self, subscription: ActiveSubscription, limit: int) -> list[QueuedEvent]:
        if subscription.is_suspended:
            return []
        self.leased.add(subscription)
        now = self._steady_clock()
        return await subscription.queue.take(limit, now, now + self._settings.ack_timeout)

    async def tell_dropped(self, subscription: ActiveSubscription, count: int, reason: str) -> None:
        """Count events that will not arrive, and notify the subscriber if it is connected."""
        self._count_dropped(subscription, count, reason)
        attachment = subscription.attachment
        if attachment is not None:
            with contextlib.suppress(DisconnectedError):
                dropped = Dropped(subscription=attachment.id, count=count, reason=reason)
                await attachment.sink.send(dropped)

    # --- settling --------------------------------------------------------------------------------

    async def reject(
        self, subscription: ActiveSubscription, sequence: int, delay: float | None, reason: str
    ) -> None:
        """Send an event again later, or give it up after too many attempts."""
        sent = subscription.queue.in_flight.get(sequence)
        if sent is None:
            return
        most = subscription.stored.max_attempts or self._settings.max_attempts
        if sent.attempts >= most:
            await self._bury(subscription, sequence, sent, reason)
            return
        pause = self._backoff(sent.attempts) if delay is None else max(0.0, delay)
        due = self._steady_clock() + pause
        subscription.queue.put_back(sequence, sent.attempts, due)
        if isinstance(subscription.queue, DiskQueue):
            writer = self._acknowledgement_writer
            writer.retry(subscription.number, sequence, sent.attempts, due)

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
        subscription.queue.settle([sequence], 0)
        if stored is None:
            self._give_up(subscription, [sequence], "retention")
            return
        self._metrics.dead.inc()
        if isinstance(subscription.queue, DiskQueue):
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
            self._acknowledgement_writer.bury(letter)

    def _backoff(self, attempts: int) -> float:
        wait: float = self._settings.backoff_first * 2.0 ** min(attempts - 1, 30)
        return min(wait, self._settings.backoff_most)

    # --- what is sent ----------------------------------------------------------------------------

    async def _prepare(
        self, subscription: ActiveSubscription, taken: Sequence[QueuedEvent]
    ) -> PreparedDeliveries:
        """Return what the subscriber may see of events, by its rights as they are now."""
        prepared = PreparedDeliveries([], [], [], [])
        found = [self._event_cache.recent.get(queued.sequence) for queued in taken]
        if None in found:
            found = await self._event_cache.find([queued.sequence for queued in taken])
        if subscription.is_suspended:
            for queued in taken:
                subscription.queue.put_back(queued.sequence, queued.attempts, 0.0)
            return prepared
        for queued, stored in zip(taken, found, strict=True):
            if stored is None:
                prepared.gone.append(queued.sequence)
                continue
            attempt = queued.attempts + 1
            delivery = visible_delivery(stored, subscription, subscription.rights, attempt)
            if delivery is None:
                prepared.hidden.append(queued.sequence)
                continue
            prepared.taken.append(queued)
            prepared.deliveries.append(delivery)
        if prepared.gone:
            self._give_up(subscription, prepared.gone, "retention")
        if prepared.hidden:
            self._acknowledgement_writer.discard(subscription, prepared.hidden)
        return prepared

    def _give_up(self, subscription: ActiveSubscription, sequences: list[int], reason: str) -> None:
        self._count_dropped(subscription, len(sequences), reason)
        self._acknowledgement_writer.discard(subscription, sequences)

    def _count_dropped(self, subscription: ActiveSubscription, count: int, reason: str) -> None:
        subscription.dropped += count
        self._metrics.dropped.labels(reason).inc(count)


async def _send_end(attachment: Attachment, reason: str) -> None:
    with contextlib.suppress(DisconnectedError):
        await attachment.sink.send(Ended(subscription=attachment.id, reason=reason))


async def _wait(wake_up: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wake_up.wait()


# --- what a subscriber may see of an event --------------------------------------------------------


class _Filtered(Protocol):
    """A subscription, or a query of the history."""

    @property
    def filter(self) -> Filter: ...


def visible_delivery(
    stored: StoredEvent, asked: _Filtered, rights: Rights, attempt: int = 1
) -> Delivery | None:
    """Return an event without the attributes its reader may not see; None if it may see nothing."""
    payload = stored.payload
    data = visible_data(asked.filter, rights, payload) if rights.hides_anything else payload.text
    if data is None:
        return None
    return Delivery(
        sequence=stored.sequence,
        time=stored.time,
        publisher=stored.publisher,
        data=msgspec.Raw(data),
        attempt=attempt,
        format=payload.format,
    )


def visible_data(filter_: Filter, rights: Rights, payload: Payload) -> bytes | None:
    """Return the text of an event without what its reader may not see; None if that is all.

    Rights may have changed since the event was matched. Then not even the fact that it matched may
    be revealed.
    """
    if not rights.hides_anything:
        return payload.text
    sight = rights.sight(payload.source)
    if sight is None or not sight.covers(filter_.attributes()):
        return None
    if sight.is_whole:
        return payload.text
    return msgspec.json.encode(sight.document(msgspec.json.decode(payload.text)))
