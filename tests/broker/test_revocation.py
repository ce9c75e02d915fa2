"""Rights that change while people are connected: within a second nobody has more than they say."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.authorization_actors import (
    Collector,
    Data,
    FramesActor,
    HttpActor,
    SessionActor,
    Talk,
    plain,
)
from broker.authorization_house import (
    FEED,
    House,
    bury,
    fetched,
    house,
    in_loop,
    refusal,
    subscribe,
    texts,
)
from broker.authorization_servers import LAST, SERVED, Reader, Served, jwt_for, jwt_settings
from tamis.access import Principal, Rights
from tamis.broker import Session
from tamis.broker.subscribe import replay
from tamis.protocol import Delivery, Hello, Ping, Subscribe

ALL = "[roles.reader]\nsee = true\n"
LOW = '[roles.reader]\nsee = "level < 3"\n'
NO_LEVEL = '[roles.reader]\nsee = { hide = ["level"] }\n'
NOTHING = "[roles.reader]\n"

MIXED = [{"a": 1, "level": 1}, {"a": 2, "level": 5}]


def data_of(collector: Collector) -> list[Data]:
    return [one["data"] for one in collector.got]


# --- a policy that changes -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["session", "events", "frames"])
@in_loop
async def test_what_is_sent_follows_the_policy(tmp_path: Path, way: str) -> None:
    async with house(tmp_path, ALL) as place:
        token = await place.token("ann", "reader")
        kinds: dict[str, Any] = {"events": HttpActor, "frames": FramesActor}
        actor = (
            kinds[way](place.broker, token)
            if way in kinds
            else SessionActor(await place.broker.authenticate(token))
        )
        live = await actor.follow(Subscribe(ref=1, filter="a > 0", durable="x", credit=100))
        assert isinstance(live, Collector)
        await place.publish(*MIXED)
        await place.quiet()
        assert data_of(live) == MIXED
        # Narrowed to some events, then to some attributes; then widened again.
        for policy, seen in (
            (LOW, MIXED[:1]),
            (NO_LEVEL, [{"a": 1}, {"a": 2}]),
            (ALL, MIXED),
        ):
            live.got.clear()
            await place.rewrite(policy)
            await place.publish(*MIXED)
            await place.quiet()
            assert data_of(live) == seen
        assert live.end == ""
        await place.rewrite(NOTHING)
        live.got.clear()
        await place.publish(*MIXED)
        assert live.got == []
        assert live.end == "the policy no longer allows its filter"
        await actor.close()


@in_loop
async def test_what_waits_is_fetched_as_the_policy_is_now(tmp_path: Path) -> None:
    async with house(tmp_path, ALL, max_attempts=1) as place:
        ann = await place.come("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        await subscribe(ann, "a > 0", "letters")
        await place.publish(*MIXED)
        await bury(ann, "letters")
        waiting = asyncio.create_task(ann.fetch("letters", wait=5.0))
        await place.rewrite(LOW)
        assert await fetched(ann, "x") == MIXED[:1]
        assert (await ann.subscription("x")).in_flight == 1
        assert [plain(one)["data"] for one in await ann.dead_letters("letters")] == MIXED[:1]
        # One who is waiting for events meanwhile gets what the new policy shows.
        await place.publish(*reversed(MIXED))
        assert [plain(one)["data"] for one in await waiting] == MIXED[:1]
        # A letter that cannot be seen does not come again either.
        assert await ann.requeue("letters", [1, 2]) == 1
        assert await ann.delete_dead_letters("letters", [1, 2]) == 0
        assert await fetched(ann, "letters") == MIXED[:1]


@in_loop
async def test_a_filter_that_is_no_longer_allowed_rests_until_it_is(tmp_path: Path) -> None:
    async with house(tmp_path, ALL, max_attempts=1) as place:
        ann = await place.come("ann", "reader")
        for name in ("live", "x", "letters"):
            await subscribe(ann, "level > 0", name)
        live = Collector()
        await ann.attach("live", live, credit=1)
        await place.publish(*MIXED)
        await bury(ann, "letters")
        waiting = asyncio.create_task(ann.fetch("letters", wait=20.0))
        await asyncio.sleep(0)
        await place.rewrite(NO_LEVEL)
        assert data_of(live) == MIXED[:1]
        assert live.end == "the policy no longer allows its filter"
        no = "forbidden: the filter mentions level, which is not an attribute that you may see"
        assert await refusal(subscribe(ann, "level > 0", "x")) == no
        assert await refusal(ann.attach("live", Collector(), credit=1)) == no
        assert await refusal(ann.fetch("x")) == no
        assert await refusal(ann.dead_letters("letters")) == no
        await place.publish({"a": 3, "level": 3})
        assert not waiting.done()
        await place.rewrite(ALL)
        # What waited is still there; what came meanwhile was not for it.
        assert await fetched(ann, "x") == MIXED
        assert [plain(one)["data"] for one in await ann.dead_letters("letters")] == MIXED
        again = Collector()
        await ann.attach("live", again, credit=100)
        await place.publish({"a": 4, "level": 4})
        await place.quiet()
        assert data_of(again) == [MIXED[1], {"a": 4, "level": 4}]
        assert await fetched(ann, "x") == [{"a": 4, "level": 4}]
        assert [plain(one)["data"] for one in await waiting] == [{"a": 4, "level": 4}]


@in_loop
async def test_a_subscription_that_rests_at_a_restart_goes_on_later(tmp_path: Path) -> None:
    async with house(tmp_path, ALL) as place:
        ann = await place.come("ann", "reader")
        await subscribe(ann, "level > 0", "x")
        await place.publish(*MIXED)
    async with house(tmp_path, NO_LEVEL) as place:
        ann = await place.come("ann", "reader")
        assert (await refusal(ann.fetch("x"))).startswith("forbidden")
        await place.publish(*MIXED)
        await place.rewrite(LOW)
        await place.publish(*MIXED)
        assert await fetched(ann, "x") == [MIXED[0], MIXED[0]]


@in_loop
async def test_the_past_is_looked_through_with_the_rights_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "TOGETHER", 2)
    monkeypatch.setattr(replay, "AGAIN", 0.01)
    events = [{"level": n % 6, "n": n} for n in range(300)]
    async with house(tmp_path, ALL) as place:
        ann = await place.come("ann", "reader")
        await place.publish(*events)
        for name in ("x", "y"):
            await subscribe(ann, "level >= 0", name, start="earliest")
        await place.rewrite(NO_LEVEL)
        assert (await refusal(ann.fetch("x"))).startswith("forbidden")
        await asyncio.sleep(0.05)
        place.write(LOW)
    async with house(tmp_path, NO_LEVEL) as place:
        ann = await place.come("ann", "reader")
        await asyncio.sleep(0.05)
        await place.rewrite(LOW)
        while place.broker.replayer._tasks:
            await asyncio.sleep(0.01)
        for name in ("x", "y"):
            got = [one for _ in range(3) for one in await fetched(ann, name)]
            assert got == [event for event in events if event["level"] < 3]


@in_loop
async def test_what_is_still_to_be_looked_through_is_found_by_the_new_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "TOGETHER", 2)
    async with house(tmp_path, ALL) as place:
        ann, replayer = await place.come("ann", "reader"), place.broker.replayer
        look, begun, go = replayer._look, threading.Event(), threading.Event()

        def slowly(*given: Any) -> Any:
            begun.set()
            go.wait(10)
            return look(*given)

        monkeypatch.setattr(replayer, "_look", slowly)
        await place.publish(*MIXED * 10)
        await subscribe(ann, "a > 0", "x", start="earliest")
        await asyncio.to_thread(begun.wait, 10)
        await place.rewrite(LOW)
        go.set()
        while replayer._tasks:
            await asyncio.sleep(0.01)
        # The first two were being looked at by the rights of the moment before.
        assert (await ann.subscription("x")).pending == 11
        assert await fetched(ann, "x") == MIXED[:1] * 10


@in_loop
async def test_what_is_being_made_while_the_policy_changes_has_the_new_rights(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, ALL) as place:
        ann = await place.come("ann", "reader")
        for round_ in range(10):
            await place.rewrite(ALL)
            place.write(LOW)
            place.broker.doorman.reload()
            # Some are asked for, with rights that end at this moment.
            asked = [
                asyncio.create_task(subscribe(ann, filter_, f"{filter_} {round_} {n}"))
                for n in range(4)
                for filter_ in ("a > 0", "level > 0")
            ]
            for _ in range(round_):
                await asyncio.sleep(0)
            await place.broker.housekeeping.do_all()
            await asyncio.gather(*asked)
            await place.publish(*MIXED)
            for view in await ann.subscriptions():
                assert await fetched(ann, view.id) == MIXED[:1]
                assert (await ann.subscription(view.id)).pending == 1
                await ann.delete(view.id)


@in_loop
async def test_what_is_in_the_making_is_not_passed_over(tmp_path: Path) -> None:
    async with house(tmp_path, ALL) as place:
        ann, registrar = await place.come("ann", "reader"), place.broker.registrar
        rights_of, begun, go = registrar._rights_of, threading.Event(), threading.Event()

        def slowly(principal: Principal) -> Rights:
            found = rights_of(principal)
            if not begun.is_set():
                begun.set()
                go.wait(10)
            return found

        registrar._rights_of = slowly
        making = asyncio.create_task(subscribe(ann, "a > 0", "x"))
        await asyncio.to_thread(begun.wait, 10)
        changing = asyncio.create_task(place.rewrite(LOW))
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(making, changing)
        await place.publish(*MIXED)
        assert (await ann.subscription("x")).pending == 1
        assert await fetched(ann, "x") == MIXED[:1]


@in_loop
async def test_rights_hold_before_the_matcher_has_a_moment_for_them(tmp_path: Path) -> None:
    async with house(tmp_path, ALL) as place:
        ann, busy = await place.come("ann", "reader"), threading.Event()
        await subscribe(ann, "a > 0", "x")
        await subscribe(ann, "level > 0", "y")
        await place.publish(*MIXED)
        for policy, seen in ((LOW, MIXED[:1]), (NO_LEVEL, [{"a": 1}])):
            busy.clear()
            matching = asyncio.create_task(place.broker.matcher.updater.do(busy.wait))
            before = place.broker.doorman.policy
            changing = asyncio.create_task(place.rewrite(policy))
            while place.broker.doorman.policy is before:
                await asyncio.sleep(0.001)
            [got] = await ann.fetch("x")
            assert [plain(got)["data"]] == seen
            await ann.reject("x", got.sequence, delay=0.0)
            if policy is NO_LEVEL:
                assert (await refusal(ann.fetch("y"))).startswith("forbidden")
            busy.set()
            await asyncio.gather(matching, changing)


@in_loop
async def test_what_matched_by_an_attribute_that_is_hidden_now_does_not_come(
    tmp_path: Path,
) -> None:
    later = """
    [roles.reader]
    see = "kind = 1"
    [roles.other]
    see = { filter = "kind = 2", hide = ["level"] }
    """
    async with house(tmp_path, ALL, max_attempts=1) as place:
        ann = await place.come("ann", "reader", "other")
        for name in ("x", "letters"):
            await subscribe(ann, "level > 0", name)
        await place.publish({"kind": 2, "level": 5}, {"kind": 1, "level": 1})
        await bury(ann, "letters")
        await place.rewrite(later)
        # The event of kind 2 is seen, but not that its level is above 0.
        assert await fetched(ann, "x") == [{"kind": 1, "level": 1}]
        assert [letter.sequence for letter in await ann.dead_letters("letters")] == [2]


@in_loop
async def test_one_who_waits_for_a_subscription_that_rests_keeps_nobody_busy(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, ALL) as place:
        ann = await place.come("ann", "reader")
        await subscribe(ann, "level > 0", "x")
        await place.publish(*MIXED[:1])
        [got] = await ann.fetch("x")
        await ann.reject("x", got.sequence, delay=5.0)
        waiting = asyncio.create_task(ann.fetch("x", wait=20.0))
        await asyncio.sleep(0.01)
        place.clock.now += 10
        await place.rewrite(NO_LEVEL)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await place.rewrite(ALL)
        assert [plain(one)["data"] for one in await waiting] == MIXED[:1]


class Narrow:
    """An outlet that takes nothing until it is told to."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.reason = ""

    async def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.got += deliveries
        self.begun.set()
        await self.go.wait()

    async def dropped(self, count: int, reason: str) -> None:
        raise AssertionError((count, reason))

    async def ended(self, reason: str) -> None:
        await self.go.wait()
        self.reason = reason


