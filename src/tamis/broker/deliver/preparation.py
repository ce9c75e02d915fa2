"""What is sent of queued events: found, checked exactly, and cut to the rights of the reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from tamis.broker.deliver.acknowledgements import AcknowledgementWriter
from tamis.broker.deliver.attachments import EventReader
from tamis.broker.deliver.exact_checks import RESIDUE, UNCHECKED, ExactChecks
from tamis.broker.deliver.queues import DiskQueue, LostEvent, QueuedEvent
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.deliver.visibility import is_visible, visible_data
from tamis.broker.operations.metrics import Metrics
from tamis.broker.publish.event_cache import EventCache, StoredEvent
from tamis.protocol import Delivery


class PreparedDeliveries(NamedTuple):
    """Queued events, sorted by whether they can be sent."""

    deliveries: list[Delivery]
    sizes: list[int]
    """The bytes of each delivery."""
    taken: list[QueuedEvent]
    """The queued events of the deliveries."""
    gone: dict[int, str]
    """Events that cannot be sent, with the reasons why they are lost."""
    hidden: list[int]
    """Events that no credential that has used the subscription may see any longer."""
    left: list[QueuedEvent]
    """Events that this reader may not see, but others may."""


class DeliveryPreparer:
    """Makes deliveries of queued events, and gives up those that cannot be sent."""

    def __init__(
        self,
        event_cache: EventCache,
        acknowledgement_writer: AcknowledgementWriter,
        exactness: ExactChecks,
        metrics: Metrics,
    ) -> None:
        self._event_cache = event_cache
        self._acknowledgement_writer = acknowledgement_writer
        self._exactness = exactness
        self._metrics = metrics

    async def find(
        self,
        subscription: ActiveSubscription,
        taken: Sequence[QueuedEvent],
        is_late: Callable[[], bool] = lambda: False,
    ) -> Sequence[StoredEvent | str]:
        """Return events, checked exactly, or why they are lost.

        Those that there is no time to check go back to the queue.
        """
        recent = [self._event_cache.recent.get(queued.sequence) for queued in taken]
        if None not in recent and not subscription.is_checked:
            return cast("list[StoredEvent | str]", recent)
        found = await self._event_cache.find([queued.sequence for queued in taken])
        found = await self._exactness.check(subscription, found, is_late)
        late = [one for one, stored in zip(taken, found, strict=True) if stored == UNCHECKED]
        subscription.queue.return_taken(late)
        return found

    def prepare(
        self,
        subscription: ActiveSubscription,
        reader: EventReader,
        taken: Sequence[QueuedEvent],
        found: Sequence[StoredEvent | str],
    ) -> PreparedDeliveries:
        """Return what a reader may see of events, by its rights as they are now."""
        prepared = PreparedDeliveries([], [], [], {}, [], [])
        if subscription.is_suspended:
            subscription.queue.return_taken(taken)
            return prepared
        rights, in_flight = reader.rights, subscription.queue.in_flight
        for queued, stored in zip(taken, found, strict=True):
            if queued.sequence not in in_flight:
                # It was settled meanwhile, or not checked in time.
                continue
            if isinstance(stored, str):
                prepared.gone[queued.sequence] = stored
                continue
            payload = stored.payload
            data: bytes | None = payload.text
            if rights.hides_anything:
                data = visible_data(subscription.filter_at(stored.sequence), rights, payload)
            if data is not None:
                prepared.taken.append(queued)
                prepared.sizes.append(len(data))
                raw, attempt = msgspec.Raw(data), queued.attempts + 1
                shown = Delivery(
                    stored.sequence, stored.time, stored.publisher, raw, attempt, payload.format
                )
                prepared.deliveries.append(shown)
            elif is_visible(subscription, subscription.rights, stored):
                prepared.left.append(queued)
            else:
                prepared.hidden.append(queued.sequence)
        if prepared.gone:
            self.lose(subscription, prepared.gone)
        if prepared.hidden:
            self._acknowledgement_writer.discard(subscription, prepared.hidden)
        if prepared.left:
            subscription.queue.leave(prepared.left, rights.digest)
        return prepared

    def lose(self, subscription: ActiveSubscription, gone: Mapping[int, str]) -> None:
        """Give up events that cannot be sent, with the reasons, or that do not match exactly."""
        residue = [one for one, reason in gone.items() if reason == RESIDUE]
        if residue:
            self._acknowledgement_writer.discard(subscription, residue)
            subscription.residue += len(residue)
            self._metrics.residue.inc(len(residue))
            gone = {one: reason for one, reason in gone.items() if reason != RESIDUE}
        number = subscription.number
        lost = {one: LostEvent(number, one, reason) for one, reason in gone.items()}
        subscription.queue.settle([*gone], 0)
        if isinstance(subscription.queue, DiskQueue):
            self._acknowledgement_writer.write(subscription, lost)
            return
        for one in lost.values():
            self._acknowledgement_writer.count_lost(subscription, 1, one.reason)
