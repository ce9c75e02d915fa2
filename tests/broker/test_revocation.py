"""Rights that change while clients are connected: they apply within a second."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.authorization_clients import (
    Collector,
    Data,
    FrameClient,
    HttpClient,
    MemoryConnection,
    SessionClient,
    as_json,
)
from broker.authorization_fixture import (
    FEED,
    BrokerFixture,
    broker_fixture,
    encoded,
    exhaust_attempts,
    fetched,
    refusal,
    run_async,
    subscribe,
)
from broker.authorization_servers import (
    ADMIN_ROLE,
    LAST_VALUE,
    PolicyServer,
    Reader,
    jwt_for,
    jwt_settings,
)
from clocks import Stopwatch
from tamis.access import Principal, Rights
from tamis.broker import Session
from tamis.broker.sessions.session import MAX_BYTES_DECODED_ON_LOOP
from tamis.broker.subscribe import replay
from tamis.protocol import Deliver, Delivery, Dropped, Ended, Hello, Ping, Subscribe
from waiting import eventually, eventually_async, let_others_run

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
        assert await refusal(ann.attach("live", Collector(), credit=1)) == no
        assert await refusal(ann.fetch("x")) == no
        assert await refusal(ann.dead_letters("letters")) == no
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
            await fixture.broker.housekeeping.do_all()
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
        await fixture.broker.housekeeping.do_all()
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
        await fixture.broker.housekeeping.do_all()
        await fixture.broker.housekeeping.do_all()
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
            await fixture.broker.housekeeping.do_all()
            assert fixture.broker.access_control.policy is policy
        await fixture.broker.housekeeping.do_all()
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
        await fixture.broker.housekeeping.do_all()
        await fixture.broker.housekeeping.do_all()
        await fixture.publish({"a": 1, "level": 1}, {"a": 1, "level": 2})
        assert await fetched(ann, "x") == [{"a": 1, "level": 1}]


# --- credentials that end ------------------------------------------------------------------------

OPERATOR = ALL + "[roles.operator]\nadmin = true\n"


async def blocked(fixture: BrokerFixture) -> None:
    await fixture.change_policy('blocked = ["ann"]\n' + OPERATOR)


async def revoked(fixture: BrokerFixture) -> None:
    root = await fixture.login("root", "operator")
    [id_] = [one.id for one in await root.tokens() if one.principal == "ann" and one.note == ""]
    await root.revoke_token(id_)


async def expired(fixture: BrokerFixture) -> None:
    fixture.clock.now += 1_000
    await fixture.broker.housekeeping.do_all()


@pytest.mark.parametrize("end", [blocked, revoked, expired])
@run_async
async def test_a_revoked_client_receives_nothing_more(
    tmp_path: Path, end: Callable[[BrokerFixture], Coroutine[Any, Any, None]]
) -> None:
    async with broker_fixture(tmp_path, OPERATOR) as fixture:
        token = await fixture.token("ann", "reader", lifetime=500)
        ann = await fixture.broker.authenticate(token)
        live = Collector()
        for name in ("live", "x", "waiting"):
            await subscribe(ann, "a > 0", name)
        await ann.attach("live", live, credit=100)
        connection = MemoryConnection(fixture.broker)
        await connection.send_frame(Hello(token=token))
        await connection.send_frame(Subscribe(ref=1, filter="a > 0", credit=100))
        assert (await connection.answer(1))["type"] == "subscribed"
        app = HttpClient(fixture.broker, token)
        stream = await app.follow(Subscribe(ref=1, filter="a > 0", durable="stream"))
        assert isinstance(stream, Collector)
        waiting = asyncio.create_task(ann.fetch("waiting", wait=20.0))
        await fixture.wait_until_idle()
        await end(fixture)
        await fixture.publish(*MIXED)
        assert live.got == []
        # The connection has not ended yet, but nothing is done for it any more.
        assert ann.closed.result() == "the credential is no longer valid"
        no = "unauthenticated: the credential is no longer valid"
        assert await refusal(waiting_for(waiting)) == no
        for ask in everything(ann):
            assert await refusal(ask) == no
        await connection.task
        assert connection.closed == (4401, "the credential is no longer valid")
        assert connection.collector.got == []
        await app.streams_end()
        assert stream.got == []
        assert stream.end == "the credential is no longer valid"
        assert await refusal(fixture.broker.authenticate(token)) == (
            "unauthenticated: the token is not valid"
        )
        await ann.close()
        await app.close()


@run_async
async def test_a_publication_that_is_still_being_decoded_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_fixture(tmp_path, OPERATOR + "publish = true\n") as fixture:
        ann = await fixture.login("ann", "operator")
        decoder, begun, go = fixture.broker.decoder, threading.Event(), threading.Event()
        decode_all = decoder.decode_all

        def slowly(*given: Any) -> Any:
            begun.set()
            go.wait(10)
            return decode_all(*given)

        monkeypatch.setattr(decoder, "decode_all", slowly)
        large = [{"a": 1, "text": "x" * 2 * MAX_BYTES_DECODED_ON_LOOP}]
        # The first waits for its decoding, the second for the first.
        publications = [asyncio.create_task(ann.publish(encoded(each))) for each in (large, MIXED)]
        await asyncio.to_thread(begun.wait, 10)
        await revoked(fixture)
        go.set()
        for publication in publications:
            no = "unauthenticated: the credential is no longer valid"
            assert await refusal(waiting_for(publication)) == no
        assert fixture.broker.store.log.next_sequence == 1


async def waiting_for(task: asyncio.Task[Any]) -> object:
    return await task


def everything(session: Session) -> Iterator[Coroutine[Any, Any, object]]:
    """Yield all that can be asked for."""
    yield session.publish([b"{}"])
    yield subscribe(session, "true")
    yield session.subscriptions()
    yield session.subscription("x")
    yield session.renew("x", None)
    yield session.delete("x")
    yield session.attach("x", Collector(), credit=1)
    yield session.fetch("x")
    yield session.acknowledge("x", [1])
    yield session.reject("x", 1)
    yield session.dead_letters("x")
    yield session.requeue("x", [1])
    yield session.delete_dead_letters("x", [1])
    yield session.try_filter("true", events=[])
    yield session.explain(filter_="true", event=b"{}")
    yield session.issue_token("ann")
    yield session.revoke_token("x")
    yield session.tokens()
    yield session.audit()


@run_async
async def test_a_token_that_is_revoked_ends_what_it_began_and_nothing_else(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, OPERATOR) as fixture:
        root = await fixture.login("root", "operator")
        issued = await root.issue_token("ann", ["reader"])
        lost, record = issued.text, issued.token
        phone, laptop = (
            await fixture.broker.authenticate(lost),
            await fixture.login("ann", "reader"),
        )
        await subscribe(phone, "a > 0", "x")
        await root.revoke_token(record.id)
        assert phone.closed.done()
        assert not laptop.closed.done()
        await phone.close()
        # The subscription is Ann's, and waits for her.
        await fixture.publish(*MIXED)
        assert await fetched(laptop, "x") == MIXED
        acts = [(entry.act, entry.detail) for entry in await root.audit()]
        assert acts[-1] == ("revoke token", f"{record.id} of ann")
    async with broker_fixture(tmp_path, OPERATOR) as fixture:
        assert (await refusal(fixture.broker.authenticate(lost))).startswith("unauthenticated")


@run_async
async def test_who_has_to_go_goes_also_while_the_connection_is_stuck(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        connection = StalledConnection(fixture.broker)
        await connection.send_frame(Hello(token=await fixture.token("ann", "reader")))
        await connection.send_frame(Subscribe(ref=1, filter="a > 0", durable="x", credit=100))
        await connection.answer(1)
        connection.flows.clear()
        # The answer to this does not go out, so that nothing more is read.
        await connection.send_frame(Ping(ref=2))
        await asyncio.sleep(0.01)  # time to read the ping
        await fixture.change_policy('blocked = ["ann"]\n' + ALL)
        await fixture.publish(*MIXED)
        connection.flows.set()
        await connection.task
        assert connection.collector.got == []
        assert connection.closed is not None
        assert connection.closed[0] == 4401


class StalledConnection(MemoryConnection):
    """A connection whose other side can stop reading."""

    def __init__(self, broker: Any) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        super().__init__(broker)

    async def send(self, frame: bytes) -> None:
        await self.flows.wait()
        await super().send(frame)


# --- JSON Web Tokens -----------------------------------------------------------------------------


@run_async
async def test_a_session_by_jwt_ends_with_it_and_the_next_has_its_own_roles(
    tmp_path: Path,
) -> None:
    policy = ALL + '[roles.low]\nsee = "level < 3"\n'
    async with broker_fixture(tmp_path, policy, **jwt_settings(tmp_path)) as fixture:
        now = fixture.clock.now
        ann = await fixture.broker.authenticate(jwt_for("ann", ["reader"], now + 60))
        await subscribe(ann, "a > 0", "x")
        await fixture.publish(*MIXED)
        fixture.clock.now = now + 59
        await fixture.broker.housekeeping.do_all()
        assert not ann.closed.done()
        fixture.clock.now = now + 60
        await fixture.broker.housekeeping.do_all()
        assert ann.closed.result() == "the credential is no longer valid"
        assert (await refusal(ann.fetch("x"))).startswith("unauthenticated")
        await ann.close()
        again = await fixture.broker.authenticate(jwt_for("ann", ["low"], now + 600))
        assert await fetched(again, "x") == MIXED[:1]
        # What these roles hid was kept for those of before, and the new policy shows it.
        await fixture.change_policy(ALL + '[roles.low]\nsee = "level > 3"\n')
        await fixture.publish(*MIXED)
        assert await fetched(again, "x") == MIXED[1:] * 2


# --- real servers, real time ---------------------------------------------------------------------


@pytest.fixture
def policy_server(tmp_path: Path) -> PolicyServer:
    return PolicyServer(tmp_path, ALL)


def test_a_second_after_the_policy_was_rewritten_nothing_hidden_comes(
    policy_server: PolicyServer,
) -> None:
    with (
        policy_server.running() as server,
        server.client(policy_server.tokens["root"]) as admin,
        Reader(server, policy_server.tokens["ann"]) as reader,
    ):
        written = publish_while_rewriting(admin, policy_server.policy, ADMIN_ROLE + LOW)
        admin.post("/v1/events", json={"a": LAST_VALUE, "level": 1})
        for got in reader.read_until_last():
            high = [one["time"] for one in got if one["data"]["level"] > 3]
            low = [one["time"] for one in got if one["data"]["level"] < 3]
            assert high, "some came while they were allowed"
            assert max(high) < written + 1.0 < max(low)
        # A policy with a mistake changes nothing, and is reported to those who can mend it.
        policy_server.policy.write_text("[roles.reader]\nsee = 'level <'")
        eventually(lambda: admin.get("/v1/status").json()["problems"])
        [problem] = admin.get("/v1/status").json()["problems"]
        assert "roles.reader.see.filter" in problem
        assert reader.client.get("/v1/status").status_code == 403
        assert reader.client.get("/ready").status_code == 200


def publish_while_rewriting(admin: httpx.Client, policy: Path, text: str) -> float:
    """Publish for two seconds, and change the policy after half a second; return when."""
    begun, written, n = time.time(), 0.0, 1
    while time.time() < begun + 2.0:
        admin.post("/v1/events", json=[{"a": n, "level": 5}, {"a": n, "level": 1}])
        if not written and time.time() > begun + 0.5:
            policy.write_text(text)
            written = time.time()
        n += 1
    return written


def test_a_revoked_client_is_disconnected_within_a_second(policy_server: PolicyServer) -> None:
    with policy_server.running() as server, server.client(policy_server.tokens["root"]) as admin:
        expires_at = float(int(time.time()) + 3)
        policy_server.tokens["eve"] = jwt_for("eve", ["reader"], expires_at)
        participants = {
            name: Reader(server, policy_server.tokens[name]) for name in ("ann", "bob", "eve")
        }
        tokens = admin.get("/v1/tokens").json()["tokens"]
        [id_] = [one["id"] for one in tokens if one["principal"] == "ann"]
        begun = time.time()
        assert admin.delete(f"/v1/tokens/{id_}").status_code == 204
        assert participants["ann"].wait_for_end() < begun + 1.0
        begun = time.time()
        policy_server.policy.write_text('blocked = ["bob"]\n' + ADMIN_ROLE + ALL)
        assert participants["bob"].wait_for_end() < begun + 1.0
        assert expires_at <= participants["eve"].wait_for_end() < expires_at + 1.0
        for reader in participants.values():
            said = reader.client.get("/v1/subscriptions")
            assert (said.status_code, said.json()["detail"]) == (401, "the token is not valid")
            reader.__exit__()
