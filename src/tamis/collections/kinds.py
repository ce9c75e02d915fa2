"""The kinds of collections for asyncio: the class says how members are delivered."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Final

import msgspec

from tamis.client.messages import Message
from tamis.client.object_consumer import ObjectConsumer, object_of
from tamis.client.options import SubscribeOptions
from tamis.collections.asynchronous import DACollection
from tamis.collections.members import MemberCondition, T
from tamis.collections.qualities import (
    BEST_EFFORT_SET,
    CERTIFIED,
    RELIABLE,
    RELIABLE_SET,
    SHARED,
)
from tamis.objects import ObjectFilter, object_filter_to_structure
from tamis.protocol.views import SubscriptionView

_MOST_SHOWN: Final = 150
"""Characters of a collection's name in that of a group, which may have 200."""
_SECONDS_TO_ARRIVE: Final = 0.05
_SECONDS_TO_CATCH_UP: Final = 60.0
"""For a broker that searches a long past, or has much to match before."""
_MOST_LOOKS: Final = 40
"""While nothing changes: a member that was rejected may wait much longer before it comes again.

They are counted, since on a busy machine time passes in which the broker gets no turn.
"""


class DASet(DACollection[T]):
    """A best-effort set: members come to those who watch and keep up; equal ones come once."""

    QUALITY = BEST_EFFORT_SET


class DAStrongSet(DACollection[T]):
    """A reliable set: every member comes to all who watch while they live; equal ones once."""

    QUALITY = RELIABLE_SET


class DABag(DACollection[T]):
    """A reliable bag: every member comes to all who watch while they live, also equal ones."""

    QUALITY = RELIABLE


class DAList(DACollection[T]):
    """A reliable list: members come to all who watch in the same order, one at a time."""

    QUALITY = RELIABLE


class DACertifiedBag(DACollection[T]):
    """A certified bag: every member comes at least once to each who watches under a name.

    Also if the broker or the watcher restarts: it is kept until the function has returned.
    """

    QUALITY = CERTIFIED


class DAQueue(DACollection[T]):
    """A queue: every member comes at least once, to one of those who watch.

    It waits until somebody watches. If a watcher goes before its function has returned, the member
    comes to another, also if the broker restarts.
    """

    QUALITY = SHARED

    def _options(self, asked: ObjectFilter, name: str | None = None) -> SubscribeOptions:  # noqa: ARG002
        return {
            "group": self._group(asked),
            "collection": self.name,
            "acknowledge": "manual",
            "start": "earliest",
        }

    def _group(self, asked: ObjectFilter) -> str:
        # Each condition has a group of its own: who wants other members must not take these.
        said = msgspec.json.encode([self.name, object_filter_to_structure(asked)])
        # Names of groups have no slashes.
        shown = self.name[1 : _MOST_SHOWN + 1].replace("/", ".")
        return f"{shown} {blake2b(said, digest_size=8).hexdigest()}"

    async def pull(self, condition: MemberCondition = None) -> T | None:
        """Take the next member that waits, so that nobody else gets it; None: none waits.

        Whoever cancels it takes none. If the connection is lost when it returns, another may get
        the member as well.
        """
        asked = self._wanted(condition)
        options = self._options(asked)
        options["window"] = 1
        consumer = self._bus.subscribe(asked, **options)
        with self._telling_who_watches():
            await consumer.start()
        async with consumer:
            try:
                message = await self._next_waiting(consumer)
            finally:
                self.refused += consumer.refused
                self.refusals.extend(consumer.refusals)
            if message is None:
                return None
            # Nothing is awaited from here on: a member that is acknowledged is returned, also if
            # somebody cancels this meanwhile.
            consumer.checked.ask_for_no_more()
            message.acknowledge()
            consumer.checked.leave()
            found: T = object_of(message)
            return found

    async def _next_waiting(self, consumer: ObjectConsumer) -> Message | None:
        """Return the next member; None once the broker has none, of all that it had at first."""
        now = asyncio.get_running_loop().time
        deadline, end, pending, looks = now() + _SECONDS_TO_CATCH_UP, 0, -1, 0
        while looks < _MOST_LOOKS:
            try:
                return await consumer.checked.next(_SECONDS_TO_ARRIVE)
            except TimeoutError:
                view = await self._bus.subscription(str(consumer.id))
            end = end or view.log_end
            if view.log_end and view.matched_to < end and now() < deadline:
                # A busy broker may still be looking for those that were added before.
                continue
            if not _may_come(view, consumer):
                return None
            looks = looks + 1 if view.pending == pending else 0
            pending = view.pending
        return None


def _may_come(view: SubscriptionView, consumer: ObjectConsumer) -> bool:
    own = sum(one.in_flight for one in view.members if one.id == consumer.checked.member)
    return view.pending > view.in_flight - own