@in_loop
async def test_one_who_reads_slowly_gets_nothing_by_rights_of_the_past(tmp_path: Path) -> None:
    async with house(tmp_path, ALL) as place:
        ann = await place.come("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        large = "x" * 100_000
        await place.publish(*({"a": 1, "level": n % 6, "text": large} for n in range(40)))
        outlet = Narrow()
        await ann.attach("x", outlet, credit=1000)
        await outlet.begun.wait()
        handed = len(outlet.got)
        assert handed < 10
        await place.rewrite(LOW)
        outlet.go.set()
        await place.quiet()
        levels = [plain(one)["data"]["level"] for one in outlet.got]
        assert levels[:handed] == [n % 6 for n in range(handed)]
        assert levels[handed:] == [n % 6 for n in range(handed, 40) if n % 6 < 3]


@in_loop
async def test_one_who_does_not_listen_keeps_no_rights_and_delays_nobody(tmp_path: Path) -> None:
    async with house(tmp_path, ALL) as place:
        ann, bob = await place.come("ann", "reader"), await place.come("bob", "reader")
        outlets = [Narrow() for _ in range(20)]
        for n, outlet in enumerate(outlets):
            await subscribe(ann, "level > 0", f"x{n}")
            await ann.attach(f"x{n}", outlet, credit=1000)
        live = Collector()
        await subscribe(bob, "level > 0", "x", lifetime=5.0)
        await bob.attach("x", live, credit=1000)
        await place.publish(*MIXED)
        begun = time.monotonic()
        await place.rewrite(NO_LEVEL)
        assert time.monotonic() - begun < 1.0
        assert live.end
        # Nor does it keep others from expiring.
        await place.rewrite(ALL)
        await subscribe(ann, "a > 0", "late", lifetime=5.0)
        await ann.attach("late", outlets[0], credit=1000)
        await bob.attach("x", live, credit=1000)
        place.clock.now += 10
        begun = time.monotonic()
        await place.broker.housekeeping.do_all()
        assert time.monotonic() - begun < 1.0
        assert live.end == "expired"


@in_loop
async def test_rights_to_publish_and_to_administrate_end_at_once(tmp_path: Path) -> None:
    async with house(tmp_path, "[roles.chief]\npublish = true\nadmin = true\n") as place:
        ann = await place.come("ann", "chief")
        await ann.publish(texts(MIXED))
        await ann.tokens()
        await place.rewrite('[roles.chief]\npublish = "level < 3"\n')
        await ann.publish(texts(MIXED[:1]))
        assert (await refusal(ann.publish(texts(MIXED)))).startswith("forbidden")
        assert await refusal(ann.tokens()) == "forbidden: this is for administrators"


# --- the file ------------------------------------------------------------------------------------


@in_loop
async def test_a_policy_that_cannot_be_used_leaves_the_last_in_force(tmp_path: Path) -> None:
    async with house(tmp_path, LOW) as place:
        ann = await place.come("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        path = tmp_path / "policy.toml"
        broken = ["see = [", "[roles.reader]\nsee = 'level <'", "[roles]\nx = " + "[" * 20_000]
        for text in broken:
            await place.rewrite(text)
            assert place.broker.health.ready
            [problem] = place.broker.health.problems
            assert problem.startswith("the policy file cannot be used, the last one holds: ")
            await place.publish(*MIXED)
            assert await fetched(ann, "x") == MIXED[:1]
        path.unlink()
        await place.broker.housekeeping.do_all()
        await place.broker.housekeeping.do_all()
        assert "No such file" in place.broker.health.problems[0]
        await place.rewrite(ALL)
        assert place.broker.health.problems == []
        await place.publish(*MIXED)
        assert await fetched(ann, "x") == MIXED


@in_loop
async def test_a_file_that_is_still_being_written_is_not_in_force(tmp_path: Path) -> None:
    before = "[roles.reader]\n[roles.reader.see]\nfilter = 'level < 3'\n"
    async with house(tmp_path, before + "hide = ['b']\n") as place:
        path = tmp_path / "policy.toml"
        policy = place.broker.doorman.policy
        for text in ("", before, before + "hide = ['b', 'c']\n" + FEED):
            path.write_text(text)
            await place.broker.housekeeping.do_all()
            assert place.broker.doorman.policy is policy
        await place.broker.housekeeping.do_all()
        ann = await place.come("ann", "reader")
        assert (await refusal(subscribe(ann, "c = 1"))).startswith("forbidden")


@in_loop
async def test_a_change_is_seen_that_keeps_size_and_time_of_the_file(tmp_path: Path) -> None:
    async with house(tmp_path, LOW) as place:
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
        ann = await place.come("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        await place.broker.housekeeping.do_all()
        await place.broker.housekeeping.do_all()
        await place.publish({"a": 1, "level": 1}, {"a": 1, "level": 2})
        assert await fetched(ann, "x") == [{"a": 1, "level": 1}]


# --- people who have to go -----------------------------------------------------------------------

OPERATOR = ALL + "[roles.operator]\nadmin = true\n"


async def blocked(place: House) -> None:
    await place.rewrite('blocked = ["ann"]\n' + OPERATOR)


async def revoked(place: House) -> None:
    root = await place.come("root", "operator")
    [id_] = [one.id for one in await root.tokens() if one.principal == "ann" and one.note == ""]
    await root.revoke_token(id_)


async def expired(place: House) -> None:
    place.clock.now += 1_000
    await place.broker.housekeeping.do_all()


@pytest.mark.parametrize("end", [blocked, revoked, expired])
@in_loop
async def test_whoever_has_to_go_gets_nothing_more(
    tmp_path: Path, end: Callable[[House], Coroutine[Any, Any, None]]
) -> None:
    async with house(tmp_path, OPERATOR) as place:
        token = await place.token("ann", "reader", lifetime=500)
        ann = await place.broker.authenticate(token)
        live = Collector()
        for name in ("live", "x", "waiting"):
            await subscribe(ann, "a > 0", name)
        await ann.attach("live", live, credit=100)
        talk = Talk(place.broker)
        await talk.say(Hello(token=token))
        await talk.say(Subscribe(ref=1, filter="a > 0", credit=100))
        assert (await talk.answer(1))["type"] == "subscribed"
        app = HttpActor(place.broker, token)
        stream = await app.follow(Subscribe(ref=1, filter="a > 0", durable="stream"))
        assert isinstance(stream, Collector)
        waiting = asyncio.create_task(ann.fetch("waiting", wait=20.0))
        await place.quiet()
        await end(place)
        await place.publish(*MIXED)
        assert live.got == []
        # The connection has not ended yet, but nothing is done for it any more.
        assert ann.closed.result() == "the credential is no longer valid"
        no = "unauthenticated: the credential is no longer valid"
        assert await refusal(waiting_for(waiting)) == no
        for ask in everything(ann):
            assert await refusal(ask) == no
        await talk.task
        assert talk.closed == (4401, "the credential is no longer valid")
        assert talk.collector.got == []
        await app.streams_end()
        assert stream.got == []
        assert stream.end == "the credential is no longer valid"
        assert await refusal(place.broker.authenticate(token)) == (
            "unauthenticated: the token is not valid"
        )
        await ann.close()
        await app.close()


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
    yield asyncio.to_thread(session.try_filter, "true", events=[])
    yield asyncio.to_thread(session.explain, filter_="true", event=b"{}")
    yield session.issue_token("ann")
    yield session.revoke_token("x")
    yield session.tokens()
    yield session.audit()


@in_loop
async def test_a_token_that_is_revoked_ends_what_it_began_and_nothing_else(tmp_path: Path) -> None:
    async with house(tmp_path, OPERATOR) as place:
        root = await place.come("root", "operator")
        issued = await root.issue_token("ann", ["reader"])
        lost, record = issued.text, issued.token
        phone, laptop = await place.broker.authenticate(lost), await place.come("ann", "reader")
        await subscribe(phone, "a > 0", "x")
        await root.revoke_token(record.id)
        assert phone.closed.done()
        assert not laptop.closed.done()
        await phone.close()
        # The subscription is Ann's, and waits for her.
        await place.publish(*MIXED)
        assert await fetched(laptop, "x") == MIXED
        acts = [(entry.act, entry.detail) for entry in await root.audit()]
        assert acts[-1] == ("revoke token", f"{record.id} of ann")
    async with house(tmp_path, OPERATOR) as place:
        assert (await refusal(place.broker.authenticate(lost))).startswith("unauthenticated")


@in_loop
async def test_who_has_to_go_goes_also_while_the_connection_is_stuck(tmp_path: Path) -> None:
    async with house(tmp_path, ALL) as place:
        talk = StuckTalk(place.broker)
        await talk.say(Hello(token=await place.token("ann", "reader")))
        await talk.say(Subscribe(ref=1, filter="a > 0", durable="x", credit=100))
        await talk.answer(1)
        talk.flows.clear()
        # The answer to this does not go out, so that nothing more is read.
        await talk.say(Ping(ref=2))
        await asyncio.sleep(0.01)
        await place.rewrite('blocked = ["ann"]\n' + ALL)
        await place.publish(*MIXED)
        talk.flows.set()
        await talk.task
        assert talk.collector.got == []
        assert talk.closed is not None
        assert talk.closed[0] == 4401


class StuckTalk(Talk):
    """A connection whose other side can stop reading."""

    def __init__(self, broker: Any) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        super().__init__(broker)

    async def send(self, frame: bytes) -> None:
        await self.flows.wait()
        await super().send(frame)


# --- JSON Web Tokens -----------------------------------------------------------------------------


@in_loop
async def test_a_session_by_jwt_ends_with_it_and_the_next_has_its_own_roles(
    tmp_path: Path,
) -> None:
    policy = ALL + '[roles.low]\nsee = "level < 3"\n'
    async with house(tmp_path, policy, **jwt_settings(tmp_path)) as place:
        now = place.clock.now
        ann = await place.broker.authenticate(jwt_for("ann", ["reader"], now + 60))
        await subscribe(ann, "a > 0", "x")
        await place.publish(*MIXED)
        place.clock.now = now + 59
        await place.broker.housekeeping.do_all()
        assert not ann.closed.done()
        place.clock.now = now + 60
        await place.broker.housekeeping.do_all()
        assert ann.closed.result() == "the credential is no longer valid"
        assert (await refusal(ann.fetch("x"))).startswith("unauthenticated")
        await ann.close()
        again = await place.broker.authenticate(jwt_for("ann", ["low"], now + 600))
        assert await fetched(again, "x") == MIXED[:1]
        # The policy's change is for the roles of the one who came last.
        await place.rewrite(ALL + '[roles.low]\nsee = "level > 3"\n')
        await place.publish(*MIXED)
        assert await fetched(again, "x") == MIXED[1:]


# --- real servers, real time ---------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path, ALL)


def test_a_second_after_the_policy_was_rewritten_nothing_hidden_comes(served: Served) -> None:
    with (
        served.running() as server,
        server.client(served.tokens["root"]) as admin,
        Reader(server, served.tokens["ann"]) as reader,
    ):
        written = publish_while_rewriting(admin, served.policy, SERVED + LOW)
        admin.post("/v1/events", json={"a": LAST, "level": 1})
        for got in reader.until_last():
            high = [one["time"] for one in got if one["data"]["level"] > 3]
            low = [one["time"] for one in got if one["data"]["level"] < 3]
            assert high, "some came while they were allowed"
            assert max(high) < written + 1.0 < max(low)
        # A policy with a mistake changes nothing, and is told to those who can mend it.
        served.policy.write_text("[roles.reader]\nsee = 'level <'")
        wait_for(lambda: admin.get("/v1/status").json()["problems"])
        [problem] = admin.get("/v1/status").json()["problems"]
        assert "roles.reader.see.filter" in problem
        assert reader.client.get("/v1/status").status_code == 403
        assert reader.client.get("/ready").status_code == 200


def publish_while_rewriting(admin: httpx.Client, policy: Path, text: str) -> float:
    """Publish for two seconds, and rewrite the policy after a half; return when that was."""
    begun, written, n = time.time(), 0.0, 1
    while time.time() < begun + 2.0:
        admin.post("/v1/events", json=[{"a": n, "level": 5}, {"a": n, "level": 1}])
        if not written and time.time() > begun + 0.5:
            policy.write_text(text)
            written = time.time()
        n += 1
    return written


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_within_a_second_whoever_has_to_go_is_disconnected(served: Served) -> None:
    with served.running() as server, server.client(served.tokens["root"]) as admin:
        expires_at = float(int(time.time()) + 3)
        served.tokens["eve"] = jwt_for("eve", ["reader"], expires_at)
        people = {name: Reader(server, served.tokens[name]) for name in ("ann", "bob", "eve")}
        tokens = admin.get("/v1/tokens").json()["tokens"]
        [id_] = [one["id"] for one in tokens if one["principal"] == "ann"]
        begun = time.time()
        assert admin.delete(f"/v1/tokens/{id_}").status_code == 204
        assert people["ann"].until_the_end() < begun + 1.0
        begun = time.time()
        served.policy.write_text('blocked = ["bob"]\n' + SERVED + ALL)
        assert people["bob"].until_the_end() < begun + 1.0
        assert expires_at <= people["eve"].until_the_end() < expires_at + 1.0
        for reader in people.values():
            said = reader.client.get("/v1/subscriptions")
            assert (said.status_code, said.json()["detail"]) == (401, "the token is not valid")
            reader.__exit__()
