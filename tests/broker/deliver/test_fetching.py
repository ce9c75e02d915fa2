"""Waiting fetches: whoever waits gets what comes, however many wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.authorization_clients import Collector
from broker.authorization_fixture import broker_fixture, run_async, subscribe
from tamis.broker import Session
from tamis.broker.deliver.notifier import FetchedEvents, Notifier
from tamis.errors import RefusedError
from waiting import eventually_async

READER = "[roles.reader]\nsee = true\n"


def waiting(session: Session, limit: int) -> asyncio.Task[list[int]]:
    async def fetch() -> list[int]:
        return [one.sequence for one in await session.fetch("x", limit=limit, wait=30.0)]

    return asyncio.create_task(fetch())


@pytest.mark.parametrize("workers", [2, 5])
@run_async
async def test_events_that_come_together_reach_all_workers_that_wait(
    tmp_path: Path, workers: int
) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "true", "x")
        fetches = [waiting(ann, 1) for _ in range(workers)]
        await asyncio.sleep(0.01)  # time to begin waiting
        await fixture.publish(*({"n": n} for n in range(workers)))
        got = await asyncio.wait_for(asyncio.gather(*fetches), 5)
        assert sorted(got) == [[n + 1] for n in range(workers)]


@run_async
async def test_events_that_wait_on_disk_reach_workers_that_come_together(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1}, {"n": 2})
        got = await asyncio.wait_for(asyncio.gather(waiting(ann, 1), waiting(ann, 1)), 5)
        assert sorted(got) == [[1], [2]]


@run_async
async def test_a_rejected_event_reaches_a_waiting_fetch_when_it_is_due(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1})
        assert [one.sequence for one in await ann.fetch("x")] == [1]
        fetch = waiting(ann, 1)
        await asyncio.sleep(0.01)  # time to begin waiting
        await ann.reject("x", 1, delay=0.2)
        await asyncio.sleep(0.01)  # it is not due yet
        assert not fetch.done()
        fixture.clock.now += 1.0
        assert await asyncio.wait_for(fetch, 5) == [1]


@run_async
async def test_an_event_that_is_due_reaches_a_fetch_that_comes_before(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1})
        assert [one.sequence for one in await ann.fetch("x")] == [1]
        await ann.reject("x", 1, delay=0.2)
        fetch = waiting(ann, 1)
        await asyncio.sleep(0.01)  # time to begin waiting
        fixture.clock.now += 1.0
        assert await asyncio.wait_for(fetch, 5) == [1]


@run_async
async def test_a_connection_that_goes_leaves_the_leases_of_others(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann, sink = await fixture.login("ann", "reader"), Collector()
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1})
        assert [one.sequence for one in await ann.fetch("x")] == [1]
        await fixture.publish({"n": 2})
        attachment = await ann.attach("x", sink, credit=10, acknowledge="manual")
        await eventually_async(lambda: sink.got)
        await ann.detach(attachment)
        again = await ann.fetch("x")
        assert [(one.sequence, one.attempt) for one in again] == [(2, 2)]


@run_async
async def test_a_fetch_that_ends_with_its_session_is_no_attempt(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann, next_ann = [await fixture.login("ann", "reader") for _ in range(2)]
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1})
        fetch = Notifier.fetch

        async def fetch_at_the_end(*args: Any) -> FetchedEvents:
            found = await fetch(*args)
            ann.closed.set_result("the broker stops")
            return found

        with patch.object(Notifier, "fetch", fetch_at_the_end), pytest.raises(RefusedError):
            await ann.fetch("x")
        assert [(one.sequence, one.attempt) for one in await next_ann.fetch("x")] == [(1, 1)]
