"""The synchronous bus: the same names as the asynchronous one, without `await`.

Its regular methods are generated (`sync_methods.py`). Here are those that need more: events cross
from the thread of the event loop to the caller's.
"""

from __future__ import annotations

import asyncio
import queue
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar, Unpack

from tamis.client.bus import Bus, connect
from tamis.client.consumer import Consumer, event_timeout
from tamis.client.data_source import SourceHandler
from tamis.client.environment import broker_address
from tamis.client.management import HistorySearch, read_history
from tamis.client.messages import (
    MAX_EVENTS_PER_FRAME,
    Message,
    NoAcknowledgements,
    Publishable,
    ReceivedEvent,
    check_several,
)
from tamis.client.option_checks import check_duration, check_integer, check_tls
from tamis.client.options import ClientOptions, ConnectOptions, SubscribeOptions
from tamis.client.query_results import Queryable
from tamis.client.sync_advertisements import SyncAdvertisement
from tamis.client.sync_methods import SyncConsumerProperties, SyncMethods
from tamis.client.sync_queries import SyncDataSource, SyncQueryResult
from tamis.errors import DisconnectedError
from tamis.filters import Filter, Mode
from tamis.protocol import Delivery
from tamis.protocol.management import MAX_NUMBER
from tamis.protocol.views import Receipt
from tamis.routing.aggregates import Aggregate
from tamis.units import Duration

T = TypeVar("T")
AnyFunction = TypeVar("AnyFunction", bound=Callable[["SyncMessage"], object])

# Fetched from the other thread together: each crossing costs more than an event.
_EVENTS_PER_FETCH: Final = 64


class LoopThread:
    """An event loop in its own thread, which runs coroutines for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tamis client", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Return whether it can still run coroutines."""
        return not self._loop.is_closed()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; Ctrl-C cancels it."""
        future = self.start(coroutine)
        try:
            return future.result()
        except CancelledError:
            raise DisconnectedError("the bus is closed") from None
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine."""
        if not self.is_running:
            coroutine.close()
            raise DisconnectedError("the bus is closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function in the loop soon; do nothing if the loop is closed."""
        if self.is_running:
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """Stop the loop and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


class SyncMessage(ReceivedEvent):
    """An event from a `SyncConsumer`."""

    __slots__ = ()

    def ack(self) -> None:
        """Acknowledge it, so that it is not sent again; acknowledgements go out in batches."""
        self.acknowledge()

    def nack(self, *, delay: Duration | None = None, reason: str = "") -> None:
        """Reject it; it is sent again after `delay`, or when the broker decides."""
        self.reject(delay, reason)


class _ConsumerSink:
    """Passes acknowledgements to a consumer, in the thread of the event loop."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge an event."""
        self._thread.soon(self._consumer.acknowledge, sequence)

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Reject an event."""
        self._thread.soon(self._consumer.reject, sequence, delay, reason)


class _MessageSink:
    """Passes an acknowledgement to the original message, in the thread of the event loop."""

    def __init__(self, thread: LoopThread, message: Message) -> None:
        self._thread = thread
        self._message = message

    def acknowledge(self, _: int) -> None:
        """Acknowledge the message."""
        self._thread.soon(self._message.acknowledge)

    def reject(self, _: int, delay: float | None, reason: str) -> None:
        """Reject the message."""
        self._thread.soon(self._message.reject, delay, reason)


class SyncConsumer(SyncConsumerProperties):
    """Events that match a filter: `for event in bus.subscribe("price < 5")`."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer
        self._sink = _ConsumerSink(thread, consumer)
        self._here: deque[Delivery] = deque()
        self._in_hand: list[SyncMessage] = []

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<", "<Sync", 1)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SyncMessage:
        message = self._next(None)
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout: Duration | None = None) -> SyncMessage:
        """Return the next event; raise `TimeoutError` if none comes in time."""
        message = self._next(timeout)
        if message is None:
            raise DisconnectedError("the subscription is closed")
        return message

    def take(self, limit: int, timeout: Duration | None = None) -> list[SyncMessage]:
        """Return events that have arrived, waiting for the first; none once it is closed.

        Raises `TimeoutError` if none comes in time.
        """
        check_integer("limit", limit, 1, MAX_NUMBER)
        return self._take(limit, timeout)

    def flush(self) -> None:
        """Wait until all acknowledgements and rejections so far are on the broker's disk.

        Raises `DisconnectedError` if the connection was lost before: the broker sends the events
        again, and this client acknowledges them again without showing them twice.
        """
        self._thread.call(self._consumer.flush())

    @property
    def is_closed(self) -> bool:
        """Return whether no more events will come."""
        # It may be closed while some of its events wait here.
        return self._consumer.is_closed and not self._here

    def _next(self, timeout: Duration | None) -> SyncMessage | None:
        messages = self._take(1, timeout)
        return messages[0] if messages else None

    def _take(self, limit: int, timeout: Duration | None) -> list[SyncMessage]:
        check_duration("timeout", timeout, may_be_zero=True)
        self._settle_in_hand()
        if not self._here:
            self._here.extend(self._thread.call(self._fetch(limit, timeout)))
        count = min(limit, len(self._here))
        messages = [SyncMessage(self._here.popleft(), self._sink) for _ in range(count)]
        if self._consumer.acknowledges_automatically:
            self._in_hand = messages
        return messages

    async def _fetch(self, limit: int, timeout: Duration | None) -> list[Delivery]:
        async with event_timeout(timeout):
            return await self._consumer.deliveries(max(limit, _EVENTS_PER_FETCH))

    def _settle_in_hand(self) -> None:
        for message in self._in_hand:
            message.ack()
        self._in_hand = []

    def close(self, *, delete: bool = False) -> None:
        """Stop receiving events.

        A durable subscription stays with the broker and collects events, unless you delete it.
        """
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


