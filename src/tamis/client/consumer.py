"""The client's end of a subscription: its events, in order, and functions that take them."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import repeat
from socket import gethostname
from types import TracebackType
from typing import Any, Final, Protocol, Self

from tamis.client.cancellation import cancellations, is_cancelled
from tamis.client.messages import Message
from tamis.client.option_checks import check_duration, check_flag, check_integer
from tamis.client.options import ConsumerOptions, Missed
from tamis.client.queues import Inbox, ReportTime, Settlement
from tamis.errors import DisconnectedError, RefusedError, TamisError
from tamis.prompt_waiter import PromptWaiter
from tamis.protocol import Delivery, Dropped, Subscribe, Subscribed
from tamis.protocol.management import MAX_NUMBER
from tamis.units import Duration

Handler = Callable[[Message], Awaitable[object] | object]

logger: Final = logging.getLogger("tamis.client")

# Acknowledgements that nobody waits for, and credit, are collected for this long.
_SECONDS_TO_COLLECT: Final = 0.02


def _member_name() -> str:
    """Return a name for a member of a group: where it runs, and what tells it from others."""
    host = "".join(one for one in gethostname()[:100] if one.isprintable())
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


@asynccontextmanager
async def event_timeout(timeout: Duration | None) -> AsyncIterator[None]:
    """Raise a `TimeoutError` with a message if no event arrives in time."""
    seconds = check_duration("timeout", timeout, may_be_zero=True)
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeoutError(f"no event arrived within {seconds:g} s") from None


class ConsumerRegistry(Protocol):
    """The part of a bus that a consumer needs."""

    @property
    def timeout(self) -> float | None:
        """Return the seconds to wait for an answer."""

    def register(self, consumer: Consumer) -> None:
        """Subscribe, now and after every reconnect."""

    async def unsubscribe(self, consumer: Consumer, *, delete: bool) -> None:
        """End the subscription at the broker."""

    def leave(self, consumer: Consumer) -> None:
        """Remove a consumer, and tell the broker without waiting for its answer."""

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer that is closed."""

    def schedule_flush(self, consumer: Consumer) -> None:
        """Send the consumer's acknowledgements and credit soon."""

    async def flush_acknowledgements(self, consumers: Iterable[Consumer]) -> None:
        """Wait until all acknowledgements are on the broker's disk; raise if some may be lost."""


