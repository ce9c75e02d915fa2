"""One connection to a broker: sends requests and publications, hands replies to consumers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from secrets import SystemRandom
from typing import Final, NoReturn

from tamis.client.advertisement_tracker import AdvertisementTracker
from tamis.client.consumer import Consumer
from tamis.client.messages import PublicationLimits
from tamis.client.query_tracker import QueryTracker
from tamis.client.queues import Outbox
from tamis.client.transport import Transport
from tamis.errors import (
    DisconnectedError,
    ProtocolError,
    RefusedError,
    SubscriptionEndedError,
)
from tamis.protocol import (
    Code,
    Deliver,
    Dropped,
    Ended,
    Ping,
    Pong,
    Published,
    Refused,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Welcome,
    encode_frame,
)
from tamis.protocol.codes import RETRYABLE
from tamis.protocol.frames import (
    ENCODER,
    FRAME_ERRORS,
    REPLY_DECODER,
    AdvertisingReply,
    AdvertisingRequest,
    QueryReply,
    QueryRequest,
    Reply,
    Request,
    frame_mismatch,
)

FIRST_RETRY_SECONDS: Final = 0.1
MAX_RETRY_SECONDS: Final = 30.0
# Enough doublings for any wait, and few enough for a float.
_MAX_DOUBLINGS: Final = 60
_random: Final = SystemRandom().random


class Backoff:
    """Waits that double up to a maximum, each shortened at random by up to a half.

    >>> backoff = Backoff(first=1, most=5, random=lambda: 1.0)
    >>> [backoff.next() for _ in range(4)]
    [1.0, 2.0, 4.0, 5.0]
    """

    def __init__(
        self,
        first: float = FIRST_RETRY_SECONDS,
        most: float = MAX_RETRY_SECONDS,
        *,
        random: Callable[[], float] = _random,
    ) -> None:
        self._first = first
        self._most = most
        self._random = random
        self._attempts = 0

    def next(self) -> float:
        """Return the next wait in seconds."""
        wait = min(self._most, self._first * 2.0 ** min(self._attempts, _MAX_DOUBLINGS))
        self._attempts += 1
        return wait * (0.5 + 0.5 * self._random())

    def reset(self) -> None:
        """Start again with the shortest wait."""
        self._attempts = 0


class ClientConnection:
    """An established connection to a broker, until it is lost."""

    def __init__(
        self,
        transport: Transport,
        outbox: Outbox,
        welcome: Welcome,
        next_ref: Callable[[], int],
        *,
        query_tracker: QueryTracker,
        advertisement_tracker: AdvertisementTracker,
    ) -> None:
        self._transport = transport
        self._outbox = outbox
        self._largest_frame = welcome.largest_frame
        self._limits = PublicationLimits.of(welcome)
        self._next_ref = next_ref
        self._query_tracker = query_tracker
        self._advertisement_tracker = advertisement_tracker
        self._requests: deque[bytes] = deque()
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._subscribing: dict[int, Consumer] = {}
        self._left: set[int] = set()
        """Requests for subscriptions that nobody wants any more, and whose names are not known."""
        self._consumers: dict[str, Consumer] = {}
        self._to_flush: dict[Consumer, None] = {}
        self._settlements: deque[bytes] = deque()
        """What a consumer has settled, to be sent before all others."""
        self._has_work = asyncio.Event()
        self._is_idle = False
        """Whether the task that sends has nothing to do."""
        self._backoff = Backoff()
        self._pause_timer: asyncio.TimerHandle | None = None

    async def run(self) -> NoReturn:
        """Send and receive until the connection is lost, then raise the reason."""
        tasks = {asyncio.create_task(self._receive_all()), asyncio.create_task(self._send_all())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._end()
        # A refusal that the broker sent says more than the send that failed after it.
        raise _most_telling(results)

    def _end(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        for consumer in self._consumers.values():
            consumer.disconnected()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(DisconnectedError("the connection was lost"))
                answer.exception()

    # --- sending ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Send what waits: at once, which saves the turn of a task, if the outbox is not busy."""
        is_free = self._is_idle and not self._outbox.is_busy
        if not (is_free and self._transport.send_now(self._next_frame)):
            self._has_work.set()

    def schedule_flush(self, consumer: Consumer) -> None:
        """Send the consumer's acknowledgements and credit soon."""
        self._to_flush[consumer] = None
        self.wake()

    def subscribe(self, consumer: Consumer) -> None:
        """Request a subscription; one that no frame can hold fails alone."""
        ref = self._next_ref()
        frame = encode_frame(consumer.request(ref))
        if len(frame) > self._largest_frame:
            consumer.end(_too_large(len(frame), self._largest_frame))
            return
        self._subscribing[ref] = consumer
        self._request(frame)

    async def unsubscribe(self, consumer: Consumer, *, delete: bool) -> None:
        """End a subscription, and wait for the broker's answer."""
        if not delete and self._subscribing.get(consumer.ref) is consumer:
            self.leave(consumer)
            return
        name = consumer.id or consumer.durable
        if name is not None and (name in self._consumers or delete):
            # Acknowledgements must be sent first.
            self.schedule_flush(consumer)
            await self._call(lambda ref: Unsubscribe(ref=ref, subscription=name, delete=delete))

    def leave(self, consumer: Consumer) -> None:
        """End a subscription, also one that is not confirmed, without waiting for the answer.

        The broker handles frames in order, so that the same name may be requested at once again.
        """
        if self._subscribing.get(consumer.ref) is consumer:
            del self._subscribing[consumer.ref]
            name = consumer.durable
            if name is None:
                self._left.add(consumer.ref)
        else:
            name = consumer.id
            if name is None or self._consumers.get(name) is not consumer:
                return
            del self._consumers[name]
        for frame in consumer.settlements():
            self._request(encode_frame(frame))
        if name is not None:
            self._unsubscribe(name)

    def _unsubscribe(self, name: str) -> None:
        self._request(encode_frame(Unsubscribe(ref=self._next_ref(), subscription=name)))

    async def flush(self) -> None:
        """Wait until all acknowledgements sent so far are on the broker's disk."""
        await self._call(lambda ref: Ping(ref=ref, flush=True))

    async def _call(self, make: Callable[[int], Request]) -> None:
        ref = self._next_ref()
        self._answers[ref] = answer = asyncio.get_running_loop().create_future()
        self._request(encode_frame(make(ref)))
        try:
            await answer
        finally:
            self._answers.pop(ref, None)

    def next_ref(self) -> int:
        """Return a number for a request."""
        return self._next_ref()

    def send_frame(self, frame: QueryRequest | AdvertisingRequest) -> None:
        """Send a frame soon, after those before it."""
        self._request(encode_frame(frame))

    def _request(self, frame: bytes) -> None:
        self._requests.append(frame)
        self.wake()

    async def _send_all(self) -> None:
        while True:
            self._has_work.clear()
            while (frame := self._next_frame()) is not None:
                await self._transport.send(frame)
            self._is_idle = True
            try:
                await self._has_work.wait()
            finally:
                self._is_idle = False

    def _next_frame(self) -> bytes | None:
        """Return the next frame; acknowledgements first, so that they precede unsubscribing."""
        while self._to_flush and not self._settlements:
            consumer, _ = self._to_flush.popitem()
            self._settlements.extend(map(encode_frame, consumer.settlements()))
        if self._settlements:
            return self._settlements.popleft()
        if self._requests:
            return self._requests.popleft()
        if self._pause_timer is not None:
            return None
        publication = self._outbox.next(self._next_ref(), self._limits)
        return None if publication is None else ENCODER.encode(publication)

    def _pause(self, seconds: float | None) -> None:
        """Stop publishing for a while, as the broker asked."""
        wait = self._backoff.next() if seconds is None else seconds
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._pause_timer = asyncio.get_running_loop().call_later(wait, self._resume)

    def _resume(self) -> None:
        self._pause_timer = None
        self.wake()

    # --- receiving -------------------------------------------------------------------------------

    async def _receive_all(self) -> None:
        await self._transport.receive_all(self._handle)

    def _handle(self, frame: bytes) -> None:
        try:
            reply = REPLY_DECODER.decode(frame)
        except FRAME_ERRORS as error:
            raise ProtocolError(frame_mismatch(error, Reply, frame)) from None
        match reply:
            case Deliver():
                if reply.subscription in self._consumers:
                    self._consumers[reply.subscription].deliver(reply.events)
            case Published():
                self._accepted(reply)
            case Subscribed():
                self._confirmed(reply)
            case Refused():
                self._refused(reply)
            case Unsubscribed():
                self._consumers.pop(reply.subscription, None)
                self._answered(reply.ref)
            case Pong():
                self._answered(reply.ref)
            case Dropped():
                if reply.subscription in self._consumers:
                    self._consumers[reply.subscription].dropped(reply)
            case Ended():
                self._ended(reply)
            case _:
                self._handle_other(reply)

    def _handle_other(self, reply: Welcome | QueryReply | AdvertisingReply) -> None:
        if isinstance(reply, Welcome):
            raise ProtocolError("the broker said `welcome` twice")
        if isinstance(reply, AdvertisingReply):
            self._advertisement_tracker.handle(reply)
        else:
            self._query_tracker.handle(reply)

    def _answered(self, ref: int) -> None:
        answer = self._answers.get(ref)
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _accepted(self, reply: Published) -> None:
        if self._outbox.knows(reply.ref):
            self._outbox.accepted(reply)
            self._backoff.reset()
            self.wake()

    def _confirmed(self, reply: Subscribed) -> None:
        consumer = self._subscribing.pop(reply.ref, None)
        if reply.ref in self._left or (consumer is not None and consumer.is_closed):
            # It was closed before the broker confirmed it.
            self._left.discard(reply.ref)
            self._unsubscribe(reply.subscription)
            return
        if consumer is None:
            return
        self._consumers[reply.subscription] = consumer
        consumer.confirmed(reply)

    def _ended(self, reply: Ended) -> None:
        consumer = self._consumers.pop(reply.subscription, None)
        if consumer is not None:
            consumer.end(SubscriptionEndedError(reply.subscription, reply.reason))

    def _refused(self, reply: Refused) -> None:
        error = RefusedError(
            reply.code, reply.message, retry_after=reply.retry_after, expected=reply.expected
        )
        error.index = reply.index
        ref = reply.ref
        if ref is None:
            raise error
        if self._outbox.knows(ref):
            if not self._outbox.refused(ref, error):
                self.wake()
            elif error.code == Code.UNAVAILABLE:
                raise DisconnectedError(str(error))
            else:
                self._pause(error.retry_after)
        elif ref in self._subscribing:
            consumer = self._subscribing.pop(ref)
            if consumer.was_confirmed and reply.code in RETRYABLE:
                # It was active before the connection was lost: reconnect and try again.
                raise error
            consumer.end(error)
        elif ref in self._left:
            self._left.remove(ref)
        elif self._query_tracker.knows(ref):
            self._query_tracker.refused(ref, error)
        elif self._advertisement_tracker.knows(ref):
            self._advertisement_tracker.refused(ref, error)
        elif ref in self._answers and not self._answers[ref].done():
            self._answers[ref].set_exception(error)


def _too_large(size: int, limit: int) -> RefusedError:
    return RefusedError(
        Code.TOO_LARGE,
        f"the subscription needs {size:,} bytes, which exceeds the broker's limit of {limit:,} "
        "bytes; shorten the filter",
    )


def _most_telling(results: Iterable[BaseException | None]) -> BaseException:
    errors = [error for error in results if isinstance(error, Exception)]
    for error in errors:
        if not isinstance(error, DisconnectedError):
            return error
    return errors[0]
