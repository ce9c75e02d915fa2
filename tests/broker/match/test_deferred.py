"""Deferred matches: many absent subscribers get every event, in order, once, and count losses."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.authorization_clients import as_json
from broker.authorization_fixture import broker_fixture, fetched, run_async, subscribe
from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.match.deferred import PROBLEM, DeferredWriter
from tamis.broker.publish.publishers import FanOut
from tamis.errors import StorageFullError
from tamis.storage import StateStore, tables
from waiting import eventually_async

POLICY = "[roles.user]\nsee = true\npublish = true\n"
NAMES = [f"s{n}" for n in range(6)]
FULL = StorageFullError("state.db", "the disk is full")


@pytest.fixture(autouse=True)
def _small_limits() -> Iterator[None]:
    with (
        patch.object(DeferredWriter, "max_rows_per_event", 3),
        patch.object(DeferredWriter, "rows_per_slice", 2),
        patch.object(tables, "MAX_DEFERRED_PER_ROW", 2),
    ):
        yield


def events(first: int, count: int) -> list[bytes]:
    return [b'{"a": %d}' % n for n in range(first, first + count)]


async def read(session: Session, name: str, count: int) -> list[int]:
    """Return the next events of a subscription, acknowledged."""
    found: list[int] = []
    while len(found) < count:
        got = await session.fetch(name, wait=10.0)
        # An answer without events tells of a loss.
        assert got or got.dropped, (name, found)
        found += [as_json(one)["data"]["a"] for one in got]
    return found


async def losses(session: Session) -> list[int]:
    return [(await session.subscription(name)).dropped for name in NAMES]


@contextmanager
def held_writer() -> Iterator[asyncio.Event]:
    """Keep everything from becoming pending until the event is set."""
    write, go = DeferredWriter._write_next, asyncio.Event()

    async def write_later(writer: DeferredWriter) -> float:
        await go.wait()
        return await write(writer)

    with patch.object(DeferredWriter, "_write_next", write_later):
        yield go


async def is_written(broker: Broker) -> None:
    writer, state = broker.deferred_writer, broker.store.state
    await eventually_async(lambda: not (state.deferred_owners() or writer.latest or writer._owners))
    assert (writer._waiting, writer._held, writer._awaited) == (0, {}, {})


@run_async
async def test_each_absent_subscriber_gets_every_event_in_order(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        with patch.object(StateStore, "write_deferred", autospec=True, side_effect=FULL):
            await ann.publish(events(0, 3))
            await fixture.broker.matcher.drained()
            stored = fixture.broker.store.state
            assert [len(one.subscriptions()) for one in stored.deferred()] == 3 * [2, 2, 2]
            assert not stored._counters.pending
            await eventually_async(lambda: PROBLEM in str(fixture.broker.status()["problems"]))
        await eventually_async(lambda: fixture.broker.health.ready)
        await ann.publish(events(3, 2))
        for name in NAMES:
            assert await read(ann, name, 5) == [0, 1, 2, 3, 4]
        await is_written(fixture.broker)
        assert PROBLEM not in str(fixture.broker.status()["problems"])
        for name in NAMES:
            assert await fetched(ann, name) == []


@run_async
async def test_matches_of_others_are_not_deferred(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, bob = await fixture.login("ann", "user"), await fixture.login("bob", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        await subscribe(bob, "a >= 0", "own")
        with patch.object(DeferredWriter, "_write_next", lambda _: asyncio.Event().wait()):
            await bob.publish(events(0, 3))
            assert await read(bob, "own", 3) == [0, 1, 2]
            await bob.publish(events(3, 3))
            assert await read(bob, "own", 3) == [3, 4, 5]


@run_async
async def test_a_subscriber_that_waits_gets_its_event_at_once(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        waiting = asyncio.create_task(read(ann, "s3", 1))
        queue = fixture.broker.subscription_index.find("ann", "s3")
        assert queue is not None
        await eventually_async(lambda: bool(queue.queue.listeners))
        with patch.object(StateStore, "write_deferred", autospec=True, side_effect=FULL):
            await ann.publish(events(0, 1))
            assert await waiting == [0]
            deferred = fixture.broker.store.state.deferred()
            assert sum(len(one.subscriptions()) for one in deferred) == 5


@run_async
async def test_a_restart_resumes_what_was_deferred(tmp_path: Path) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path / "data")) as broker:
        session = await broker.authenticate(None)
        for name in NAMES:
            await subscribe(session, "a >= 0", name)
        write = StateStore.write_deferred
        calls: list[Any] = []

        def twice(state: StateStore, *args: Any) -> Any:
            if len(calls) == 2:
                raise FULL
            calls.append(args)
            return write(state, *args)

        with patch.object(StateStore, "write_deferred", autospec=True, side_effect=twice):
            await session.publish(events(0, 3))
            await broker.matcher.drained()
            await eventually_async(lambda: len(calls) == 2)
            await session.delete("s5")
            shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    async with await Broker.open(BrokerSettings(data=tmp_path / "crashed")) as broker:
        session = await broker.authenticate(None)
        await session.publish(events(3, 2))
        for name in NAMES[:-1]:
            assert await read(session, name, 5) == [0, 1, 2, 3, 4]
        await is_written(broker)


@run_async
async def test_what_is_deferred_can_be_acknowledged(tmp_path: Path) -> None:
    """It was sent before a power failure; then it was matched again."""
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        with held_writer() as go:
            await ann.publish(events(0, 3))
            await fixture.broker.matcher.drained()
            acknowledging = asyncio.gather(
                ann.acknowledge("s1", [1, 3]), ann.acknowledge("s2", [], up_to=2)
            )
            await asyncio.sleep(0.05)  # let them find what there is
            go.set()
            await acknowledging
        assert await read(ann, "s1", 1) == [1]
        assert await read(ann, "s2", 1) == [2]
        assert await read(ann, "s3", 3) == [0, 1, 2]


@run_async
async def test_a_damaged_row_holds_nobody_up(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        broker, ann = fixture.broker, await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        with held_writer() as go:
            await ann.publish(events(0, 1))
            await broker.matcher.drained()
            with broker.store.state._change(lasting=False) as (connection, *_):
                connection.execute("UPDATE deferred SET crc = 0 WHERE part = 1")
            acknowledging = asyncio.create_task(ann.acknowledge("s2", [1]))
            go.set()
            await asyncio.wait_for(acknowledging, 10)
        assert [row.table for row in broker.store.state.damaged] == ["deferred"]
        await eventually_async(lambda: not broker.deferred_writer.latest)
        await ann.publish(events(1, 1))
        for name in NAMES:
            assert (await read(ann, name, 1))[-1] in {0, 1}
        # Those of the row have lost it, and only they.
        assert await losses(ann) == [0, 0, 1, 1, 0, 0]
        assert {one.reason for one in broker.store.state.dropped()} == {"damage"}


@run_async
async def test_a_row_damaged_between_two_runs_is_told_to_those_it_was_for(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        state, ann = fixture.broker.store.state, await fixture.login("ann", "user")
        bob = await fixture.login("bob", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
            await subscribe(bob, "a >= 0", name)
        with patch.object(StateStore, "write_deferred", autospec=True, side_effect=FULL):
            await ann.publish(events(0, 2))
            await fixture.broker.matcher.drained()
            for damage in ("crc = 0", "numbers = zeroblob(16)"):
                sequence = 1 + ("zero" in damage)
                with state._change(lasting=False) as (connection, *_):
                    connection.execute(
                        f"UPDATE deferred SET {damage} "  # noqa: S608
                        "WHERE part = 1 AND owner = 'ann' AND sequence = ?",
                        (sequence,),
                    )
            shutil.copytree(tmp_path / "data", tmp_path / "crashed" / "data")
    for told in (2, 0):
        async with broker_fixture(tmp_path / "crashed", POLICY) as fixture:
            ann, bob = await fixture.login("ann", "user"), await fixture.login("bob", "user")
            await is_written(fixture.broker)
            assert await losses(ann) == [0, 0, 2, 2, 0, 0]
            assert await losses(bob) == [0] * len(NAMES)
            answer = await ann.fetch("s2")
            assert (answer.dropped, [*answer]) == (told, [])
            assert (await ann.subscription("s1")).pending == 2


@run_async
async def test_a_damaged_row_of_an_event_that_retention_removes_counts(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        state, ann = fixture.broker.store.state, await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        with held_writer():
            await ann.publish(events(0, 1))
            await fixture.broker.matcher.drained()
            with state._change(lasting=False) as (connection, *_):
                connection.execute("UPDATE deferred SET crc = 0 WHERE part = 1")
            assert [*state.drop_pending_below(2).values()] == [1] * len(NAMES)


@run_async
async def test_retention_counts_what_is_deferred_as_dropped(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        broker, ann = fixture.broker, await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        with patch.object(StateStore, "write_deferred", autospec=True, side_effect=FULL):
            await ann.publish(events(0, 3))
            await broker.matcher.drained()
            dropped = broker.store.state.drop_pending_below(3)
            broker.deferred_writer.forget_below(3)
        assert [*dropped.values()] == [2] * len(NAMES)
        for first in (2, 3):
            for name in NAMES:
                assert await read(ann, name, 1) == [first]
            await ann.publish(events(3, 1))
        await is_written(broker)


@run_async
async def test_who_publishes_for_its_own_absent_subscribers_waits_for_them(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, bob = await fixture.login("ann", "user"), await fixture.login("bob", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        with (
            patch.object(DeferredWriter, "_write_next", lambda _: asyncio.Event().wait()),
            patch.object(FanOut, "max_matches", 12),
        ):
            for n in range(3):
                await asyncio.wait_for(ann.publish(events(n, 1)), 10)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ann.publish(events(3, 1)), 0.3)
            # Others do not.
            for n in range(20):
                await asyncio.wait_for(bob.publish(events(n, 1)), 10)


@run_async
async def test_matching_waits_when_too_much_is_deferred(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, bob = await fixture.login("ann", "user"), await fixture.login("bob", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        room = DeferredWriter.room
        with (
            patch.object(DeferredWriter, "max_waiting", 10),
            patch.object(DeferredWriter, "room", autospec=True, side_effect=room) as waited,
        ):
            for n in range(60):
                await bob.publish(events(n, 1))
            await fixture.broker.matcher.drained()
        assert waited.call_count
        for name in NAMES:
            assert await read(ann, name, 60) == [*range(60)]
        await is_written(fixture.broker)


@run_async
async def test_what_is_deferred_comes_before_what_a_suspended_subscription_missed(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        broker, ann = fixture.broker, await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        suspended = broker.subscription_index.find("ann", "s2")
        assert suspended is not None
        with patch.object(DeferredWriter, "_write_next", lambda _: asyncio.Event().wait()):
            await ann.publish(events(0, 1))
            await broker.matcher.drained()
            broker.matcher._budget.undecided = {suspended.number: 0}
            await ann.publish(events(1, 1))
            await broker.matcher.drained()
            assert suspended.suspended_from == 2
            # The first event is still to come.
            assert await fetched(ann, "s2") == []
        broker.supervisor.start("deferred writer", broker.deferred_writer.run())
        await subscribe(ann, "a >= 0", "s2")
        assert await read(ann, "s2", 2) == [0, 1]


@run_async
async def test_what_is_deferred_while_a_slice_finds_nothing_is_not_given_up(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        broker, ann = fixture.broker, await fixture.login("ann", "user")
        await subscribe(ann, "a >= 0", "s0")
        for name in NAMES[1:]:
            await subscribe(ann, "a < 10", name)
        executor, is_held, go = broker.executors.match, asyncio.Event(), asyncio.Event()
        has_published = False

        async def publish(first: int) -> None:
            await ann.publish(events(first, 1))
            await broker.matcher.drained()

        async def write_meanwhile(write: Callable[[str], Any], owner: str) -> Any:
            nonlocal has_published
            if has_published:
                is_held.set()
                await go.wait()
            seconds, written = await executor.run(write, owner)
            if not written.pairs and not has_published:
                has_published = True
                await publish(1)
            return seconds, written

        with patch.object(broker.deferred_writer, "_executor") as patched:
            patched.run = write_meanwhile
            await publish(0)
            await is_held.wait()
            # Here are few enough to be pending at once, but that must not come before the last one.
            await publish(10)
            assert await fetched(ann, "s0") == [{"a": 0}]
            go.set()
        assert await read(ann, "s0", 2) == [1, 10]
        for name in NAMES[1:]:
            assert await read(ann, name, 2) == [0, 1]
        await is_written(broker)


# --- several principals --------------------------------------------------------------------------


async def backlogs(broker: Broker, sessions: dict[str, Session], counts: dict[str, int]) -> None:
    """Make subscriptions, and defer this many events for each principal."""
    for owner, session in sessions.items():
        for name in NAMES:
            await subscribe(session, f"{owner} >= 0", name)
    for owner, count in counts.items():
        texts = [b'{"%s": %d, "a": %d}' % (owner.encode(), n, n) for n in range(count)]
        await sessions[owner].publish(texts)
    await broker.matcher.drained()


@contextmanager
def turns() -> Iterator[list[str]]:
    """Yield whose slices are written, in order."""
    write, owners = StateStore.write_deferred, list[str]()

    def note(state: StateStore, owner: str, *args: Any) -> Any:
        written = write(state, owner, *args)
        owners.extend([owner] * bool(written.pairs))
        return written

    with patch.object(StateStore, "write_deferred", autospec=True, side_effect=note):
        yield owners


@run_async
async def test_principals_with_deferred_matches_take_turns(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        sessions = {name: await fixture.login(name, "user") for name in ("ann", "bob")}
        with held_writer() as go, turns() as owners:
            await backlogs(fixture.broker, sessions, {"ann": 5, "bob": 3})
            go.set()
            await is_written(fixture.broker)
        # Six subscriptions of each, two at a time.
        assert owners == ["ann", "bob"] * 9 + ["ann"] * 6
        for name in NAMES:
            assert await read(sessions["ann"], name, 5) == [0, 1, 2, 3, 4]
            assert await read(sessions["bob"], name, 3) == [0, 1, 2]


@run_async
async def test_who_reads_first_does_not_keep_others_who_read_waiting(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        sessions = {name: await fixture.login(name, "user") for name in ("ann", "bob", "eve")}
        with held_writer() as go, turns() as owners:
            await backlogs(fixture.broker, sessions, {"eve": 20, "ann": 20, "bob": 1})
            reading = [asyncio.create_task(read(sessions["ann"], name, 20)) for name in NAMES]
            reading.append(asyncio.create_task(read(sessions["bob"], "s5", 1)))
            awaited = fixture.broker.deferred_writer._awaited
            await eventually_async(lambda: len(awaited) == 7)
            go.set()
            assert (await asyncio.gather(*reading))[-1] == [0]
            first = [n for n, owner in enumerate(owners) if owner == "bob"]
            await is_written(fixture.broker)
        assert max(first) < 15
        # Nor does anybody wait for ever for those who read.
        assert owners[:40].count("eve") >= 10


# --- retention meanwhile -------------------------------------------------------------------------


async def retain_from(broker: Broker, sequence: int) -> None:
    """Do what the chore does when the log has removed the events before a sequence."""
    dropped = await broker.executors.background.run(broker.store.state.drop_pending_below, sequence)
    broker.deferred_writer.forget_below(sequence)
    for number, count in dropped.items():
        subscription = broker.subscription_index.get(number)
        assert subscription is not None
        broker.notifier.drop_below(subscription, sequence, count)


@pytest.mark.parametrize("when", ["before", "after"])
@run_async
async def test_retention_while_a_slice_is_written_counts_each_event_once(
    tmp_path: Path, when: str
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        broker, ann = fixture.broker, await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        loop, write = asyncio.get_running_loop(), StateStore.write_deferred
        calls = 0

        def write_meanwhile(state: StateStore, *args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 3 and when == "before":
                asyncio.run_coroutine_threadsafe(retain_from(broker, 3), loop).result(10)
            written = write(state, *args)
            if calls == 3 and when == "after":
                asyncio.run_coroutine_threadsafe(retain_from(broker, 3), loop).result(10)
            return written

        with patch.object(StateStore, "write_deferred", autospec=True, side_effect=write_meanwhile):
            await ann.publish(events(0, 4))
            await broker.matcher.drained()
            await is_written(broker)
        assert await losses(ann) == [2] * len(NAMES)
        for name in NAMES:
            assert await read(ann, name, 2) == [2, 3]
            assert await fetched(ann, name) == []
        assert await losses(ann) == [2] * len(NAMES)
        # Who publishes for its own absent subscribers no longer waits.
        await asyncio.wait_for(ann.publish(events(4, 1)), 10)
        assert await read(ann, "s0", 1) == [4]
        assert not broker.store.state.damaged


@pytest.mark.parametrize("is_written_first", [False, True])
@run_async
async def test_what_retention_removed_before_a_crash_counts_though_it_was_deferred(
    tmp_path: Path, is_written_first: bool
) -> None:
    async with broker_fixture(tmp_path, POLICY, retention_bytes=1) as fixture:
        broker, ann = fixture.broker, await fixture.login("ann", "user")
        for name in NAMES:
            await subscribe(ann, "a >= 0", name)
        broker.store.log._segment_bytes = 1
        with (
            held_writer(),
            patch.object(StateStore, "drop_pending_below", autospec=True, side_effect=FULL),
        ):
            for n in range(4):
                await ann.publish(events(n, 1))
            await broker.matcher.drained()
            with pytest.raises(StorageFullError):
                await broker._apply_retention()
            assert broker.store.log.first_sequence == 4
            shutil.copytree(tmp_path / "data", tmp_path / "crashed" / "data")
    with held_writer() as go:
        async with broker_fixture(tmp_path / "crashed", POLICY) as fixture:
            broker, ann = fixture.broker, await fixture.login("ann", "user")
            if is_written_first:
                go.set()
                await is_written(broker)
            await broker._apply_retention()
            go.set()
            assert await losses(ann) == [3] * len(NAMES)
            for name in NAMES:
                assert await read(ann, name, 1) == [3]
            await is_written(broker)
            assert await losses(ann) == [3] * len(NAMES)
