"""A connection without a network: how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import Raw

from tamis.broker import Broker, BrokerSettings
from tamis.broker.frontend.connection import Connection
from tamis.errors import DisconnectedError
from tamis.protocol import (
    Deliver,
    Hello,
    Publish,
    Published,
    Subscribe,
    Welcome,
    decode_reply,
    encode,
)
from tamis.protocol.frames import Reply, Request
from waiting import eventually_async


class Line:
    """A transport with the test at the other end."""

    def __init__(self) -> None:
        self._to_broker: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._to_client: asyncio.Queue[Reply] = asyncio.Queue()
        self.closed: asyncio.Future[tuple[int, str]] = asyncio.Future()

    async def receive(self) -> bytes:
        frame = await self._to_broker.get()
        if frame is None:
            raise DisconnectedError("hung up")
        return frame

    async def send(self, frame: bytes) -> None:
        if self.closed.done():
            raise DisconnectedError("hung up")
        self._to_client.put_nowait(decode_reply(frame))

    async def close(self, code: int, reason: str) -> None:
        self.closed.set_result((code, reason))

    @property
    def is_read(self) -> bool:
        return self._to_broker.empty()

    def say(self, frame: Request) -> None:
        self._to_broker.put_nowait(encode(frame))

    def hang_up(self) -> None:
        self._to_broker.put_nowait(None)

    async def hear(self) -> Reply:
        return await asyncio.wait_for(self._to_client.get(), 10)


Scene = Callable[[Broker, Connection, Line], Awaitable[None]]


def play(folder: Path, scene: Scene) -> None:
    """Run a scene with a connection that has said hello."""

    async def run() -> None:
        async with await Broker.open(BrokerSettings(data=folder)) as broker:
            line = Line()
            connection = Connection.over(broker, line)
            running = asyncio.create_task(connection.run())
            line.say(Hello())
            assert isinstance(await line.hear(), Welcome)
            await scene(broker, connection, line)
            await asyncio.wait_for(running, 10)
            assert broker.status()["connections"] == 0

    asyncio.run(run())


def test_a_stopped_connection_says_so(tmp_path: Path) -> None:
    async def scene(_: Broker, connection: Connection, line: Line) -> None:
        connection.stop()
        assert await line.closed == (1012, "the broker stops")

    play(tmp_path, scene)


def test_what_was_published_before_the_end_is_answered(tmp_path: Path) -> None:
    async def scene(_: Broker, connection: Connection, line: Line) -> None:
        for ref in range(50):
            line.say(_publish(ref))
        await eventually_async(lambda: line.is_read)
        connection.stop()
        assert (await line.closed)[0] == 1012
        answers = [await line.hear() for _ in range(50)]
        assert [answer.ref for answer in answers if isinstance(answer, Published)] == [*range(50)]

    play(tmp_path, scene)


def test_a_broker_that_closes_does_not_blame_the_client(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: Connection, line: Line) -> None:
        broker.health.set_open(False)
        for session in [*broker._sessions]:
            session.revoke("the broker stops")
        assert (await line.closed)[0] == 1012

    play(tmp_path, scene)


def test_who_hangs_up_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scene(broker: Broker, _: Connection, line: Line) -> None:
        line.say(Subscribe(ref=1, filter="true", credit=5))
        line.say(_publish(2))
        while not isinstance(await line.hear(), Deliver):
            pass
        line.say(_publish(3))
        line.hang_up()
        await eventually_async(lambda: broker.status()["subscriptions"] == 0)
        assert not line.closed.done()

    play(tmp_path, scene)


def test_a_connection_can_be_cancelled(tmp_path: Path) -> None:
    async def run() -> None:
        async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
            line = Line()
            running = asyncio.create_task(Connection.over(broker, line).run())
            line.say(Hello())
            await line.hear()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert broker.status()["connections"] == 0

    asyncio.run(run())


def _publish(ref: int) -> Publish:

    return Publish(ref=ref, events=[Raw(b'{"a":1}')])
