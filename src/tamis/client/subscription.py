"""A subscription: events come out of it, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from tamis.client.inbox import Inbox, Settlement
from tamis.client.message import Message
from tamis.client.wanted import Missed, Wanted
from tamis.errors import DisconnectedError, TamisError
from tamis.protocol import Delivery, Dropped, Subscribe, Subscribed

logger: Final = logging.getLogger("tamis.client")

# Acknowledgements that nobody waits for are gathered for so long.
_SECONDS_TO_GATHER: Final = 0.02


class Port(Protocol):
    """What a subscription needs of the bus that it belongs to."""

    @property
    def timeout(self) -> float | None:
        """Return how long to wait for an answer."""

    def enter(self, subscription: Subscription) -> None:
        """Ask the broker for a subscription, now and after every reconnect."""

    async def leave(self, subscription: Subscription, *, delete: bool) -> None:
        """End a subscription."""

    def forget(self, subscription: Subscription) -> None:
        """Take note that a subscription is over."""

    def stir(self, subscription: Subscription) -> None:
        """Let the broker be told what it has to know of a subscription."""


class Subscription:
    """Events that match a filter; made by `Bus.subscribe`.

    It is in force from `await subscription`, from `async with subscription`, or when the first
    event is asked for, whichever comes first.
    """

    def __init__(self, port: Port, wanted: Wanted) -> None:
        self._port = port
        self._wanted = wanted
        self._inbox = Inbox(
            wanted.window, settles=wanted.settles, is_kept=wanted.durable is not None
        )
        self._id: str | None = None
        self._in_force = False
        self._granted: asyncio.Future[None] | None = None
        self._in_hand: list[Message] = []
        self._has_news = asyncio.Event()
        self._begins = 0
        """The first event that it is for."""
        self.was_granted = False
        """Whether it has been in force."""
        self._is_over = False
        self._error: TamisError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.expires_at: float | None = None
        """When it ends unless it is renewed, in seconds since 1970."""
        self.missed = 0
        """How many events did not come, as far as anybody knows."""

    # --- what it is ------------------------------------------------------------------------------

    @property
    def id(self) -> str | None:
        """Return the broker's name for it: that of a durable one is yours."""
        return self._id

    @property
    def filter(self) -> str:
        """Return the filter."""
        return self._wanted.filter

    @property
    def durable(self) -> str | None:
        """Return its name, if it stays while nobody is connected."""
        return self._wanted.durable

    @property
    def is_over(self) -> bool:
        """Tell whether no more events come."""
        return self._is_over

    def __repr__(self) -> str:
        name = f" {self._id}" if self._id else ""
        state = "over" if self._is_over else "in force" if self._in_force else "not in force"
        return f"<Subscription{name} {self.filter!r}, {state}, {len(self._inbox)} waiting>"

    # --- beginning and end -----------------------------------------------------------------------

    async def start(self) -> Self:
        """Let it be in force; raise `RefusedError` if the broker does not grant it."""
        if self._granted is None:
            self._granted = asyncio.get_running_loop().create_future()
            self._port.enter(self)
        try:
            async with asyncio.timeout(self._port.timeout):
                # One of several who wait may be cancelled, and the others go on waiting.
                await asyncio.shield(self._granted)
        except TimeoutError:
            raise DisconnectedError("the broker did not grant the subscription in time") from None
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def close(self, *, delete: bool = False) -> None:
        """End it. A durable one stays with the broker and gathers events, unless it is deleted."""
        was_over = self._is_over
        self.stop()
        try:
            if self._granted is not None and not was_over:
                await self._port.leave(self, delete=delete)
        finally:
            self.end()

    def stop(self) -> None:
        """Give out no more events; what was done with the last ones is still told."""
        self._is_over = True
        if self._granted is not None and not self._granted.done():
            self._granted.set_exception(self._error or DisconnectedError("it is closed"))
            # Perhaps nobody waits for it.
            self._granted.exception()
        self._has_news.set()

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
        messages = await self.take(1)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    async def next(self, timeout: float | None = None) -> Message:
        """Return the next event; raise `TimeoutError` if none comes in time."""
        async with asyncio.timeout(timeout):
            messages = await self.take(1)
        if not messages:
            raise DisconnectedError("the subscription is closed")
        return messages[0]

    async def take(self, limit: int) -> list[Message]:
        """Return as many events as there are, at least one; none when it was closed."""
        self._settle_in_hand()
        messages = [Message(delivery, self) for delivery in await self.deliveries(limit)]
        if self.acknowledges_by_itself:
            self._in_hand = messages
        return messages

    async def deliveries(self, limit: int) -> list[Delivery]:
        """Return what came, at least one, to be settled by whoever asks; none when closed."""
        if self._granted is None and not self._is_over:
            await self._start_unless_over()
        while not self._is_over:
            taken = self._inbox.take(limit)
            # Whoever is about to wait has time to tell what was done.
            self._tell(at_once=not taken)
            if taken:
                return taken
            self._has_news.clear()
            await self._has_news.wait()
        if self._error is not None:
            raise self._error
        return []

    async def _start_unless_over(self) -> None:
        try:
            await self.start()
        except DisconnectedError:
            if not self._is_over:
                raise

    @property
    def acknowledges_by_itself(self) -> bool:
        """Tell whether an event is acknowledged when the next one is asked for."""
        return self._wanted.acknowledge == "auto"

    def _settle_in_hand(self) -> None:
        for message in self._in_hand:
            message.acknowledge()
        self._in_hand = []

    def acknowledge(self, sequence: int) -> None:
        """Let an event not come again."""
        self._inbox.acknowledge(sequence)
        self._tell(at_once=False)

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Let an event come again."""
        self._inbox.reject(sequence, delay, reason)
        self._tell(at_once=False)

    def _tell(self, *, at_once: bool) -> None:
        if not self._in_force or not self._inbox.has_news:
            return
        if at_once or self._inbox.is_urgent:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SECONDS_TO_GATHER, self.flush)

    def flush(self) -> None:
        """Let the broker be told what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._in_force and self._inbox.has_news:
            self._port.stir(self)

    # --- called by the connection ----------------------------------------------------------------

    def request(self, ref: int) -> Subscribe:
        """Return what to ask the broker, at every connection."""
        wanted = self._wanted
        credit = self._inbox.connect()
        return Subscribe(
            ref=ref,
            filter=wanted.filter,
            language=wanted.language,
            mode=wanted.mode,
            durable=wanted.durable,
            lifetime=wanted.lifetime,
            start=self._start(),
            policy=wanted.policy,
            acknowledge="manual" if wanted.settles else "auto",
            credit=credit,
            max_attempts=wanted.max_attempts,
        )

    def _start(self) -> int | str:
        """Return where to begin: after a lost connection, where it was, if anything waits there."""
        if self.durable is None and self._wanted.waits and self.was_granted:
            return max(self._inbox.last + 1, self._begins)
        return self._wanted.start

    def granted(self, reply: Subscribed) -> None:
        """Take note that it is in force."""
        self._id = reply.subscription
        self.expires_at = reply.expires_at
        self._in_force = True
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(None)
        if not self.was_granted:
            self._begins = reply.start
        elif self.durable is None:
            self._note_gap(reply.start)
        self.was_granted = True

    def _note_gap(self, start: int) -> None:
        """Tell whether it could not begin where it was when the connection was lost."""
        if not self._wanted.waits:
            self._miss(Missed(None, "disconnected"))
        elif start > max(self._inbox.last + 1, self._begins):
            self._miss(Missed(None, "retention"))

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take events that came."""
        self._inbox.put(deliveries)
        self._has_news.set()

    def dropped(self, frame: Dropped) -> None:
        """Take note of events that do not come."""
        self._miss(Missed(frame.count, frame.reason))

    def disconnected(self) -> None:
        """Take note that nothing comes, for now."""
        self._in_force = False

    def settlements(self) -> list[Settlement]:
        """Return what the broker is to be told."""
        if not self._in_force or self._id is None:
            return []
        return self._inbox.frames(self._id)

    def end(self, error: TamisError | None = None) -> None:
        """Let no more events come; whoever waits for one gets the error, if there is one."""
        self._in_force = False
        if not self._is_over:
            self._error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.stop()
        self._port.forget(self)

    def _miss(self, missed: Missed) -> None:
        self.missed += missed.count or 0
        if self._wanted.on_missed is not None:
            try:
                self._wanted.on_missed(missed)
            except Exception:
                logger.exception("%r: on_missed failed", self)
            return
        number = "an unknown number of" if missed.count is None else f"{missed.count:,}"
        logger.warning("%r: %s events did not come: %s", self, number, missed.reason)