class _HandlerCall(NamedTuple):
    """A function for the thread of `run` to call."""

    function: Callable[[SyncMessage], object]
    message: SyncMessage
    answer: asyncio.Future[None]


class SyncBus(SyncMethods):
    """A connection to a broker that reconnects by itself; made by `tamis.connect_sync`.

    Its methods may be called from several threads.
    """

    def __init__(self, make: Callable[[], Bus]) -> None:
        self._make = make
        self._thread: LoopThread | None = None
        self._bus: Bus | None = None
        self._calls: queue.SimpleQueue[_HandlerCall | None] = queue.SimpleQueue()
        self._calling: int | None = None
        """The thread that calls functions, while it calls one."""
        self._closing = threading.Lock()

    def __repr__(self) -> str:
        return "<SyncBus, not open>" if self._bus is None else f"<Sync{repr(self._bus)[1:]}"

    # --- opening and closing ---------------------------------------------------------------------

    def open(self) -> Self:
        """Connect; `with` does this."""
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
        """Disconnect, after all publications and acknowledgements are on the broker's disk.

        Called from a function that `run` calls, it takes effect when that function returns.
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

    @property
    def _async_bus(self) -> Bus:
        return self._open[1]

    def _wait(self, ask: Callable[[Bus], Coroutine[Any, Any, T]]) -> T:
        thread, bus = self._open
        return thread.call(ask(bus))

    # --- publishing and subscribing --------------------------------------------------------------

    def publish_many(self, events: Iterable[Publishable]) -> Receipt:
        """Publish events in order, and return when all are on the broker's disk."""
        check_several(events)
        # Iterated in this thread, since they may come from a subscription of this bus.
        thread, bus = self._open
        remaining = iter(events)
        first, total = 0, Receipt(0)
        while some := [*islice(remaining, MAX_EVENTS_PER_FRAME)]:
            total += thread.call(bus._publish_from(first, some))  # noqa: SLF001 - its twin
            first += len(some)
        return total

    def subscribe(
        self,
        filter: str | Filter = "true",  # noqa: A002
        **options: Unpack[SubscribeOptions],
    ) -> SyncConsumer:
        """Subscribe to a filter, and return the events that match it."""
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
                self._calls.put(_HandlerCall(function, _copy(thread, message), answer))
                await answer

            async def register() -> None:
                bus.on(filter, **options)(hand_over)

            hand_over.__qualname__ = getattr(function, "__qualname__", repr(function))
            thread.call(register())
            return function

        return decorate

    def run(self) -> None:
        """Call the functions registered with `on`, in this thread, until the bus is closed."""
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

    def _answer(self, thread: LoopThread, call: _HandlerCall) -> None:
        self._calling = threading.get_ident()
        try:
            call.function(call.message)
        except Exception as error:
            thread.soon(_set_error, call.answer, error)
        else:
            thread.soon(_set_result, call.answer)
        finally:
            self._calling = None

    def advertise(
        self,
        filter: str | Filter,  # noqa: A002
        *,
        quench: bool = False,
        language: str = "tamis",
        on_wanted: Callable[[bool | None], object] | None = None,
    ) -> SyncAdvertisement:
        """Say what this client will publish; `on_wanted` is called in another thread."""
        thread, bus = self._open
        made = bus.advertise(filter, quench=quench, language=language, on_wanted=on_wanted)
        thread.call(made.start())
        return SyncAdvertisement(thread, made)

    def query(
        self,
        wanted: Queryable = "true",
        *,
        timeout: Duration = 30.0,
        limit: int | None = None,
        aggregate: str | Aggregate | None = None,
        language: str = "tamis",
    ) -> SyncQueryResult:
        """Return the rows of all sources that match: `for row in bus.query("price < 5")`."""
        thread, bus = self._open
        result = bus.query(
            wanted, timeout=timeout, limit=limit, aggregate=aggregate, language=language
        )
        return SyncQueryResult(thread, result)

    def serve(
        self,
        filter: str | Filter,  # noqa: A002
        handler: SourceHandler,
        *,
        name: str = "",
        many: bool = False,
        language: str = "tamis",
    ) -> SyncDataSource:
        """Answer queries with the rows that a function yields, in other threads."""
        thread, bus = self._open
        source = bus.serve(filter, handler, name=name, many=many, language=language)
        thread.call(source.start())
        return SyncDataSource(thread, source)

    def history(
        self,
        filter: str | Filter = "true",  # noqa: A002
        *,
        start: int | str | datetime | timedelta = "earliest",
        end: int | str | datetime | timedelta = "latest",
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> Iterator[SyncMessage]:
        """Yield the past events that match a filter, in order, from `start` until before `end`."""
        search = HistorySearch(read_history(filter, start, end, language, mode))
        while not search.is_over:
            for delivery in self._wait(search.next_page):
                yield SyncMessage(delivery, NoAcknowledgements())


def connect_sync(
    url: str | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    **options: Unpack[ConnectOptions],
) -> SyncBus:
    """Return a synchronous bus, for use with `with`; the options are those of `tamis.connect`."""
    # Mistakes show here, rather than when the bus opens.
    check_tls(tls)
    broker_address(url)
    ClientOptions.of(options)
    return SyncBus(partial(connect, url, tls=tls, **options))


def _copy(thread: LoopThread, message: Message) -> SyncMessage:
    return SyncMessage(message.delivery, _MessageSink(thread, message))


def _set_result(answer: asyncio.Future[None]) -> None:
    if not answer.done():
        answer.set_result(None)


def _set_error(answer: asyncio.Future[None], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
