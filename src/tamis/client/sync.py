"""The synchronous twin: the same names, without `await`."""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, Unpack

from tamis.client.bus import Bus
from tamis.client.connecting import connect
from tamis.client.consumer import Consumer
from tamis.client.loop_thread import LoopThread
from tamis.client.management import PastSearch
from tamis.client.messages import (
    MAX_EVENTS_PER_FRAME,
    Message,
    NoSettler,
    Publishable,
    ReceivedEvent,
)
from tamis.client.options import ConnectOptions, Lifetime, SubscribeOptions, position
from tamis.errors import DisconnectedError
from tamis.filters import Filter, Mode
from tamis.protocol import Delivery
from tamis.protocol.views import DeadLetterView, Receipt, SubscriptionView, Trial

T = TypeVar("T")
AnyFunction = TypeVar("AnyFunction", bound=Callable[["SyncMessage"], object])

# Fetched from the other thread together, since each time costs more than an event does.
_AT_ONCE: Final = 64


class SyncMessage(ReceivedEvent):
    """An event that a subscription of `tamis.connect_sync` gives."""

    __slots__ = ()

    def ack(self) -> None:
        """Let it not come again; acknowledgements are sent together, a moment later."""
        self.acknowledge()

    def nack(self, *, delay: float | None = None, reason: str = "") -> None:
        """Let it come again: after `delay` seconds, or when the broker thinks fit."""
        self.reject(delay, reason)


class _LoopSettler:
    """Brings decisions about events to the thread of the loop."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    def acknowledge(self, sequence: int) -> None:
        """Let an event not come again."""
        self._thread.soon(self._consumer.acknowledge, sequence)

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Let an event come again."""
        self._thread.soon(self._consumer.reject, sequence, delay, reason)


class _MessageSettler:
    """Brings a decision about one event, that a function was called with, to its message."""

    def __init__(self, thread: LoopThread, message: Message) -> None:
        self._thread = thread
        self._message = message

    def acknowledge(self, _: int) -> None:
        """Let it not come again."""
        self._thread.soon(self._message.acknowledge)

    def reject(self, _: int, delay: float | None, reason: str) -> None:
        """Let it come again."""
        self._thread.soon(self._message.reject, delay, reason)


class SyncConsumer:
    """Events that match a filter: `for event in bus.subscribe("price < 5")`."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer
        self._settler = _LoopSettler(thread, consumer)
        self._here: deque[Delivery] = deque()
        self._in_hand: SyncMessage | None = None

    @property
    def id(self) -> str | None:
        """Return the broker's name for it: that of a durable one is yours."""
        return self._consumer.id

    @property
    def filter(self) -> str:
        """Return the filter."""
        return self._consumer.filter

    @property
    def expires_at(self) -> float | None:
        """Return when it ends unless it is renewed, in seconds since 1970."""
        return self._consumer.expires_at

    @property
    def missed(self) -> int:
        """Return how many events did not come, as far as anybody knows."""
        return self._consumer.missed

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<", "<Sync", 1)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SyncMessage:
        message = self._next(None)
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout: float | None = None) -> SyncMessage:
        """Return the next event; raise `TimeoutError` if none comes in time."""
        message = self._next(timeout)
        if message is None:
            raise DisconnectedError("the subscription is closed")
        return message

    def _next(self, timeout: float | None) -> SyncMessage | None:
        self._settle_in_hand()
        if not self._here:
            self._here.extend(self._thread.call(self._fetch(timeout)))
        if not self._here:
            return None
        message = SyncMessage(self._here.popleft(), self._settler)
        if self._consumer.acknowledges_automatically:
            self._in_hand = message
        return message

    async def _fetch(self, timeout: float | None) -> list[Delivery]:
        async with asyncio.timeout(timeout):
            return await self._consumer.deliveries(_AT_ONCE)

    def _settle_in_hand(self) -> None:
        if self._in_hand is not None:
            self._in_hand.ack()
            self._in_hand = None

    def close(self, *, delete: bool = False) -> None:
        """End it. A durable one stays with the broker and gathers events, unless it is deleted."""
        self._here.clear()
        self._thread.call(self._consumer.close(delete=delete))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._settle_in_hand()
        self.close()