class Consumer:
    """Events that match a filter; made by `Bus.subscribe`.

    The subscription becomes active with `await consumer`, `async with consumer`, or the first
    request for an event, whichever comes first.
    """

    def __init__(self, registry: ConsumerRegistry, request: ConsumerOptions) -> None:
        self._registry = registry
        self._request = request
        self._inbox = Inbox(
            request.window, settles=request.settles, is_kept=request.durable is not None
        )
        self._id: str | None = None
        self._is_active = False
        self._confirmed: asyncio.Future[None] | None = None
        self._starting = 0
        """How many wait for the confirmation because they want the subscription, and no event."""
        self._is_asked = False
        """Whether somebody has asked for an event."""
        self.ref = 0
        """The number of the latest request for the subscription."""
        self._in_hand: list[Message] = []
        self._is_automatic: Final = request.acknowledge == "auto"
        self._waiters: dict[PromptWaiter, None] = {}
        """One for each task that waits for an event: cancelling a task cancels what it waits for,
        and must not wake the others."""
        self._first = 0
        """The sequence of the first event the subscription covers."""
        self.was_confirmed = False
        """Whether the broker has ever confirmed the subscription."""
        self._has_unflushed = False
        """Whether events were acknowledged or rejected since the last flush."""
        self._was_interrupted = False
        """Whether the connection was lost after that."""
        self._is_closed = False
        self._error: TamisError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expires_at: float | None = None
        self._missed = 0
        self._grants_credit = True
        self.member: Final = _member_name() if request.group else ""
        """What a member of a group calls itself."""

    # --- properties ------------------------------------------------------------------------------

    @property
    def id(self) -> str | None:
        """Return the subscription's id; for a durable subscription, the name you gave it."""
        return self._id

    @property
    def filter(self) -> str:
        """Return the filter."""
        return self._request.filter

    @property
    def durable(self) -> str | None:
        """Return the name of a durable subscription, None for any other."""
        return self._request.durable

    @property
    def expires_at(self) -> float | None:
        """Return when the subscription ends unless it is renewed, in seconds since 1970."""
        return self._expires_at

    @property
    def missed(self) -> int:
        """Return how many events are known to be missing."""
        return self._missed

    @property
    def is_closed(self) -> bool:
        """Return whether no more events will come."""
        return self._is_closed

    def __repr__(self) -> str:
        name = f" {self._id}" if self._id else ""
        state = "closed" if self._is_closed else "active" if self._is_active else "not active"
        return f"<Consumer{name} {self.filter!r}, {state}, {len(self._inbox)} waiting>"

    # --- opening and closing ---------------------------------------------------------------------

    async def start(self) -> Self:
        """Subscribe; raise `RefusedError` if the broker refuses.

        If it is cancelled, or the broker does not confirm in time, nothing of it stays: whoever
        waited for it has nothing in hand that could be closed. It may be started again.
        """
        self._starting += 1
        try:
            await self._until_confirmed()
        except (asyncio.CancelledError, DisconnectedError):
            if self._starting == 1 and not self._is_asked and not self._is_closed:
                self._take_back()
            raise
        finally:
            self._starting -= 1
        return self

    async def _until_confirmed(self) -> None:
        if self._confirmed is None:
            self._confirmed = asyncio.get_running_loop().create_future()
            try:
                self._registry.register(self)
            except RefusedError:
                self._confirmed = None
                raise
        try:
            async with asyncio.timeout(self._registry.timeout):
                # Shielded, so that cancelling one of several waiters leaves the others waiting.
                await asyncio.shield(self._confirmed)
        except TimeoutError:
            raise DisconnectedError("the broker did not confirm the subscription in time") from None

    def _take_back(self) -> None:
        """End the subscription as if it had never been started."""
        if self._confirmed is not None:
            self._registry.leave(self)
            self._confirmed, self._is_active = None, False

    def leave(self) -> None:
        """Close it without waiting: acknowledgements are sent, and then that it is over."""
        self._registry.leave(self)
        self.end()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def close(self, *, delete: bool = False) -> None:
        """Stop receiving events.

        A durable subscription stays with the broker and collects events, unless you delete it.
        """
        check_flag("delete", delete)
        was_closed = self._is_closed
        self.stop()
        try:
            if self._confirmed is not None and not was_closed:
                await self._registry.unsubscribe(self, delete=delete)
        finally:
            self.end()

    def stop(self) -> None:
        """Return no more events; acknowledgements of earlier ones are still sent."""
        self._is_closed = True
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_exception(self._error or DisconnectedError("it is closed"))
            # Mark it as retrieved: there may be no waiter.
            self._confirmed.exception()
        # Nothing has arrived, but whoever waits looks again, once all of this has ended.
        for waiter in self._waiters:
            waiter.wake_later()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._settle_in_hand()
        await self.close()

    # --- events ----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        messages = await self._take(1)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    async def next(self, timeout: Duration | None = None) -> Message:
        """Return the next event; raise `TimeoutError` if none comes in time."""
        messages = await self.take(1, timeout)
        if not messages:
            raise DisconnectedError("the subscription is closed")
        return messages[0]

    async def take(self, limit: int, timeout: Duration | None = None) -> list[Message]:
        """Return the events that have arrived, waiting for the first; none once it is closed.

        Raises `TimeoutError` if none comes in time.
        """
        check_integer("limit", limit, 1, MAX_NUMBER)
        if timeout is None:
            return await self._take(limit)
        async with event_timeout(timeout):
            return await self._take(limit)

    async def _take(self, limit: int) -> list[Message]:
        self._settle_in_hand()
        messages = [*map(Message, await self.deliveries(limit), repeat(self))]
        if self._is_automatic:
            self._in_hand = messages
        return messages

    async def deliveries(self, limit: int) -> list[Delivery]:
        """Return the same as `take`, but the caller acknowledges every event."""
        self._is_asked = True
        if self._confirmed is None and not self._is_closed:
            await self._start_unless_closed()
        while not self._is_closed:
            taken = self._inbox.take(limit)
            due = self._inbox.report_due(is_idle=not taken)
            if due is not None:  # It seldom is, and each call delays the event.
                self._report(due)
            if taken:
                return taken
            waiter = PromptWaiter()
            self._waiters[waiter] = None
            try:
                await waiter
            finally:
                del self._waiters[waiter]
        if self._error is not None:
            raise self._error
        # Otherwise whoever asks again and again would keep all others from their turns.
        await asyncio.sleep(0)
        return []

    async def _start_unless_closed(self) -> None:
        try:
            await self._until_confirmed()
        except DisconnectedError:
            if not self._is_closed:
                raise

    @property
    def acknowledges_automatically(self) -> bool:
        """Return whether asking for the next event acknowledges the last."""
        return self._is_automatic

    def _settle_in_hand(self) -> None:
        for message in self._in_hand:
            message.acknowledge()
        self._in_hand = []

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge an event, so that it is not sent again."""
        self._inbox.acknowledge(sequence)
        self._has_unflushed = self._request.settles
        self._report(self._inbox.report_due(is_idle=False))

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Reject an event, so that it is sent again."""
        self._inbox.reject(sequence, delay, reason)
        self._has_unflushed = self._request.settles
        self._report(self._inbox.report_due(is_idle=False))

    def _report(self, due: ReportTime | None) -> None:
        """Tell the broker what cannot wait, and collect the rest."""
        if not self._is_active:
            return
        if due == "now":
            self.send_settlements()
        elif due == "soon" and self._timer is None:
            soon = asyncio.get_running_loop().call_later
            self._timer = soon(_SECONDS_TO_COLLECT, self.send_settlements)

    async def flush(self) -> None:
        """Wait until all acknowledgements and rejections so far are on the broker's disk.

        Raises `DisconnectedError` if the connection was lost before: the broker sends the events
        again, and this client acknowledges them again without showing them twice.
        """
        try:
            async with asyncio.timeout(self._registry.timeout):
                await self._registry.flush_acknowledgements([self])
        except TimeoutError:
            raise DisconnectedError(
                "the broker did not confirm the acknowledgements in time"
            ) from None

    def begin_flush(self) -> bool:
        """Send what is collected; return whether acknowledgements since the last flush are lost."""
        is_lost = self._was_interrupted or (self._has_unflushed and not self._is_active)
        self._has_unflushed = self._was_interrupted = False
        self.send_settlements()
        return is_lost

    def send_settlements(self) -> None:
        """Send the acknowledgements and credit collected so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_active and self._inbox.has_news:
            self._registry.schedule_flush(self)

    def ask_for_no_more(self) -> None:
        """Stop the broker from sending more events, so that others in a group get them."""
        self._grants_credit = False

    # --- called by the connection ----------------------------------------------------------------

    def request(self, ref: int) -> Subscribe:
        """Return the frame that subscribes, at every connection."""
        request, self.ref = self._request, ref
        credit = self._inbox.connect()
        return Subscribe(
            ref=ref,
            filter=request.filter,
            language=request.language,
            mode=request.mode,
            durable=request.durable,
            lifetime=request.lifetime,
            start=self._start(),
            overflow=request.overflow,
            acknowledge="manual" if request.settles else "auto",
            credit=credit if self._grants_credit else 0,
            max_attempts=request.max_attempts,
            resumes=self.durable is not None and self.was_confirmed,
            roaming=request.roaming,
            group=request.group,
            ordering_key=request.ordering_key,
            member=self.member,
        )

    def _start(self) -> int | str:
        """Return where to start: after a lost connection, where it stopped if events were kept."""
        if self.durable is None and self._request.is_stored and self.was_confirmed:
            return max(self._inbox.last + 1, self._first)
        return self._request.start

    def confirmed(self, reply: Subscribed) -> None:
        """Handle the broker's confirmation."""
        self._id = reply.subscription
        self._expires_at = reply.expires_at
        self._is_active = True
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_result(None)
        if not self.was_confirmed:
            self._first = reply.start
        elif self.durable is None:
            self._check_for_gap(reply.start)
        self.was_confirmed = True

    def _check_for_gap(self, start: int) -> None:
        """Report missed events if the subscription could not resume where it broke off."""
        if not self._request.is_stored:
            self._miss(Missed(None, "disconnected"))
        elif start > max(self._inbox.last + 1, self._first):
            self._miss(Missed(None, "retention"))

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take events that arrived, and wake those that wait for them."""
        self._inbox.put(deliveries)
        # Whoever goes on is no longer among them.
        for waiter in [*self._waiters]:
            waiter.wake()

    def dropped(self, frame: Dropped) -> None:
        """Handle events that the broker dropped."""
        self._miss(Missed(frame.count, frame.reason))

    def disconnected(self) -> None:
        """Handle the loss of the connection."""
        self._is_active = False
        self._was_interrupted |= self._has_unflushed

    def settlements(self) -> list[Settlement]:
        """Return the frames to send: acknowledgements, rejections and credit."""
        if not self._is_active or self._id is None:
            return []
        return self._inbox.frames(self._id, with_credit=self._grants_credit)

    def end(self, error: TamisError | None = None) -> None:
        """Close it for good; raise the error, if any, to callers that wait for events."""
        self._is_active = False
        if not self._is_closed:
            self._error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.stop()
        self._registry.remove(self)

    def _miss(self, missed: Missed) -> None:
        self._missed += missed.count or 0
        if self._request.on_missed is not None:
            try:
                self._request.on_missed(missed)
            except Exception:
                logger.exception("%r: on_missed failed", self)
            return
        number = "an unknown number of" if missed.count is None else f"{missed.count:,}"
        logger.warning("%r: missed %s events: %s", self, number, missed.reason)


class HandlerTask:
    """A task that calls a function with the events of a subscription, one at a time."""

    def __init__(self, consumer: Consumer, function: Handler) -> None:
        self._consumer = consumer
        self._function = function
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Start the task, once, and return it."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"tamis {self._name}")
            self._task.add_done_callback(self._log_error)
        return self._task

    async def _run(self) -> None:
        async for message in self._consumer:
            before = cancellations()
            try:
                result = self._function(message)
                if inspect.isawaitable(result):
                    await result
            except (Exception, asyncio.CancelledError) as error:
                if is_cancelled(error, before):
                    raise
                logger.exception("%s failed on event %d", self._name, message.sequence)
                await message.nack(reason=f"{type(error).__name__}: {error}")

    @property
    def _name(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def _log_error(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        # `run` raises it as well, but an application need not call `run`.
        if isinstance(error, TamisError):
            logger.error("%s gets no more events: %s", self._name, error)
        else:
            logger.error("%s gets no more events", self._name, exc_info=error)
