"""The brokers to compare, each with its own Python client.

Tamis filters in the broker. The others know subjects, and everything is on one of them, so their
subscribers receive all events and filter them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
)
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import tamis
from benchmarks.broker import servers
from benchmarks.broker.servers import Server
from tamis.client.bus import Bus

SUBJECT: Final = "events"
IN_FLIGHT: Final = 1_000
FLUSH_SECONDS: Final = 300.0
NOW: Final = "Tamis"
EARLIER: Final = "Tamis, earlier checkout"

Take = Callable[[bytes], None]


class Client(Protocol):
    """A client of one system; it publishes or subscribes."""

    async def subscribe(self, filter_: str, take: Take) -> None:
        """Register a function to be called with every event."""

    async def publish(self, text: bytes) -> None:
        """Send an event without waiting for the acknowledgement."""

    async def publish_all(self, texts: Sequence[bytes]) -> None:
        """Publish events, and wait for the acknowledgements if there are any."""

    async def flush(self) -> None:
        """Wait until everything published is acknowledged."""


Connect = Callable[[int], AbstractAsyncContextManager[Client]]


class System(NamedTuple):
    """A broker, and what it guarantees for an acknowledged event."""

    name: str
    promise: str
    serve: Callable[[Path], AbstractContextManager[Server]]
    connect: Connect
    filters: bool = False
    """Whether the broker filters, so that the subscriber need not."""
    needs: tuple[str, str] | None = None
    """A package of PyPI, and the module in it."""
    checkout: Path | None = None
    """The checkout of Tamis whose broker and client these are, if not this one."""


# --- Tamis -----------------------------------------------------------------------------------


class TamisClient:
    """The client that comes with Tamis."""

    def __init__(self, bus: Bus, *, durable: bool) -> None:
        self._bus = bus
        self._durable = durable
        self._receiving: asyncio.Task[None] | None = None
        self._publishing: set[asyncio.Task[Any]] = set()

    async def subscribe(self, filter_: str, take: Take) -> None:
        name = "measured" if self._durable else None
        subscription = await self._bus.subscribe(filter_, durable=name)

        async def take_all() -> None:
            async for message in subscription:
                take(message.text)

        self._receiving = asyncio.create_task(take_all())

    async def publish(self, text: bytes) -> None:
        task = asyncio.create_task(self._bus.publish(text))
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def publish_all(self, texts: Sequence[bytes]) -> None:
        await self._bus.publish_many(texts)

    async def flush(self) -> None:
        await asyncio.gather(*self._publishing)


@asynccontextmanager
async def connect_tamis(port: int, *, durable: bool) -> AsyncIterator[Client]:
    """Connect to a Tamis broker."""
    async with tamis.connect(f"http://127.0.0.1:{port}") as bus:
        yield TamisClient(bus, durable=durable)


# --- NATS ------------------------------------------------------------------------------------


class NatsClient:
    """NATS subjects without persistence."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def subscribe(self, _filter: str, take: Take) -> None:
        await self._connection.subscribe(SUBJECT, cb=_callback(take))
        await self._connection.flush()

    async def publish(self, text: bytes) -> None:
        await self._connection.publish(SUBJECT, text)

    async def publish_all(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            await self._connection.publish(SUBJECT, text)
        await self.flush()

    async def flush(self) -> None:
        await self._connection.flush(FLUSH_SECONDS)


class JetStreamClient:
    """A NATS stream in a file, with a subscriber that acknowledges."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def subscribe(self, _filter: str, take: Take) -> None:
        await self._stream.subscribe(SUBJECT, cb=_callback(take))

    async def publish(self, text: bytes) -> None:
        await self._stream.publish_async(SUBJECT, text)

    async def publish_all(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            await self._stream.publish_async(SUBJECT, text)
        await self.flush()

    async def flush(self) -> None:
        await asyncio.wait_for(self._stream.publish_async_completed(), FLUSH_SECONDS)


def _callback(take: Take) -> Callable[[Any], Awaitable[None]]:
    async def called(message: Any) -> None:
        take(message.data)

    return called


@asynccontextmanager
async def connect_nats(port: int) -> AsyncIterator[Client]:
    """Connect to NATS."""
    connection = await import_module("nats").connect(f"nats://127.0.0.1:{port}")
    try:
        yield NatsClient(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def connect_jetstream(port: int) -> AsyncIterator[Client]:
    """Connect to NATS and create a stream if there is none."""
    connection = await import_module("nats").connect(f"nats://127.0.0.1:{port}")
    try:
        stream = connection.jetstream()
        await stream.add_stream(name="stream", subjects=[SUBJECT])
        yield JetStreamClient(stream)
    finally:
        await connection.close()


# --- Mosquitto -------------------------------------------------------------------------------


class MosquittoClient:
    """MQTT with acknowledgements in both directions (QoS 1)."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._sent: list[Any] = []

    async def subscribe(self, _filter: str, take: Take) -> None:
        granted = threading.Event()
        self._client.on_subscribe = lambda *_: granted.set()
        self._client.on_message = lambda _client, _data, message: take(message.payload)
        self._client.subscribe(SUBJECT, qos=1)
        await asyncio.to_thread(granted.wait)

    async def publish(self, text: bytes) -> None:
        self._sent.append(self._client.publish(SUBJECT, text, qos=1))

    async def publish_all(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            self._sent.append(self._client.publish(SUBJECT, text, qos=1))
        await self.flush()

    async def flush(self) -> None:
        sent, self._sent = self._sent, []
        await asyncio.to_thread(lambda: [message.wait_for_publish() for message in sent])


@asynccontextmanager
async def connect_mosquitto(port: int) -> AsyncIterator[Client]:
    """Connect to Mosquitto; the client has its own network thread."""
    mqtt = import_module("paho.mqtt.client")
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(IN_FLIGHT)
    connected = threading.Event()
    client.on_connect = lambda *_: connected.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    await asyncio.to_thread(connected.wait)
    try:
        yield MosquittoClient(client)
    finally:
        client.disconnect()
        client.loop_stop()


SYSTEMS: Final = (
    System(
        NOW,
        "events are on disk (fsync) before they are acknowledged; the subscriber gets what is "
        "published while it is connected",
        servers.tamis,
        partial(connect_tamis, durable=False),
        filters=True,
    ),
    System(
        "Tamis, durable subscription",
        "the same, and what waits for the subscriber stays on disk until it acknowledges",
        servers.tamis,
        partial(connect_tamis, durable=True),
        filters=True,
    ),
    System(
        "Tamis without its broker",
        "only the log, the engine and the frames: events are on disk (fsync) before they are "
        "acknowledged, and nothing else is promised",
        servers.bare,
        partial(connect_tamis, durable=False),
        filters=True,
    ),
    System(
        "Mosquitto, QoS 1",
        "events are in memory until the subscriber acknowledges",
        servers.mosquitto,
        connect_mosquitto,
        needs=("paho-mqtt", "paho.mqtt.client"),
    ),
    System(
        "NATS",
        "nothing is kept, nothing is acknowledged",
        servers.nats,
        connect_nats,
        needs=("nats-py", "nats"),
    ),
    System(
        "NATS JetStream",
        "events are in a file, synced every two minutes; the subscriber acknowledges",
        servers.nats,
        connect_jetstream,
        needs=("nats-py", "nats"),
    ),
)


def by_name(name: str) -> System:
    """Return one of the systems."""
    return next(system for system in SYSTEMS if system.name == name)


def earlier(checkout: Path) -> System:
    """Return Tamis as it is in another checkout, with the client of that checkout."""
    return by_name(NOW)._replace(
        name=EARLIER,
        promise=f"the broker and the client of {checkout}",
        serve=partial(servers.tamis_of, checkout),
        checkout=checkout,
    )
