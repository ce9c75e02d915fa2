"""Attachments: subscriptions that are being sent to connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tamis.access import Rights
from tamis.broker.deliver.group_queues import GroupQueue
from tamis.broker.deliver.queues import DiskQueue, QueuedEvent
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.protocol import Deliver, Dropped, Ended
from tamis.protocol.views import MemberView


class DeliverySink(Protocol):
    """Where the frames of one subscription go, such as a connection."""

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        """Send a frame; may wait."""


@runtime_checkable
class DirectSink(Protocol):
    """A sink that takes frames at once while its peer keeps up."""

    def send_now(self, frame: Deliver) -> bool:
        """Send a frame if it need not wait; return whether it was sent."""


class EventReader(Protocol):
    """Who receives events: a session, which may see what its own credential shows."""

    @property
    def rights(self) -> Rights:
        """Return the rights of its credential as they are now."""


class Attachment:
    """A subscription that is being sent to a connection."""

    def __init__(
        self,
        subscription: ActiveSubscription,
        reader: EventReader,
        sink: DeliverySink,
        credit: int,
        *,
        manual: bool,
        member: str = "",
        connected_at: float = 0.0,
    ) -> None:
        self.member = member
        """What a member of a group calls itself; empty: nothing."""
        self.connected_at = connected_at
        self.subscription = subscription
        self.reader = reader
        self.sink = sink
        self.credit = credit
        self.manual = manual
        """Whether the subscriber acknowledges events; otherwise sending them does."""
        self.unsent: Sequence[QueuedEvent] = ()
        """What is in flight here, but only being prepared."""
        self.task: asyncio.Task[None] | None = None
        self.direct: DirectSink | None = sink if isinstance(sink, DirectSink) else None
        """The sink, if it takes frames at once."""
        self.is_waiting = False
        """Whether its task has nothing to do until it is woken."""

    @property
    def id(self) -> str:
        """Return the subscription's name."""
        return self.subscription.stored.name

    @property
    def is_allowed(self) -> bool:
        """Return whether the policy allows its reader the filter now."""
        return may_read(self.subscription, self.reader)

    def is_same(self, reader: EventReader, member: str) -> bool:
        """Return whether a member of a group that connects is this one."""
        return self.reader is reader or (bool(member) and self.member == member)

    def view(self) -> MemberView:
        """Return what is shown of a member of a group."""
        queue = self.subscription.queue
        held = queue.held_by(self) if isinstance(queue, GroupQueue) else len(queue.in_flight)
        return MemberView(self.member, self.connected_at, held, self.credit)

    def give_credit(self, events: int) -> None:
        """Allow this many more events to be sent."""
        self.credit += events
        self.subscription.queue.wake()

    def holds(self, sequence: int, attempt: int) -> bool:
        """Return whether an attempt is in flight here: it was not rejected or settled since."""
        sent = self.subscription.queue.in_flight.get(sequence)
        return sent is not None and sent.holder is self and sent.attempts == attempt

    def let_go(self) -> None:
        """Schedule what is in flight here again; what was not sent was no attempt."""
        queue = self.subscription.queue
        if isinstance(queue, DiskQueue):
            held = queue.in_flight
            queue.return_taken(
                [
                    queued
                    for queued in self.unsent
                    if (sent := held.get(queued.sequence)) is not None and sent.holder is self
                ]
            )
        queue.forget_sent(self)


def may_read(subscription: ActiveSubscription, reader: EventReader) -> bool:
    """Return whether the policy allows a reader the subscription's filter now."""
    if subscription.is_suspended:
        return False
    rights = reader.rights
    return not rights.hides_anything or rights.may_mention(subscription.filter.attributes())
