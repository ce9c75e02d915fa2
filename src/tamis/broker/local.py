"""A bus in one process: the client and the broker, connected by two queues."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import deque
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar, Unpack

from tamis.broker.broker import Broker
from tamis.broker.frontend.connection import Connection
from tamis.broker.operations.settings import BrokerSettings
from tamis.client.bus import Bus
from tamis.client.options import ClientOptions, ConnectOptions, Token
from tamis.client.reconnector import resolve_token
from tamis.client.sync import SyncBus
from tamis.client.transport import Transport
from tamis.errors import DisconnectedError
from tamis.protocol.management import ManagementCall

T = TypeVar("T")

MAX_FRAMES: Final = 64


def open_bus(
    folder: Path | str | None = None,
    *,
    settings: BrokerSettings | None = None,
    **options: Unpack[ConnectOptions],
) -> LocalBus:
    """Return a bus with its own broker, to be used with `async with`.

    Everything is stored in the folder; without one, in a temporary folder that is deleted
    afterwards.
    """
    return LocalBus(None if folder is None else Path(folder), settings, ClientOptions.of(options))


def open_bus_sync(
    folder: Path | str | None = None,
    *,
    settings: BrokerSettings | None = None,
    **options: Unpack[ConnectOptions],
) -> SyncBus:
    """Return the synchronous version of `open_bus`, to be used with `with`."""
    # Mistakes show here, rather than when the bus opens.
    ClientOptions.of(options)
    return SyncBus(lambda: open_bus(folder, settings=settings, **options))


class LocalBus(Bus):
    """A bus with its own broker."""

    def __init__(
        self, folder: Path | None, settings: BrokerSettings | None, options: ClientOptions
    ) -> None:
        self._host = _Host(folder, settings)
        name = "in a temporary folder" if folder is None else str(folder)
        super().__init__(
            name, self._host.dial, partial(LocalManagement, self._host, options.token), options
        )

    @property
    def broker(self) -> Broker:
        """Return the broker."""
        return self._host.broker

    def connect(self, **options: Unpack[ConnectOptions]) -> Bus:
        """Return another client of this broker, to be used with `async with`."""
        chosen = ClientOptions.of(options)
        management = partial(LocalManagement, self._host, chosen.token)
        return Bus(self._name, self._host.dial, management, chosen)

    async def open(self) -> Self:
        """Open the broker; `async with` does it."""
        await self._host.open()
        try:
            return await super().open()
        except BaseException:
            await self._host.close()
            raise

    async def close(self, *, drain: bool = True) -> None:
        """Finish, and close the broker."""
        try:
            await super().close(drain=drain)
        finally:
            await self._host.close()


class _Host:
    """A broker, the folder it needs, and its connections."""

    def __init__(self, folder: Path | None, settings: BrokerSettings | None) -> None:
        self._settings = settings or BrokerSettings.model_validate({})
        is_named = "data" in self._settings.model_fields_set
        self._folder = self._settings.data if folder is None and is_named else folder
        self._broker: Broker | None = None
        self._exits = contextlib.AsyncExitStack()
        self._connections: dict[asyncio.Task[None], Connection] = {}

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            raise DisconnectedError("the bus is not open; use `async with`")
        return self._broker

    async def open(self) -> None:
        folder = self._folder or Path(
            self._exits.enter_context(tempfile.TemporaryDirectory(prefix="tamis-"))
        )
        settings = self._settings.model_copy(update={"data": folder})
        try:
            self._broker = await self._exits.enter_async_context(await Broker.open(settings))
            self._exits.push_async_callback(self._disconnect_all)
        except BaseException:
            await self._exits.aclose()
            raise

    async def close(self) -> None:
        await self._exits.aclose()
        self._broker = None

    async def _disconnect_all(self) -> None:
        for connection in [*self._connections.values()]:
            connection.stop()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def dial(self) -> Transport:
        to_broker, to_client = _Lane(), _Lane()
        connection = Connection.over(self.broker, _BrokerSide(to_broker, to_client))
        task = self.broker.supervisor.start("connection", connection.run())
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)
        return _ClientSide(to_client, to_broker)


# --- transport -----------------------------------------------------------------------------------


class _Lane:
    """Frames in one direction, a bounded number of them."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._change = asyncio.Condition()
        self._is_closed = False

    async def put(self, frame: bytes) -> None:
        async with self._change:
            await self._change.wait_for(lambda: self._is_closed or len(self._frames) < MAX_FRAMES)
            if self._is_closed:
                raise DisconnectedError("the other side has gone")
            self._frames.append(frame)
            self._change.notify_all()

    async def get(self) -> bytes:
        async with self._change:
            await self._change.wait_for(lambda: self._is_closed or self._frames)
            if not self._frames:
                raise DisconnectedError("the other side has gone")
            self._change.notify_all()
            return self._frames.popleft()

    async def close(self) -> None:
        async with self._change:
            self._is_closed = True
            self._change.notify_all()


class _ClientSide(Transport):
    """The client's end of a connection."""

    def __init__(self, incoming: _Lane, outgoing: _Lane) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def send(self, frame: bytes) -> None:
        await self._outgoing.put(frame)

    async def receive(self) -> bytes:
        return await self._incoming.get()

    async def close(self) -> None:
        await self._outgoing.close()
        await self._incoming.close()


class _BrokerSide(_ClientSide):
    """The broker's end; what it sent before it closed can still be read."""

    async def close(self, code: int = 0, reason: str = "") -> None:  # noqa: ARG002
        await super().close()


# --- management ----------------------------------------------------------------------------------


class LocalManagement:
    """Makes management calls to a broker in the same process."""

    def __init__(self, host: _Host, token: Token) -> None:
        self._host = host
        self._token = token

    async def call(self, call: ManagementCall[T], *, keep_alive: bool = False) -> T:  # noqa: ARG002
        """Return the broker's answer to a call."""
        session = await self._host.broker.authenticate(await resolve_token(self._token))
        try:
            return await session.perform(call)
        finally:
            await session.close()

    async def close(self) -> None:
        """Do nothing: there is no connection."""
