"""Events that are sent at once to who waits for them, and what is left to the task."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from broker.authorization_fixture import run_async, subscribe
from broker.deliver.test_notifier import CollectingSink
from tamis import Engine
from tamis.broker import Attachment, Broker, BrokerSettings, Session
from tamis.broker.match import matcher
from tamis.broker.match.deferred import DeferredWriter
from tamis.broker.match.matcher import MIN_BATCH_EVENTS
from tamis.broker.publish.committer import MAX_EVENTS_AHEAD
from tamis.protocol import Deliver
from waiting import eventually_async


class DirectCollectingSink(CollectingSink):
    """Takes frames at once while it is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ready = True
        self.on_sent: Callable[[], None] = lambda: None

    def send_now(self, frame: Deliver) -> bool:
        if self.is_ready:
            self.frames.append(frame)
            self.on_sent()
        return self.is_ready

    def has_got(self, count: int) -> bool:
        return len(self.sequences()) == count

    def sequences(self) -> list[int]:
        frames = [frame for frame in self.frames if isinstance(frame, Deliver)]
        return [one.sequence for frame in frames for one in frame.events]


async def attached(session: Session, sink: DirectCollectingSink, credit: int = 10) -> Attachment:
    await subscribe(session, "true", "all")
    attachment = await session.attach("all", sink, credit=credit, acknowledge="manual")
    await eventually_async(lambda: attachment.is_waiting)
    return attachment


@run_async
async def test_who_waits_has_an_event_before_its_publisher_has_the_answer(tmp_path: Path) -> None:
    with patch.object(matcher, "MIN_QUICK_STEPS", 0):
        async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
            cache, were_answered = broker.event_cache, list[bool]()
            session, sink = await broker.authenticate(None), DirectCollectingSink()
            sink.on_sent = lambda: were_answered.append(not cache.unmatched.empty())
            await attached(session, sink)
            # The first one after a subscription is left to a thread.
            await session.publish([b"{}"])
            await eventually_async(partial(sink.has_got, 1))
            were_answered.clear()
            for _ in range(3):
                # The matcher is idle once the rows of the last one are written.
                await eventually_async(lambda: broker.matcher._is_idle)
                receipt = await session.publish([b"{}"])
                assert sink.sequences()[-1] == receipt.first
            assert were_answered == [False, False, False]


@run_async
async def test_the_first_event_after_a_change_and_those_for_very_many_are_left_to_the_thread(
    tmp_path: Path,
) -> None:
    """What they take would delay everybody: filters may have to be compiled for the first one."""
    threads: list[str] = []

    def note_thread(engine: Engine, *arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return match(engine, *arguments, **options)

    match = Engine.match
    with (
        patch.object(matcher, "MIN_QUICK_STEPS", 1),
        patch.object(matcher, "COSTLY_SECONDS", 10.0),
        patch.object(DeferredWriter, "max_rows_per_event", 2),
        patch.object(Engine, "match", note_thread),
    ):
        async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
            session = await broker.authenticate(None)

            async def publish(text: bytes) -> str:
                threads.clear()
                await eventually_async(lambda: broker.matcher._is_idle)
                await session.publish([text])
                await broker.matcher.drained()
                return " then ".join(threads)

            main, other = threading.main_thread().name, "tamis-match_0"
            assert await publish(b"{}") == other
            assert await publish(b"{}") == main
            for number in range(3):
                await subscribe(session, "wide = true", f"wide-{number}")
                # Nothing is deferred for those who are connected.
                sink = DirectCollectingSink()
                await session.attach(f"wide-{number}", sink, credit=100, acknowledge="manual")
                assert await publish(b"{}") == other
                assert await publish(b"{}") == main
            # It reaches three, and is found to do so.
            assert await publish(b'{"wide": true}') == f"{main} then {other}"
            assert await publish(b'{"wide": true}') == other
            assert await publish(b'{"wide": true}') == other


@run_async
async def test_a_sink_that_is_not_ready_gets_every_event_once_and_in_order(tmp_path: Path) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        session, sink = await broker.authenticate(None), DirectCollectingSink()
        await attached(session, sink, credit=100)
        for number in range(20):
            sink.is_ready = number % 3 == 0
            await session.publish([b"{}"])
        await eventually_async(lambda: len(sink.sequences()) == 20)
        assert sink.sequences() == sorted(set(sink.sequences()))


@run_async
async def test_nothing_is_sent_at_once_after_an_attachment_is_stopped_or_has_no_credit(
    tmp_path: Path,
) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        session, sink = await broker.authenticate(None), DirectCollectingSink()
        attachment = await attached(session, sink, credit=1)
        subscription = attachment.subscription
        await session.publish([b"{}"])
        await eventually_async(lambda: len(sink.frames) == 1)
        await session.publish([b"{}"])
        await broker.matcher.drained()
        broker.notifier.send_at_once(subscription)
        assert len(sink.frames) == 1
        broker.notifier.stop(attachment)
        attachment.credit = 10
        broker.notifier.send_at_once(subscription)
        assert len(sink.frames) == 1


@run_async
async def test_the_task_sleeps_while_events_are_sent_at_once_and_acknowledged(
    tmp_path: Path,
) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        session, sink = await broker.authenticate(None), DirectCollectingSink()
        attachment = await attached(session, sink)
        [wake_up] = attachment.subscription.queue.listeners
        with patch.object(wake_up, "set") as woken:
            for number in range(1, 4):
                await session.publish([b"{}"])
                await eventually_async(partial(sink.has_got, number))
                assert session.acknowledge_now("all", sink.sequences()[-1:])
        woken.assert_not_called()


@run_async
async def test_an_acknowledgement_that_makes_room_wakes_the_task(tmp_path: Path) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path, window=2)) as broker:
        session, sink = await broker.authenticate(None), DirectCollectingSink()
        await attached(session, sink, credit=100)
        for _ in range(6):
            await session.publish([b"{}"])
        await broker.matcher.drained()
        for number in range(2, 7):
            await eventually_async(partial(sink.has_got, number))
            assert session.acknowledge_now("all", [sink.sequences()[number - 2]])
        assert sink.sequences() == sorted(set(sink.sequences()))


@run_async
async def test_what_is_not_in_flight_is_not_acknowledged_at_once(tmp_path: Path) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        session, sink = await broker.authenticate(None), DirectCollectingSink()
        attachment = await attached(session, sink)
        await session.publish([b"{}"])
        await eventually_async(lambda: sink.frames)
        [sequence] = sink.sequences()
        assert not session.acknowledge_now("all", [sequence, sequence + 1])
        assert not session.acknowledge_now("another", [sequence])
        assert [*attachment.subscription.queue.in_flight] == [sequence]
        assert session.acknowledge_now("all", [sequence])
        assert not attachment.subscription.queue.in_flight


def test_the_rows_of_events_that_are_sent_ahead_are_always_written_after_them() -> None:
    """The matcher writes those of a batch at once, and then nothing may be ahead of its row."""
    assert MAX_EVENTS_AHEAD < MIN_BATCH_EVENTS
