"""Many subscriptions in one request: each has its result, and all new ones are stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    busy_matcher,
    fetched,
    refusal,
    run_async,
    subscribe,
)
from tamis.broker.match.changes import SubscriptionChange
from tamis.broker.subscribe import batches
from tamis.errors import StorageFullError
from tamis.matching import Addition
from tamis.protocol.management import NewSubscription
from tamis.protocol.views import Creation
from waiting import eventually_async

ALL = "[roles.reader]\nsee = true\n"
LOW = '[roles.reader]\nsee = { filter = "level < 3", hide = ["secret"] }\n'
MAX_WAITING = batches.MAX_WAITING
MANY = 600
"""So many are compiled together."""


def new(name: str | None, filter_: str, **more: Any) -> NewSubscription:
    return NewSubscription(id=name, filter=filter_, **more)


def numbered(count: int, filter_: str = "n = {}") -> list[NewSubscription]:
    return [new(f"s{n}", filter_.format(n)) for n in range(count)]


def codes(results: Sequence[Creation]) -> list[str | None]:
    return [one.code for one in results]


def engine_ids(fixture: BrokerFixture) -> set[object]:
    return {*fixture.broker.engine.ids()}


def numbers(fixture: BrokerFixture) -> set[object]:
    return {one.number for one in fixture.broker.subscription_index}


@run_async
async def test_every_subscription_of_a_batch_has_its_own_result_in_order(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a = 1", "known")
        batch = [
            new("first", "a = 1"),
            new("bad", "a ="),
            new("known", "a = 1"),
            new("known", "a = 2"),
            new("with/slash", "a = 1"),
            new("first", "a = 1"),
            new("first", "a = 2"),
            new(None, "a = 1"),
            new("total", "a = 1", mode="total"),
            new("jms", "a BETWEEN 1 AND 2", language="jms"),
            new("strict", "not (b = 1)", mode="strict"),
            new("future", "a = 1", start=99),
            new("short", "a = 1", lifetime=-1.0),
            new("pattern", 'c matches "x+"'),
            new("", "a = 1"),
            new("bell\a", "a = 1"),
            new("when", "a = 1", start="yesterday"),
            new("zone", "a = 1", start="2026-01-31T12:00:00"),
            new("sql", "a = 1", language="sql"),
            new("till 7", "a = 1"),
        ]
        results = await ann.create_subscriptions(batch)
        said = [(one.id, one.resumed, one.code) for one in results]
        unnamed = results[7].id
        assert said == [
            ("first", False, None),
            ("bad", False, "bad_filter"),
            ("known", True, None),
            ("known", False, "conflict"),
            ("with/slash", False, "bad_request"),
            ("first", True, None),
            ("first", False, "conflict"),
            (unnamed, False, None),
            ("total", False, "bad_filter"),
            ("jms", False, None),
            ("strict", False, None),
            ("future", False, "conflict"),
            ("short", False, "bad_request"),
            ("pattern", False, None),
            ("", False, "bad_request"),
            ("bell\a", False, "bad_request"),
            ("when", False, "bad_request"),
            ("zone", False, "bad_request"),
            ("sql", False, "bad_filter"),
            ("till 7", False, None),
        ]
        assert unnamed.startswith("http-")
        assert "missing at the end (line 1" in str(results[1].message)
        assert results[4].message == (
            "the name is 'with/slash'; it must be a text of 1 to 200 printable characters and no "
            "slash, and not . or .."
        )
        assert "promise about all events" in str(results[8].message)
        assert "'yesterday' is not a start; use" in str(results[-4].message)
        assert "it reads 'tamis'" in str(results[-2].message)
        assert numbers(fixture) == engine_ids(fixture)
        await fixture.publish({"a": 1}, {"b": 2, "c": "xx"})
        for name in ("first", "known", unnamed, "jms"):
            assert await fetched(ann, name) == [{"a": 1}]
        assert await fetched(ann, "strict") == [{"b": 2, "c": "xx"}]
        assert await fetched(ann, "pattern") == [{"b": 2, "c": "xx"}]
        views = {one.id: one for one in await ann.subscriptions()}
        assert views["first"].filter == "a = 1"
        assert views["jms"].language == "jms"


@pytest.mark.parametrize("policy", [ALL, LOW])
@run_async
async def test_a_batch_is_one_change_and_one_sync(tmp_path: Path, policy: str) -> None:
    async with broker_fixture(tmp_path, policy) as fixture:
        ann = await fixture.login("ann", "reader")
        state, updater = fixture.broker.store.state, fixture.broker.matcher.updater
        before, changes = state._counters.changes, list[SubscriptionChange]()
        take = updater.take

        def noted(most: int) -> list[SubscriptionChange]:
            taken = take(most)
            # There are changes by chores as well.
            changes.extend(one for one in taken if "subscribe.batches" in repr(one.make))
            return taken

        updater.take = noted  # type: ignore[method-assign]
        results = await ann.create_subscriptions(numbered(MANY))
        assert codes(results) == [None] * MANY
        assert state._counters.changes == before + 1
        assert len(changes) == 1
        assert [one.start for one in await ann.subscriptions()] == [1] * MANY


@run_async
async def test_events_need_not_wait_until_a_batch_is_compiled(tmp_path: Path) -> None:
    """What is compiled beside the matcher is in the engine as a segment of its own."""
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await ann.create_subscriptions(numbered(MANY))
        state = fixture.broker.engine._collection.state
        assert state.is_whole
        assert [segment.size for segment in state.segments] == [MANY]
        assert not state.open


@run_async
async def test_the_quota_is_filled_and_not_exceeded(tmp_path: Path) -> None:
    policy = ALL + "quotas = { subscriptions = 500 }\n"
    async with broker_fixture(tmp_path, policy) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a = 1", "known")
        results = await ann.create_subscriptions(numbered(MANY))
        assert codes(results) == [None] * 499 + ["too_many"] * (MANY - 499)
        assert "500 subscriptions, which is the limit" in str(results[-1].message)
        assert numbers(fixture) == engine_ids(fixture)
        assert len(fixture.broker.store.state.subscriptions()) == 500
        await fixture.publish({"n": 498}, {"n": 499})
        assert await fetched(ann, "s498") == [{"n": 498}]
        assert codes(await ann.create_subscriptions([new("more", "a = 1")])) == ["too_many"]


@run_async
async def test_every_event_from_the_start_of_a_subscription_on_is_matched(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        is_over = asyncio.Event()

        async def publish() -> None:
            while not is_over.is_set():
                await fixture.publish({"all": 1})

        publishing = asyncio.create_task(publish())
        for first in range(0, 900, 300):
            some = [new(f"s{first + n}", f"all = 1 or n = {n}") for n in range(300)]
            assert codes(await ann.create_subscriptions(some)) == [None] * 300
        is_over.set()
        await publishing
        await fixture.publish({"all": 1})
        state, last = fixture.broker.store.state, fixture.broker.store.log.next_sequence - 1
        due = {
            one.number: [*range(one.stored.start, last + 1)]
            for one in fixture.broker.subscription_index
        }
        # Some of the matches are deferred.
        await eventually_async(lambda: state._counters.pending == sum(map(len, due.values())))
        for number, sequences in due.items():
            assert [one.sequence for one in state.pending(number, 0, 1e12, 10_000)] == sequences


@run_async
async def test_restricted_readers_get_what_they_may_see(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, LOW) as fixture:
        ann = await fixture.login("ann", "reader")
        results = await ann.create_subscriptions(
            [*numbered(MANY), new("s", "secret = 1"), new("t", "level < 9")]
        )
        assert codes(results) == [None] * MANY + ["forbidden", None]
        assert "secret, which is not an attribute that you may see" in str(results[-2].message)
        await fixture.publish({"n": 7, "level": 1, "secret": 5}, {"n": 7, "level": 5})
        assert await fetched(ann, "s7") == [{"n": 7, "level": 1}]
        assert await fetched(ann, "t") == [{"n": 7, "level": 1}]


@run_async
async def test_what_is_compiled_while_the_policy_changes_has_the_new_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        compile_, times = Addition.compile, list[int]()

        def change_policy_first(addition: Addition) -> None:
            if not times:
                fixture.write_policy(LOW)
                while not fixture.broker.access_control.reload():
                    pass
            times.append(1)
            compile_(addition)

        monkeypatch.setattr(Addition, "compile", change_policy_first)
        given = [*numbered(MANY), new("s", "secret = 1")]
        assert codes(await ann.create_subscriptions(given)) == [None] * MANY + ["forbidden"]
        assert len(times) == 2
        assert numbers(fixture) == engine_ids(fixture)
        await fixture.change_policy(LOW)
        await fixture.publish({"n": 7, "level": 5}, {"n": 7, "level": 1})
        assert await fetched(ann, "s7") == [{"n": 7, "level": 1}]


@run_async
async def test_a_batch_that_cannot_be_stored_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        state = fixture.broker.store.state

        def fail(_: object) -> list[int]:
            raise StorageFullError(tmp_path, "the disk is full")

        monkeypatch.setattr(state, "add_subscriptions", fail)
        results = await ann.create_subscriptions([*numbered(MANY), new("bad", "a =")])
        assert codes(results) == ["storage_full"] * MANY + ["bad_filter"]
        assert {one.message for one in results[:-1]} == {
            "nothing was stored: the broker's disk is full"
        }
        assert engine_ids(fixture) == numbers(fixture) == set()
        monkeypatch.undo()
        assert codes(await ann.create_subscriptions(numbered(MANY))) == [None] * MANY
        assert numbers(fixture) == engine_ids(fixture)


@run_async
async def test_who_gives_up_does_not_stop_a_batch_half_way(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        asking = asyncio.create_task(ann.create_subscriptions(numbered(MANY)))
        await asyncio.sleep(0)  # it begins
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await eventually_async(lambda: len(fixture.broker.subscription_index) == MANY)
        results = await ann.create_subscriptions(numbered(MANY))
        assert {(one.code, one.resumed) for one in results} == {(None, True)}
        assert len(fixture.broker.subscription_index) == MANY
        assert numbers(fixture) == engine_ids(fixture)


@run_async
async def test_batches_whose_clients_give_up_do_not_pile_up(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann, bob = await fixture.login("ann", "reader"), await fixture.login("bob", "reader")
        async with busy_matcher(fixture.broker):
            for n in range(MAX_WAITING):
                asking = asyncio.create_task(ann.create_subscriptions([new(f"x{n}", "n = 1")]))
                await asyncio.sleep(0)  # it begins
                asking.cancel()
                await asyncio.wait([asking])
            assert await refusal(ann.create_subscriptions(numbered(99))) == (
                "too_many: ann asks for more than 16 batches of subscriptions at once; try again "
                "in 1 s"
            )
            others = asyncio.create_task(bob.create_subscriptions(numbered(1)))
            await eventually_async(lambda: fixture.broker.matcher.updater.waiting.qsize() == 17)
        assert codes(await others) == [None]
        await eventually_async(lambda: len(fixture.broker.subscription_index) == MAX_WAITING + 1)
        assert codes(await ann.create_subscriptions(numbered(99))) == [None] * 99
        with patch.object(batches, "MAX_WAITING_IN_ALL", 0):
            assert "too_many: clients ask for more than 0 batches" in await refusal(
                bob.create_subscriptions([new("more", "n = 1")])
            )


@run_async
async def test_two_batches_with_the_same_names_make_each_once(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        asked = (ann.create_subscriptions(numbered(MANY)) for _ in range(3))
        results = await asyncio.gather(*asked)
        for each in zip(*results, strict=True):
            assert sum(one.code is None and not one.resumed for one in each) == 1
            assert {one.code for one in each} <= {None, "conflict"}
        assert numbers(fixture) == engine_ids(fixture)
        assert len(numbers(fixture)) == MANY


@run_async
async def test_a_batch_may_begin_in_the_past(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await fixture.publish(*({"n": n % 3} for n in range(9)))
        given = [new(f"s{n}", f"n = {n}", start="earliest" if n else "latest") for n in range(3)]
        assert codes(await ann.create_subscriptions(given)) == [None] * 3
        await fixture.publish(*({"n": n} for n in range(3)))
        # The log is searched beside.
        await eventually_async(lambda: fixture.broker.store.state._counters.pending == 1 + 4 + 4)
        assert await fetched(ann, "s0") == [{"n": 0}]
        assert await fetched(ann, "s1") == [{"n": 1}] * 4


@run_async
async def test_a_batch_expires_and_is_there_after_a_restart(tmp_path: Path) -> None:
    count = 1_000
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        results = await ann.create_subscriptions(
            [new(f"s{n}", f"n = {n}", lifetime=100.0 if n % 2 else None) for n in range(count)]
        )
        assert codes(results) == [None] * count
        before = {one.number: one.stored for one in fixture.broker.subscription_index}
    async with broker_fixture(tmp_path, ALL) as fixture:
        assert {one.number: one.stored for one in fixture.broker.subscription_index} == before
        ann = await fixture.login("ann", "reader")
        await fixture.publish({"n": 3})
        assert await fetched(ann, "s3") == [{"n": 3}]
        fixture.clock.now += 200.0
        await fixture.broker.subscription_manager.purge_expired()
        await fixture.publish({"n": 3}, {"n": 4})
        assert await fetched(ann, "s4") == [{"n": 4}]
        assert len(await ann.subscriptions()) == count // 2
        assert numbers(fixture) == engine_ids(fixture)


@run_async
async def test_the_same_batch_again_resumes_all_of_it(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await ann.create_subscriptions(numbered(MANY))
        results = await ann.create_subscriptions(numbered(MANY))
        assert {(one.resumed, one.code) for one in results} == {(True, None)}
        results = await ann.create_subscriptions(numbered(MANY, "n = {} and a = 1"))
        assert {*codes(results)} == {"conflict"}
