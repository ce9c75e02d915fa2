"""A policy that changes while clients are connected: it applies within a second."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.authorization_clients import (
    Collector,
    Data,
    FrameClient,
    HttpClient,
    SessionClient,
    as_json,
)
from broker.authorization_fixture import (
    FEED,
    broker_fixture,
    encoded,
    exhaust_attempts,
    fetched,
    refusal,
    run_async,
    subscribe,
    unreadable,
)
from broker.chores import do_all_chores
from clocks import Stopwatch
from tamis.access import Principal, Rights
from tamis.broker.subscribe import replay
from tamis.protocol import Deliver, Delivery, Dropped, Ended, Subscribe
from waiting import eventually_async, let_others_run

ALL = "[roles.reader]\nsee = true\n"
LOW = '[roles.reader]\nsee = "level < 3"\n'
NO_LEVEL = '[roles.reader]\nsee = { hide = ["level"] }\n'
NOTHING = "[roles.reader]\n"

MIXED = [{"a": 1, "level": 1}, {"a": 2, "level": 5}]


def data_of(collector: Collector) -> list[Data]:
    return [one["data"] for one in collector.got]


# --- a policy that changes -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["session", "events", "frames"])
@run_async
async def test_what_is_sent_follows_the_policy(tmp_path: Path, way: str) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        token = await fixture.token("ann", "reader")
        kinds: dict[str, Any] = {"events": HttpClient, "frames": FrameClient}
        client = (
            kinds[way](fixture.broker, token)
            if way in kinds
            else SessionClient(await fixture.broker.authenticate(token))
        )
        live = await client.follow(Subscribe(ref=1, filter="a > 0", durable="x", credit=100))
        assert isinstance(live, Collector)
        await fixture.publish(*MIXED)
        await fixture.wait_until_idle()
        assert data_of(live) == MIXED
        # Narrowed to some events, then to some attributes; then widened again.
        for policy, seen in (
            (LOW, MIXED[:1]),
            (NO_LEVEL, [{"a": 1}, {"a": 2}]),
            (ALL, MIXED),
        ):
            live.got.clear()
            await fixture.change_policy(policy)
            await fixture.publish(*MIXED)
            await fixture.wait_until_idle()
            assert data_of(live) == seen
        assert live.end == ""
        await fixture.change_policy(NOTHING)
        live.got.clear()
        await fixture.publish(*MIXED)
        assert live.got == []
        assert live.end == "the policy no longer allows its filter"
        await client.close()


@run_async
async def test_what_waits_is_fetched_as_the_policy_is_now(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL, max_attempts=1) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        await subscribe(ann, "a > 0", "letters")
        await fixture.publish(*MIXED)
        await exhaust_attempts(ann, "letters")
        waiting = asyncio.create_task(ann.fetch("letters", wait=5.0))
        await fixture.change_policy(LOW)
        assert await fetched(ann, "x") == MIXED[:1]
        assert (await ann.subscription("x")).in_flight == 1
        assert [as_json(one)["data"] for one in await ann.dead_letters("letters")] == MIXED[:1]
        # One who is waiting for events meanwhile gets what the new policy shows.
        await fixture.publish(*reversed(MIXED))
        assert [as_json(one)["data"] for one in await waiting] == MIXED[:1]
        # A letter that cannot be seen does not come again either.
        assert await ann.requeue("letters", [1, 2]) == 1
        assert await ann.delete_dead_letters("letters", [1, 2]) == 0
        assert await fetched(ann, "letters") == MIXED[:1]


@run_async
async def test_a_filter_that_is_no_longer_allowed_rests_until_it_is(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL, max_attempts=1) as fixture:
        ann = await fixture.login("ann", "reader")
        for name in ("live", "x", "letters"):
            await subscribe(ann, "level > 0", name)
        live = Collector()
        await ann.attach("live", live, credit=1)
        await fixture.publish(*MIXED)
        await exhaust_attempts(ann, "letters")
        waiting = asyncio.create_task(ann.fetch("letters", wait=20.0))
        await let_others_run()
        await fixture.change_policy(NO_LEVEL)
        assert data_of(live) == MIXED[:1]
        assert live.end == "the policy no longer allows its filter"
        no = "forbidden: the filter mentions level, which is not an attribute that you may see"
        assert await refusal(subscribe(ann, "level > 0", "x")) == no
        assert await refusal(ann.attach("live", Collector(), credit=1)) == unreadable("live")
        assert await refusal(ann.fetch("x")) == unreadable("x")
        assert await refusal(ann.dead_letters("letters")) == unreadable("letters")
        await fixture.publish({"a": 3, "level": 3})
        assert not waiting.done()
        await fixture.change_policy(ALL)
        # What waited is still there; what came meanwhile was not for it.
        assert await fetched(ann, "x") == MIXED
        assert [as_json(one)["data"] for one in await ann.dead_letters("letters")] == MIXED
        again = Collector()
        await ann.attach("live", again, credit=100)
        await fixture.publish({"a": 4, "level": 4})
        await fixture.wait_until_idle()
        assert data_of(again) == [MIXED[1], {"a": 4, "level": 4}]
        assert await fetched(ann, "x") == [{"a": 4, "level": 4}]
        assert [as_json(one)["data"] for one in await waiting] == [{"a": 4, "level": 4}]


@run_async
async def test_a_test_of_any_attribute_rests_while_one_is_hidden(tmp_path: Path) -> None:
    hidden = '[roles.reader]\nsee = { hide = ["card"] }\n'
    event = {"a": 1, "card": "4929"}
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        for name in ("live", "x"):
            await subscribe(ann, 'any starts with "49"', name)
        live = Collector()
        await ann.attach("live", live, credit=100)
        await fixture.publish(event, {"a": 2, "card": "5000"})
        await fixture.wait_until_idle()
        assert data_of(live) == [event]
        await fixture.change_policy(hidden)
        no = (
            "forbidden: the filter tests any attribute, and there are some that you may not see: "
            "name those that it is about"
        )
        for digits in ("4", "49", "5"):
            for text in (f'any starts with "{digits}"', f'not any ~starts with "{digits}"'):
                assert await refusal(subscribe(ann, text, f"new {digits}")) == no
                assert await refusal(ann.history(text, start="earliest")) == no
        assert await refusal(ann.fetch("x")) == unreadable("x")
        await fixture.publish({"a": 3, "card": "4900"})
        await fixture.wait_until_idle()
        assert data_of(live) == [event]
        assert live.end == "the policy no longer allows its filter"
        await fixture.change_policy(ALL)
        # What came meanwhile was not for it.
        await fixture.publish({"a": 4, "card": "49"})
        assert await fetched(ann, "x") == [event, {"a": 4, "card": "49"}]


@run_async
async def test_a_subscription_that_rests_at_a_restart_goes_on_later(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "level > 0", "x")
        await fixture.publish(*MIXED)
    async with broker_fixture(tmp_path, NO_LEVEL) as fixture:
        ann = await fixture.login("ann", "reader")
        assert (await refusal(ann.fetch("x"))).startswith("forbidden")
        await fixture.publish(*MIXED)
        await fixture.change_policy(LOW)
        await fixture.publish(*MIXED)
        assert await fetched(ann, "x") == [MIXED[0], MIXED[0]]


@run_async
async def test_the_past_is_looked_through_with_the_rights_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "EVENTS_PER_STEP", 2)
    monkeypatch.setattr(replay, "RETRY_SECONDS", 0.01)
    events = [{"level": n % 6, "n": n} for n in range(300)]
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await fixture.publish(*events)
        for name in ("x", "y"):
            await subscribe(ann, "level >= 0", name, start="earliest")
        await fixture.change_policy(NO_LEVEL)
        assert (await refusal(ann.fetch("x"))).startswith("forbidden")
        await asyncio.sleep(0.05)  # time for the replay to make a mistake
        fixture.write_policy(LOW)
    async with broker_fixture(tmp_path, NO_LEVEL) as fixture:
        ann = await fixture.login("ann", "reader")
        await asyncio.sleep(0.05)  # as above
        await fixture.change_policy(LOW)
        await eventually_async(lambda: not fixture.broker.replayer._tasks)
        for name in ("x", "y"):
            got = [one for _ in range(3) for one in await fetched(ann, name)]
            assert got == [event for event in events if event["level"] < 3]


@run_async
async def test_what_is_still_to_be_looked_through_is_found_by_the_new_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "EVENTS_PER_STEP", 2)
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann, replayer = await fixture.login("ann", "reader"), fixture.broker.replayer
        look, begun, go = replayer._search, threading.Event(), threading.Event()

        def slowly(*given: Any) -> Any:
            begun.set()
            go.wait(10)
            return (yield from look(*given))

        monkeypatch.setattr(replayer, "_search", slowly)
        await fixture.publish(*MIXED * 10)
        await subscribe(ann, "a > 0", "x", start="earliest")
        await asyncio.to_thread(begun.wait, 10)
        fixture.write_policy(LOW)
        for _ in range(2):
            # Other chores wait for the thread in which the replay is.
            await fixture.broker._reload_policy()
        await fixture.broker.subscription_manager.current_rights.applied()
        go.set()
        await eventually_async(lambda: not replayer._tasks)
        # The first two were being looked at by the rights of the moment before.
        assert (await ann.subscription("x")).pending == 11
        assert await fetched(ann, "x") == MIXED[:1] * 10


@run_async
async def test_what_is_being_made_while_the_policy_changes_has_the_new_rights(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        for round_ in range(10):
            await fixture.change_policy(ALL)
            fixture.write_policy(LOW)
            fixture.broker.access_control.reload()
            # Some are asked for, with rights that end at this moment.
            asked = [
                asyncio.create_task(subscribe(ann, filter_, f"{filter_} {round_} {n}"))
                for n in range(4)
                for filter_ in ("a > 0", "level > 0")
            ]
            await let_others_run(round_)
            await do_all_chores(fixture.broker)
            await asyncio.gather(*asked)
            await fixture.publish(*MIXED)
            for view in await ann.subscriptions():
                assert await fetched(ann, view.id) == MIXED[:1]
                assert (await ann.subscription(view.id)).pending == 1
                await ann.delete(view.id)


@run_async
async def test_what_is_in_the_making_is_not_passed_over(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann, manager = await fixture.login("ann", "reader"), fixture.broker.subscription_manager
        rights_of, begun, go = manager._rights_of, threading.Event(), threading.Event()

        def slowly(principal: Principal) -> Rights:
            found = rights_of(principal)
            if not begun.is_set():
                begun.set()
                go.wait(10)
            return found

        manager._rights_of = slowly
        making = asyncio.create_task(subscribe(ann, "a > 0", "x"))
        await asyncio.to_thread(begun.wait, 10)
        changing = asyncio.create_task(fixture.change_policy(LOW))
        await asyncio.sleep(0.05)  # time to overtake what is in the making
        go.set()
        await asyncio.gather(making, changing)
        await fixture.publish(*MIXED)
        assert (await ann.subscription("x")).pending == 1
        assert await fetched(ann, "x") == MIXED[:1]


@run_async
async def test_rights_hold_before_the_matcher_has_a_moment_for_them(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann, busy = await fixture.login("ann", "reader"), threading.Event()
        await subscribe(ann, "a > 0", "x")
        await subscribe(ann, "level > 0", "y")
        await fixture.publish(*MIXED)
        for policy, seen in ((LOW, MIXED[:1]), (NO_LEVEL, [{"a": 1}])):
            busy.clear()
            matching = asyncio.create_task(fixture.broker.matcher.updater.do(busy.wait))
            before = fixture.broker.access_control.policy
            changing = asyncio.create_task(fixture.change_policy(policy))
            access = fixture.broker.access_control
            await eventually_async(lambda: access.policy is not before)  # noqa: B023
            [got] = await ann.fetch("x")
            assert [as_json(got)["data"]] == seen
            await ann.reject("x", got.sequence, delay=0.0)
            if policy is NO_LEVEL:
                assert (await refusal(ann.fetch("y"))).startswith("forbidden")
            busy.set()
            await asyncio.gather(matching, changing)


@run_async
async def test_what_matched_by_an_attribute_that_is_hidden_now_does_not_come(
    tmp_path: Path,
) -> None:
    later = """
    [roles.reader]
    see = "kind = 1"
    [roles.other]
    see = { filter = "kind = 2", hide = ["level"] }
    """
    async with broker_fixture(tmp_path, ALL, max_attempts=1) as fixture:
        ann = await fixture.login("ann", "reader", "other")
        for name in ("x", "letters"):
            await subscribe(ann, "level > 0", name)
        await fixture.publish({"kind": 2, "level": 5}, {"kind": 1, "level": 1})
        await exhaust_attempts(ann, "letters")
        await fixture.change_policy(later)
        # The event of kind 2 is seen, but not that its level is above 0.
        assert await fetched(ann, "x") == [{"kind": 1, "level": 1}]
        assert [letter.sequence for letter in await ann.dead_letters("letters")] == [2]


@run_async
async def test_waiting_for_a_suspended_subscription_does_not_spin(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "level > 0", "x")
        await fixture.publish(*MIXED[:1])
        [got] = await ann.fetch("x")
        await ann.reject("x", got.sequence, delay=5.0)
        waiting = asyncio.create_task(ann.fetch("x", wait=20.0))
        await asyncio.sleep(0.01)  # time to begin waiting
        fixture.clock.now += 10
        await fixture.change_policy(NO_LEVEL)
        await asyncio.sleep(0.01)  # time to wake up by mistake
        assert not waiting.done()
        await fixture.change_policy(ALL)
        assert [as_json(one)["data"] for one in await waiting] == MIXED[:1]


class BlockedSink:
    """A sink that takes nothing until it is unblocked."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.reason = ""

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        assert not isinstance(frame, Dropped)
        if isinstance(frame, Deliver):
            self.got += frame.events
            self.begun.set()
        await self.go.wait()
        if isinstance(frame, Ended):
            self.reason = frame.reason


