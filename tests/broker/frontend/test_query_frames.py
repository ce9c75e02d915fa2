"""A client that asks and never reads is not read, either."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from broker.authorization_fixture import run_async
from tamis.broker.frontend import query_frames
from tamis.broker.frontend.query_frames import QueryFrames
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.sessions import Session
from tamis.protocol.frames import Reply
from tamis.protocol.queries import Withdraw
from waiting import eventually_async


class PlainTasks:
    """Starts tasks as a supervisor does."""

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=name)


class WillingSession:
    """Does whatever it is told to."""

    async def withdraw(self, source: str) -> None:
        """Withdraw nothing."""


@run_async
async def test_replies_do_not_pile_up_for_a_client_that_never_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_frames, "MAX_UNSENT_REPLIES", 10)
    reads, sent = asyncio.Event(), list[Reply]()

    async def send(reply: Reply) -> None:
        await reads.wait()
        sent.append(reply)

    frames = QueryFrames(
        send, cast("Supervisor", PlainTasks()), lambda error: pytest.fail(str(error))
    )
    session, handled = cast("Session", WillingSession()), list[int]()

    async def flood() -> None:
        for ref in range(100):
            await frames.handle(session, Withdraw(ref=ref, source="source-1"))
            handled.append(ref)
            await asyncio.sleep(0)  # the others of the event loop have their turn

    flooding = asyncio.create_task(flood())
    await eventually_async(lambda: len(handled) >= 10)
    await asyncio.wait([flooding], timeout=0.1)
    assert len(handled) <= 12
    reads.set()
    await flooding
    await eventually_async(lambda: len(sent) == 100)
    await frames.close()
