"""One connection, from hello to its end: what goes out, and whom it concerns what comes in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import NoReturn

from tamis.client.backoff import Backoff
from tamis.client.outbox import Outbox
from tamis.client.subscription import Subscription
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
    Publish,
    Published,
    Refused,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Welcome,
    decode_reply,
    encode,
)
from tamis.protocol.codes import WORTH_A_RETRY
from tamis.protocol.frames import Reply, Request


class Link:
    """A connection, for as long as it lasts."""

    def __init__(
        self,
        transport: Transport,
        outbox: Outbox,
        largest_frame: int,
        next_ref: Callable[[], int],
    ) -> None:
        self._transport = transport
        self._outbox = outbox
        self._largest_frame = largest_frame
        self._next_ref = next_ref
        self._requests: deque[Request] = deque()
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._asked: dict[int, Subscription] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._stirred: dict[Subscription, None] = {}
        self._has_work = asyncio.Event()
        self._backoff = Backoff()
        self._pausing: asyncio.TimerHandle | None = None

    async def run(self) -> NoReturn:
        """Send and receive until the connection is gone, which is always an error."""
        tasks = {asyncio.create_task(self._receive_all()), asyncio.create_task(self._send_all())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self._end()
        # What the broker said last is a better reason than that it cannot be told anything.
        raise _weightiest(results)

    def _end(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()
        for subscription in self._subscriptions.values():
            subscription.disconnected()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(DisconnectedError("the connection broke off"))
                answer.exception()

    # --- what is sent ----------------------------------------------------------------------------

    def wake(self) -> None:
        """Let the outbox be looked at."""
        self._has_work.set()

    def stir(self, subscription: Subscription) -> None:
        """Let the broker be told what it has to know of a subscription."""
        self._stirred[subscription] = None
        self.wake()

    def subscribe(self, subscription: Subscription) -> None:
        """Ask for a subscription."""
        ref = self._next_ref()
        self._asked[ref] = subscription
        self._request(subscription.request(ref))

    async def unsubscribe(self, subscription: Subscription, *, delete: bool) -> None:
        """End a subscription, and wait until it is."""
        name = subscription.id
        if name is not None and (name in self._subscriptions or delete):
            # What was done with events is told before.
            self.stir(subscription)
            await self._ask(lambda ref: Unsubscribe(ref=ref, subscription=name, delete=delete))

    async def ping(self) -> None:
        """Wait until the broker has taken all that was sent until now."""
        await self._ask(lambda ref: Ping(ref=ref))

    async def _ask(self, make: Callable[[int], Request]) -> None:
        ref = self._next_ref()
        self._answers[ref] = answer = asyncio.get_running_loop().create_future()
        self._request(make(ref))
        try:
            await answer
        finally:
            self._answers.pop(ref, None)

    def _request(self, request: Request) -> None:
        self._requests.append(request)
        self.wake()

    async def _send_all(self) -> None:
        while True:
            self._has_work.clear()
            for frame in self._frames():
                await self._transport.send(frame)
            await self._has_work.wait()

    def _frames(self) -> Iterable[bytes]:
        """Yield what is to be sent; settlements come first, so that they precede a farewell."""
        while True:
            if self._stirred:
                subscription, _ = self._stirred.popitem()
                yield from map(encode, subscription.settlements())
            elif self._requests:
                yield encode(self._requests.popleft())
            elif publication := self._publication():
                yield encode(publication)
            else:
                return

    def _publication(self) -> Publish | None:
        if self._pausing is not None:
            return None
        return self._outbox.next(self._next_ref(), self._largest_frame)

    def _pause(self, seconds: float | None) -> None:
        """Send no events for a while: the broker has asked for it."""
        wait = self._backoff.next() if seconds is None else seconds
        self._pausing = asyncio.get_running_loop().call_later(wait, self._resume)

    def _resume(self) -> None:
        self._pausing = None
        self.wake()

    # --- what is received ------------------------------------------------------------------------

    async def _receive_all(self) -> None:
        while True:
            self._take(decode_reply(await self._transport.receive()))

    def _take(self, reply: Reply) -> None:
        match reply:
            case Deliver():
                if reply.subscription in self._subscriptions:
                    self._subscriptions[reply.subscription].deliver(reply.events)
            case Published():
                self._accepted(reply)
            case Subscribed():
                self._granted(reply)
            case Refused():
                self._refused(reply)
            case Unsubscribed():
                self._subscriptions.pop(reply.subscription, None)
                self._answered(reply.ref)
            case Pong():
                self._answered(reply.ref)
            case Dropped():
                if reply.subscription in self._subscriptions:
                    self._subscriptions[reply.subscription].dropped(reply)
            case Ended():
                self._ended(reply)
            case Welcome():
                raise ProtocolError("the broker said `welcome` twice")

    def _answered(self, ref: int) -> None:
        answer = self._answers.get(ref)
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _accepted(self, reply: Published) -> None:
        if self._outbox.knows(reply.ref):
            self._outbox.accepted(reply)
            self._backoff.reset()
            self.wake()

    def _granted(self, reply: Subscribed) -> None:
        subscription = self._asked.pop(reply.ref, None)
        if subscription is None:
            return
        if subscription.is_over:
            # Whoever wanted it has given it up meanwhile.
            ref = self._next_ref()
            self._request(Unsubscribe(ref=ref, subscription=reply.subscription))
            return
        self._subscriptions[reply.subscription] = subscription
        subscription.granted(reply)

    def _ended(self, reply: Ended) -> None:
        subscription = self._subscriptions.pop(reply.subscription, None)
        if subscription is not None:
            subscription.end(SubscriptionEndedError(reply.subscription, reply.reason))

    def _refused(self, reply: Refused) -> None:
        error = RefusedError(reply.code, reply.message, retry_after=reply.retry_after)
        ref = reply.ref
        if ref is None:
            raise error
        if self._outbox.knows(ref):
            if not self._outbox.refused(error):
                self.wake()
            elif error.code == Code.UNAVAILABLE:
                raise DisconnectedError(str(error))
            else:
                self._pause(error.retry_after)
        elif ref in self._asked:
            subscription = self._asked.pop(ref)
            if subscription.was_granted and reply.code in WORTH_A_RETRY:
                # It was in force before the connection was lost, and is to be so again.
                raise error
            subscription.end(error)
        elif ref in self._answers and not self._answers[ref].done():
            self._answers[ref].set_exception(error)


def _weightiest(results: Iterable[BaseException | None]) -> BaseException:
    errors = [error for error in results if isinstance(error, Exception)]
    for error in errors:
        if not isinstance(error, DisconnectedError):
            return error
    return errors[0]
