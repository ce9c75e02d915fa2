"""The notifier: what waits goes to connections, each at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple, Protocol

from tamis.broker.deliver.acknowledgements import AcknowledgementWriter
from tamis.broker.deliver.deliveries import delivery_of, visible_data
from tamis.broker.deliver.queues import DiskQueue, InFlightEvent, QueuedEvent
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.publish.event_cache import EventCache
from tamis.broker.publish.payloads import NUMBER_OF
from tamis.protocol import Delivery
from tamis.storage import DeadLetter

MOST_AT_ONCE: Final = 256
# Bytes that are handed to a connection before it is looked whether rights have changed.
PIECE: Final = 256 * 1024
# How long one who is told that it is over is waited for.
PATIENCE: Final = 0.2


class DeliverySink(Protocol):
    """Where events of one subscription go."""

    async def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Send events; may wait."""

    async def dropped(self, count: int, reason: str) -> None:
        """Tell of events that will not come."""

    async def ended(self, reason: str) -> None:
        """Tell that no more events come."""


class PreparedDeliveries(NamedTuple):
    """What can be sent of the events that wait, and what cannot."""

    deliveries: list[Delivery]
    taken: list[QueuedEvent]
    """Those of the deliveries."""
    gone: list[int]
    """Events that the log has no more."""
    hidden: list[int]
    """Events that the subscriber may not see any more."""


class Attachment:
    """A subscription that is being sent to a connection."""

    def __init__(
        self, subscription: ActiveSubscription, sink: DeliverySink, credit: int, *, manual: bool
    ) -> None:
        self.subscription = subscription
        self.sink = sink
        self.credit = credit
        self.manual = manual
        """Whether events are settled one by one; otherwise when they have been sent."""
        self.task: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """Return the subscription's name."""
        return self.subscription.stored.name

    def give_credit(self, events: int) -> None:
        """Let so many events more be sent."""
        self.credit += events
        self.subscription.queue.arrived.set()


