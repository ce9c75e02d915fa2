"""Keeps a bus connected: reconnects after every loss, and resumes its subscriptions."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
from collections.abc import Iterable
from functools import partial
from importlib.metadata import version
from typing import Final

from tamis.client.advertisement_tracker import AdvertisementTracker
from tamis.client.connection import Backoff, ClientConnection
from tamis.client.consumer import Consumer
from tamis.client.options import Token
from tamis.client.query_tracker import QueryTracker
from tamis.client.queues import Outbox
from tamis.client.transport import Dial, Transport
from tamis.errors import DisconnectedError, ProtocolError, RefusedError, TamisError
from tamis.protocol import Code, Hello, Refused, Welcome, decode_reply, encode_frame
from tamis.protocol.codes import RETRYABLE

logger: Final = logging.getLogger("tamis.client")

# Applies even without a timeout: reconnecting is better than waiting for a dead host.
_SECONDS_TO_CONNECT: Final = 30.0
# A connection that lasted this long was good, so the next wait is short again.
_SECONDS_TO_TRUST: Final = 1.0


def time_to_connect(timeout: float | None) -> float:
    """Return the seconds that one attempt to connect may take."""
    return _SECONDS_TO_CONNECT if timeout is None else min(timeout, _SECONDS_TO_CONNECT)


async def resolve_token(token: Token) -> str | None:
    """Return the token for the next connection."""
    given = token() if callable(token) else token
    return await given if inspect.isawaitable(given) else given


NAME_IS_TAKEN: Final = "this bus has a subscription"
"""How the refusal of a second consumer begins, so that collections can say it in their words."""


class Reconnector:
    """The current connection of a bus, replaced whenever it is lost."""

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
        self._welcome: Welcome | None = None
        self._consumers: dict[Consumer, None] = {}
        self._names: dict[str, Consumer] = {}
        """The durable ones."""
        self._task: asyncio.Task[None] | None = None
        self._is_connected = asyncio.Event()
        self._has_failed = asyncio.Event()
        self.query_tracker: Final = QueryTracker(self._check_open, lambda: self.timeout)
        """The sources and queries of the bus."""
        self.advertisement_tracker: Final = AdvertisementTracker(
            self._check_open, lambda: self.timeout
        )
        """What the bus has advertised."""
        self.connection: ClientConnection | None = None
        """The connection that there is now."""
        self.timeout = timeout
        """Seconds to wait for an answer."""
        self.failure: RefusedError | None = None
        """Why the connection is lost for good, None until then."""

    # --- properties ------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection now."""
        return self.connection is not None

    @property
    def welcome(self) -> Welcome:
        """Return the broker's latest welcome."""
        if self._welcome is None:
            raise self.failure or DisconnectedError("the bus is not open; use `async with`")
        return self._welcome

    @property
    def consumers(self) -> list[Consumer]:
        """Return the consumers that are active, or will be after the next connection."""
        return [*self._consumers]

    def _check_open(self) -> None:
        self.check()
        if self._task is None:
            raise DisconnectedError("the bus is not open; use `async with`")

    def check(self) -> None:
        """Raise the reason if the connection is lost for good."""
        if self.failure is not None:
            raise self.failure

    # --- opening and closing ---------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; the first attempt raises its error."""
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
        """Disconnect; everything that waits for an answer fails."""
        self._fail(DisconnectedError("the bus is closed"))
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def flush(self, *, publications: bool = True) -> None:
        """Wait until all publications and acknowledgements are on the broker's disk."""
        while publications and self._outbox.events:
            self._outbox.has_changed.clear()
            await self._outbox.has_changed.wait()
        await self.flush_acknowledgements(self.consumers)

    async def flush_acknowledgements(self, consumers: Iterable[Consumer]) -> None:
        """Wait until all acknowledgements are on the broker's disk; raise if some may be lost.

        They do not wait for another connection: the broker sends their events again anyway.
        """
        lost = [consumer.begin_flush() for consumer in consumers]
        try:
            if self.connection is not None:
                await self.connection.flush()
        except DisconnectedError:
            lost = [True]
        if any(lost):
            raise DisconnectedError(
                "the connection was lost before all acknowledgements were on the broker's disk; "
                "it sends their events again"
            )

    async def wait_until_over(self) -> None:
        """Return when the bus is closed or has failed."""
        await self._has_failed.wait()

    # --- for consumers ---------------------------------------------------------------------------

    def register(self, consumer: Consumer) -> None:
        """Subscribe, now and after every reconnect."""
        self._check_open()
        name = consumer.durable
        if name is not None:
            if name in self._names:
                raise RefusedError(
                    Code.CONFLICT,
                    f"{NAME_IS_TAKEN} {name!r} already; several tasks can take the "
                    "events of one consumer",
                )
            self._names[name] = consumer
        self._consumers[consumer] = None
        if self.connection is not None:
            self.connection.subscribe(consumer)

    async def unsubscribe(self, consumer: Consumer, *, delete: bool) -> None:
        """End the subscription at the broker; deleting it waits for a connection."""
        try:
            async with asyncio.timeout(self.timeout):
                if delete:
                    await self._is_connected.wait()
                if self.connection is not None:
                    await self.connection.unsubscribe(consumer, delete=delete)
        except (DisconnectedError, TimeoutError):
            if delete:
                raise DisconnectedError(f"{consumer!r} could not be deleted in time") from None

    def leave(self, consumer: Consumer) -> None:
        """Remove a consumer, and tell the broker without waiting for its answer."""
        if self.connection is not None:
            self.connection.leave(consumer)
        self.remove(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer that is closed."""
        self._consumers.pop(consumer, None)
        name = consumer.durable
        if name is not None and self._names.get(name) is consumer:
            del self._names[name]

    def schedule_flush(self, consumer: Consumer) -> None:
        """Send the consumer's acknowledgements and credit soon."""
        if self.connection is not None:
            self.connection.schedule_flush(consumer)

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
            logger.exception("unexpected error on the connection")
            return error
        return DisconnectedError("the connection ended")

    async def _connect(self) -> None:
        transport = await self._dial()
        try:
            self._welcome = welcome = await self._greet(transport)
            next_ref = partial(next, itertools.count(1))
            self.connection = connection = ClientConnection(
                transport,
                self._outbox,
                welcome,
                next_ref,
                query_tracker=self.query_tracker,
                advertisement_tracker=self.advertisement_tracker,
            )
            for consumer in self.consumers:
                if not consumer.is_closed:
                    connection.subscribe(consumer)
            self.query_tracker.connected(connection)
            self.advertisement_tracker.connected(connection)
            connection.wake()
            self._is_connected.set()
            await connection.run()
        finally:
            self.connection = None
            self._is_connected.clear()
            self._outbox.disconnected()
            self.query_tracker.disconnected()
            self.advertisement_tracker.disconnected()
            await transport.close()

    async def _greet(self, transport: Transport) -> Welcome:
        """Send hello, and return the broker's welcome."""
        try:
            async with asyncio.timeout(time_to_connect(self.timeout)):
                hello = Hello(token=await resolve_token(self._token), client=_client_name())
                await transport.send(encode_frame(hello))
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
        return not (isinstance(reason, RefusedError) and reason.code in RETRYABLE)

    def _fail(self, error: RefusedError) -> None:
        self.failure = self.failure or error
        self._outbox.fail(self.failure)
        for consumer in self.consumers:
            consumer.end(self.failure)
        self.query_tracker.fail(self.failure)
        self.advertisement_tracker.fail(self.failure)
        self._has_failed.set()


def _as_refusal(error: Exception) -> RefusedError:
    return error if isinstance(error, RefusedError) else DisconnectedError(str(error))


def _client_name() -> str:
    return f"tamis-python/{version('tamis')}"
