"""Events that are sent before their rows are written, and who waits for the disk meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from broker.authorization_clients import Collector
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    encoded,
    fetched,
    run_async,
    subscribe,
)
from tamis.broker import Session
from tamis.broker.match import matcher
from tamis.errors import StorageError
from tamis.storage import StateStore
from waiting import eventually_async

READER = "[roles.reader]\nsee = true\npublish = true\n"
PROMPT_SECONDS = 5.0
"""Nothing here takes as long, unless it waits for a disk that has no room."""


@asynccontextmanager
async def sent_but_not_written(fixture: BrokerFixture, ann: Session) -> AsyncIterator[None]:
    """Let an event be sent to a subscriber while rows cannot be written."""
    live = Collector()
    await subscribe(ann, "n = 3", "live")
    await ann.attach("live", live, credit=10, acknowledge="manual")
    # The first one shows that its queue has everything in memory.
    await fixture.publish({"n": 3})
    await eventually_async(lambda: len(live.got) == 1)

    def refuse(*_: Any, **__: Any) -> None:
        raise StorageError("state.db", "there is no room")

    with (
        patch.object(StateStore, "commit_matches", refuse),
        patch.object(matcher, "RETRY_SECONDS", 0.01),
    ):
        await ann.publish(encoded([{"n": 3}]))
        await eventually_async(lambda: len(live.got) == 2)
        yield
    await fixture.broker.matcher.drained()


@run_async
async def test_a_subscriber_that_waits_gets_an_event_before_its_row_is_written(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        async with sent_but_not_written(fixture, ann):
            assert fixture.broker.store.state.matched_up_to < 2
        assert fixture.broker.store.state.matched_up_to == 2


@run_async
async def test_other_subscriptions_are_read_and_acknowledged_meanwhile(tmp_path: Path) -> None:
    """Seen failing: all queues waited for the row of one, then all that came after it."""
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n < 3", "other")
        await fixture.publish({"n": 1}, {"n": 2})
        async with sent_but_not_written(fixture, ann), asyncio.timeout(PROMPT_SECONDS):
            assert await fetched(ann, "other", wait=1.0) == [{"n": 1}, {"n": 2}]
            await ann.acknowledge("other", up_to=2)
            await eventually_async(lambda: fixture.broker.store.state._counters.pending == 1)


@run_async
async def test_an_acknowledgement_waits_for_the_row_that_it_removes(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann, state = await fixture.login("ann", "reader"), fixture.broker.store.state
        async with sent_but_not_written(fixture, ann):
            await ann.acknowledge("live", [1, 2])
            flushed = asyncio.create_task(fixture.broker.acknowledgement_writer.flush())
            await asyncio.sleep(0.1)  # many times what writing takes
            assert not flushed.done()
        await asyncio.wait_for(flushed, PROMPT_SECONDS)
        assert not state._counters.pending