class Notifier:
    """Sends events to connections, and sees to it that they arrive."""

    def __init__(
        self,
        event_cache: EventCache,
        acknowledgement_writer: AcknowledgementWriter,
        settings: BrokerSettings,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._event_cache = event_cache
        self._acknowledgement_writer = acknowledgement_writer
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self.leased: set[ActiveSubscription] = set()
        """Subscriptions of which something was sent and may not be settled."""
        self._telling: set[asyncio.Task[None]] = set()

    # --- connections -----------------------------------------------------------------------------

    async def attach(
        self, subscription: ActiveSubscription, sink: DeliverySink, credit: int, *, manual: bool
    ) -> Attachment:
        """Begin to send; whoever got the events until now gets no more."""
        if subscription.attachment is not None:
            await self.end(subscription, "taken over by another connection")
        attachment = Attachment(subscription, sink, credit, manual=manual)
        subscription.attachment = attachment
        subscription.queue.is_attended = True
        attachment.task = asyncio.create_task(self._send_all(attachment))
        return attachment

    async def detach(self, attachment: Attachment) -> None:
        """Stop sending; what was not settled comes again to the next connection."""
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
        """Send nothing more, from this moment on; the connection is told by others."""
        if attachment.task is not None:
            attachment.task.cancel()

    async def end(self, subscription: ActiveSubscription, reason: str) -> None:
        """Stop sending, and say why; nobody else waits for one who does not listen."""
        attachment = subscription.attachment
        if attachment is None:
            return
        await self.detach(attachment)
        telling = asyncio.create_task(_tell_end(attachment.sink, reason))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        await asyncio.wait([telling], timeout=PATIENCE)

    async def _send_all(self, attachment: Attachment) -> None:
        """Send what waits and what comes, until the connection is gone."""
        try:
            while True:
                if not await self._send_some(attachment):
                    await self._wait(attachment)
        except asyncio.CancelledError:
            raise
        except Exception:
            await self.detach(attachment)

    async def _send_some(self, attachment: Attachment) -> bool:
        """Send what may be sent now; tell whether there was something."""
        subscription, queue = attachment.subscription, attachment.subscription.queue
        queue.arrived.clear()
        if queue.dropped:
            count, queue.dropped = queue.dropped, 0
            self._count_dropped(subscription, count, "slow")
            await attachment.sink.dropped(count, "slow")
        if attachment.credit <= 0 or subscription.is_suspended:
            return False
        # While it is connected the subscriber has them, however long it takes over them.
        taken = await self._take(subscription, attachment.credit, lease=inf)
        if not taken:
            return False
        await self._send(attachment, taken)
        return True

    async def _send(self, attachment: Attachment, taken: Sequence[QueuedEvent]) -> None:
        """Send events, piece by piece: a slow connection gets none by rights of the past."""
        subscription = attachment.subscription
        while taken:
            rights = subscription.rights
            prepared = await self._prepare(subscription, taken)
            if prepared.gone:
                await attachment.sink.dropped(len(prepared.gone), "retention")
            sent = 0
            for piece in _pieces(prepared.deliveries):
                if subscription.rights is not rights:
                    break
                await self._send_piece(attachment, piece)
                sent += len(piece)
            taken = prepared.taken[sent:]

    async def _send_piece(self, attachment: Attachment, piece: Sequence[Delivery]) -> None:
        attachment.credit -= len(piece)
        await attachment.sink.deliver(piece)
        self._count_delivered(piece)
        if not attachment.manual:
            self.acknowledge(attachment.subscription, [one.sequence for one in piece], 0)

    async def _wait(self, attachment: Attachment) -> None:
        queue = attachment.subscription.queue
        may_send = attachment.credit > 0 and not attachment.subscription.is_suspended
        pause = queue.next_due() - self._clock() if may_send else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if pause == float("inf") else pause):
                await queue.arrived.wait()

    # --- fetching --------------------------------------------------------------------------------

    async def fetch(
        self, subscription: ActiveSubscription, limit: int, wait: float
    ) -> list[Delivery]:
        """Return what waits, and wait a while if nothing does."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:
            subscription.queue.arrived.clear()
            lease = self._clock() + self._settings.ack_timeout
            taken = await self._take(subscription, limit, lease=lease)
            deliveries = (await self._prepare(subscription, taken)).deliveries
            if deliveries:
                self._count_delivered(deliveries)
                return deliveries
            if taken:
                continue
            try:
                async with asyncio.timeout_at(until):
                    await subscription.queue.arrived.wait()
            except TimeoutError:
                return []

    async def tell_dropped(self, subscription: ActiveSubscription, count: int, reason: str) -> None:
        """Tell a subscriber of events that will not come, now if it is connected."""
        self._count_dropped(subscription, count, reason)
        if subscription.attachment is not None:
            with contextlib.suppress(Exception):
                await subscription.attachment.sink.dropped(count, reason)

    # --- settling --------------------------------------------------------------------------------

    def acknowledge(
        self, subscription: ActiveSubscription, sequences: Iterable[int], up_to: int
    ) -> None:
        """Let events not come again."""
        known = subscription.queue.settle(sequences, up_to)
        self._metrics.acknowledged.inc(len(known))
        if isinstance(subscription.queue, DiskQueue):
            self._acknowledgement_writer.acknowledge(subscription.number, known)

    async def reject(
        self, subscription: ActiveSubscription, sequence: int, delay: float | None, reason: str
    ) -> None:
        """Let an event come again later, unless it has come too often."""
        sent = subscription.queue.in_flight.get(sequence)
        if sent is None:
            return
        most = subscription.stored.max_attempts or self._settings.max_attempts
        if sent.attempts >= most:
            await self._bury(subscription, sequence, sent, reason)
            return
        due = self._clock() + (self._backoff(sent.attempts) if delay is None else max(0.0, delay))
        subscription.queue.put_back(sequence, sent.attempts, due)
        if isinstance(subscription.queue, DiskQueue):
            self._acknowledgement_writer.retry(subscription.number, sequence, sent.attempts, due)

    async def reject_late(self) -> None:
        """Send again what was sent and not settled in time."""
        now = self._clock()
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

    async def _take(
        self, subscription: ActiveSubscription, limit: int, *, lease: float
    ) -> list[QueuedEvent]:
        """Return what is to be sent now."""
        if subscription.is_suspended:
            return []
        if lease != inf:
            self.leased.add(subscription)
        return await subscription.queue.take(min(limit, MOST_AT_ONCE), self._clock(), lease)

    async def _prepare(
        self, subscription: ActiveSubscription, taken: Sequence[QueuedEvent]
    ) -> PreparedDeliveries:
        """Return what the subscriber may see of events, as of now."""
        prepared = PreparedDeliveries([], [], [], [])
        found = await self._event_cache.find([one.sequence for one in taken])
        if subscription.is_suspended:
            for waiting in taken:
                subscription.queue.put_back(waiting.sequence, waiting.attempts, 0.0)
            return prepared
        for waiting, stored in zip(taken, found, strict=True):
            if stored is None:
                prepared.gone.append(waiting.sequence)
                continue
            data = visible_data(subscription.filter, subscription.rights, stored.payload)
            if data is None:
                prepared.hidden.append(waiting.sequence)
                continue
            prepared.taken.append(waiting)
            prepared.deliveries.append(delivery_of(stored, data, waiting.attempts + 1))
        if prepared.gone:
            self._give_up(subscription, prepared.gone, "retention")
        if prepared.hidden:
            self._settle_unsent(subscription, prepared.hidden)
        return prepared

    def _give_up(self, subscription: ActiveSubscription, sequences: list[int], reason: str) -> None:
        self._count_dropped(subscription, len(sequences), reason)
        self._settle_unsent(subscription, sequences)

    def _settle_unsent(self, subscription: ActiveSubscription, sequences: list[int]) -> None:
        subscription.queue.settle(sequences, 0)
        if isinstance(subscription.queue, DiskQueue):
            self._acknowledgement_writer.acknowledge(subscription.number, sequences)

    def _count_dropped(self, subscription: ActiveSubscription, count: int, reason: str) -> None:
        subscription.dropped += count
        self._metrics.dropped.labels(reason).inc(count)

    def _count_delivered(self, deliveries: Sequence[Delivery]) -> None:
        now = self._clock()
        self._metrics.delivered.inc(len(deliveries))
        for delivery in deliveries:
            if delivery.attempt > 1:
                self._metrics.redelivered.inc()
            self._metrics.delivery_seconds.observe(max(0.0, now - delivery.time))


async def _tell_end(sink: DeliverySink, reason: str) -> None:
    with contextlib.suppress(Exception):
        await sink.ended(reason)


def _pieces(deliveries: Sequence[Delivery]) -> Iterator[Sequence[Delivery]]:
    """Yield the events in order, in pieces that are not much larger than one is allowed to be."""
    first, size = 0, 0
    for n, delivery in enumerate(deliveries):
        size += len(memoryview(delivery.data))
        if size >= PIECE:
            yield deliveries[first : n + 1]
            first, size = n + 1, 0
    if first < len(deliveries):
        yield deliveries[first:]
