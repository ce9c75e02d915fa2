"""Rights end within a second, whatever else the broker is busy with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from broker.authorization_clients import MemoryConnection
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    busy_matcher,
    exhaust_attempts,
    refusal,
    run_async,
    subscribe,
)
from clocks import Stopwatch
from tamis.errors import StorageFullError
from tamis.ports import Executor
from tamis.protocol import Hello, Subscribe
from tamis.protocol.management import ManagementCall, TryFilter
from tamis.storage import StateStore
from waiting import eventually_async

POLICY = "[roles.operator]\nadmin = true\n[roles.reader]\nsee = true\n"
HIDING = '[roles.operator]\nadmin = true\n[roles.reader]\nsee = { hide = ["secret"] }\n'
BLOCKED = f'blocked = ["ann"]\n{POLICY}'
PROMPT_SECONDS = 1.0


@asynccontextmanager
async def occupied(executor: Executor, threads: int = 2) -> AsyncIterator[None]:
    """Keep all threads of an executor busy."""
    free = threading.Event()
    working = [asyncio.create_task(executor.run(free.wait)) for _ in range(threads)]
    try:
        yield
    finally:
        free.set()
        await asyncio.gather(*working)


async def token_of(fixture: BrokerFixture, name: str, *roles: str) -> tuple[str, str]:
    text, record = await fixture.broker.access_control.issue(name, roles, None, "")
    return text, record.id


@run_async
async def test_a_token_is_refused_though_its_revocation_cannot_be_stored(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        token, id_ = await token_of(fixture, "ann", "reader")
        root = await fixture.login("root", "operator")
        ann = await fixture.broker.authenticate(token)
        full = StorageFullError(Path("state.db"), "the disk is full", advice="free space")
        with patch.object(StateStore, "revoke_token", side_effect=full) as revoke:
            said = await refusal(root.revoke_token(id_))
            assert said.startswith("storage_full: the token is refused from now on, but")
            assert ann.closed.done()
            assert "unauthenticated" in await refusal(fixture.broker.authenticate(token))
            assert any("revocation" in one for one in fixture.broker.status()["problems"])
            await eventually_async(lambda: revoke.call_count > 1)
        await eventually_async(lambda: not fixture.broker.status()["problems"])
        entries = await root.audit()
        assert [entry.act for entry in entries][-1] == "revoke token"
    async with broker_fixture(tmp_path, POLICY) as fixture:
        assert "unauthenticated" in await refusal(fixture.broker.authenticate(token))


@run_async
async def test_a_token_is_refused_before_its_revocation_is_stored(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        token, id_ = await token_of(fixture, "ann", "reader")
        root = await fixture.login("root", "operator")
        ann = await fixture.broker.authenticate(token)
        with fixture.broker.store.state._writing:
            revoking = asyncio.create_task(root.revoke_token(id_))
            await eventually_async(ann.closed.done, timeout=PROMPT_SECONDS)
            assert "unauthenticated" in await refusal(fixture.broker.authenticate(token))
        await revoking


@run_async
async def test_a_revocation_is_stored_although_nobody_waits_for_it(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        token, id_ = await token_of(fixture, "ann", "reader")
        root = await fixture.login("root", "operator")
        ann, full = await fixture.broker.authenticate(token), threading.Event()

        def fail(*_: object) -> bool:
            full.wait(10)
            raise StorageFullError(Path("state.db"), "the disk is full", advice="free space")

        with patch.object(StateStore, "revoke_token", fail):
            revoking = asyncio.create_task(root.revoke_token(id_))
            await eventually_async(ann.closed.done)
            revoking.cancel()
            await asyncio.wait([revoking])
            full.set()
            await eventually_async(lambda: "revocation" in str(fixture.broker.health.problems))
        await eventually_async(lambda: not fixture.broker.health.problems)
    async with broker_fixture(tmp_path, POLICY) as fixture:
        assert "unauthenticated" in await refusal(fixture.broker.authenticate(token))


@run_async
async def test_policies_are_applied_one_after_another_while_the_matcher_is_busy(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        async with busy_matcher(fixture.broker):
            before = ann.rights
            fixture.write_policy(HIDING)
            await eventually_async(lambda: ann.rights is not before, timeout=2 * PROMPT_SECONDS)
            fixture.write_policy(BLOCKED)
            await eventually_async(ann.closed.done, timeout=2 * PROMPT_SECONDS)


@run_async
async def test_a_token_expires_on_time_while_a_policy_waits_for_the_matcher(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.broker.authenticate(await fixture.token("ann", "reader", lifetime=60.0))
        await subscribe(ann, "a > 0", "x")
        async with busy_matcher(fixture.broker):
            before = ann.rights
            fixture.write_policy(HIDING)
            await eventually_async(lambda: ann.rights is not before, timeout=2 * PROMPT_SECONDS)
            fixture.clock.now += 61.0
            await eventually_async(ann.closed.done, timeout=PROMPT_SECONDS)


QUESTIONS = ["history", "dead letters", "requeue", "try", "views"]


@pytest.mark.timing
@pytest.mark.parametrize("question", QUESTIONS)
@run_async
async def test_a_question_that_waits_for_a_thread_is_refused_at_once(
    tmp_path: Path, question: str
) -> None:
    async with broker_fixture(tmp_path, POLICY, max_attempts=1) as fixture:
        token, id_ = await token_of(fixture, "ann", "reader")
        root = await fixture.login("root", "operator")
        ann = await fixture.broker.authenticate(token)
        await subscribe(ann, "a > 0", "x")
        await fixture.publish({"a": 1})
        await exhaust_attempts(ann, "x")
        trial: ManagementCall[Any] = TryFilter("a > 0", [msgspec.Raw(b"{}")])
        asked: dict[str, Coroutine[Any, Any, Any]] = {
            "history": ann.history("a > 0"),
            "dead letters": ann.dead_letters("x"),
            "requeue": ann.requeue("x", [1]),
            "try": ann.perform(trial),
            "views": ann.subscriptions(),
        }
        async with occupied(fixture.broker.executors.client):
            asking = asyncio.create_task(asked.pop(question))
            for unused in asked.values():
                unused.close()
            await asyncio.sleep(0.05)  # time to reach the queue of the executor
            await root.revoke_token(id_)
            watch = Stopwatch()
            assert "unauthenticated" in await refusal(asyncio.wait_for(asking, 10))
            assert watch.seconds() < PROMPT_SECONDS


@pytest.mark.parametrize("question", ["history", "dead letters"])
@run_async
async def test_a_question_that_waits_for_a_thread_is_answered_by_the_rights_of_then(
    tmp_path: Path, question: str
) -> None:
    async with broker_fixture(tmp_path, POLICY, max_attempts=1) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a > 0", "x")
        await fixture.publish({"a": 1, "secret": 5})
        await exhaust_attempts(ann, "x")
        async with occupied(fixture.broker.executors.client):
            asking = asyncio.create_task(
                _events(ann.history("a > 0") if question == "history" else ann.dead_letters("x"))
            )
            await asyncio.sleep(0.05)  # time to reach the queue of the executor
            await fixture.change_policy(HIDING)
        assert [bytes(one.data) for one in await asking] == [b'{"a":1}']


async def _events(asking: Coroutine[Any, Any, Any]) -> list[Any]:
    answer = await asking
    return [*getattr(answer, "events", answer)]


@pytest.mark.timing
@run_async
async def test_a_connection_with_many_subscriptions_is_closed_within_a_second(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        token, id_ = await token_of(fixture, "ann", "reader")
        root = await fixture.login("root", "operator")
        connection = MemoryConnection(fixture.broker)
        await connection.send_frame(Hello(token=token))
        for ref in range(500):
            await connection.send_frame(Subscribe(ref=ref, filter=f"a = {ref}"))
            await connection.answer(ref)
        watch = Stopwatch()
        await root.revoke_token(id_)
        await eventually_async(lambda: connection.closed is not None)
        assert watch.seconds() < PROMPT_SECONDS
        await connection.task
        assert len(fixture.broker.subscription_index) == 0
