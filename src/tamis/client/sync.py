"""The synchronous bus: the same names as the asynchronous one, without `await`.

Its regular methods are generated (`sync_methods.py`). Here are those that need more: events cross
from the thread of the event loop to the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, Unpack, cast, overload

from tamis.client.bus import Bus, connect
from tamis.client.consumer import Consumer
from tamis.client.data_source import SourceHandler
from tamis.client.environment import broker_address
from tamis.client.management import HistorySearch, read_history
from tamis.client.messages import (
    MAX_EVENTS_PER_FRAME,
    Message,
    NoAcknowledgements,
    Publishable,
    check_several,
)
from tamis.client.object_consumer import (
    FilterOverObjects,
)
from tamis.client.option_checks import check_tls
from tamis.client.options import (
    ClientOptions,
    ConnectOptions,
    SubscribeOptions,
    refuse_function,
)
from tamis.client.query_consumer import DocumentQuery, QueryConsumer
from tamis.client.query_results import Queryable
from tamis.client.sync_advertisements import SyncAdvertisement
from tamis.client.sync_consumers import (
    LoopThread,
    SyncConsumer,
    SyncMessage,
    SyncObjectConsumer,
    SyncQueryConsumer,
)
from tamis.client.sync_methods import SyncMethods
from tamis.client.sync_queries import SyncDataSource, SyncQueryResult
from tamis.errors import DisconnectedError, OptionError
from tamis.filters import Filter, Mode
from tamis.objects import ObjectFilter, StandIn
from tamis.protocol.views import Receipt
from tamis.routing.aggregates import Aggregate
from tamis.units import Duration

T = TypeVar("T")
AnyFunction = TypeVar("AnyFunction", bound=Callable[[Any], object])


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


class _HandlerCall(NamedTuple):
    """A function for the thread of `run` to call."""

    function: Callable[[Any], object]
    given: object
    answer: asyncio.Future[None]
    task: asyncio.Task[Any] | None
    """The task that hands it over, and waits for the answer."""


class SyncBus(SyncMethods):
    """A connection to a broker that reconnects by itself; made by `tamis.connect_sync`.

    Its methods may be called from several threads.
    """

    def __init__(self, make: Callable[[], Bus]) -> None:
        if not callable(make):
            raise OptionError("a SyncBus", f"is made by tamis.connect_sync({make!r:.80})")
        self._make = make
        self._thread: LoopThread | None = None
        self._bus: Bus | None = None
        self._calls: queue.SimpleQueue[_HandlerCall | None] = queue.SimpleQueue()
        self._calling: int | None = None
        """The thread that calls functions, while it calls one."""
        self._runners: set[int] = set()
        """The threads that call functions, or will once they are done with one."""
        self._is_closing = False
        self._is_leaving = False
        """Whether nobody will call a function again."""
        self._closing = threading.Lock()

    def __repr__(self) -> str:
        return "<SyncBus, not open>" if self._bus is None else f"<Sync{repr(self._bus)[1:]}"

    # --- opening and closing ---------------------------------------------------------------------

    def open(self) -> Self:
        """Connect; `with` does this."""
        self._calls, self._is_closing, self._is_leaving = queue.SimpleQueue(), False, False
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
            self._is_closing = True
            if not self._runners:
                self._leave_calls(self._thread)
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

    def call_async(self, ask: Callable[[Bus], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with the asynchronous bus, in its thread, and return its result."""
        return self._wait(ask)

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

    @overload
    def subscribe(
        self,
        filter: str | Filter = "true",
        **options: Unpack[SubscribeOptions],
    ) -> SyncConsumer: ...

    @overload
    def subscribe(
        self,
        filter: FilterOverObjects,
        **options: Unpack[SubscribeOptions],
    ) -> SyncObjectConsumer: ...

    @overload
    def subscribe(
        self,
        filter: DocumentQuery,
        **options: Unpack[SubscribeOptions],
    ) -> SyncQueryConsumer: ...

    def subscribe(
        self,
        filter: str | Filter | FilterOverObjects | DocumentQuery = "true",  # noqa: A002
        **options: Unpack[SubscribeOptions],
    ) -> SyncConsumer | SyncObjectConsumer:
        """Subscribe to a filter, and return the events, or objects, that match it."""
        thread, bus = self._open
        if isinstance(filter, ObjectFilter | StandIn):
            objects = bus.subscribe(filter, **options)
            thread.call(objects.start())
            return SyncObjectConsumer(thread, objects)
        consumer = cast("Consumer", bus.subscribe(filter, **options))
        thread.call(consumer.start())
        if isinstance(consumer, QueryConsumer):
            return SyncQueryConsumer(thread, consumer)
        return SyncConsumer(thread, consumer)

    def on(
        self,
        filter: str | Filter | FilterOverObjects | DocumentQuery = "true",  # noqa: A002
        **options: Unpack[SubscribeOptions],
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Call the decorated function with every event that matches, while `run` runs."""
        refuse_function(filter)
        thread, bus = self._open

        def decorate(function: AnyFunction) -> AnyFunction:
            async def hand_over(found: object) -> None:
                answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                given = _copy(thread, found) if isinstance(found, Message) else found
                task = asyncio.current_task()
                if not self._is_leaving:
                    self._calls.put(_HandlerCall(function, given, answer, task))
                # Perhaps nobody has looked since.
                if self._is_leaving and task is not None:
                    task.cancel()
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
        me, calls = threading.get_ident(), self._calls
        self._runners.add(me)
        try:
            over = thread.start(bus.run())
            # One for each thread that runs; whoever cancels it has been told already.
            over.add_done_callback(lambda over: None if over.cancelled() else calls.put(None))
            try:
                while (call := calls.get()) is not None:
                    self._answer(thread, call)
                if not over.done():
                    self._is_closing = True
                    self._leave_calls(thread)
                    self.close()
            finally:
                over.cancel()
        finally:
            self._runners.discard(me)
            if self._is_closing and not self._runners:
                # Somebody closes the bus, and waits for functions.
                self._leave_calls(thread)
        over.result()

    def _answer(self, thread: LoopThread, call: _HandlerCall) -> None:
        self._calling = threading.get_ident()
        try:
            call.function(call.given)
        except (Exception, asyncio.CancelledError) as error:
            thread.soon(_set_error, call.answer, error)
        except BaseException:
            # The program ends, or `run` is called again.
            self._calls.put(call)
            raise
        else:
            thread.soon(_set_result, call.answer)
        finally:
            self._calling = None

    def _leave_calls(self, thread: LoopThread) -> None:
        """Leave events to the broker that nobody will call a function with: closing waits for them.

        It sends them again, if their subscription is durable.
        """
        self._is_leaving = True
        others = 0
        with contextlib.suppress(queue.Empty):
            while True:
                call = self._calls.get_nowait()
                if call is None:
                    others += 1
                elif call.task is not None:
                    thread.soon(call.task.cancel)
        for _ in range(others):
            # Each tells a thread that there is nothing more to come.
            self._calls.put(None)

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


def _set_error(answer: asyncio.Future[None], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
