"""A connection without a network: how it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec import Raw

from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.frontend.connection import Connection
from tamis.broker.sessions.publishing import MAX_BYTES_DECODED_ON_LOOP
from tamis.errors import DisconnectedError
from tamis.protocol import (
    Deliver,
    Ended,
    Hello,
    Ping,
    Pong,
    Publish,
    Published,
    Refused,
    Subscribe,
    Subscribed,
    Welcome,
    decode_reply,
    encode_frame,
)
from tamis.protocol.frames import Reply, Request
from tamis.storage import EventLog
from waiting import eventually_async


class FakeTransport:
    """A transport with the test at the other end."""

    def __init__(self) -> None:
        self._to_broker: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._to_client: asyncio.Queue[Reply] = asyncio.Queue()
        self.closed: asyncio.Future[tuple[int, str]] = asyncio.Future()

    async def receive(self) -> bytes:
        frame = await self._to_broker.get()
        if frame is None:
            raise DisconnectedError("disconnected")
        return frame

    async def send(self, frame: bytes) -> None:
        if self.closed.done():
            raise DisconnectedError("disconnected")
        self._to_client.put_nowait(decode_reply(frame))

    async def close(self, code: int, reason: str) -> None:
        self.closed.set_result((code, reason))

    @property
    def is_read(self) -> bool:
        return self._to_broker.empty()

    def send_request(self, frame: Request) -> None:
        self._to_broker.put_nowait(encode_frame(frame))

    def disconnect(self) -> None:
        self._to_broker.put_nowait(None)

    async def next_reply(self) -> Reply:
        return await asyncio.wait_for(self._to_client.get(), 10)


Scenario = Callable[[Broker, Connection, FakeTransport], Awaitable[None]]


def run_scenario(folder: Path, scenario: Scenario) -> None:
    """Run a scenario on a connection after its hello."""

    async def run() -> None:
        async with await Broker.open(BrokerSettings(data=folder)) as broker:
            transport = FakeTransport()
            connection = Connection.over(broker, transport)
            running = asyncio.create_task(connection.run())
            transport.send_request(Hello())
            assert isinstance(await transport.next_reply(), Welcome)
            await scenario(broker, connection, transport)
            await asyncio.wait_for(running, 10)
            assert broker.status()["connections"] == 0

    asyncio.run(run())


def test_a_stopped_connection_gives_the_reason(tmp_path: Path) -> None:
    async def scenario(_: Broker, connection: Connection, transport: FakeTransport) -> None:
        connection.stop()
        assert await transport.closed == (1012, "the broker stops")

    run_scenario(tmp_path, scenario)


def test_publications_before_the_end_are_answered(tmp_path: Path) -> None:
    async def scenario(_: Broker, connection: Connection, transport: FakeTransport) -> None:
        for ref in range(50):
            transport.send_request(_publish(ref))
        await eventually_async(lambda: transport.is_read)
        connection.stop()
        assert (await transport.closed)[0] == 1012
        answers = [await transport.next_reply() for _ in range(50)]
        assert [answer.ref for answer in answers if isinstance(answer, Published)] == [*range(50)]

    run_scenario(tmp_path, scenario)


def test_publications_are_answered_in_order_wherever_they_are_decoded(tmp_path: Path) -> None:
    """Seen failing: those that a thread had decoded were answered before others of their commit."""
    has_begun, may_go_on, append = threading.Event(), threading.Event(), EventLog.append

    def append_slowly(log: EventLog, *arguments: Any) -> range:
        has_begun.set()
        may_go_on.wait(10)
        return append(log, *arguments)

    async def scenario(broker: Broker, _: Connection, transport: FakeTransport) -> None:
        large = b'{"a":"%s"}' % (b"x" * 2 * MAX_BYTES_DECODED_ON_LOOP)
        texts = [b'{"a":1}', b'{"a":2}', b'{"a":3}', large, b"[]", b'{"a":4}', large]
        for ref, text in enumerate(texts):
            transport.send_request(Publish(ref=ref, events=[Raw(text)]))
            await eventually_async(has_begun.is_set)
        # All but the first, which is being written, and the one that is not an event.
        await eventually_async(lambda: broker.committer._waiting.qsize() == len(texts) - 2)
        may_go_on.set()
        answers = [await transport.next_reply() for _ in texts]
        assert [(type(one), getattr(one, "ref", None)) for one in answers] == [
            (Refused if text == b"[]" else Published, ref) for ref, text in enumerate(texts)
        ]
        transport.disconnect()

    with patch.object(EventLog, "append", append_slowly):
        run_scenario(tmp_path, scenario)


def test_a_broker_that_closes_does_not_blame_the_client(tmp_path: Path) -> None:
    async def scenario(broker: Broker, _: Connection, transport: FakeTransport) -> None:
        broker.health.set_open(False)
        for session in [*broker._sessions]:
            session.revoke("the broker stops")
        assert (await transport.closed)[0] == 1012

    run_scenario(tmp_path, scenario)


def test_a_client_that_disconnects_early_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario(broker: Broker, _: Connection, transport: FakeTransport) -> None:
        transport.send_request(Subscribe(ref=1, filter="true", credit=5))
        transport.send_request(_publish(2))
        while not isinstance(await transport.next_reply(), Deliver):
            pass
        transport.send_request(_publish(3))
        transport.disconnect()
        await eventually_async(lambda: broker.status()["subscriptions"] == 0)
        assert not transport.closed.done()

    run_scenario(tmp_path, scenario)


def test_a_subscription_that_ends_after_its_answer_has_no_second_answer(tmp_path: Path) -> None:
    async def scenario(broker: Broker, _: Connection, transport: FakeTransport) -> None:
        attach, manager = Session.attach, broker.subscription_manager

        async def attach_late(session: Session, id_: str, *args: Any, **more: Any) -> Any:
            await manager.delete_all([*broker.subscription_index], "deleted")
            return await attach(session, id_, *args, **more)

        with patch.object(Session, "attach", attach_late):
            transport.send_request(Subscribe(ref=1, filter="true", durable="s", credit=5))
            transport.send_request(Ping(ref=2))
            replies = [await transport.next_reply() for _ in range(3)]
        assert [type(one) for one in replies] == [Subscribed, Ended, Pong]
        transport.disconnect()

    run_scenario(tmp_path, scenario)


def test_a_connection_can_be_cancelled(tmp_path: Path) -> None:
    async def run() -> None:
        async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
            transport = FakeTransport()
            running = asyncio.create_task(Connection.over(broker, transport).run())
            transport.send_request(Hello())
            await transport.next_reply()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert broker.status()["connections"] == 0

    asyncio.run(run())


def _publish(ref: int) -> Publish:

    return Publish(ref=ref, events=[Raw(b'{"a":1}')])


async def _end_at_once(publications: dict[object, object], done: object) -> None:
    publications.pop(done, None)


def test_a_publication_that_a_task_ends_at_once_is_not_waited_for() -> None:
    """Found by a reviewer: as eager tasks do, it had ended before its task was noted."""

    async def work() -> None:
        done = asyncio.get_running_loop().create_future()
        connection = object.__new__(Connection)
        connection._publications = {done: None}

        def begin(work: Any) -> asyncio.Future[None]:
            with pytest.raises(StopIteration):
                work.send(None)
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.set_result(None)
            return ended

        with patch.object(asyncio, "create_task", begin):
            connection._go_on(_end_at_once(connection._publications, done), done)  # type: ignore[arg-type]
        assert not connection._publications
        connection._publications[done] = None
        connection._go_on(asyncio.sleep(0), done)  # nothing to wait for
        assert isinstance(connection._publications[done], asyncio.Task)

    asyncio.run(work())
