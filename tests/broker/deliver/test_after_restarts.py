"""What was sent before a broker ended is known after its restart: outcomes, attempts, losses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.authorization_clients import Collector
from broker.authorization_fixture import broker_fixture, fetched, run_async, subscribe
from broker.server import ServerProcess, running
from tamis.storage.store import Retention
from waiting import eventually, eventually_async

READER = "[roles.reader]\nsee = true\n"


# --- acknowledgements ----------------------------------------------------------------------------


@contextmanager
def killed_after_fetching(folder: Path) -> Iterator[ServerProcess]:
    """Run a server that was killed and started again after five of seven events were sent."""
    with running(folder) as server:
        fetch_some(server)
        server.kill()
        yield server.start()


def fetch_some(server: ServerProcess) -> None:
    with server.client() as client:
        client.post("/v1/subscriptions", json={"id": "s", "filter": "n > 0"}).raise_for_status()
        client.post("/v1/events", json=[{"n": n + 1} for n in range(7)]).raise_for_status()
        assert len(fetch(client, limit=5)) == 5
    # The broker notes what it has sent a few milliseconds later.
    time.sleep(0.2)  # long enough for that


def fetch(client: httpx.Client, **more: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/subscriptions/s/fetch", json={"wait": 5, **more})
    events: list[dict[str, Any]] = answer.raise_for_status().json()["events"]
    return events


@pytest.mark.parametrize("how", ["sequences", "up_to", "Last-Event-ID"])
def test_an_acknowledgement_after_a_kill_counts(tmp_path: Path, how: str) -> None:
    with killed_after_fetching(tmp_path) as server, server.client() as client:
        if how == "Last-Event-ID":
            url = "/v1/subscriptions/s/events"
            with client.stream(
                "GET", url, headers={"Last-Event-ID": "5", "Tamis-Request": "yes"}
            ) as stream:
                ids = (line for line in stream.iter_lines() if line.startswith("id:"))
                assert [next(ids), next(ids)] == ["id: 6", "id: 7"]
        else:
            body = {"sequences": [1, 2, 3, 4, 5]} if how == "sequences" else {"up_to": 5}
            answer = client.post("/v1/subscriptions/s/acknowledge", json=body)
            assert answer.status_code == 204
            assert [one["sequence"] for one in fetch(client)] == [6, 7]
            view = client.get("/v1/subscriptions/s").json()
            eventually(lambda: client.get("/v1/subscriptions/s").json()["pending"] == 2, str(view))


@run_async
async def test_only_events_of_the_subscription_are_acknowledged(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "x")
        await subscribe(ann, "n > 0", "y")
        await fixture.publish(*({"n": n} for n in range(1, 7)))
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await ann.acknowledge("x", [2, 4, 99], up_to=1)
        assert await fetched(ann, "x") == [{"n": 3}, {"n": 5}, {"n": 6}]
        await fixture.broker.acknowledgement_writer.settled()
        assert (await ann.subscription("x")).pending == 3
        assert (await ann.subscription("y")).pending == 6
        assert fixture.broker.metrics.totals()["acknowledged"] == 3
        await ann.acknowledge("x", [2, 4, 99], up_to=1)
        assert fixture.broker.metrics.totals()["acknowledged"] == 3


@run_async
async def test_up_to_the_last_of_many_events_is_one_acknowledgement(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER, window=10) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "x")
        for first in range(1, 4001, 1000):
            await fixture.publish(*({"n": n} for n in range(first, first + 1000)))
    async with broker_fixture(tmp_path, READER, window=10) as fixture:
        ann = await fixture.login("ann", "reader")
        await ann.acknowledge("x", up_to=3995)
        assert await fetched(ann, "x") == [{"n": n} for n in range(3996, 4001)]


@run_async
async def test_nothing_is_acknowledged_that_a_replay_has_still_to_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await fixture.publish(*({"n": n} for n in range(1, 10)))
        replayer = fixture.broker.replayer
        go = asyncio.Event()
        search = replayer._executor.run

        async def later(*given: Any, **named: Any) -> Any:
            await go.wait()
            return await search(*given, **named)

        monkeypatch.setattr(replayer._executor, "run", later)
        await subscribe(ann, "n > 0", "x", start="earliest")
        await ann.acknowledge("x", up_to=5)
        go.set()
        await eventually_async(lambda: not replayer._tasks)
        assert len(await fetched(ann, "x")) == 9


# --- attempts ------------------------------------------------------------------------------------


def test_the_attempts_before_a_kill_count(tmp_path: Path) -> None:
    with killed_after_fetching(tmp_path) as server:
        for attempt in (2, 3):
            with server.client() as client:
                got = fetch(client, limit=6)
            assert [(one["sequence"], one.get("attempt", 1)) for one in got] == [
                *((n, attempt) for n in range(1, 6)),
                (6, attempt - 1),
            ]
            time.sleep(0.2)  # as above
            server.kill()
            server.start()


@run_async
async def test_events_sent_over_a_connection_have_been_attempted(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "x")
        live = Collector()
        await ann.attach("x", live, credit=2, acknowledge="manual")
        await fixture.publish(*({"n": n} for n in range(1, 5)))
        await eventually_async(lambda: len(live.got) == 2)
        await fixture.broker.acknowledgement_writer.settled()
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        got = await ann.fetch("x")
        assert [one.attempt for one in got] == [2, 2, 1, 1]


# --- losses --------------------------------------------------------------------------------------


async def lose(fixture: Any, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """Remove the events up to one, as retention does."""
    store = fixture.broker.store
    removed = range(1, last + 1)
    monkeypatch.setattr(
        store,
        "retain",
        lambda **_: Retention(removed, store.state.drop_pending_below(removed.stop)),
    )
    await fixture.broker._apply_retention()
    monkeypatch.undo()


@pytest.mark.parametrize("way", ["connection", "fetch"])
@run_async
async def test_a_subscriber_that_was_away_learns_what_retention_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "x")
        await fixture.publish(*({"n": n} for n in range(1, 6)))
        await lose(fixture, monkeypatch, 3)
        assert (await ann.subscription("x")).dropped == 3
    for told in ([3], []):
        async with broker_fixture(tmp_path, READER) as fixture:
            ann = await fixture.login("ann", "reader")
            assert (await ann.subscription("x")).dropped == 3
            if way == "fetch":
                answer = await ann.fetch("x")
                assert [one.sequence for one in answer] == [4, 5]
                assert answer.dropped == sum(told)
            else:
                live = Collector()
                await ann.attach("x", live, credit=100, acknowledge="manual")
                await eventually_async(lambda: len(live.got) == 2)  # noqa: B023
                assert live.lost == [(count, "retention") for count in told]


@run_async
async def test_a_pause_ends_although_the_clock_was_set_back_before_the_start(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        fixture.clock.now += 8 * 86_400.0
        await fixture.publish({"n": 1})
        assert await fetched(ann, "s") == [{"n": 1}]
        await ann.reject("s", 1, delay=5.0)
    # Its clock is as it was.
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        assert await fetched(ann, "s") == []
        fixture.clock.now += 100.0
        assert await fetched(ann, "s") == [{"n": 1}]
