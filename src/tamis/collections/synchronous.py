"""What all collections without asyncio have in common: functions are called in other threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from tamis.client.bus import Bus
from tamis.client.sync import SyncBus, connect_sync
from tamis.collections.asynchronous import DACollection
from tamis.collections.members import MemberCondition, NamedCollection, T
from tamis.collections.watching import WAITS_FOR_ITSELF, Watch
from tamis.errors import OptionError
from tamis.events.values import brief
from tamis.protocol.views import Receipt

_MEMBERS_PER_FETCH: Final = 64
_CALLS: Final[ContextVar[object]] = ContextVar("tamis calls", default=None)
"""The watch whose function this thread is in: to wait for its end there would take forever."""


class SyncWatch:
    """Members of a collection that come from now on; made by `contains`."""

    def __init__(self, bus: SyncBus, watch: Watch, calls: object) -> None:
        self._bus: Final = bus
        self._watch: Final = watch
        self._calls: Final = calls

    @property
    def name(self) -> str | None:
        """Return the name under which the broker keeps members, None if it keeps none."""
        return self._watch.name

    @property
    def missed(self) -> int:
        """Return how many members are known to be missing."""
        return self._watch.missed

    @property
    def refused(self) -> int:
        """Return how many members could not be read."""
        return self._watch.refused

    @property
    def refusals(self) -> list[str]:
        """Return why the last ones of these could not be read."""
        return self._watch.refusals

    @property
    def is_over(self) -> bool:
        """Return whether no more members will come."""
        return self._watch.is_over

    def __repr__(self) -> str:
        return f"<Sync{repr(self._watch)[1:]}"

    def cancel(self, *, forget: bool = False) -> None:
        """Call the function no more, once a call that is under way has returned.

        What is kept for this name, or for all who share a queue, stays unless you `forget` it.
        The function itself may cancel, and is not waited for.
        """
        if _CALLS.get() is self._calls:
            self._bus.call_async(lambda _: self._watch.cancel_after_call(forget=forget))
            return
        self._bus.call_async(lambda _: self._watch.cancel(forget=forget))

    def wait(self) -> None:
        """Wait until it is over; raise the error that ended it, if one did."""
        if _CALLS.get() is self._calls:
            raise OptionError("wait", WAITS_FOR_ITSELF)
        self._bus.call_async(lambda _: self._watch.wait())


class SyncDACollection(NamedCollection[T]):
    """A collection that all share who give its name: `SyncDASet[Trade]("/market/acme", bus)`.

    Without a bus it connects to a broker as `tamis.connect_sync()` does, while it is used with
    `with`.
    """

    KIND: ClassVar[type[DACollection[Any]]] = DACollection

    def __init__(self, name: str, bus: SyncBus | None = None) -> None:
        super().__init__(name)
        if not isinstance(bus, SyncBus | None):
            raise OptionError("bus", f"is {brief(bus)}; it must be a synchronous bus, or None")
        self._is_own: Final = bus is None
        self._bus: Final = connect_sync() if bus is None else bus
        self._made: DACollection[T] | None = None

    def __enter__(self) -> Self:
        if self._is_own:
            self._bus.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_own:
            self._bus.close(drain=kind is None)

    def _in(self, bus: Bus) -> DACollection[T]:
        if self._made is None:
            # The class of the members is known only after `__init__`.
            kind: Any = self.KIND
            self._made = kind[self.member_class](self.name, bus)
        return self._made

    @property
    def refused(self) -> int:
        """Return how many present members could not be read, each time that it was tried."""
        return 0 if self._made is None else self._made.refused

    @property
    def refusals(self) -> list[str]:
        """Return why the last ones of these could not be read."""
        return [] if self._made is None else [*self._made.refusals]

    def add(self, member: T) -> Receipt:
        """Add a member, and return when it is on the broker's disk."""
        return self._bus.call_async(lambda bus: self._in(bus).add(member))

    def contains(
        self,
        condition: MemberCondition,
        callback: Callable[[T], object],
        *,
        name: str | None = None,
    ) -> SyncWatch:
        """Call a function, in another thread, with each member to come that is wanted.

        A certified collection keeps members under the `name` of whoever watches.
        """
        if not callable(callback):
            raise OptionError("callback", f"is {brief(callback)}; it must be a function")

        calls = object()

        def call(member: T) -> None:
            # In a context of its own, as every thread of asyncio's has.
            _CALLS.set(calls)
            try:
                callback(member)
            except SystemExit as error:
                # In a thread it would end the event loop, and so the bus of all others.
                raise RuntimeError(f"the function called sys.exit({error.code!r})") from error

        async def in_thread(member: T) -> None:
            await asyncio.to_thread(call, member)

        watch = self._bus.call_async(
            lambda bus: self._in(bus).contains(condition, in_thread, name=name)
        )
        return SyncWatch(self._bus, watch, calls)

    def __iter__(self) -> Iterator[T]:
        members = self._bus.call_async(self._iterator)
        while some := self._bus.call_async(lambda _: _next_of(members)):
            yield from some

    async def _iterator(self, bus: Bus) -> AsyncIterator[T]:
        return aiter(self._in(bus))

    def pull(self, condition: MemberCondition = None) -> T | None:
        """Return the next present member that was not pulled from here before; None: none."""
        return self._bus.call_async(lambda bus: self._in(bus).pull(condition))


async def _next_of(members: AsyncIterator[T]) -> list[T]:
    some: list[T] = []
    async for member in members:
        some.append(member)
        if len(some) == _MEMBERS_PER_FETCH:
            break
    return some
