"""The matcher: an event that cannot be matched is reported, and delays nobody."""

from __future__ import annotations

import asyncio
import shutil
import time
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from broker.authorization_fixture import fetched, refusal, run_async, subscribe
from broker.log_lines import log_lines
from tamis.broker import Broker, BrokerSettings
from tamis.broker.match.matcher import COSTLY_SECONDS, Matcher
from tamis.broker.match.steps import MatcherStep
from tamis.broker.publish.event_cache import StoredEvent
from tamis.broker.publish.payloads import Payload
from tamis.errors import BrokerFailedError, StorageFullError
from tamis.filters import Mode
from tamis.storage import StateStore
from waiting import eventually_async

OPEN_SECONDS = 20.0


async def crashed_folder(folder: Path, schema: Path, events: list[bytes]) -> Path:
    """Return the folder of a broker that stored events and was killed before it matched them."""
    settings = BrokerSettings(data=folder / "data", schema_file=schema, mode=Mode.TOTAL)
    async with await Broker.open(settings) as broker:
        session = await broker.authenticate(None)
        await subscribe(session, "a > 0", "all")
        # The matcher never learns of them, as if the broker died.
        with patch.object(broker.event_cache, "put", AsyncMock()):
            await session.publish(events)
            shutil.copytree(folder / "data", folder / "crashed")
    return folder / "crashed"


@pytest.mark.parametrize("count", [1, 3, 10])
@run_async
async def test_a_stored_event_that_no_longer_conforms_is_reported(
    tmp_path: Path, count: int
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"a": "int"}')
    data = await crashed_folder(tmp_path, schema, [b'{"a": 1}'] * count)
    schema.write_text('{"a": "int", "b": "int"}')
    settings = BrokerSettings(data=data, schema_file=schema, mode=Mode.TOTAL)
    with log_lines() as lines:
        async with await asyncio.wait_for(Broker.open(settings), OPEN_SECONDS) as broker:
            assert any(
                problem.startswith(f"stored events cannot be matched: {count} since the start")
                for problem in broker.status()["problems"]
            )
            assert broker.status()["unmatched"] == count
            assert broker.health.ready
            session = await broker.authenticate(None)
            await session.publish([b'{"a": 2, "b": 2}'])
            await broker.committer.drained()
            await broker.matcher.drained()
            got = await session.fetch("all", wait=10.0)
            assert ([one.sequence for one in got], got.dropped) == ([count + 1], count)
    warned = [line for line in lines if line.getMessage() == "events cannot be matched"]
    assert [line.levelname for line in warned] == ["WARNING"]


