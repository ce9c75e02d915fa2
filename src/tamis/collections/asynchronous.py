"""Collections for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from tamis.client.bus import Bus, connect
from tamis.client.messages import Message
from tamis.client.object_consumer import carried_object
from tamis.client.options import SubscribeOptions
from tamis.collections.members import Distinct, MemberCondition, member_class, wanted
from tamis.collections.qualities import (
    BEST_EFFORT_SET,
    CERTIFIED,
    RELIABLE,
    RELIABLE_SET,
    Quality,
)
from tamis.collections.watching import Watch, logger
from tamis.errors import EventError, LimitError, OptionError
from tamis.events.values import brief
from tamis.filters import Mode
from tamis.filters.boolean import And
from tamis.objects import ObjectFilter, encode_object
from tamis.objects.collection_names import in_collection, is_pattern, levels_of
from tamis.objects.pushdown import pushed_down
from tamis.protocol.views import Receipt

T = TypeVar("T")


class DACollection(Generic[T]):
    """A collection that all share who give its name: `DASet[Trade]("/market/acme", bus)`.

    Without a bus it connects to a broker as `tamis.connect()` does, while it is used with
    `async with`.
    """

    QUALITY: ClassVar[Quality] = RELIABLE

    def __init__(self, name: str, bus: Bus | None = None) -> None:
        levels_of(name)
        self.name: Final = name
        self._is_own: Final = bus is None
        self._bus: Final = connect() if bus is None else _checked_bus(bus)
        self._next = 1
        self._pulled: Final = Distinct()

    @property
    def member_class(self) -> type:
        """Return the class of the members."""
        return member_class(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

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
        options: SubscribeOptions = {"policy": quality.policy, "collection": self.name}
        if name is not None:
            options |= {"durable": name, "acknowledge": "manual"}
        consumer = self._bus.subscribe(self._wanted(condition), **options)
        watch = Watch(consumer, callback, Distinct() if quality.is_distinct else None)
        await watch.start()
        return watch

    def _wanted(self, condition: MemberCondition) -> ObjectFilter:
        return wanted(self.member_class, condition)

    # --- present members -------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[T]:
        """Yield the present members, in the order in which they were added."""
        async for _, member in self._present(None, 1, Distinct()):
            yield member

    async def pull(self, condition: MemberCondition = None) -> T | None:
        """Return the next present member that was not pulled from here before; None: none."""
        async for message, member in self._present(condition, self._next, self._pulled):
            self._next = message.sequence + 1
            found: T = member
            return found
        return None

    async def _present(
        self, condition: MemberCondition, start: int, seen: Distinct
    ) -> AsyncIterator[tuple[Message, Any]]:
        asked = self._wanted(condition)
        filter_ = And.of((in_collection(self.name), pushed_down(asked)))
        async for message in self._bus.history(filter_, start=start, mode=Mode.SQL):
            try:
                member = carried_object(message)
            except (EventError, LimitError) as error:
                logger.warning("%r: event %d cannot be read: %s", self, message.sequence, error)
                continue
            if asked.matches(member) and (
                not self.QUALITY.is_distinct or seen.is_new(message.text)
            ):
                yield message, member


def _checked_bus(bus: object) -> Bus:
    if not isinstance(bus, Bus):
        raise OptionError("bus", f"is {brief(bus)}; it must be a bus for asyncio, or None")
    return bus


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
