"""Requests of a principal that asks very much wait while the event loop is late."""

from __future__ import annotations

import asyncio
import time

from broker.authorization_fixture import run_async
from tamis.broker.frontend.pacing import REQUESTS_PER_WINDOW, RequestPacing
from waiting import let_others_run


async def requests_in(pacing: RequestPacing, principal: str, seconds: float, work: float) -> int:
    """Make requests that keep the loop busy; return how many."""
    closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        await pacing.wait_for_turn(principal, closed)
        time.sleep(work)  # The loop does nothing else, as when it handles a request.
        await let_others_run()
        count += 1
    return count


@run_async
async def test_a_principal_that_keeps_the_loop_late_waits_if_there_are_others() -> None:
    pacing = RequestPacing(lambda _: True)
    floods = [asyncio.create_task(requests_in(pacing, "ann", 3.0, 0.004)) for _ in range(10)]
    await asyncio.sleep(1.0)  # two windows of the flood
    began = time.monotonic()
    await pacing.wait_for_turn("bob", asyncio.get_running_loop().create_future())
    assert time.monotonic() - began < 0.5
    # At full speed there would be 700.
    assert sum(await asyncio.gather(*floods)) < 12 * REQUESTS_PER_WINDOW


@run_async
async def test_a_principal_that_is_alone_does_not_wait() -> None:
    pacing = RequestPacing(lambda _: False)
    assert await requests_in(pacing, "ann", 1.0, 0.004) > 2 * REQUESTS_PER_WINDOW


@run_async
async def test_a_principal_does_not_wait_while_the_loop_is_on_time() -> None:
    pacing = RequestPacing(lambda _: True)
    closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    for _ in range(5 * REQUESTS_PER_WINDOW):
        await pacing.wait_for_turn("ann", closed)
