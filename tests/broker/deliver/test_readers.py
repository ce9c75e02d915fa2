"""What a reader gets follows its own credential, whoever else uses the subscription."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.authorization_clients import Collector, as_json
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    exhaust_attempts,
    fetched,
    refusal,
    run_async,
    subscribe,
    unreadable,
)
from tamis.broker import Session
from tamis.broker.deliver.dead_letters import HIDDEN_REASON
from waiting import eventually_async

POLICY = """
[roles.narrow]
see = { filter = "level < 3", hide = ["secret"] }
[roles.broad]
see = true
[roles.high]
see = { filter = "level > 3", hide = ["secret"] }
"""
LOW = {"level": 1, "secret": "s"}
HIGH = {"level": 9, "secret": "t"}
LOW_SHOWN = {"level": 1}
HIGH_SHOWN = {"level": 9}


async def two_credentials(fixture: BrokerFixture) -> tuple[Session, Session]:
    return await fixture.login("ann", "narrow"), await fixture.login("ann", "broad")


def data_of(collector: Collector) -> list[dict[str, object]]:
    return [one["data"] for one in collector.got]


@pytest.mark.parametrize("way", ["subscribes", "fetches", "connects elsewhere"])
@run_async
async def test_an_open_connection_shows_what_its_own_credential_may_see(
    tmp_path: Path, way: str
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, broad = await two_credentials(fixture)
        await subscribe(narrow, "level > 0", "s")
        live = Collector()
        await narrow.attach("s", live, credit=100)
        if way == "subscribes":
            await subscribe(broad, "level > 0", "s")
        elif way == "fetches":
            assert (await refusal(broad.fetch("s"))).startswith("conflict")
        else:
            await subscribe(broad, "level > 0", "other")
            await broad.attach("other", Collector(), credit=100)
        await fixture.publish(LOW, HIGH, LOW)
        await eventually_async(lambda: len(live.got) >= 2)
        assert data_of(live) == [LOW_SHOWN] * 2


@run_async
async def test_a_waiting_fetch_shows_what_its_own_credential_may_see(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, broad = await two_credentials(fixture)
        await subscribe(narrow, "level > 0", "s")
        waiting = asyncio.create_task(fetched(narrow, "s", wait=20.0))
        await asyncio.sleep(0.01)  # time to begin waiting
        assert await fetched(broad, "s") == []
        await fixture.publish(HIGH, LOW)
        assert await waiting == [LOW_SHOWN]


@run_async
async def test_a_narrow_reader_loses_nothing_for_a_broad_one(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, broad = await two_credentials(fixture)
        await subscribe(broad, "level > 0", "s")
        await fixture.publish(HIGH, LOW, HIGH)
        live = Collector()
        attachment = await narrow.attach("s", live, credit=100)
        await fixture.publish(LOW, HIGH)
        await eventually_async(lambda: len(live.got) >= 2)
        assert data_of(live) == [LOW_SHOWN, LOW_SHOWN]
        await narrow.detach(attachment)
        # Neither matching nor what waits was narrowed.
        got = await broad.fetch("s")
        assert [one.sequence for one in got] == [1, 3, 5]
        assert [as_json(one)["data"] for one in got] == [HIGH] * 3
        assert [one.attempt for one in got] == [1, 1, 1]


@run_async
async def test_readers_who_alternate_get_each_what_they_may_see_once(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY, window=4) as fixture:
        narrow, broad = await two_credentials(fixture)
        high = await fixture.login("ann", "high")
        await subscribe(broad, "level > 0", "s")
        await fixture.publish(*[HIGH, LOW, HIGH, HIGH, LOW, HIGH] * 3)
        seen: dict[Session, list[int]] = {narrow: [], high: [], broad: []}
        for reader in (narrow, high, narrow, broad, high, narrow, broad, high, broad) * 3:
            got = await reader.fetch("s", limit=1)
            await reader.acknowledge("s", [one.sequence for one in got])
            seen[reader] += [one.sequence for one in got]
        lows = [n for n in range(1, 19) if n % 3 == 2]
        assert sorted(n for one in seen.values() for n in one) == [*range(1, 19)]
        assert {*seen[narrow]} <= {*lows}
        assert not {*seen[high]} & {*lows}
        await fixture.broker.acknowledgement_writer.settled()
        assert (await broad.subscription("s")).pending == 0


@run_async
async def test_two_who_wait_and_hide_from_each_other_do_not_spin(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, high = await fixture.login("ann", "narrow"), await fixture.login("ann", "high")
        await subscribe(narrow, "level > 0", "s")
        await fetched(high, "s")
        reads = 0
        state = fixture.broker.store.state
        read = state.pending

        def count(*given: object) -> object:
            nonlocal reads
            reads += 1
            return read(*given)  # type: ignore[arg-type]

        state.pending = count  # type: ignore[method-assign, assignment]
        waiting = [asyncio.create_task(fetched(one, "s", wait=20.0)) for one in (narrow, high)]
        await fixture.publish(HIGH)
        assert await waiting[1] == [HIGH_SHOWN]
        await asyncio.sleep(0.05)  # time to spin
        assert not waiting[0].done()
        await fixture.publish(LOW)
        assert await waiting[0] == [LOW_SHOWN]
        assert reads < 10


@run_async
async def test_what_a_reader_may_not_see_it_cannot_settle(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, broad = await two_credentials(fixture)
        await subscribe(broad, "level > 0", "s")
        await fixture.publish(HIGH, LOW)
        assert await fetched(broad, "s") == [HIGH, LOW]
        await narrow.acknowledge("s", [1])
        await narrow.reject("s", 1, delay=0.0)
        assert await fetched(broad, "s") == []
        await narrow.acknowledge("s", up_to=2)
        assert (await broad.subscription("s")).in_flight == 1
        await broad.reject("s", 1, delay=0.0)
        assert await fetched(narrow, "s") == []
        [again] = await broad.fetch("s")
        assert (again.sequence, again.attempt) == (1, 2)


@run_async
async def test_counts_are_shown_to_those_who_may_see_all_that_is_counted(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY, max_attempts=1) as fixture:
        narrow, broad = await two_credentials(fixture)
        await subscribe(narrow, "level > 0", "s")
        await fixture.publish(LOW)
        assert (await narrow.subscription("s")).pending == 1
        await subscribe(broad, "level > 0", "s")
        await fixture.publish(HIGH)
        view = await narrow.subscription("s")
        assert (view.pending, view.in_flight, view.dropped, view.dead) == (0, 0, 0, 0)
        await exhaust_attempts(broad, "s")
        assert (await broad.subscription("s")).dead == 2
        letters = await narrow.dead_letters("s")
        assert [as_json(one)["data"] for one in letters] == [LOW_SHOWN]


@run_async
async def test_a_dropped_event_is_told_only_to_those_who_might_have_seen_it(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, broad = await two_credentials(fixture)
        await subscribe(broad, "level > 0", "s")
        [subscription] = fixture.broker.subscription_index
        for reader, told in ((narrow, []), (broad, [(6, "retention")])):
            live = Collector()
            await reader.attach("s", live, credit=100)
            fixture.broker.notifier.drop_below(subscription, 1, 3)
            await fixture.publish(LOW)
            await eventually_async(lambda: live.got)  # noqa: B023
            assert live.lost == told


@run_async
async def test_a_policy_change_narrows_the_open_connection_of_one_credential(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, broad = await two_credentials(fixture)
        await subscribe(broad, "level > 0", "s")
        live = Collector()
        await narrow.attach("s", live, credit=100)
        await fixture.change_policy(POLICY.replace('hide = ["secret"]', 'hide = ["level"]', 1))
        assert live.end == "the policy no longer allows its filter"
        assert (await refusal(narrow.fetch("s"))).startswith("forbidden")
        await fixture.publish(LOW)
        assert await fetched(broad, "s") == [LOW]


@run_async
async def test_roles_that_used_a_subscription_survive_a_restart(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, broad = await two_credentials(fixture)
        await subscribe(narrow, "level > 0", "s")
        await fetched(broad, "s")
        await fetched(narrow, "s")
    async with broker_fixture(tmp_path, POLICY) as fixture:
        narrow, broad = await two_credentials(fixture)
        await fixture.publish(HIGH, LOW)
        assert await fetched(narrow, "s") == [LOW_SHOWN]
        assert await fetched(broad, "s") == [HIGH]


@pytest.mark.parametrize("path", ["history", "dead letters"])
@run_async
async def test_an_answer_that_was_computed_by_former_rights_is_computed_again(
    tmp_path: Path, path: str
) -> None:
    async with broker_fixture(tmp_path, POLICY, max_attempts=1) as fixture:
        ann = await fixture.login("ann", "broad")
        await subscribe(ann, "level > 0", "s")
        await fixture.publish(LOW, HIGH)
        await exhaust_attempts(ann, "s")
        client, has_begun, go = (
            fixture.broker.executors.client,
            asyncio.Event(),
            asyncio.Event(),
        )
        run = client.run

        async def slowly(*given: object, **named: object) -> object:
            answer: object = await run(*given, **named)  # type: ignore[arg-type]
            has_begun.set()
            await go.wait()
            return answer

        client.run = slowly  # type: ignore[method-assign, assignment]
        ask: Any = ann.history("level > 0") if path == "history" else ann.dead_letters("s")
        asked = asyncio.create_task(ask)
        await has_begun.wait()
        await fixture.change_policy(POLICY.replace("see = true", 'see = "level < 3"'))
        go.set()
        answer = as_json(await asked)
        shown = answer["events"] if path == "history" else answer
        assert [one["data"] for one in shown] == [LOW]


@run_async
async def test_a_revoked_reader_is_refused_while_its_answer_waits_for_a_thread(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "broad")
        await fixture.publish(LOW)
        never = asyncio.Event()

        async def wait(*_: object, **__: object) -> object:
            return await never.wait()

        fixture.broker.executors.client.run = wait  # type: ignore[method-assign, assignment]
        asked = asyncio.create_task(ann.history("level > 0"))
        await asyncio.sleep(0.01)  # time to begin waiting
        ann.revoke("the credential is no longer valid")
        assert (await refusal(asked)).startswith("unauthenticated")


# --- what a narrow credential may do to the subscription of a broad one --------------------------

CHANGES = """
[roles.broad]
see = true
[roles.narrow]
see = { filter = "level < 3", hide = ["secret"] }
[roles.publisher]
publish = true
[roles.admin]
admin = true
"""
HIDDEN = unreadable("s")
NOTHING = "forbidden: your roles allow you to see no events"


@pytest.mark.parametrize(("role", "no"), [("narrow", HIDDEN), ("publisher", NOTHING)])
@run_async
async def test_who_may_not_subscribe_changes_and_deletes_nothing(
    tmp_path: Path, role: str, no: str
) -> None:
    async with broker_fixture(tmp_path, CHANGES, max_attempts=1) as fixture:
        broad, other = await fixture.login("ann", "broad"), await fixture.login("ann", role)
        await subscribe(broad, "secret is present", "s")
        await fixture.publish(LOW, HIGH)
        [first, _] = await broad.fetch("s")
        await broad.reject("s", first.sequence)
        await fixture.broker.acknowledgement_writer.settled()
        assert await refusal(other.renew("s", 0.01)) == no
        assert await refusal(other.delete("s")) == no
        assert await refusal(other.requeue("s", [first.sequence])) == no
        assert await refusal(other.delete_dead_letters("s", [first.sequence])) == no
        view = await broad.subscription("s")
        assert (view.pending, view.dead, view.expires_at) == (1, 1, None)
        await broad.renew("s", 60.0)
        await broad.delete("s")


@run_async
async def test_administrators_delete_and_a_session_ends_with_its_own(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, CHANGES) as fixture:
        broad, admin = await fixture.login("ann", "broad"), await fixture.login("ann", "admin")
        await subscribe(broad, "secret is present", "s")
        await subscribe(broad, "secret is present")
        await admin.delete("s")
        # Its role shows nothing any more, but what it has may go.
        await subscribe(broad, "secret is present", "suspended")
        await fixture.change_policy(CHANGES.replace("see = true", "see = { hide = ['secret'] }"))
        await broad.delete("suspended")
        await broad.close()
        assert await admin.subscriptions() == []


@run_async
async def test_what_a_broad_credential_wrote_does_not_reach_a_narrow_one(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, CHANGES, max_attempts=1) as fixture:
        broad, narrow = await fixture.login("ann", "broad"), await fixture.login("ann", "narrow")
        await subscribe(broad, "secret = 'TOP'", "by secret")
        await subscribe(broad, "level > 0", "by level")
        await fixture.publish(LOW)
        [event] = await broad.fetch("by level")
        await broad.reject("by level", event.sequence, reason="secret is s")
        await fixture.broker.acknowledgement_writer.settled()
        [letter] = await narrow.dead_letters("by level")
        assert (letter.sequence, letter.reason) == (event.sequence, HIDDEN_REASON)
        assert [one.reason for one in await broad.dead_letters("by level")] == ["secret is s"]
        assert (await narrow.subscription("by secret")).filter == ""
        assert {one.id: one.filter for one in await narrow.subscriptions()} == {
            "by secret": "",
            "by level": "level > 0",
        }
        assert [one.filter for one in (await narrow.list_subscriptions()).subscriptions] == [
            "level > 0",
            "",
        ]
        assert await refusal(subscribe(narrow, "level > 0", "by secret")) == (
            "conflict: the subscription 'by secret' has another filter; update it, delete it "
            "first, or use another name"
        )
        assert "secret = 'TOP'" in await refusal(subscribe(broad, "level > 0", "by secret"))
        assert (await broad.subscription("by secret")).filter == "secret = 'TOP'"
