"""Many subscriptions of one principal, which nobody reads, delay no other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median
from unittest.mock import patch

import pytest

from broker.authorization_fixture import broker_fixture, run_async, subscribe
from clocks import Stopwatch
from tamis.broker import Session
from tamis.broker.subscribe.manager import SubscriptionManager

POLICY = "[roles.user]\nsee = true\npublish = true\n"
SUBSCRIPTIONS = 1_000
MOST_SECONDS = 0.5
"""Many times what it takes, because the machine may be busy with other tests."""


async def round_trip(session: Session, number: int) -> float:
    """Publish an event, receive it and acknowledge it; return how long that took."""
    watch = Stopwatch()
    await session.publish([b'{"n": %d}' % number])
    got = await session.fetch("own", wait=30.0)
    taken = watch.seconds()
    await session.acknowledge("own", [one.sequence for one in got])
    return taken


@pytest.mark.parametrize("batch", [1, 20])
@run_async
async def test_unread_subscriptions_of_one_principal_do_not_delay_another(
    tmp_path: Path, batch: int
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, bob = await fixture.login("ann", "user"), await fixture.login("bob", "user")
        for first in range(0, SUBSCRIPTIONS, 10):
            names = range(first, first + 10)
            await asyncio.gather(*(subscribe(ann, "abused >= 0", f"unread-{n}") for n in names))
        await subscribe(bob, "n >= 0", "own")
        is_over = False

        async def flood(session: Session) -> None:
            while not is_over:
                await session.publish([b'{"abused": 1}'] * batch)

        sessions = [ann, *[await fixture.login("ann", "user") for _ in range(7)]]
        floods = [asyncio.create_task(flood(one)) for one in sessions]
        await asyncio.sleep(0.5)  # let the flood fill whatever can be filled
        times = [await asyncio.wait_for(round_trip(bob, n), 20) for n in range(10)]
        is_over = True
        await asyncio.gather(*floods)
        assert median(times) < MOST_SECONDS, times


@run_async
async def test_a_page_of_subscriptions_counts_only_its_own_events(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "user")
        for n in range(30):
            await subscribe(ann, "a >= 0", f"s{n:02}")
        await fixture.publish({"a": 1})
        counts = SubscriptionManager.counts_of
        with patch.object(
            SubscriptionManager, "counts_of", autospec=True, side_effect=counts
        ) as counted:
            page = await ann.list_subscriptions(after="s04", limit=2)
        assert [(one.id, one.pending) for one in page.subscriptions] == [("s05", 1), ("s06", 1)]
        assert page.next == "s06"
        assert counted.call_count == 2


@run_async
async def test_subscribing_at_once_is_never_refused_after_the_fact(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "user")
        await asyncio.gather(*(subscribe(ann, "a >= 0", f"s{n}") for n in range(300)))
        assert len(await ann.subscriptions()) == 300
