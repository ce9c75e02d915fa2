"""Dead letters are kept within bounds; what goes is the oldest, counted and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.authorization_clients import Collector
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    exhaust_attempts,
    run_async,
    subscribe,
)
from tamis.broker import Session
from waiting import eventually_async

READER = "[roles.reader]\nsee = true\n"


async def letters(session: Session, name: str) -> list[int]:
    return [one.sequence for one in await session.dead_letters(name, limit=1000)]


def dropped(fixture: BrokerFixture) -> int:
    return fixture.broker.metrics.totals()["dropped"]


@run_async
async def test_a_subscription_keeps_its_newest_dead_letters(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER, max_attempts=1, dead_letters=5) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "x")
        for first in (1, 5):
            await fixture.publish(*({"n": n} for n in range(first, first + 4)))
            await exhaust_attempts(ann, "x")
        assert await letters(ann, "x") == [4, 5, 6, 7, 8]
        view = await ann.subscription("x")
        # All that came is there or counted.
        assert (view.dead, view.dropped, view.pending) == (5, 3, 0)
        totals = fixture.broker.metrics.totals()
        assert (totals["dead"], totals["dropped"]) == (8, 3)
        live = Collector()
        await ann.attach("x", live, credit=1)
        await eventually_async(lambda: live.lost)
        assert live.lost == [(3, "dead_letters")]
    # The count stays, and is told once.
    async with broker_fixture(tmp_path, READER, max_attempts=1, dead_letters=5) as fixture:
        ann = await fixture.login("ann", "reader")
        assert (await ann.subscription("x")).dropped == 3
        assert (await ann.fetch("x")).dropped == 0


@run_async
async def test_a_principal_keeps_so_many_bytes_of_dead_letters(tmp_path: Path) -> None:
    room = {"max_attempts": 1, "dead_letter_bytes": 100_000}
    async with broker_fixture(tmp_path, READER, **room) as fixture:
        ann, bob = await fixture.login("ann", "reader"), await fixture.login("bob", "reader")
        for session, name in ((ann, "large"), (ann, "small"), (bob, "x")):
            await subscribe(session, f'to = "{name}"', name)
        await fixture.publish({"to": "small", "text": "x" * 10_000})
        await exhaust_attempts(ann, "small")
        await fixture.publish(*({"to": "large", "text": "x" * 10_000} for _ in range(20)))
        await exhaust_attempts(ann, "large")
        await fixture.publish(*({"to": "x", "text": "x" * 10_000} for _ in range(5)))
        await exhaust_attempts(bob, "x")
        # The one with the most gives way, and others' letters do not count.
        assert await letters(ann, "small") == [1]
        kept = await letters(ann, "large")
        assert kept == [*range(22 - len(kept), 22)]
        assert 7 <= len(kept) <= 9
        assert len(await letters(bob, "x")) == 5
        assert (await ann.subscription("large")).dropped == dropped(fixture) == 20 - len(kept)
    async with broker_fixture(tmp_path, READER, **room) as fixture:
        ann = await fixture.login("ann", "reader")
        await fixture.publish(*({"to": "small", "text": "x" * 10_000} for _ in range(3)))
        await exhaust_attempts(ann, "small")
        # What was there before the restart counts.
        assert len(await letters(ann, "large")) == len(kept) - 3
        assert len(await letters(ann, "small")) == 4


@pytest.mark.parametrize("how", ["delete", "requeue", "unsubscribe"])
@run_async
async def test_letters_that_are_gone_make_room(tmp_path: Path, how: str) -> None:
    room = {"max_attempts": 1, "dead_letter_bytes": 100_000}
    async with broker_fixture(tmp_path, READER, **room) as fixture:
        ann = await fixture.login("ann", "reader")
        for name in ("x", "y"):
            await subscribe(ann, f'to = "{name}"', name)
        await fixture.publish(*({"to": "x", "text": "x" * 10_000} for _ in range(8)))
        await exhaust_attempts(ann, "x")
        if how == "delete":
            assert await ann.delete_dead_letters("x", range(1, 9)) == 8
        elif how == "requeue":
            assert await ann.requeue("x", range(1, 9)) == 8
        else:
            await ann.delete("x")
        await fixture.publish(*({"to": "y", "text": "x" * 10_000} for _ in range(8)))
        await exhaust_attempts(ann, "y")
        assert len(await letters(ann, "y")) == 8
        assert dropped(fixture) == 0


@run_async
async def test_few_published_bytes_do_not_become_many(tmp_path: Path) -> None:
    """One event, given up by many subscriptions, is stored once for each of them."""
    async with broker_fixture(tmp_path, READER, max_attempts=1) as fixture:
        fixture.broker.dead_letter_bounds._bytes = 1_000_000
        ann = await fixture.login("ann", "reader")
        for n in range(60):
            await subscribe(ann, "true", f"s{n}")
        await fixture.publish({"text": "x" * 50_000})
        for n in range(60):
            await exhaust_attempts(ann, f"s{n}")
        usage = fixture.broker.store.state.dead_letter_usage()
        assert sum(one.bytes for one in usage) <= 1_000_000
        assert sum(one.letters for one in usage) + dropped(fixture) == 60


@run_async
async def test_letters_of_a_deleted_subscription_take_no_room(tmp_path: Path) -> None:
    room = {"max_attempts": 1, "dead_letter_bytes": 100_000}
    async with broker_fixture(tmp_path, READER, **room) as fixture:
        ann = await fixture.login("ann", "reader")
        for name, count in (("small", 5), ("large", 8)):
            await subscribe(ann, f'to = "{name}"', name)
            await fixture.publish(*({"to": name, "text": "x" * 10_000} for _ in range(count)))
            await exhaust_attempts(ann, name)
            if name == "small":
                await ann.delete(name)
        assert len(await letters(ann, "large")) == 8
        assert dropped(fixture) == 0
        await ann.delete_dead_letters("large", range(1, 99))
        assert not fixture.broker.dead_letter_bounds._sizes
