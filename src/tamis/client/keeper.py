"""Keeps a bus connected: connects again after every loss, and takes up again what there was."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Final

from tamis.client.backoff import Backoff
from tamis.client.link import Link
from tamis.client.outbox import Outbox
from tamis.client.subscription import Subscription
from tamis.client.transport import Dial, Transport
from tamis.errors import DisconnectedError, ProtocolError, RefusedError, TamisError
from tamis.protocol import Code, Hello, Refused, Welcome, decode_reply, encode
from tamis.protocol.codes import WORTH_A_RETRY

Token = str | Callable[[], str | Awaitable[str]] | None
"""A token, or what gives one at every connection."""

logger: Final = logging.getLogger("tamis.client")

# Who waits for ever for an answer still wants to connect anew, rather than to wait for a dead host.
_SECONDS_TO_CONNECT: Final = 30.0
# A connection that lasted so long was a good one.
_SECONDS_TO_TRUST: Final = 1.0


def time_to_connect(timeout: float | None) -> float:
    """Return how long one attempt to connect may take."""
    return _SECONDS_TO_CONNECT if timeout is None else min(timeout, _SECONDS_TO_CONNECT)


async def token_of(token: Token) -> str | None:
    """Return the token for the next connection."""
    given = token() if callable(token) else token
    return await given if inspect.isawaitable(given) else given


class Keeper:
    """The connection of a bus, whichever it is at the moment."""

    def __init__(
        self,
        dial: Dial,
        token: Token,
        outbox: Outbox,
        *,
        timeout: float | None,
        reconnects: bool,
    ) -> None:
        self._dial = dial
        self._token = token
        self._outbox = outbox
        self._reconnects = reconnects
        self._backoff = Backoff()
        self._link: Link | None = None
        self._welcome: Welcome | None = None
        self._subscriptions: dict[Subscription, None] = {}
        self._names: dict[str, Subscription] = {}
        """Those that are durable."""
        self._task: asyncio.Task[None] | None = None
        self._is_connected = asyncio.Event()
        self._has_failed = asyncio.Event()
        self.timeout = timeout
        """How long to wait for an answer."""
        self.failure: RefusedError | None = None
        """Why there is no connection, and will be none."""

    # --- what it is ------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Tell whether there is a connection now."""
        return self._link is not None

    @property
    def welcome(self) -> Welcome:
        """Return what the broker said of itself last."""
        if self._welcome is None:
            raise self.failure or DisconnectedError("the bus is not open; use `async with`")
        return self._welcome

    @property
    def subscriptions(self) -> list[Subscription]:
        """Return those that are in force, or will be after the next connection."""
        return [*self._subscriptions]

    def check(self) -> None:
        """Raise the reason if there is no connection to be hoped for."""
        if self.failure is not None:
            raise self.failure

    # --- beginning and end -----------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; what goes wrong this first time is raised."""
        self._task = asyncio.create_task(self._stay_connected(), name="tamis client")
        waits = [asyncio.create_task(e.wait()) for e in (self._is_connected, self._has_failed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        self.check()

    async def close(self) -> None:
        """Disconnect; whatever still waits for an answer gets none."""
        self._fail(DisconnectedError("the bus is closed"))
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def flush(self, *, publications: bool = True) -> None:
        """Wait until all publications are answered, and acknowledgements have arrived.

        Without a connection, acknowledgements are not worth waiting for: their events come again.
        """
        while publications and self._outbox.events:
            self._outbox.has_changed.clear()
            await self._outbox.has_changed.wait()
        for subscription in self._subscriptions:
            subscription.flush()
        if self._link is not None:
            await self._link.ping()

    async def wait_until_over(self) -> None:
        """Return when the bus was closed, or has failed."""
        await self._has_failed.wait()

    # --- for subscriptions -----------------------------------------------------------------------

    def enter(self, subscription: Subscription) -> None:
        """Ask the broker for a subscription, now and after every reconnect."""
        self.check()
        if self._task is None:
            raise DisconnectedError("the bus is not open; use `async with`")
        name = subscription.durable
        if name is not None:
            if name in self._names:
                raise RefusedError(Code.CONFLICT, f"this bus has a subscription {name!r} already")
            self._names[name] = subscription
        self._subscriptions[subscription] = None
        if self._link is not None:
            self._link.subscribe(subscription)

    async def leave(self, subscription: Subscription, *, delete: bool) -> None:
        """End a subscription; one that is to be deleted may have to wait for a connection."""
        try:
            async with asyncio.timeout(self.timeout):
                if delete:
                    await self._is_connected.wait()
                if self._link is not None:
                    await self._link.unsubscribe(subscription, delete=delete)
        except (DisconnectedError, TimeoutError):
            if delete:
                raise DisconnectedError(f"{subscription!r} could not be deleted in time") from None

    def forget(self, subscription: Subscription) -> None:
        """Take note that a subscription is over."""
        self._subscriptions.pop(subscription, None)
        name = subscription.durable
        if name is not None and self._names.get(name) is subscription:
            del self._names[name]

    def stir(self, subscription: Subscription) -> None:
        """Let the broker be told what it has to know of a subscription."""
        if self._link is not None:
            self._link.stir(subscription)

    def wake(self) -> None:
        """Let the outbox be looked at."""
        if self._link is not None:
            self._link.wake()

    # --- the connection --------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            reason = await self._reason_for_end()
            if self._is_final(reason):
                self._fail(_as_refusal(reason))
                return
            if now() - began > _SECONDS_TO_TRUST:
                self._backoff.reset()
            wait = self._backoff.next()
            logger.warning("%s; connecting again in %.1f s", reason, wait)
            await asyncio.sleep(wait)

    async def _reason_for_end(self) -> Exception:
        try:
            await self._connect()
        except TamisError as error:
            return error
        except Exception as error:
            logger.exception("the connection ended in a way that nobody thought of")
            return error
        return DisconnectedError("the connection ended")

    async def _connect(self) -> None:
        transport = await self._dial()
        try:
            self._welcome = welcome = await self._greeted(transport)
            next_ref = partial(next, itertools.count(1))
            self._link = link = Link(transport, self._outbox, welcome.largest_frame, next_ref)
            for subscription in self.subscriptions:
                if not subscription.is_over:
                    link.subscribe(subscription)
            link.wake()
            self._is_connected.set()
            await link.run()
        finally:
            self._link = None
            self._is_connected.clear()
            self._outbox.disconnected()
            await transport.close()

    async def _greeted(self, transport: Transport) -> Welcome:
        """Say who we are, and return what the broker says of itself."""
        try:
            async with asyncio.timeout(time_to_connect(self.timeout)):
                hello = Hello(token=await token_of(self._token), client=_client())
                await transport.send(encode(hello))
                reply = decode_reply(await transport.receive())
        except TimeoutError:
            raise DisconnectedError("the broker did not say welcome in time") from None
        match reply:
            case Welcome():
                return reply
            case Refused():
                raise RefusedError(reply.code, reply.message)
            case _:
                raise ProtocolError("a broker begins with `welcome`")

    def _is_final(self, reason: Exception) -> bool:
        if self._welcome is None or not self._reconnects:
            return True
        return not (isinstance(reason, RefusedError) and reason.code in WORTH_A_RETRY)

    def _fail(self, error: RefusedError) -> None:
        self.failure = self.failure or error
        self._outbox.fail(self.failure)
        for subscription in self.subscriptions:
            subscription.end(self.failure)
        self._has_failed.set()


def _as_refusal(error: Exception) -> RefusedError:
    return error if isinstance(error, RefusedError) else DisconnectedError(str(error))


def _client() -> str:
    return f"tamis-python/{version('tamis')}"
