"""Of several decisions about one event the last one counts, written together or not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import thread_time
from typing import Any
from unittest.mock import patch

import pytest

from broker.authorization_fixture import broker_fixture, fetched, run_async, subscribe
from tamis.errors import StorageError, StorageFullError
from tamis.storage import StateStore
from waiting import eventually_async, let_others_run

READER = "[roles.reader]\nsee = true\n"


@run_async
async def test_an_event_that_is_rejected_and_then_acknowledged_at_once_stays_away(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1}, {"n": 2})
        assert await fetched(ann, "x") == [{"n": 1}, {"n": 2}]
        for sequence in (1, 2):
            await ann.reject("x", sequence, delay=0.0)
        assert await fetched(ann, "x") == [{"n": 1}, {"n": 2}]
        await ann.acknowledge("x", [1])
        await ann.reject("x", 2, delay=0.0)
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        assert (await ann.subscription("x")).pending == 1
        [again] = await ann.fetch("x")
        assert (again.sequence, again.attempt) == (2, 3)


@run_async
async def test_a_flush_waits_for_the_disk_and_only_for_what_came_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1}, {"n": 2})
        await fetched(ann, "x")
        state = fixture.broker.store.state
        attempts: list[str] = []

        def fail_once() -> None:
            attempts.append("sync")
            if len(attempts) == 1:
                raise StorageError(tmp_path, "the disk is slow")

        monkeypatch.setattr(state, "make_lasting", fail_once)
        await ann.acknowledge("x", [1])
        flushing = [asyncio.create_task(ann.flush()) for _ in range(10)]
        await let_others_run()
        await ann.acknowledge("x", [2])
        await asyncio.gather(*flushing)
        # Ten flushes share one sync, which was repeated after its failure.
        assert attempts == ["sync", "sync"]
        assert (await ann.subscription("x")).pending <= 1
        await ann.flush()
        assert (await ann.subscription("x")).pending == 0
        assert attempts == ["sync"] * 3


@pytest.mark.timing
@run_async
async def test_many_unknown_sequences_do_not_stop_the_broker(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "true", "x")
        await fixture.publish(*({"n": n} for n in range(1_000)))
        known: list[int] = []
        while got := await ann.fetch("x"):
            known += [one.sequence for one in got]
        before = thread_time()
        await ann.acknowledge("x", [*known, *range(10**6, 10**6 + 50_000)])
        assert thread_time() - before < 0.2


@run_async
async def test_health_shows_that_acknowledgements_wait_for_a_full_disk(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann, broker = await fixture.login("ann", "reader"), fixture.broker
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1})
        settle, is_full = StateStore.settle, [True]

        def settle_if_there_is_room(state: StateStore, **outcomes: Any) -> Any:
            if is_full:
                raise StorageFullError(Path("state.db"), "the disk is full", advice="free space")
            return settle(state, **outcomes)

        with patch.object(StateStore, "settle", settle_if_there_is_room):
            await fetched(ann, "x")
            await ann.acknowledge("x", [1])
            await eventually_async(lambda: "acknowledgements" in str(broker.health.problems))
            # Others can publish nevertheless.
            assert broker.health.ready
            is_full.clear()
            await broker.acknowledgement_writer.settled()
        assert broker.health.problems == []
