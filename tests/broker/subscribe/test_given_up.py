"""Changes that wait for the matcher while their client gives up, or its credential ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.authorization_clients import Collector
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    busy_matcher,
    fetched,
    refusal,
    run_async,
    subscribe,
)
from tamis.broker import Session
from tamis.protocol.management import RoamingSubscription
from waiting import eventually_async

POLICY = """
[roles.reader]
see = true
[roles.low]
see = "level < 3"
[roles.operator]
admin = true
"""

Ask = Callable[..., Coroutine[Any, Any, object]]


async def create(session: Session, filter_: str, **more: Any) -> object:
    return await session.create_subscription(RoamingSubscription(id="s", filter=filter_, **more))


async def create_many(session: Session, filter_: str, **more: Any) -> object:
    return await session.create_subscriptions([RoamingSubscription(id="s", filter=filter_, **more)])


def is_waiting(fixture: BrokerFixture) -> bool:
    return not fixture.broker.matcher.updater.waiting.empty()


async def give_up(fixture: BrokerFixture, asking: Coroutine[Any, Any, object]) -> None:
    """Ask for a change, but do not wait until the matcher makes it."""
    async with busy_matcher(fixture.broker):
        task = asyncio.create_task(asking)
        await eventually_async(lambda: is_waiting(fixture))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def count(fixture: BrokerFixture) -> int:
    return len(fixture.broker.subscription_index)


BOTH = pytest.mark.parametrize("ask", [create, create_many])


@BOTH
@run_async
async def test_a_subscription_whose_client_gave_up_expires(tmp_path: Path, ask: Ask) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await give_up(fixture, ask(ann, "n = 1", lifetime=100.0))
        await eventually_async(lambda: count(fixture) == 1)
        await fixture.broker.matcher.updater.do(lambda: None)
        fixture.clock.now += 200.0
        await fixture.broker.subscription_manager.purge_expired()
        assert count(fixture) == 0


@BOTH
@run_async
async def test_a_subscription_whose_client_gave_up_begins_in_the_past(
    tmp_path: Path, ask: Ask
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await fixture.publish({"n": 1}, {"n": 1})
        await give_up(fixture, ask(ann, "n = 1", start="earliest"))
        await eventually_async(lambda: count(fixture) == 1)
        await fixture.publish({"n": 1})
        await eventually_async(lambda: fixture.broker.store.state._counters.pending == 3)
        assert await fetched(ann, "s", wait=10.0) == [{"n": 1}] * 3


@run_async
async def test_a_renewal_counts_though_its_client_gave_up(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n = 1", "s")
        await give_up(fixture, ann.renew("s", 100.0))
        await fixture.broker.matcher.updater.do(lambda: None)
        fixture.clock.now += 200.0
        await fixture.broker.subscription_manager.purge_expired()
        assert count(fixture) == 0


@run_async
async def test_readers_hear_of_a_deletion_though_its_client_gave_up(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, reader = await fixture.login("ann", "reader"), await fixture.login("ann", "reader")
        await subscribe(ann, "n = 1", "s")
        sink = Collector()
        await reader.attach("s", sink, credit=5)
        await give_up(fixture, ann.delete("s"))
        await eventually_async(lambda: sink.end == "deleted")


@pytest.mark.parametrize("is_closed_first", [False, True])
@run_async
async def test_a_subscription_that_is_not_durable_ends_though_its_client_gave_up(
    tmp_path: Path, is_closed_first: bool
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        async with busy_matcher(fixture.broker):
            task = asyncio.create_task(subscribe(ann, "n = 1"))
            await eventually_async(lambda: is_waiting(fixture))
            task.cancel()
            await asyncio.wait([task])
            closing = asyncio.create_task(ann.close()) if is_closed_first else None
            # Closing begins.
            await asyncio.sleep(0)  # until it waits for its turn
        changes = fixture.broker.matcher.updater
        await changes.do(lambda: None)
        await (closing or ann.close())
        await eventually_async(lambda: count(fixture) == 0)
        assert not [*fixture.broker.engine.ids()]


# --- credentials that end ------------------------------------------------------------------------


CHANGES: dict[str, Callable[[Session], Coroutine[Any, Any, object]]] = {
    "create": lambda session: create(session, "n = 1"),
    "create many": lambda session: create_many(session, "n = 1"),
    "use with more roles": lambda session: subscribe(session, "n = 1", "known"),
    "resume": lambda session: subscribe(session, "n = 1", "known", lifetime=50.0),
    "renew": lambda session: session.renew("known", 50.0),
    "delete": lambda session: session.delete("known"),
}


@pytest.mark.parametrize("change", CHANGES)
@run_async
async def test_a_change_is_not_made_once_its_token_is_revoked(tmp_path: Path, change: str) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        root = await fixture.login("root", "operator")
        await subscribe(await fixture.login("ann", "low"), "n = 1", "known", lifetime=1e6)
        ann = await fixture.login("ann", "reader" if "more" in change else "low")
        [known] = fixture.broker.subscription_index
        before = known.stored
        async with busy_matcher(fixture.broker):
            asking = asyncio.create_task(CHANGES[change](ann))
            await eventually_async(lambda: is_waiting(fixture))
            await root.revoke_token(ann.principal.credential)
        said = await refusal(asking)
        assert said == "unauthenticated: the credential is no longer valid"
        await fixture.broker.matcher.updater.do(lambda: None)
        assert [*fixture.broker.subscription_index] == [known]
        assert known.stored == before
        assert {*fixture.broker.engine.ids()} == {known.number}
        # Others with that name may.
        await CHANGES[change](await fixture.login("ann", "reader" if "more" in change else "low"))
