"""Exact checks run in threads: what happens to a subscription meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from unittest.mock import patch

from broker.authorization_clients import Collector
from broker.authorization_fixture import broker_fixture, run_async, subscribe
from tamis.broker.deliver import exact_checks
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.publish.event_cache import StoredEvent
from waiting import eventually_async

POLICY = """
[roles.reader]
see = true
"""


@run_async
async def test_events_whose_check_was_interrupted_come_before_later_ones(tmp_path: Path) -> None:
    begun, may_end = Event(), Event()
    outcome = exact_checks._outcome

    def slow_outcome(subscription: ActiveSubscription, stored: StoredEvent) -> StoredEvent | str:
        begun.set()
        assert may_end.wait(30)
        return outcome(subscription, stored)

    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, inbox = await fixture.login("ann", "reader"), Collector()
        await subscribe(ann, "items[n = 1]", "s")
        with patch.object(exact_checks, "_outcome", slow_outcome):
            first = await ann.attach("s", Collector(), credit=1)
            await fixture.publish(*({"id": n, "items": [{"n": 1}]} for n in range(3)))
            await eventually_async(begun.is_set)
            # The connection goes, but the thread cannot be interrupted.
            leaving = asyncio.create_task(ann.detach(first))
            await asyncio.sleep(0)  # until it is leaving
            await ann.attach("s", inbox, credit=3)
            may_end.set()
            await eventually_async(lambda: len(inbox.got) == 3)
            await leaving
        assert [one["data"]["id"] for one in inbox.got] == [0, 1, 2]
        # What was not sent was no attempt.
        assert [one.get("attempt", 1) for one in inbox.got] == [1, 1, 1]


@run_async
async def test_a_late_rejection_does_not_count_the_attempt_that_is_being_prepared(
    tmp_path: Path,
) -> None:
    begun, may_end = Event(), Event()
    outcome = exact_checks._outcome

    def slow_outcome(subscription: ActiveSubscription, stored: StoredEvent) -> StoredEvent | str:
        begun.set()
        assert may_end.wait(30)
        return outcome(subscription, stored)

    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, inbox = await fixture.login("ann", "reader"), Collector()
        await subscribe(ann, "items[n = 1]", "s", max_attempts=2)
        await fixture.publish({"items": [{"n": 1}]})
        [event] = await ann.fetch("s")
        # It is not settled in time, so it is sent again.
        fixture.clock.now += 1_000.0
        await fixture.broker.notifier.reject_late()
        fixture.clock.now += 1_000.0
        with patch.object(exact_checks, "_outcome", slow_outcome):
            await ann.attach("s", inbox, credit=3, acknowledge="manual")
            await eventually_async(begun.is_set)
            # Whoever fetched it rejects it only now.
            await ann.reject("s", event.sequence)
            may_end.set()
            await ann.flush()
        assert await ann.dead_letters("s") == []
        fixture.clock.now += 1_000.0
        fixture.broker.subscription_index.find("ann", "s").queue.wake()  # type: ignore[union-attr]
        await eventually_async(lambda: len(inbox.got) == 1)
        assert inbox.got[0]["attempt"] == 2
