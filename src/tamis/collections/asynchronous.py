"""What all collections for asyncio have in common."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from tamis.client.bus import Bus, connect
from tamis.client.messages import Message
from tamis.client.object_consumer import MOST_REFUSALS, asked_classes, carried_object
from tamis.client.options import SubscribeOptions
from tamis.client.reconnector import NAME_IS_TAKEN
from tamis.collections.members import (
    Distinct,
    MemberCondition,
    NamedCollection,
    PulledMembers,
    T,
    wanted,
)
from tamis.collections.watching import Watch, logger
from tamis.errors import EventError, LimitError, OptionError, RefusedError
from tamis.events.values import brief
from tamis.filters import Mode
from tamis.filters.boolean import And
from tamis.objects import ObjectFilter, encode_object
from tamis.objects.collection_names import in_collection, is_pattern
from tamis.objects.pushdown import pushed_down
from tamis.protocol.views import Receipt


class DACollection(NamedCollection[T]):
    """A collection that all share who give its name: `DASet[Trade]("/market/acme", bus)`.

    Without a bus it connects to a broker as `tamis.connect()` does, while it is used with
    `async with`.
    """

    def __init__(self, name: str, bus: Bus | None = None) -> None:
        super().__init__(name)
        self._is_own: Final = bus is None
        self._bus: Final = connect() if bus is None else _checked_bus(bus)
        self._pulled: Final = PulledMembers(self._wanted(None))
        self._distinct: Final = Distinct()
        self.refused = 0
        """How many present members could not be read, each time that it was tried."""
        self.refusals: Final = deque[str](maxlen=MOST_REFUSALS)
        """Why, the last ones."""

    async def __aenter__(self) -> Self:
        if self._is_own:
            await self._bus.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_own:
            await self._bus.close(drain=kind is None)

    # --- adding ----------------------------------------------------------------------------------

    async def add(self, member: T) -> Receipt:
        """Add a member, and return when it is on the broker's disk."""
        if is_pattern(self.name):
            raise OptionError(
                "name", f"is the pattern {self.name}: members are added to one collection"
            )
        cls = self.member_class
        if not isinstance(member, cls):
            raise EventError(f"{brief(member)} is not of the class {cls.__name__}, as members are")
        return await self._bus.publish(encode_object(member, self.name))

    # --- members to come -------------------------------------------------------------------------

    async def contains(
        self,
        condition: MemberCondition,
        callback: Callable[[T], object],
        *,
        name: str | None = None,
    ) -> Watch:
        """Call a function, asynchronous or not, with each member to come that is wanted.

        A certified collection keeps members under the `name` of whoever watches.
        """
        if not callable(callback):
            raise OptionError("callback", f"is {brief(callback)}; it must be a function")
        quality = self.QUALITY
        if quality.is_certified is (name is None):
            does = "needs a name" if quality.is_certified else "takes no name"
            raise OptionError("name", f"of a watch: {type(self).__name__} {does}")
        asked = self._wanted(condition)
        consumer = self._bus.subscribe(asked, **self._options(asked, name))
        watch = Watch(consumer, callback, Distinct() if quality.is_distinct else None)
        with self._telling_who_watches():
            await watch.start()
        return watch

    @contextmanager
    def _telling_who_watches(self) -> Iterator[None]:
        """Say of a collection what the bus says of its subscription, whose name nobody knows."""
        try:
            yield
        except RefusedError as error:
            if not str(error).startswith(NAME_IS_TAKEN):
                raise
            raise RefusedError(
                error.code,
                f"{self!r} is watched or pulled from through this bus already, under the same "
                "name or for the same members: cancel that watch first, or give each a bus of "
                "its own",
            ) from None

    def _options(self, asked: ObjectFilter, name: str | None) -> SubscribeOptions:  # noqa: ARG002 - queues do
        options: SubscribeOptions = {"overflow": self.QUALITY.overflow, "collection": self.name}
        if name is not None:
            options |= {"durable": name, "acknowledge": "manual"}
        return options

    def _wanted(self, condition: MemberCondition) -> ObjectFilter:
        return wanted(self.member_class, condition)

    # --- present members -------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[T]:
        """Yield the present members, in the order in which they were added."""
        seen = Distinct()
        async for message, member in self._present(self._wanted(None)):
            if self._is_new(member, message, seen):
                yield member

    async def pull(self, condition: MemberCondition = None) -> T | None:
        """Return the next present member that was not pulled from here before; None: none."""
        asked, pulled = self._wanted(condition), self._pulled
        async for message, member in self._present(asked, pulled.start(asked)):
            # Nothing is awaited from here on: others may look at the same member.
            if not pulled.is_taken(message.sequence) and self._is_new(
                member, message, self._distinct
            ):
                pulled.take(asked, message.sequence)
                found: T = member
                return found
        return None

    def _is_new(self, member: object, message: Message, seen: Distinct) -> bool:
        return not self.QUALITY.is_distinct or seen.is_new(member, message.text)

    async def _present(
        self, asked: ObjectFilter, start: int = 1
    ) -> AsyncIterator[tuple[Message, Any]]:
        classes = asked_classes(asked)
        filter_ = And.of((in_collection(self.name), pushed_down(asked)))
        async for message in self._bus.history(filter_, start=start, mode=Mode.SQL):
            try:
                member = carried_object(message, classes)
            except (EventError, LimitError) as error:
                self.refused += 1
                self.refusals.append(f"event {message.sequence}: {error}")
                logger.warning("%r: event %d cannot be read: %s", self, message.sequence, error)
                continue
            if asked.matches(member):
                yield message, member


def _checked_bus(bus: object) -> Bus:
    if not isinstance(bus, Bus):
        raise OptionError("bus", f"is {brief(bus)}; it must be a bus for asyncio, or None")
    return bus