def failing_step(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a planted fault")


@run_async
async def test_a_broker_whose_matcher_dies_does_not_open(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"a": "int"}')
    data = await crashed_folder(tmp_path, schema, [b'{"a": 1}'])
    settings = BrokerSettings(data=data, schema_file=schema, mode=Mode.TOTAL)
    with (
        patch.object(Matcher, "_step", failing_step),
        pytest.raises(BrokerFailedError, match="the matcher has failed"),
    ):
        await asyncio.wait_for(Broker.open(settings), OPEN_SECONDS)
    async with await asyncio.wait_for(Broker.open(settings), OPEN_SECONDS) as broker:
        session = await broker.authenticate(None)
        assert await fetched(session, "all") == [{"a": 1}]


@run_async
async def test_a_matcher_that_dies_ends_everything_and_loses_nothing(tmp_path: Path) -> None:
    settings = BrokerSettings(data=tmp_path)
    with log_lines() as lines:
        broker = await Broker.open(settings)
        session = await broker.authenticate(None)
        await subscribe(session, "a > 0", "all")
        with patch.object(Matcher, "_step", failing_step):
            await session.publish([b'{"a": 1}'])
            await eventually_async(broker.supervisor.failed.done)
            await eventually_async(session.closed.done)
        assert not broker.health.ready
        assert any("the matcher has failed" in one for one in broker.status()["problems"])
        assert "unavailable: the matcher has failed" in await refusal(subscribe(session, "true"))
        await asyncio.wait_for(broker.close(), 10)
    [failed] = [line for line in lines if line.getMessage() == "a part of the broker has failed"]
    assert failed.exc_info is not None
    assert failed.levelname == "CRITICAL"
    async with await Broker.open(settings) as again:
        session = await again.authenticate(None)
        assert await fetched(session, "all") == [{"a": 1}]


FULL = StorageFullError(Path("state.db"), "the disk is full", advice="free space")


@run_async
async def test_a_broker_opens_while_its_matches_cannot_be_stored(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"a": "int"}')
    data = await crashed_folder(tmp_path, schema, [b'{"a": 1}', b'{"a": 2}'])
    settings = BrokerSettings(data=data, schema_file=schema, mode=Mode.TOTAL)
    with patch.object(StateStore, "commit_matches", side_effect=FULL):
        broker = await asyncio.wait_for(Broker.open(settings), OPEN_SECONDS)
        session = await broker.authenticate(None)
        assert not broker.health.ready
        assert "storage_full" in await refusal(session.publish([b'{"a": 3}']))
    async with broker:
        await eventually_async(lambda: broker.health.ready)
        await session.publish([b'{"a": 3}'])
        await broker.matcher.drained()
        assert await fetched(session, "all") == [{"a": 1}, {"a": 2}, {"a": 3}]


@run_async
async def test_changes_are_made_and_no_position_written_while_matches_cannot_be_stored(
    tmp_path: Path,
) -> None:
    settings = BrokerSettings(data=tmp_path, stop_timeout=1)
    broker = await Broker.open(settings)
    session = await broker.authenticate(None)
    await subscribe(session, "a > 0", "all")
    state = broker.store.state
    with patch.object(StateStore, "commit_matches", side_effect=FULL):
        await session.publish([b'{"a": 1}'])
        await asyncio.wait_for(broker.matcher.stuck.wait(), 10)
        before = state.matched_up_to
        await asyncio.wait_for(subscribe(session, "b > 0", "other"), 10)
        await asyncio.wait_for(session.delete("other"), 10)
        with patch.object(StateStore, "commit_matches") as commit:
            await asyncio.wait_for(broker.matcher.save_position(), 10)
        assert not commit.called
        assert state.matched_up_to == before
        await asyncio.wait_for(broker.close(), 10)
    async with await Broker.open(settings) as broker:
        session = await broker.authenticate(None)
        assert await fetched(session, "all") == [{"a": 1}]


@run_async
async def test_an_event_does_not_wait_for_all_changes_before_it(tmp_path: Path) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        session = await broker.authenticate(None)
        await subscribe(session, "a > 0", "all")
        made = 0

        def slow_change() -> None:
            nonlocal made
            time.sleep(0.02)  # as long as a sync of the disk
            made += 1

        changes = [asyncio.create_task(broker.matcher.updater.do(slow_change)) for _ in range(100)]
        await session.publish([b'{"a": 1}'])
        assert await fetched(session, "all", wait=10.0) == [{"a": 1}]
        assert made < 20
        await asyncio.gather(*changes)


@run_async
async def test_who_publishes_what_takes_long_to_match_pays_for_it(tmp_path: Path) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        session = await broker.authenticate(None)
        await subscribe(session, "a > 0", "all")
        name, charged = session.principal.name, list[tuple[str, float]]()
        await session.publish([b'{"a": 1}'])
        await broker.matcher.drained()
        # By this clock, everything takes as long as a test says.
        seconds = 0.0
        ticks = count()
        with (
            patch.object(broker.matcher, "_thread_time", lambda: next(ticks) * seconds),
            patch.object(broker.matcher, "_charge", lambda *cost: charged.append(cost)),
        ):
            await session.publish([b'{"a": 2}'])
            await broker.matcher.drained()
            assert charged == []
            seconds = 2 * COSTLY_SECONDS
            await session.publish([b'{"a": 3}'])
            await broker.matcher.drained()
        assert [principal for principal, _ in charged] == [name]
        assert charged[0][1] == pytest.approx(seconds)


@run_async
async def test_who_publishes_does_not_pay_for_the_filters_of_others(tmp_path: Path) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        step = MatcherStep([], {}, [], {}, [], {}, {}, [], {}, {}, 0)
        matcher, seconds = broker.matcher, 0.01
        decoder = broker.decoder
        small = StoredEvent(1, 0.0, "ann/p", 0, Payload(b"{}", "json", decoder), "ann")
        matcher._note_cost_of_event(step, small, seconds)
        assert step.costs["ann"] < seconds / 1_000
        # One that says much may take long because of that.
        text = b'{"a": "' + 60_000 * b"x" + b'"}'
        large = StoredEvent(2, 0.0, "bob/p", 0, Payload(text, "json", decoder), "bob")
        matcher._note_cost_of_event(step, large, seconds)
        assert step.costs["bob"] == pytest.approx(seconds)
        # So does one with many values of the same attributes.
        values = decoder.decode(b'{"a": [%s]}' % b",".join([b"1"] * 300), "json")
        matcher._note_cost_of_event(step, StoredEvent(3, 0.0, "cid/p", 0, values, "cid"), seconds)
        assert step.costs["cid"] == pytest.approx(seconds)


@run_async
async def test_who_changes_subscriptions_pays_for_the_change_and_what_it_delays(
    tmp_path: Path,
) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        session = await broker.authenticate(None)
        ticks, costs = count(), list[dict[str, float]]()
        step = broker.matcher._step

        def noting(*args: Any) -> Any:
            done = step(*args)
            costs.append(done.costs)
            return done

        with (
            patch.object(broker.matcher, "_thread_time", lambda: next(ticks) * COSTLY_SECONDS * 2),
            patch.object(broker.matcher, "_step", noting),
        ):
            await broker.matcher.updater.do(lambda: None, ["ann", "bob"])
            await session.publish([b'{"a": 1}'])
            await broker.matcher.drained()
            await session.publish([b'{"a": 2}'])
            await broker.matcher.drained()
        owners = [{*one} for one in costs if one]
        assert owners == [{"ann", "bob"}, {"ann", "bob"}, {session.principal.name}]
        assert costs[0]["ann"] == costs[0]["bob"]
