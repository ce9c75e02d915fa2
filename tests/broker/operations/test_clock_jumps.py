"""A clock that is set while the broker runs: intervals keep their length, and nothing is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.authorization_fixture import FEED, fetched, refusal, run_async, subscribe
from broker.chores import do_all_chores
from clocks import SettableClock
from tamis.broker import Broker, BrokerSettings
from waiting import eventually_async

HOUR_SECONDS = 3600.0
DAY_SECONDS = 24 * HOUR_SECONDS


@asynccontextmanager
async def broker_with_clock(
    folder: Path, **settings: Any
) -> AsyncIterator[tuple[Broker, SettableClock]]:
    clock = SettableClock()
    wanted = BrokerSettings(data=folder / "data", **settings)
    async with await Broker.open(wanted, clock=clock) as broker:
        yield broker, clock


async def numbers(broker: Broker, name: str) -> list[int]:
    session = await broker.authenticate(None)
    try:
        return [one["n"] for one in await fetched(session, name)]
    finally:
        await session.close()


@pytest.mark.parametrize("jump", [-HOUR_SECONDS, 8 * DAY_SECONDS])
@run_async
async def test_a_fetched_event_returns_on_time(tmp_path: Path, jump: float) -> None:
    async with broker_with_clock(tmp_path) as (broker, clock):
        session = await broker.authenticate(None)
        await subscribe(session, "true", "all")
        await session.publish([b'{"n": 1}'])
        await broker.matcher.drained()
        assert await numbers(broker, "all") == [1]
        clock.wrong_by = jump
        clock.now += 29.0
        await do_all_chores(broker)
        assert await numbers(broker, "all") == []
        clock.now += 1.5
        await do_all_chores(broker)
        clock.now += 1.5
        assert await numbers(broker, "all") == [1]


@pytest.mark.parametrize("jump", [-HOUR_SECONDS, 8 * DAY_SECONDS])
@pytest.mark.parametrize("lifetime", [60.0, 30 * 60.0])
@run_async
async def test_a_lifetime_ends_on_time(tmp_path: Path, jump: float, lifetime: float) -> None:
    async with broker_with_clock(tmp_path) as (broker, clock):
        session = await broker.authenticate(None)
        await subscribe(session, "true", "all", lifetime=lifetime)
        clock.wrong_by = jump
        while clock.now < 1_000_000.0 + lifetime - 2:
            await do_all_chores(broker)
            clock.now += 1.0
        await session.publish([b'{"n": 1}'])
        await broker.matcher.drained()
        assert await numbers(broker, "all") == [1]
        clock.now += 3.0
        await do_all_chores(broker)
        assert "there is no subscription 'all'" in await refusal(session.fetch("all"))


@run_async
async def test_a_clock_that_is_wrong_for_a_while_removes_no_event(tmp_path: Path) -> None:
    async with broker_with_clock(tmp_path) as (broker, clock):
        session = await broker.authenticate(None)
        await session.publish([b'{"n": 1}'])
        clock.now += HOUR_SECONDS
        await do_all_chores(broker)
        clock.wrong_by = 8 * DAY_SECONDS
        for _ in range(18):
            clock.now += 1.0
            await do_all_chores(broker)
            await session.publish([b'{"n": 2}'])
        assert any("the clock of the machine" in one for one in broker.status()["problems"])
        clock.wrong_by = 0.0
        clock.now += 10.0
        await do_all_chores(broker)
        assert not broker.status()["problems"]
        page = await session.history("true")
        assert len(page.events) == 19
        times = [one.time for one in page.events]
        assert times == sorted(times)
        assert times[-1] <= clock.now


@run_async
async def test_a_clock_that_is_wrong_at_the_start_removes_no_event(tmp_path: Path) -> None:
    async with broker_with_clock(tmp_path) as (broker, clock):
        session = await broker.authenticate(None)
        await session.publish([b'{"n": 1}'])
    clock.wrong_by = 8 * DAY_SECONDS
    async with await Broker.open(broker.settings, clock=clock) as broker:
        session = await broker.authenticate(None)
        for _ in range(18):
            clock.now += 1.0
            await do_all_chores(broker)
        clock.wrong_by = 0.0
        assert len((await session.history("true")).events) == 1


@run_async
async def test_a_clock_that_stays_set_is_believed(tmp_path: Path) -> None:
    async with broker_with_clock(tmp_path) as (broker, clock):
        session = await broker.authenticate(None)
        await session.publish([b'{"n": 1}'])
        clock.wrong_by = 8 * DAY_SECONDS
        for _ in range(700):
            clock.now += 1.0
            await do_all_chores(broker)
        assert not broker.status()["problems"]
        await session.publish([b'{"n": 2}'])
        page = await session.history("true")
        assert page.events[-1].time == pytest.approx(clock.time())


@pytest.mark.parametrize(
    ("jump", "wait"), [(-HOUR_SECONDS, 61.0), (8 * DAY_SECONDS, 0.0), (30.0, 31.0)]
)
@run_async
async def test_a_credential_has_expired_if_either_clock_says_so(
    tmp_path: Path, jump: float, wait: float
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(FEED)
    async with broker_with_clock(tmp_path, policy=policy) as (broker, clock):
        token, _ = await broker.access_control.issue("feed", ("feed",), 60.0, "")
        session = await broker.authenticate(token)
        clock.wrong_by = jump
        clock.now += wait
        await do_all_chores(broker)
        await eventually_async(session.closed.done)
        assert "unauthenticated" in await refusal(broker.authenticate(token))


@run_async
async def test_a_clock_ahead_at_a_start_deletes_no_subscription(tmp_path: Path) -> None:
    wanted, clock = BrokerSettings(data=tmp_path / "data"), SettableClock()
    for wrong_by in (0.0, 8 * DAY_SECONDS, 0.0):
        clock.wrong_by = wrong_by
        async with await Broker.open(wanted, clock=clock) as broker:
            if clock.now == SettableClock().now:
                session = await broker.authenticate(None)
                await subscribe(session, "true", "week", lifetime=7 * DAY_SECONDS)
                await session.publish([b'{"n": 1}'])
                await broker.matcher.drained()
            seems_expired = any("seem to have expired" in one for one in broker.health.problems)
            assert seems_expired == (wrong_by > 0)
            clock.now += 60.0
            await do_all_chores(broker)
    async with await Broker.open(wanted, clock=clock) as broker:
        assert await numbers(broker, "week") == [1]


@run_async
async def test_what_expired_while_the_broker_was_stopped_is_deleted(tmp_path: Path) -> None:
    wanted, clock = BrokerSettings(data=tmp_path / "data"), SettableClock()
    async with await Broker.open(wanted, clock=clock) as broker:
        session = await broker.authenticate(None)
        await subscribe(session, "true", "week", lifetime=7 * DAY_SECONDS)
    clock.now += 8 * DAY_SECONDS
    async with await Broker.open(wanted, clock=clock) as broker:
        clock.now += 601.0
        await do_all_chores(broker)
        assert broker.store.state.subscriptions() == []
        assert not broker.health.problems


@run_async
async def test_what_seems_to_have_expired_is_resumed_and_misses_nothing(tmp_path: Path) -> None:
    wanted, clock = BrokerSettings(data=tmp_path / "data"), SettableClock()
    async with await Broker.open(wanted, clock=clock) as broker:
        session = await broker.authenticate(None)
        await subscribe(session, "true", "week", lifetime=7 * DAY_SECONDS)
        await session.publish([b'{"n": 1}'])
        await broker.matcher.drained()
    clock.wrong_by = 8 * DAY_SECONDS
    async with await Broker.open(wanted, clock=clock) as broker:
        session = await broker.authenticate(None)
        await session.publish([b'{"n": 2}'])
        await broker.matcher.drained()
        await subscribe(session, "true", "week", lifetime=7 * DAY_SECONDS)
        assert await numbers(broker, "week") == [1, 2]
        # Nor does it end when the clock proves right.
        clock.now += 601.0
        await do_all_chores(broker)
        assert (await session.subscription("week")).id == "week"


@run_async
async def test_a_lifetime_goes_on_if_the_clock_was_wrong_at_the_start(tmp_path: Path) -> None:
    wanted, clock = BrokerSettings(data=tmp_path / "data"), SettableClock()
    async with await Broker.open(wanted, clock=clock) as broker:
        session = await broker.authenticate(None)
        await subscribe(session, "true", "week", lifetime=7 * DAY_SECONDS)
    clock.wrong_by = 8 * DAY_SECONDS
    async with await Broker.open(wanted, clock=clock) as broker:
        session = await broker.authenticate(None)
        clock.wrong_by = 0.0
        for _ in range(700):
            clock.now += 1.0
            await do_all_chores(broker)
        assert not broker.health.problems
        clock.now += 6 * DAY_SECONDS
        await do_all_chores(broker)
        assert (await session.subscription("week")).id == "week"
        clock.now += DAY_SECONDS
        await do_all_chores(broker)
        assert "no subscription" in await refusal(session.subscription("week"))


@run_async
async def test_what_expired_before_the_first_event_is_deleted_at_once(tmp_path: Path) -> None:
    wanted, clock = BrokerSettings(data=tmp_path / "data"), SettableClock()
    async with await Broker.open(wanted, clock=clock) as broker:
        session = await broker.authenticate(None)
        await subscribe(session, "true", "minute", lifetime=60.0)
    clock.now += 61.0
    async with await Broker.open(wanted, clock=clock) as broker:
        assert broker.store.state.subscriptions() == []
        assert not broker.health.problems


async def opened_and_published(wanted: BrokerSettings, clock: SettableClock, number: int) -> bool:
    """Open a broker for a minute, and publish; return whether it doubts the clock."""
    async with await Broker.open(wanted, clock=clock) as broker:
        session = await broker.authenticate(None)
        if number == 1:
            await subscribe(session, "true", "week", lifetime=7 * DAY_SECONDS)
        await session.publish([b'{"n": %d}' % number])
        await broker.matcher.drained()
        clock.now += 60.0
        await do_all_chores(broker)
        return any("seem to have expired" in one for one in broker.health.problems)


@run_async
async def test_events_of_a_clock_in_doubt_do_not_prove_it_right_at_the_next_start(
    tmp_path: Path,
) -> None:
    wanted, clock = BrokerSettings(data=tmp_path / "data"), SettableClock()
    assert not await opened_and_published(wanted, clock, 1)
    clock.wrong_by = 8 * DAY_SECONDS
    assert await opened_and_published(wanted, clock, 2)
    assert await opened_and_published(wanted, clock, 3)
    clock.wrong_by = 0.0
    assert not await opened_and_published(wanted, clock, 4)
    async with await Broker.open(wanted, clock=clock) as broker:
        assert await numbers(broker, "week") == [1, 2, 3, 4]


@run_async
async def test_a_clock_in_doubt_that_proves_right_lets_subscriptions_expire(
    tmp_path: Path,
) -> None:
    wanted, clock = BrokerSettings(data=tmp_path / "data"), SettableClock()
    await opened_and_published(wanted, clock, 1)
    clock.now += 8 * DAY_SECONDS
    assert await opened_and_published(wanted, clock, 2)
    async with await Broker.open(wanted, clock=clock) as broker:
        clock.now += 601.0
        await do_all_chores(broker)
        assert broker.store.state.subscriptions() == []
        session = await broker.authenticate(None)
        await subscribe(session, "true", "minute", lifetime=60.0)
    # It is in doubt no longer: what expires from now on has.
    clock.now += 61.0
    async with await Broker.open(wanted, clock=clock) as broker:
        assert broker.store.state.subscriptions() == []
        assert not broker.health.problems


@run_async
async def test_a_clock_that_is_wrong_at_every_start_deletes_no_subscription(
    tmp_path: Path,
) -> None:
    wanted, clock = BrokerSettings(data=tmp_path / "data"), SettableClock()
    await opened_and_published(wanted, clock, 1)
    for number in (2, 3):
        clock.wrong_by = 8 * DAY_SECONDS
        assert await opened_and_published(wanted, clock, number)
        # Somebody sets it, and events keep the times that they have, and their order.
        async with await Broker.open(wanted, clock=clock) as broker:
            clock.wrong_by = 0.0
            for _ in range(700):
                clock.now += 1.0
                await do_all_chores(broker)
            assert not broker.health.problems
    async with await Broker.open(wanted, clock=clock) as broker:
        assert await numbers(broker, "week") == [1, 2, 3]


@run_async
async def test_a_credential_that_has_expired_stays_so_when_the_clock_is_set_back_for_good(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(FEED)
    async with broker_with_clock(tmp_path, policy=policy) as (broker, clock):
        token, _ = await broker.access_control.issue("feed", ("feed",), 60.0, "")
        clock.wrong_by = -HOUR_SECONDS
        for _ in range(700):
            clock.now += 1.0
            await do_all_chores(broker)
        assert not broker.status()["problems"]
        assert "unauthenticated" in await refusal(broker.authenticate(token))


@run_async
async def test_a_token_issued_by_a_wrong_clock_ends_with_its_lifetime(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[roles.reader]\nsee = true\n")
    async with broker_with_clock(tmp_path, policy=policy) as (broker, clock):
        clock.wrong_by = 8 * DAY_SECONDS
        await do_all_chores(broker)
        clock.now += HOUR_SECONDS  # Then it is believed.
        await do_all_chores(broker)
        text, _ = await broker.access_control.issue("ann", ("reader",), 2 * HOUR_SECONDS, "")
        clock.wrong_by = 0.0
        await do_all_chores(broker)
        clock.now += HOUR_SECONDS
        await do_all_chores(broker)
        session = await broker.authenticate(text)
        clock.now += HOUR_SECONDS
        broker.end_invalid_sessions()
        assert session.closed.done()
        assert "unauthenticated" in await refusal(broker.authenticate(text))


@run_async
async def test_a_token_issued_by_a_wrong_clock_ends_soon_after_a_restart(tmp_path: Path) -> None:
    policy, clock = tmp_path / "policy.toml", SettableClock()
    policy.write_text(FEED)
    wanted = BrokerSettings(data=tmp_path / "data", policy=policy)
    clock.wrong_by = 8 * DAY_SECONDS
    async with await Broker.open(wanted, clock=clock) as broker:
        token, _ = await broker.access_control.issue("feed", ("feed",), 60.0, "")
        lasting, _ = await broker.access_control.issue("feed", ("feed",), None, "")
    clock.wrong_by = 0.0
    async with await Broker.open(wanted, clock=clock) as broker:
        session = await broker.authenticate(token)
        clock.now += 61.0
        await do_all_chores(broker)
        await eventually_async(session.closed.done)
        assert "unauthenticated" in await refusal(broker.authenticate(token))
        assert (await broker.authenticate(lasting)).principal.name == "feed"
