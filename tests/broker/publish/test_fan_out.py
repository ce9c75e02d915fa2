"""Publishers whose events reach many subscriptions wait, and never longer than they have to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.authorization_fixture import broker_fixture, refusal, run_async, subscribe
from tamis.broker import Session
from tamis.broker.publish.publishers import FanOut
from tamis.errors import StorageFullError
from tamis.storage import StateStore
from waiting import eventually_async

POLICY = "[roles.user]\nsee = true\npublish = true\n"
EVENT = [b'{"a": 1}']
MOST_SECONDS = 10.0
FULL = StorageFullError(Path("state.db"), "the disk is full", advice="free space")


@pytest.fixture(autouse=True)
def _one_event_fills_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FanOut, "max_matches", 3)


async def subscribe_often(session: Session, filter_: str) -> None:
    for number in range(5):
        await subscribe(session, filter_, f"s{number}")


@pytest.mark.parametrize("filter_", ["a > 0", "b > 0"])
@run_async
async def test_pipelined_publications_of_new_principals_are_all_stored(
    tmp_path: Path, filter_: str
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        await subscribe_often(await fixture.login("ann", "user"), filter_)
        for number in range(30):
            session = await fixture.login(f"new{number}", "user")
            publications = [session.publish(EVENT) for _ in range(3)]
            await asyncio.wait_for(asyncio.gather(*publications), MOST_SECONDS)


@run_async
async def test_who_waits_for_room_is_refused_when_the_disk_is_full(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "user")
        await subscribe_often(ann, "a > 0")
        with patch.object(StateStore, "commit_matches", side_effect=FULL):
            await ann.publish(EVENT)
            # This one may wait already when the disk turns out to be full, the next one never.
            waiting = asyncio.wait_for(refusal(ann.publish(EVENT)), MOST_SECONDS)
            assert "storage_full" in await waiting
            assert "storage_full" in await asyncio.wait_for(
                refusal(ann.publish(EVENT)), MOST_SECONDS
            )
        await eventually_async(lambda: fixture.broker.health.ready)
        await asyncio.wait_for(ann.publish(EVENT), MOST_SECONDS)
        await fixture.broker.matcher.drained()
        assert len(await ann.fetch("s0")) == 2
