"""The bus: publish, subscribe, and close when all is done."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar, Unpack

from tamis.client.handlers import Handler, Handling
from tamis.client.keeper import Keeper, Token
from tamis.client.management import Management, Managing
from tamis.client.outbox import Outbox, Publication
from tamis.client.publishing import (
    Encoded,
    Publishable,
    check_size,
    encode_event,
    in_frames,
)
from tamis.client.subscription import Subscription
from tamis.client.transport import Dial
from tamis.client.wanted import SubscribeOptions, Wanted
from tamis.errors import DisconnectedError, RefusedError
from tamis.filters import Filter
from tamis.protocol.views import Receipt

WINDOW: Final = 256
PUBLISH_WINDOW: Final = 5_000
_BYTES_ON_THEIR_WAY: Final = 16 * 1024**2
# Time to send what is known to be done, when something has gone wrong.
_SECONDS_TO_LEAVE: Final = 2.0

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Options(NamedTuple):
    """How a client is to behave; every default can be left alone."""

    token: Token = None
    publisher: str | None = None
    sequence: int | None = None
    timeout: float | None = 30.0
    reconnect: bool = True
    window: int = WINDOW
    publish_window: int = PUBLISH_WINDOW
    patient: bool = False


class Bus(Managing):
    """A connection to a broker that comes back by itself; made by `tamis.connect`."""

    def __init__(self, name: str, dial: Dial, management: Management, options: Options) -> None:
        super().__init__(management)
        if (options.publisher is None) is not (options.sequence is None):
            raise ValueError(
                "publisher and sequence go together: under a name that is used again, the broker "
                "takes a number that it has seen before for a repetition"
            )
        self._name = name
        self._options = options
        self._publisher = options.publisher or secrets.token_hex(8)
        self._sequence = 1 if options.sequence is None else options.sequence
        self._outbox = Outbox(
            self._publisher,
            options.publish_window,
            _BYTES_ON_THEIR_WAY,
            is_patient=options.patient,
        )
        self._keeper = Keeper(
            dial,
            options.token,
            self._outbox,
            timeout=options.timeout,
            reconnects=options.reconnect,
        )
        self._turn = asyncio.Lock()
        self._handlings: list[Handling] = []
        self._is_open = False
        self._closed: asyncio.Future[None] | None = None

    # --- what it is ------------------------------------------------------------------------------

    @property
    def publisher(self) -> str:
        """Return the name that publications go under."""
        return self._publisher

    @property
    def sequence(self) -> int:
        """Return the number that the next event will have."""
        return self._sequence

    @property
    def principal(self) -> str:
        """Return who the broker takes us for."""
        return self._keeper.welcome.principal

    @property
    def is_connected(self) -> bool:
        """Tell whether there is a connection at the moment."""
        return self._keeper.is_connected

    def __repr__(self) -> str:
        subscriptions = len(self._keeper.subscriptions)
        return (
            f"<{type(self).__name__} {self._name}, {self._state()}, "
            f"{subscriptions} subscription{'' if subscriptions == 1 else 's'}, "
            f"{self._outbox.events} unacknowledged>"
        )

    def _state(self) -> str:
        if self._keeper.failure is not None:
            return "closed" if self._is_closing else f"failed ({self._keeper.failure})"
        if not self._is_open:
            return "not open"
        return "connected" if self.is_connected else "connecting"

    @property
    def _is_closing(self) -> bool:
        return self._closed is not None

    # --- beginning and end -----------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect; `async with` does it."""
        await self._keeper.open()
        self._is_open = True
        for handling in self._handlings:
            handling.start()
        return self

    async def close(self, *, drain: bool = True) -> None:
        """Disconnect, once all publications are acknowledged and acknowledgements sent.

        Without `drain` only acknowledgements are sent, if it can be done quickly.
        """
        mine = asyncio.current_task()
        tasks = [handling.start() for handling in self._handlings] if self._is_open else []
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            try:
                await self._finish([task for task in tasks if task is not mine], drain=drain)
            finally:
                await self._keeper.close()
                self._closed.set_result(None)
        elif mine not in tasks:
            await asyncio.shield(self._closed)

    async def _finish(self, tasks: list[asyncio.Task[None]], *, drain: bool) -> None:
        for subscription in self._keeper.subscriptions:
            subscription.stop()
        limit = self._options.timeout if drain else _SECONDS_TO_LEAVE
        try:
            # Whoever waits for a receipt in vain is told so there.
            with contextlib.suppress(TimeoutError, RefusedError):
                async with asyncio.timeout(limit):
                    if drain and tasks:
                        await asyncio.wait(tasks)
                    await self._keeper.flush(publications=drain)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

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
        """Wait until all publications are acknowledged and the broker has our acknowledgements."""
        self._check()
        async with self._in_time("everything"):
            await self._keeper.flush()
        self._keeper.check()

    # --- publishing ------------------------------------------------------------------------------

    async def publish(self, event: Publishable, *, sequence: int | None = None) -> Receipt:
        """Publish an event, and return when it is on the broker's disk.

        While the connection is lost, this waits for the next one and sends the event again; the
        broker stores it once. Events are numbered one after the other; `sequence` leaves out the
        numbers before it.
        """
        encoded = encode_event(event)
        self._check()
        check_size(encoded, self._keeper.welcome)
        async with self._in_time("the event"):
            return await (await self._send([encoded], sequence))

    async def publish_many(
        self, events: Iterable[Publishable] | AsyncIterable[Publishable]
    ) -> Receipt:
        """Publish events in order, and return when all are on the broker's disk.

        They go in groups of up to 500, each of which is stored all or none. If one is refused,
        those before it are stored, and some after it may be.
        """
        self._check()
        waiting: deque[asyncio.Future[Receipt]] = deque()
        total = Receipt(0)
        try:
            async for group in in_frames(events, self._keeper.welcome):
                async with self._in_time("the events"):
                    waiting.append(await self._send(group))
                while waiting and waiting[0].done():
                    total += waiting.popleft().result()
            while waiting:
                async with self._in_time("the events"):
                    total += await waiting[0]
                waiting.popleft()
        finally:
            for rest in waiting:
                # What is on its way may be stored or not; nobody asks any more.
                rest.cancel()
        return total

    async def _send(
        self, events: list[Encoded], sequence: int | None = None
    ) -> asyncio.Future[Receipt]:
        """Put events into the outbox when there is room; return what will be their receipt."""
        size = sum(len(event.text) for event in events)
        # Whoever comes first is served first, so that the order stays.
        async with self._turn:
            while not self._outbox.has_room(len(events), size):
                self._outbox.has_changed.clear()
                await self._outbox.has_changed.wait()
            self._check()
            if sequence is not None:
                self._leave_out_before(sequence)
            done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
            self._outbox.add(Publication(self._sequence, events, done))
            self._sequence += len(events)
        self._keeper.wake()
        return done

    def _leave_out_before(self, sequence: int) -> None:
        if sequence < self._sequence:
            raise ValueError(f"the number {sequence} is behind {self._sequence}, which is next")
        self._sequence = sequence

    # --- subscribing -----------------------------------------------------------------------------

    def subscribe(
        self,
        filter: str | Filter = "true",  # noqa: A002 - what it is called everywhere
        **options: Unpack[SubscribeOptions],
    ) -> Subscription:
        """Return the events that match a filter: `async for event in bus.subscribe("price < 5")`.

        With a `durable` name, the broker keeps what was not acknowledged, through disconnection and
        restarts on both sides. An event is acknowledged when the next one is asked for, or with
        `acknowledge="manual"` by `event.ack()`. All options: `SubscribeOptions`.
        """
        wanted = Wanted.of(str(filter), self._options.window, options)
        return Subscription(self._keeper, wanted)

    def on(
        self,
        filter: str | Filter = "true",  # noqa: A002
        **options: Unpack[SubscribeOptions],
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Call the decorated function, asynchronous or not, with every event that matches.

        One event at a time. If the function raises, that is logged and the event rejected.
        """
        subscription = self.subscribe(filter, **options)

        def decorate(function: AnyHandler) -> AnyHandler:
            handling = Handling(subscription, function)
            self._handlings.append(handling)
            if self._is_open:
                handling.start()
            return function

        return decorate

    async def run(self) -> None:
        """Wait while functions are called with events, until the bus is closed.

        Raises what ends a subscription of one of the functions, or the connection for good.
        """
        self._check()
        over = asyncio.create_task(self._keeper.wait_until_over())
        try:
            tasks = {over, *(handling.start() for handling in self._handlings)}
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
            self._keeper.check()

    # --- helping ---------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_closing:
            raise DisconnectedError("the bus is closed")
        self._keeper.check()

    @contextlib.asynccontextmanager
    async def _in_time(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._options.timeout):
                yield
        except TimeoutError:
            raise DisconnectedError(
                f"the broker did not acknowledge {what} within {self._options.timeout:g} s; it is "
                "not known what was stored"
            ) from None
