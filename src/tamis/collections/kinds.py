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

_MOST_SHOWN: Final = 150
"""Characters of a collection's name in that of a group, which may have 200."""
_SECONDS_TO_ARRIVE: Final = 0.05
_SECONDS_TO_PULL: Final = 2.0
"""A member that was rejected may wait much longer before it comes again."""


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
        """Take the next member that waits, so that nobody else gets it; None: none waits."""
        asked = self._wanted(condition)
        options = self._options(asked)
        options["window"] = 1
        async with self._bus.subscribe(asked, **options) as consumer:
            message = await self._next_waiting(consumer)
            if message is None:
                return None
            consumer.checked.ask_for_no_more()
            await message.ack()
            await consumer.flush()
            found: T = object_of(message)
            return found

    async def _next_waiting(self, consumer: ObjectConsumer) -> Message | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SECONDS_TO_PULL
        while True:
            try:
                return await consumer.checked.next(_SECONDS_TO_ARRIVE)
            except TimeoutError:
                if loop.time() > deadline or not await self._may_come(consumer):
                    return None

    async def _may_come(self, consumer: ObjectConsumer) -> bool:
        view = await self._bus.subscription(str(consumer.id))
        own = sum(one.in_flight for one in view.members if one.id == consumer.checked.member)
        return view.pending > view.in_flight - own
