"""Events and objects that cross from the thread of the event loop to the caller's."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tamis.client.consumer import Consumer, event_timeout
from tamis.client.messages import ReceivedEvent
from tamis.client.object_consumer import ObjectConsumer, object_of, require_automatic
from tamis.client.option_checks import check_duration, check_integer
from tamis.client.query_consumer import DocumentQuery, QueryConsumer
from tamis.client.sync_methods import SyncConsumerProperties
from tamis.errors import DisconnectedError
from tamis.objects import ObjectFilter
from tamis.protocol import Delivery
from tamis.protocol.management import MAX_NUMBER
from tamis.units import Duration

T = TypeVar("T")

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
        # A fork of the process has no such thread.
        return not self._loop.is_closed() and self._thread.is_alive()

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


class SyncQueryConsumer(SyncConsumer):
    """Documents that satisfy a query: `for message in bus.subscribe(query("//item"))`."""

    def __init__(self, thread: LoopThread, consumer: QueryConsumer) -> None:
        super().__init__(thread, consumer)
        self._checked = consumer

    @property
    def query(self) -> DocumentQuery:
        """Return the query."""
        return self._checked.query

    @property
    def residue(self) -> int:
        """Return how many events the broker's filter let through, and the query did not."""
        return self._checked.residue

    @property
    def refused(self) -> int:
        """Return how many documents could not be checked."""
        return self._checked.refused


class SyncObjectConsumer:
    """Objects that satisfy a filter: `for trade in bus.subscribe(message(Trade))`."""

    def __init__(self, thread: LoopThread, consumer: ObjectConsumer) -> None:
        self._consumer = consumer
        self._received = SyncConsumer(thread, consumer.checked)

    @property
    def id(self) -> str | None:
        """Return the subscription's id; for a durable subscription, the name you gave it."""
        return self._consumer.id

    @property
    def filter(self) -> ObjectFilter:
        """Return the filter."""
        return self._consumer.filter

    @property
    def pushed_down(self) -> str:
        """Return the part of the filter that the broker evaluates."""
        return self._consumer.pushed_down

    @property
    def missed(self) -> int:
        """Return how many events are known to be missing."""
        return self._consumer.missed

    @property
    def refused(self) -> int:
        """Return how many objects could not be read."""
        return self._consumer.refused

    @property
    def refusals(self) -> list[str]:
        """Return why the last ones of these could not be read."""
        return self._consumer.refusals

    @property
    def is_closed(self) -> bool:
        """Return whether no more objects will come."""
        return self._received.is_closed

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<", "<Sync", 1)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        require_automatic(self._consumer.checked)
        return object_of(next(self._received))

    def next(self, timeout: Duration | None = None) -> Any:
        """Return the next object; raise `TimeoutError` if none comes in time."""
        require_automatic(self._consumer.checked)
        return object_of(self._received.next(timeout))

    def take(self, limit: int, timeout: Duration | None = None) -> list[Any]:
        """Return objects that have arrived, waiting for the first; none once it is closed."""
        require_automatic(self._consumer.checked)
        return [object_of(message) for message in self._received.take(limit, timeout)]

    def messages(self) -> Iterator[tuple[Any, SyncMessage]]:
        """Yield each object with its message, which can be acknowledged or rejected."""
        for message in self._received:
            yield object_of(message), message

    def flush(self) -> None:
        """Wait until all acknowledgements and rejections so far are on the broker's disk."""
        self._received.flush()

    def close(self, *, delete: bool = False) -> None:
        """Stop receiving objects; a durable subscription stays unless you delete it."""
        self._received.close(delete=delete)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._received.__exit__(kind, error, traceback)
