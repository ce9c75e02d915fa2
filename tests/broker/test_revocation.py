"""Credentials that end while clients are connected, and rights on real servers: in a second."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.authorization_clients import (
    Collector,
    HttpClient,
    MemoryConnection,
)
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    encoded,
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
from broker.chores import do_all_chores
from tamis.broker import Session
from tamis.broker.sessions.publishing import MAX_BYTES_DECODED_ON_LOOP
from tamis.protocol import Hello, Ping, Subscribe
from waiting import eventually

ALL = "[roles.reader]\nsee = true\n"
LOW = '[roles.reader]\nsee = "level < 3"\n'

MIXED = [{"a": 1, "level": 1}, {"a": 2, "level": 5}]


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
    await do_all_chores(fixture.broker)


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
        check_all = decoder.check_all

        def slowly(*given: Any) -> Any:
            begun.set()
            go.wait(10)
            return check_all(*given)

        monkeypatch.setattr(decoder, "check_all", slowly)
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
    yield session.update("x", "true")
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
        await do_all_chores(fixture.broker)
        assert not ann.closed.done()
        fixture.clock.now = now + 60
        await do_all_chores(fixture.broker)
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


@pytest.mark.timing
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
    """Change the policy after half a second, and publish until after it holds; return when."""
    begun, written, n = time.time(), 0.0, 1
    while not written or time.time() < written + 1.5:
        admin.post("/v1/events", json=[{"a": n, "level": 5}, {"a": n, "level": 1}])
        if not written and time.time() > begun + 0.5:
            policy.write_text(text)
            written = time.time()
        n += 1
    return written


@pytest.mark.timing
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