@run_async
async def test_a_slow_reader_receives_nothing_by_former_rights(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        large = "x" * 100_000
        await fixture.publish(*({"a": 1, "level": n % 6, "text": large} for n in range(40)))
        outlet = BlockedSink()
        await ann.attach("x", outlet, credit=1000)
        await outlet.begun.wait()
        handed = len(outlet.got)
        assert handed < 10
        await fixture.change_policy(LOW)
        outlet.go.set()
        await fixture.wait_until_idle()
        levels = [as_json(one)["data"]["level"] for one in outlet.got]
        assert levels[:handed] == [n % 6 for n in range(handed)]
        assert levels[handed:] == [n % 6 for n in range(handed, 40) if n % 6 < 3]


@pytest.mark.timing
@run_async
async def test_a_client_that_does_not_read_loses_its_rights_and_delays_no_other(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann, bob = await fixture.login("ann", "reader"), await fixture.login("bob", "reader")
        outlets = [BlockedSink() for _ in range(20)]
        for n, outlet in enumerate(outlets):
            await subscribe(ann, "level > 0", f"x{n}")
            await ann.attach(f"x{n}", outlet, credit=1000)
        live = Collector()
        await subscribe(bob, "level > 0", "x", lifetime=5.0)
        await bob.attach("x", live, credit=1000)
        await fixture.publish(*MIXED)
        watch = Stopwatch()
        await fixture.change_policy(NO_LEVEL)
        assert watch.seconds() < 1.0
        assert live.end
        # Nor does it keep others from expiring.
        await fixture.change_policy(ALL)
        await subscribe(ann, "a > 0", "late", lifetime=5.0)
        await ann.attach("late", outlets[0], credit=1000)
        await bob.attach("x", live, credit=1000)
        fixture.clock.now += 10
        watch = Stopwatch()
        await do_all_chores(fixture.broker)
        assert watch.seconds() < 1.0
        assert live.end == "expired"


@run_async
async def test_rights_to_publish_and_to_administrate_end_at_once(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, "[roles.chief]\npublish = true\nadmin = true\n") as fixture:
        ann = await fixture.login("ann", "chief")
        await ann.publish(encoded(MIXED))
        await ann.tokens()
        await fixture.change_policy('[roles.chief]\npublish = "level < 3"\n')
        await ann.publish(encoded(MIXED[:1]))
        assert (await refusal(ann.publish(encoded(MIXED)))).startswith("forbidden")
        assert await refusal(ann.tokens()) == "forbidden: only administrators may do this"


# --- the file ------------------------------------------------------------------------------------


@run_async
async def test_a_policy_that_cannot_be_used_leaves_the_last_in_force(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, LOW) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        path = tmp_path / "policy.toml"
        broken = ["see = [", "[roles.reader]\nsee = 'level <'", "[roles]\nx = " + "[" * 20_000]
        for text in broken:
            await fixture.change_policy(text)
            assert fixture.broker.health.ready
            [problem] = fixture.broker.health.problems
            assert problem.startswith(
                "the policy file cannot be used; the previous policy stays in force: "
            )
            await fixture.publish(*MIXED)
            assert await fetched(ann, "x") == MIXED[:1]
        path.unlink()
        await do_all_chores(fixture.broker)
        await do_all_chores(fixture.broker)
        assert "No such file" in fixture.broker.health.problems[0]
        await fixture.change_policy(ALL)
        assert fixture.broker.health.problems == []
        await fixture.publish(*MIXED)
        assert await fetched(ann, "x") == MIXED


@run_async
async def test_a_file_that_is_still_being_written_is_not_in_force(tmp_path: Path) -> None:
    before = "[roles.reader]\n[roles.reader.see]\nfilter = 'level < 3'\n"
    async with broker_fixture(tmp_path, before + "hide = ['b']\n") as fixture:
        path = tmp_path / "policy.toml"
        policy = fixture.broker.access_control.policy
        for text in ("", before, before + "hide = ['b', 'c']\n" + FEED):
            path.write_text(text)
            await do_all_chores(fixture.broker)
            assert fixture.broker.access_control.policy is policy
        await do_all_chores(fixture.broker)
        ann = await fixture.login("ann", "reader")
        assert (await refusal(subscribe(ann, "c = 1"))).startswith("forbidden")


@run_async
async def test_a_change_is_seen_that_keeps_size_and_time_of_the_file(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, LOW) as fixture:
        path = tmp_path / "policy.toml"
        status = path.stat()
        other = tmp_path / "other.toml"
        other.write_text(path.read_text().replace("level < 3", "level < 2"))
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.replace(path)
        assert (path.stat().st_mtime_ns, path.stat().st_size) == (
            status.st_mtime_ns,
            status.st_size,
        )
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        await do_all_chores(fixture.broker)
        await do_all_chores(fixture.broker)
        await fixture.publish({"a": 1, "level": 1}, {"a": 1, "level": 2})
        assert await fetched(ann, "x") == [{"a": 1, "level": 1}]