class _Call(NamedTuple):
    """A function that is to be called in the thread of `run`."""

    function: Callable[[SyncMessage], object]
    message: SyncMessage
    answer: asyncio.Future[None]


class SyncBus:
    """A connection to a broker that comes back by itself; made by `tamis.connect_sync`.

    All of it can be used from several threads.
    """

    def __init__(self, make: Callable[[], Bus]) -> None:
        self._make = make
        self._thread: LoopThread | None = None
        self._bus: Bus | None = None
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._calling: int | None = None
        """The thread in which functions are called, while one is."""
        self._closing = threading.Lock()

    def __repr__(self) -> str:
        return "<SyncBus, not open>" if self._bus is None else f"<Sync{repr(self._bus)[1:]}"

    # --- beginning and end -----------------------------------------------------------------------

    def open(self) -> Self:
        """Connect; `with` does it."""
        self._thread = LoopThread()
        try:
            self._bus = self._thread.call(self._opened())
        except BaseException:
            self._thread.close()
            raise
        return self

    async def _opened(self) -> Bus:
        return await self._make().open()

    def close(self, *, drain: bool = True) -> None:
        """Disconnect, once all publications are acknowledged and acknowledgements sent.

        In a function that `run` calls, this happens when the function has returned.
        """
        if self._calling == threading.get_ident():
            self._calls.put(None)
            return
        with self._closing:
            if self._thread is None or self._bus is None or not self._thread.is_running:
                return
            try:
                self._thread.call(self._bus.close(drain=drain))
            finally:
                self._thread.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(drain=kind is None)

    @property
    def _open(self) -> tuple[LoopThread, Bus]:
        if self._thread is None or self._bus is None:
            raise DisconnectedError("the bus is not open; use `with`")
        return self._thread, self._bus

    def _call(self, ask: Callable[[Bus], Coroutine[Any, Any, T]]) -> T:
        thread, bus = self._open
        return thread.call(ask(bus))

    # --- what it is ------------------------------------------------------------------------------

    @property
    def publisher(self) -> str:
        """Return the name that publications go under."""
        return self._open[1].publisher

    @property
    def sequence(self) -> int:
        """Return the number that the next event will have."""
        return self._open[1].sequence

    @property
    def principal(self) -> str:
        """Return who the broker takes us for."""
        return self._open[1].principal

    @property
    def is_connected(self) -> bool:
        """Tell whether there is a connection at the moment."""
        return self._open[1].is_connected

    # --- publishing and subscribing --------------------------------------------------------------

    def publish(self, event: Publishable, *, sequence: int | None = None) -> Receipt:
        """Publish an event, and return when it is on the broker's disk."""
        return self._call(lambda bus: bus.publish(event, sequence=sequence))

    def publish_many(self, events: Iterable[Publishable]) -> Receipt:
        """Publish events in order, and return when all are on the broker's disk."""
        # They may come from a subscription of this very bus, so they are asked for in this thread.
        thread, bus = self._open
        remaining = iter(events)
        total = Receipt(0)
        while some := [*islice(remaining, MAX_EVENTS_PER_FRAME)]:
            total += thread.call(bus.publish_many(some))
        return total

    def flush(self) -> None:
        """Wait until all publications are acknowledged and the broker has our acknowledgements."""
        self._call(lambda bus: bus.flush())

    def subscribe(
        self,
        filter: str | Filter = "true",  # noqa: A002
        **options: Unpack[SubscribeOptions],
    ) -> SyncConsumer:
        """Return the events that match a filter; the subscription is in force from now on."""
        thread, bus = self._open
        consumer = bus.subscribe(filter, **options)
        thread.call(consumer.start())
        return SyncConsumer(thread, consumer)

    def on(
        self,
        filter: str | Filter = "true",  # noqa: A002
        **options: Unpack[SubscribeOptions],
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Call the decorated function with every event that matches, while `run` runs."""
        thread, bus = self._open

        def decorate(function: AnyFunction) -> AnyFunction:
            async def hand_over(message: Message) -> None:
                answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._calls.put(_Call(function, _copy(thread, message), answer))
                await answer

            async def register() -> None:
                bus.on(filter, **options)(hand_over)

            hand_over.__qualname__ = getattr(function, "__qualname__", repr(function))
            thread.call(register())
            return function

        return decorate

    def run(self) -> None:
        """Call functions with events, in this thread, until the bus is closed or Ctrl-C."""
        thread, bus = self._open
        over = thread.start(bus.run())
        over.add_done_callback(lambda _: self._calls.put(None))
        try:
            while (call := self._calls.get()) is not None:
                self._answer(thread, call)
            if not over.done():
                self.close()
        finally:
            over.cancel()
        over.result()

    def _answer(self, thread: LoopThread, call: _Call) -> None:
        self._calling = threading.get_ident()
        try:
            call.function(call.message)
        except Exception as error:
            thread.soon(_set_error, call.answer, error)
        else:
            thread.soon(_set_result, call.answer)
        finally:
            self._calling = None

    # --- managing --------------------------------------------------------------------------------

    def subscriptions(self) -> list[SubscriptionView]:
        """Return your subscriptions, connected or not."""
        return self._call(lambda bus: bus.subscriptions())

    def subscription(self, id: str) -> SubscriptionView:  # noqa: A002
        """Return one of your subscriptions; `RefusedError` if there is none."""
        return self._call(lambda bus: bus.subscription(id))

    def renew(self, id: str, lifetime: Lifetime) -> SubscriptionView:  # noqa: A002
        """Let a subscription live for so long from now on; None: for ever."""
        return self._call(lambda bus: bus.renew(id, lifetime))

    def delete(self, id: str) -> None:  # noqa: A002
        """Delete a subscription with all that waits for it."""
        self._call(lambda bus: bus.delete(id))

    def dead_letters(
        self,
        id: str,  # noqa: A002
        *,
        after: int = 0,
        limit: int = 100,
    ) -> list[DeadLetterView]:
        """Return events of a subscription that were given up, from after a sequence on."""
        return self._call(lambda bus: bus.dead_letters(id, after=after, limit=limit))

    def requeue(self, id: str, sequences: Iterable[int]) -> int:  # noqa: A002
        """Let dead letters come again, as if never sent; return how many."""
        return self._call(lambda bus: bus.requeue(id, sequences))

    def delete_dead_letters(self, id: str, sequences: Iterable[int]) -> int:  # noqa: A002
        """Delete dead letters; return how many there were."""
        return self._call(lambda bus: bus.delete_dead_letters(id, sequences))

    def history(
        self,
        filter: str | Filter = "true",  # noqa: A002
        *,
        start: int | str | datetime = "earliest",
        end: int | str | datetime = "latest",
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> Iterator[SyncMessage]:
        """Give the events of the past that match a filter, in order, up to but without `end`."""
        search = PastSearch(str(filter), position(start), position(end), language, mode)
        while not search.is_over:
            for delivery in self._call(lambda bus: search.step(bus.management)):
                yield SyncMessage(delivery, NoSettler())

    def try_filter(
        self,
        filter: str | Filter,  # noqa: A002
        events: Iterable[Publishable],
        *,
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> list[Trial]:
        """Tell which sample events a filter matches, without subscribing."""
        return self._call(lambda bus: bus.try_filter(filter, events, language=language, mode=mode))

    def explain(
        self,
        event: Publishable,
        *,
        id: str | None = None,  # noqa: A002
        filter: str | Filter | None = None,  # noqa: A002
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> str:
        """Say why a sample event matches a subscription, or a filter, or why not."""
        return self._call(
            lambda bus: bus.explain(event, id=id, filter=filter, language=language, mode=mode)
        )

    def status(self) -> dict[str, Any]:
        """Return a few numbers that tell how the broker does."""
        return self._call(lambda bus: bus.status())


def connect_sync(
    url: str | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    **options: Unpack[ConnectOptions],
) -> SyncBus:
    """Return a bus, to be used with `with`; the options are those of `tamis.connect`."""
    return SyncBus(partial(connect, url, tls=tls, **options))


def _copy(thread: LoopThread, message: Message) -> SyncMessage:
    return SyncMessage(message.delivery, _MessageSettler(thread, message))


def _set_result(answer: asyncio.Future[None]) -> None:
    if not answer.done():
        answer.set_result(None)


def _set_error(answer: asyncio.Future[None], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
