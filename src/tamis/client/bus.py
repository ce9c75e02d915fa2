"""The bus: publish, subscribe, and manage subscriptions; made by `tamis.connect`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Never, Self, TypeVar, Unpack, cast, overload

from tamis.client import option_checks as checks
from tamis.client.advertisement import Advertisement, AdvertisementOptions
from tamis.client.consumer import Consumer, HandlerTask
from tamis.client.data_source import DataSource, SourceHandler, SourceOptions
from tamis.client.environment import broker_address, environment_token
from tamis.client.management import Management, ManagingBus
from tamis.client.messages import (
    EncodedEvent,
    EventGroup,
    Message,
    Publishable,
    check_several,
    check_size,
    encode_event,
    in_frames,
    texts_of,
)
from tamis.client.object_consumer import (
    FilterOverObjects,
    ObjectConsumer,
    ObjectRequest,
    object_of,
)
from tamis.client.option_checks import check_integer, check_tls
from tamis.client.options import (
    ClientOptions,
    ConnectOptions,
    ConsumerOptions,
    SubscribeOptions,
    refuse_function,
)
from tamis.client.query_consumer import (
    DocumentQuery,
    DocumentRequest,
    QueryConsumer,
    is_document_query,
)
from tamis.client.query_results import Queryable, QueryOptions, QueryResult
from tamis.client.queues import Outbox
from tamis.client.reconnector import Reconnector, time_to_connect
from tamis.client.transport import Dial, websocket_dial
from tamis.errors import DisconnectedError, RefusedError
from tamis.filters import Filter
from tamis.objects import ObjectFilter, StandIn
from tamis.protocol.management import MAX_NUMBER
from tamis.protocol.views import Receipt
from tamis.routing.aggregates import Aggregate
from tamis.units import Duration, count

_PUBLISH_WINDOW_BYTES: Final = 16 * 1024**2
# Time to send acknowledgements when closing after an error.
_SECONDS_TO_CLOSE: Final = 2.0

AnyHandler = TypeVar("AnyHandler", bound=Callable[[Any], object])


class Bus(ManagingBus):
    """A connection to a broker that reconnects by itself; made by `tamis.connect`."""

    def __init__(
        self,
        name: str,
        dial: Dial,
        make_management: Callable[[], Management],
        options: ClientOptions,
    ) -> None:
        super().__init__(make_management)
        self._name = name
        self._options = options
        self._publisher = options.publisher or secrets.token_hex(8)
        self._sequence = 1 if options.sequence is None else options.sequence
        self._outbox = Outbox(
            self._publisher,
            options.publish_window,
            _PUBLISH_WINDOW_BYTES,
            # Under a name that was used before, numbers may have been left out.
            first=1 if options.publisher is None else None,
            is_patient=options.patient,
        )
        self._reconnector = Reconnector(
            dial,
            options.token,
            self._outbox,
            timeout=options.timeout,
            reconnects=options.reconnect,
        )
        self._turn = asyncio.Lock()
        self._sending = 0
        """How many wait for their turn, or for room in the outbox."""
        self._handlers: list[HandlerTask] = []
        self._is_open = False
        self._closed: asyncio.Future[None] | None = None

    # --- properties ------------------------------------------------------------------------------

    @property
    def publisher(self) -> str:
        """Return the name under which events are published."""
        return self._publisher

    @property
    def sequence(self) -> int:
        """Return the number of the next event."""
        return self._sequence

    @property
    def principal(self) -> str:
        """Return the name under which the broker knows this client."""
        return self._reconnector.welcome.principal

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection now."""
        return self._reconnector.is_connected

    def __repr__(self) -> str:
        consumers = len(self._reconnector.consumers)
        return (
            f"<{type(self).__name__} {self._name}, {self._state()}, "
            f"{count(consumers, 'subscription')}, "
            f"{self._outbox.events} unacknowledged>"
        )

    def _state(self) -> str:
        if self._reconnector.failure is not None:
            return "closed" if self._is_closing else f"failed ({self._reconnector.failure})"
        if not self._is_open:
            return "not open"
        return "connected" if self.is_connected else "connecting"

    @property
    def _is_closing(self) -> bool:
        return self._closed is not None

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect; `async with` does this."""
        await self._reconnector.open()
        self._keeps_alive = True
        self._is_open = True
        for handler in self._handlers:
            handler.start()
        return self

    async def close(self, *, drain: bool = True) -> None:
        """Disconnect, after all publications and acknowledgements are on the broker's disk.

        Without `drain`, only send acknowledgements, and only if that is quick.
        """
        mine = asyncio.current_task()
        tasks = [handler.start() for handler in self._handlers] if self._is_open else []
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            try:
                await self._finish([task for task in tasks if task is not mine], drain=drain)
            finally:
                await self._reconnector.close()
                await self._stop_managing()
                self._closed.set_result(None)
        elif mine not in tasks:
            await asyncio.shield(self._closed)

    async def _finish(self, tasks: list[asyncio.Task[None]], *, drain: bool) -> None:
        for consumer in self._reconnector.consumers:
            consumer.stop()
        limit = self._options.timeout if drain else _SECONDS_TO_CLOSE
        try:
            # Callers that still wait for a receipt get the error there.
            with contextlib.suppress(TimeoutError, RefusedError):
                async with asyncio.timeout(limit):
                    if drain and tasks:
                        await asyncio.wait(tasks)
                    await self._reconnector.flush(publications=drain)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    if not TYPE_CHECKING:
        # Type checkers know better.
        def __enter__(self) -> Never:
            raise TypeError(
                'this bus is for asyncio: write "async with", or use connect_sync (open_bus_sync) '
                'in place of connect (open_bus) for "with"'
            )

        def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(drain=kind is None)

    async def flush(self) -> None:
        """Wait until all publications and all acknowledgements are on the broker's disk.

        Raises `DisconnectedError` if the connection was lost before the acknowledgements were: the
        broker then sends their events again.
        """
        self._check()
        async with self._in_time("everything"):
            await self._reconnector.flush()
        self._reconnector.check()

    # --- publishing ------------------------------------------------------------------------------

    async def publish(self, event: Publishable, *, sequence: int | None = None) -> Receipt:
        """Publish an event, and return when it is on the broker's disk.

        If the connection is lost, wait for the next one and send the event again; the broker
        stores it once. Events are numbered consecutively; `sequence` skips to a higher number.
        """
        if sequence is not None:
            check_integer("sequence", sequence, 1, MAX_NUMBER)
        encoded = encode_event(event)
        self._check()
        check_size(encoded, self._reconnector.welcome)
        if self._reconnector.advertisement_tracker.drops(encoded):
            return Receipt(0, quenched=1)
        # At once if it can be; only then the time begins that the answer may take.
        done = None if self._sending else self._send_now([encoded], sequence)
        async with self._in_time("the event"):
            return await (done or await self._send([encoded], sequence))

    async def publish_many(
        self, events: Iterable[Publishable] | AsyncIterable[Publishable]
    ) -> Receipt:
        """Publish events in order, and return when all are on the broker's disk.

        They are sent in groups of up to 500, each stored entirely or not at all. If one is refused,
        the error knows its `index`; groups before its own are stored, and some after it may be.
        """
        check_several(events)
        return await self._publish_from(0, events)

    async def _publish_from(
        self, first: int, events: Iterable[Publishable] | AsyncIterable[Publishable]
    ) -> Receipt:
        """Publish a part of a batch; `first` is the index of its first event."""
        self._check()
        waiting: deque[tuple[EventGroup, asyncio.Future[Receipt]]] = deque()
        total, quenched = Receipt(0), 0

        def leaves_out(event: EncodedEvent) -> bool:
            nonlocal quenched
            is_unwanted = self._reconnector.advertisement_tracker.drops(event)
            quenched += is_unwanted
            return is_unwanted

        try:
            async for group in in_frames(
                events, self._reconnector.welcome, first, leaves_out=leaves_out
            ):
                async with self._in_time("the events"):
                    waiting.append((group, await self._send(group.events)))
                while waiting and waiting[0][1].done():
                    total += await self._receipt(*waiting.popleft())
            while waiting:
                total += await self._receipt(*waiting[0])
                waiting.popleft()
        finally:
            for _, rest in waiting:
                # They may or may not be stored; the caller no longer waits for the answer.
                rest.cancel()
        return total + Receipt(0, quenched=quenched)

    async def _receipt(self, group: EventGroup, receipt: asyncio.Future[Receipt]) -> Receipt:
        try:
            async with self._in_time("the events"):
                return await receipt
        except RefusedError as error:
            group.locate(error)
            raise

    async def _send(
        self, events: list[EncodedEvent], sequence: int | None = None
    ) -> asyncio.Future[Receipt]:
        """Put events into the outbox once there is room; return a future of their receipt."""
        self._sending += 1
        try:
            # First come, first served: events keep their order.
            async with self._turn:
                self._check()
                while (done := self._send_now(events, sequence)) is None:
                    self._outbox.has_changed.clear()
                    await self._outbox.has_changed.wait()
                    self._check()
        finally:
            self._sending -= 1
        return done

    def _send_now(
        self, events: list[EncodedEvent], sequence: int | None
    ) -> asyncio.Future[Receipt] | None:
        """Put events into the outbox if there is room; only while nobody waits for it."""
        if not self._outbox.has_room(len(events), sum(map(len, texts_of(events)))):
            return None
        if sequence is not None:
            self._skip_to(sequence)
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._sequence = self._outbox.add(self._sequence, events, done).end
        connection = self._reconnector.connection
        if connection is not None:
            connection.wake()
        return done

    def advertise(
        self,
        filter: str | Filter,  # noqa: A002
        *,
        quench: bool = False,
        language: str = "tamis",
        on_wanted: Callable[[bool | None], object] | None = None,
    ) -> Advertisement:
        """Say what this client will publish: `await bus.advertise("symbol = 'ACME'")`.

        Brokers that require advertisements forward filters only towards those that intersect them.
        The result knows whether anybody asks for any of it; `on_wanted` is called when that
        changes. With `quench`, events of it are not sent while nobody does.
        """
        options = AdvertisementOptions.of(filter, language, quench, on_wanted)
        return Advertisement(self._reconnector.advertisement_tracker, options)

    def _skip_to(self, sequence: int) -> None:
        if sequence < self._sequence:
            raise ValueError(f"sequence {sequence} is too low: the next number is {self._sequence}")
        self._sequence = sequence

    # --- subscribing -----------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        filter: str | Filter = "true",
        **options: Unpack[SubscribeOptions],
    ) -> Consumer: ...

    @overload
    def subscribe(
        self,
        filter: FilterOverObjects,
        **options: Unpack[SubscribeOptions],
    ) -> ObjectConsumer: ...

    @overload
    def subscribe(
        self,
        filter: DocumentQuery,
        **options: Unpack[SubscribeOptions],
    ) -> QueryConsumer: ...

    def subscribe(
        self,
        filter: str | Filter | FilterOverObjects | DocumentQuery = "true",  # noqa: A002
        **options: Unpack[SubscribeOptions],
    ) -> Consumer | ObjectConsumer | QueryConsumer:
        """Return the events that match a filter: `async for event in bus.subscribe("price < 5")`.

        With a filter over objects, return the objects that satisfy it. With a query over documents
        (`tamis.xml.query`), check here what the broker's filter lets through; as text, with
        `language="xql"` or `"xpath"`, the broker checks it. With a `durable` name, the
        broker keeps unacknowledged events while the client is disconnected and when either side
        restarts. Asking for the next event acknowledges the last one, or with
        `acknowledge="manual"`, `event.ack()` does. `SubscribeOptions` lists all options.
        """
        window = self._options.window
        if isinstance(filter, ObjectFilter | StandIn):
            return ObjectConsumer(self._reconnector, ObjectRequest.of(filter, window, options))
        if is_document_query(filter):
            query = cast("DocumentQuery", filter)
            return QueryConsumer(self._reconnector, DocumentRequest.of(query, window, options))
        filter = cast("str | Filter", filter)  # noqa: A001
        return Consumer(self._reconnector, ConsumerOptions.of(filter, window, options))

    def on(
        self,
        filter: str | Filter | FilterOverObjects | DocumentQuery = "true",  # noqa: A002
        **options: Unpack[SubscribeOptions],
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Call the decorated function, asynchronous or not, with every event that matches.

        One event at a time. If the function raises an exception, log it and reject the event.
        """
        refuse_function(filter)
        consumer: Consumer | ObjectConsumer = self.subscribe(filter, **options)

        def decorate(function: AnyHandler) -> AnyHandler:
            task = _handler_task(consumer, function)
            self._handlers.append(task)
            if self._is_open:
                task.start()
            return function

        return decorate

    async def run(self) -> None:
        """Call the functions registered with `on`, until the bus is closed.

        Raises the error that ends one of their subscriptions, or the connection.
        """
        self._check()
        over = asyncio.create_task(self._reconnector.wait_until_over())
        try:
            tasks = {over, *(handler.start() for handler in self._handlers)}
            while not over.done():
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    error = None if task.cancelled() else task.exception()
                    if error is not None:
                        raise error
        finally:
            over.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await over
        if not self._is_closing:
            self._reconnector.check()

    # --- asking and answering --------------------------------------------------------------------

    def query(
        self,
        wanted: Queryable = "true",
        *,
        timeout: Duration = 30.0,
        limit: int | None = None,
        aggregate: str | Aggregate | None = None,
        language: str = "tamis",
    ) -> QueryResult:
        """Return the rows of all sources that match: `async for row in bus.query("price < 5")`.

        What is wanted is a filter, or a message that holds constraints. After `timeout`, the result
        has what has come until then. `aggregate` is `union`, `count`, `sum X`, `min X`, `max X`,
        `top N X` or `bottom N X`. The result knows which sources have answered.
        """
        options = QueryOptions.of(wanted, timeout, limit, aggregate, language)
        return QueryResult(self._reconnector.query_tracker, options)

    def serve(
        self,
        filter: str | Filter,  # noqa: A002
        handler: SourceHandler,
        *,
        name: str = "",
        many: bool = False,
        language: str = "tamis",
    ) -> DataSource:
        """Answer queries with the rows that a function yields: `async with bus.serve(…)`.

        Every row matches the filter, which is advertised, so that only queries come which such rows
        may answer. With `many`, attributes of a row may hold several values at once.
        """
        checks.check_function("handler", handler)
        options = SourceOptions.of(filter, language, name, many)
        return DataSource(self._reconnector.query_tracker, options, handler)

    # --- helpers ---------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed is not None:
            raise DisconnectedError("the bus is closed")
        if self._reconnector.failure is not None:
            raise self._reconnector.failure

    @contextlib.asynccontextmanager
    async def _in_time(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._options.timeout):
                yield
        except TimeoutError:
            raise DisconnectedError(
                f"the broker did not acknowledge {what} within {self._options.timeout:g} s; it may "
                "or may not have stored it"
            ) from None


def _handler_task(
    consumer: Consumer | ObjectConsumer, function: Callable[[Any], object]
) -> HandlerTask:
    if isinstance(consumer, Consumer):
        return HandlerTask(consumer, function)

    def with_object(message: Message) -> object:
        return function(object_of(message))

    with_object.__qualname__ = getattr(function, "__qualname__", repr(function))
    return HandlerTask(consumer.checked, with_object)


def connect(
    url: str | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    **options: Unpack[ConnectOptions],
) -> Bus:
    """Return a bus, for use with `async with`; `ConnectOptions` lists all options.

    Without a URL, the environment variable TAMIS_URL names the broker, or it is on this machine.
    Without a token, the variable TAMIS_TOKEN has it for that broker. Use `tls` for certificates
    that the system does not trust.
    """
    check_tls(tls)
    address = broker_address(url)
    chosen = ClientOptions.of(options)
    if chosen.token is None:
        chosen = chosen._replace(token=environment_token(address))

    def make_management() -> Management:
        from tamis.client.http import HTTPManagement  # noqa: PLC0415 - takes a while to load

        return HTTPManagement(address, chosen.token, timeout=chosen.timeout, tls=tls)

    return Bus(
        address.web,
        websocket_dial(address, timeout=time_to_connect(chosen.timeout), tls=tls),
        make_management,
        chosen,
    )
