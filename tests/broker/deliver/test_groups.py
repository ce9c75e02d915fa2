"""A group shares a durable subscription: each event goes to one of its members."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.authorization_clients import Collector, as_json
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    refusal,
    run_async,
    subscribe,
)
from tamis.broker import Session
from tamis.broker.deliver.attachments import Attachment
from tamis.protocol import Deliver, Dropped, Ended
from waiting import eventually_async, let_others_run

POLICY = """
[roles.narrow]
see = { filter = "n < 3", hide = ["secret"] }
[roles.broad]
see = true
"""


class Member:
    """A connection of its own that takes part in a group."""

    def __init__(self, session: Session, *, manual: bool = True) -> None:
        self.session = session
        self.inbox = Collector()
        self.manual = manual

    async def join(self, credit: int = 100, name: str = "g", **more: Any) -> Attachment:
        wanted = {"filter_": "n >= 0", "name": name, "group": True, **more}
        member = wanted.get("member", "")
        await subscribe(self.session, **wanted)
        how = "manual" if self.manual else "auto"
        return await self.session.attach(
            name, self.inbox, credit=credit, acknowledge=how, member=member
        )

    @property
    def got(self) -> list[int]:
        return [one["data"]["n"] for one in self.inbox.got]

    def has_last(self, number: int) -> bool:
        return self.got[-1:] == [number]

    async def acknowledge(self, *numbers: int, name: str = "g") -> None:
        chosen = [one["sequence"] for one in self.inbox.got if one["data"]["n"] in numbers]
        await self.session.acknowledge(name, chosen)


def opened(folder: Path, **settings: Any) -> AbstractAsyncContextManager[BrokerFixture]:
    return broker_fixture(folder, POLICY, **settings)


async def member_of(fixture: BrokerFixture, role: str = "broad", **more: Any) -> Member:
    return Member(await fixture.login("ann", role), **more)


def events(*numbers: int, key: str = "a") -> list[dict[str, object]]:
    return [{"n": n, "key": key} for n in numbers]


@run_async
async def test_each_event_goes_to_one_member_and_all_get_some(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        members = [await member_of(fixture) for _ in range(3)]
        for one in members:
            await one.join()
        # Together, and one by one: neither may be the first one's alone.
        await fixture.publish(*events(*range(30)))
        for n in range(30, 36):
            await fixture.publish(*events(n))
        await eventually_async(lambda: sum(len(one.got) for one in members) == 36)
        got = Counter(n for one in members for n in one.got)
        assert got == Counter(range(36))
        assert min(len(one.got) for one in members) >= 8
        assert all({*one.got} & {*range(30, 36)} for one in members)
        assert not any(one.inbox.end for one in members)


@run_async
async def test_what_a_member_had_goes_to_another_when_it_goes(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        first, second = await member_of(fixture), await member_of(fixture)
        await first.join()
        await fixture.publish(*events(1, 2, 3))
        await eventually_async(lambda: first.got == [1, 2, 3])
        await second.join()
        await first.acknowledge(2)
        await first.session.close()
        await eventually_async(lambda: second.got == [1, 3])
        assert [one["attempt"] for one in second.inbox.got] == [2, 2]


@run_async
async def test_a_member_that_connects_again_takes_only_its_own_place(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        other, lost, back = [await member_of(fixture) for _ in range(3)]
        await other.join(member="other")
        await lost.join(member="mine")
        await fixture.publish(*events(1, 2))
        await eventually_async(lambda: len(other.got) == len(lost.got) == 1)
        await back.join(member="mine")
        await eventually_async(lambda: sorted(other.got + back.got) == [1, 2])
        assert lost.inbox.end == "taken over by another connection"
        assert other.inbox.end == ""
        view = await other.session.subscription("g")
        assert sorted(one.id for one in view.members) == ["mine", "other"]
        assert sum(one.in_flight for one in view.members) == 2


@run_async
async def test_only_the_member_that_has_an_event_can_settle_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        first, second, elsewhere = [await member_of(fixture) for _ in range(3)]
        await first.join()
        await fixture.publish(*events(1))
        await eventually_async(lambda: first.got == [1])
        leaving = next(iter(first.session._attachments))
        await second.join()
        await first.session.detach(leaving)
        await eventually_async(lambda: second.got == [1])
        # It was slow, and another has the event now.
        await first.acknowledge(1)
        [sequence] = [one["sequence"] for one in first.inbox.got]
        for session in (first.session, elsewhere.session):
            await session.reject("g", sequence, delay=0.0)
            await session.acknowledge("g", [sequence])
        assert (await first.session.subscription("g")).in_flight == 1
        await second.acknowledge(1)
        view = await first.session.subscription("g")
        assert view.in_flight == 0


@run_async
async def test_what_nobody_has_any_longer_can_still_be_acknowledged(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        first, late = await member_of(fixture), await member_of(fixture)
        await first.join()
        await fixture.publish(*events(1))
        await eventually_async(lambda: first.got == [1])
        [sequence] = [one["sequence"] for one in first.inbox.got]
        await first.session.close()
        await late.session.acknowledge("g", [sequence])
        await fixture.broker.acknowledgement_writer.settled()
        assert (await late.session.subscription("g")).pending == 0


@run_async
async def test_workers_fetch_beside_connected_members(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        member, worker = await member_of(fixture), await member_of(fixture)
        await member.join(credit=2)
        await fixture.publish(*events(1, 2, 3, 4))
        await eventually_async(lambda: len(member.got) == 2)
        fetched = [as_json(one)["data"]["n"] for one in await worker.session.fetch("g")]
        assert sorted(member.got + fetched) == [1, 2, 3, 4]
        # What is lent comes back when nobody acknowledges it in time.
        fixture.clock.now += 60.0
        await fixture.broker.notifier.reject_late()
        fixture.clock.now += 60.0
        again = await worker.session.fetch("g")
        assert {one.attempt for one in again} == {2}
        assert len(again) == 2


# --- order ---------------------------------------------------------------------------------------


@run_async
async def test_one_event_of_a_key_is_handled_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        members = [await member_of(fixture) for _ in range(2)]
        for one in members:
            await one.join(ordering_key="key")
        await fixture.publish(*events(1, 2), *events(3, 4, key="b"), {"n": 5}, {"n": 6})

        def got() -> list[int]:
            return sorted(n for one in members for n in one.got)

        # Those without a key wait for nobody.
        await eventually_async(lambda: got() == [1, 3, 5, 6])
        [holder] = [one for one in members if 1 in one.got]
        await holder.acknowledge(1)
        await eventually_async(lambda: got() == [1, 2, 3, 5, 6])


@run_async
async def test_a_rejected_event_holds_up_its_key_until_it_is_handled_or_dead(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as fixture:
        member, other = await member_of(fixture), await member_of(fixture)
        more: dict[str, Any] = {"ordering_key": "key", "max_attempts": 2}
        await member.join(**more)
        await fixture.publish(*events(1, 2))
        await eventually_async(lambda: member.got == [1])
        sequence = member.inbox.got[0]["sequence"]
        await member.session.reject("g", sequence, delay=5.0)
        await other.join(**more)
        assert other.got + member.got == [1]
        fixture.clock.now += 6.0
        fixture.broker.subscription_index.by_key["ann", "g"].queue.wake()
        await eventually_async(lambda: member.got + other.got == [1, 1])
        [has] = [
            one for one in (member, other) if any(e.get("attempt") == 2 for e in one.inbox.got)
        ]
        await has.session.reject("g", sequence, reason="bad")
        await eventually_async(lambda: sorted(member.got + other.got) == [1, 1, 2])
        await fixture.broker.acknowledgement_writer.settled()
        [letter] = await member.session.dead_letters("g")
        assert letter.sequence == sequence
        # A dead letter that is sent again comes when its key is free.
        await member.session.requeue("g", [sequence])
        await let_others_run(20)
        assert sorted(member.got + other.got) == [1, 1, 2]
        [has] = [one for one in (member, other) if 2 in one.got]
        await has.acknowledge(2)
        await eventually_async(lambda: sorted(member.got + other.got) == [1, 1, 1, 2])


@run_async
async def test_the_order_of_a_key_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        member = await member_of(fixture)
        await member.join(ordering_key="key")
        await fixture.publish(*events(*range(5)))
        await eventually_async(lambda: member.got == [0])
        await member.acknowledge(0)
        await eventually_async(lambda: member.got == [0, 1])
    async with opened(tmp_path) as fixture:
        member = await member_of(fixture)
        await member.join(ordering_key="key")
        for n in range(1, 5):
            await eventually_async(partial(member.has_last, n))
            await member.acknowledge(n)
        assert member.got == [1, 2, 3, 4]
        assert member.inbox.got[0]["attempt"] == 2


# --- slow members, and members with other rights -------------------------------------------------


class Stalled(Collector):
    """An outlet that takes nothing."""

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        if not isinstance(frame, Ended):
            await asyncio.Event().wait()


@run_async
async def test_members_that_stall_hold_up_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path, window=5) as fixture:
        stalled, idle, quick = [await member_of(fixture) for _ in range(3)]
        quick.manual = False
        stalled.inbox = Stalled()
        await stalled.join()
        await idle.join()
        await quick.join(credit=1_000)
        for first in range(0, 100, 20):
            await fixture.publish(*events(*range(first, first + 20)))
        # They have up to a window each, and no more.
        await eventually_async(lambda: len(quick.got) >= 90)
        assert len(idle.got) == 5
        assert 5 < (await quick.session.subscription("g")).in_flight <= 10


@run_async
async def test_each_member_sees_what_its_own_rights_show(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        narrow, broad = await member_of(fixture, "narrow"), await member_of(fixture)
        await narrow.join()
        await broad.join(credit=0)
        await fixture.publish(*({"n": n, "secret": "s"} for n in range(6)))
        await eventually_async(lambda: narrow.got == [0, 1, 2])
        assert all(one["data"].keys() == {"n"} for one in narrow.inbox.got)
        [attachment] = broad.session._attachments
        attachment.give_credit(100)
        # What the narrow one may not see was left to it.
        await eventually_async(lambda: broad.got == [3, 4, 5])
        hidden = await narrow.session.subscription("g")
        assert [one.in_flight for one in hidden.members] == [0, 0]
        await narrow.session.close()
        await eventually_async(lambda: broad.got == [3, 4, 5, 0, 1, 2])


@run_async
async def test_a_policy_ends_only_the_members_that_it_no_longer_allows(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        narrow, broad = await member_of(fixture, "narrow"), await member_of(fixture)
        await narrow.join()
        await broad.join()
        hides_n = POLICY.replace('hide = ["secret"]', 'hide = ["n"]')
        await fixture.change_policy(hides_n)
        await eventually_async(lambda: "no longer allows" in narrow.inbox.end)
        assert broad.inbox.end == ""
        await fixture.publish(*events(1))
        await eventually_async(lambda: broad.got == [1])


# --- mistakes ------------------------------------------------------------------------------------

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"name": None}, "a group needs the name that its members share"),
    ({"group": False, "ordering_key": "key"}, "only a group has an ordering key"),
    ({"group": False, "member": "m"}, "only a group has members"),
    ({"roaming": True}, "the group 'g' cannot be brought from another broker"),
    ({"member": "a\nb"}, "a name is printable text"),
    ({"ordering_key": "secret"}, "your roles do not show"),
    ({"overflow": "drop"}, "keeps its events on disk"),
    ({"name": "plain"}, "the subscription 'plain' is no group; delete it first"),
    ({"name": "taken", "group": False}, "'taken' is a group: join it with group set"),
    ({"name": "taken"}, "the group 'taken' has the ordering key 'n', which all its members give"),
    ({"name": "any", "ordering_key": "n"}, "the group 'any' has no ordering key"),
    ({"name": "any", "filter_": "n > 5"}, "has another filter, 'n >= 0'"),
]


@run_async
async def test_mistakes_are_refused_with_sentences(tmp_path: Path) -> None:
    async with opened(tmp_path, group_members=1) as fixture:
        member = await member_of(fixture, "narrow")
        await subscribe(member.session, "n >= 0", "plain")
        await subscribe(member.session, "n >= 0", "taken", group=True, ordering_key="n")
        await subscribe(member.session, "n >= 0", "any", group=True)
        for changes, sentence in MISTAKES:
            wanted: dict[str, Any] = {"filter_": "n >= 0", "name": "g", "group": True} | changes
            assert sentence in await refusal(subscribe(member.session, **wanted)), changes
        await member.join()
        other = await member_of(fixture, "narrow")
        assert "too_many: the group 'g' has 1 members" in await refusal(other.join())
        assert "one by one" in await refusal(member.session.acknowledge("g", up_to=5))
        # An event stream that begins again acknowledges nothing that others have.
        await member.session.resume_after("g", 5)


@run_async
async def test_an_ordering_key_is_an_attribute_of_the_schema(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"n": "int", "symbol": "str"}')
    async with opened(tmp_path, schema_file=schema) as fixture:
        member = await member_of(fixture)
        wrong = subscribe(member.session, "n >= 0", "g", group=True, ordering_key="symbl")
        assert 'did you mean "symbol"?' in await refusal(wrong)
        await subscribe(member.session, "n >= 0", "g", group=True, ordering_key="symbol")


@run_async
async def test_a_hidden_ordering_key_is_not_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        narrow, broad = await member_of(fixture, "narrow"), await member_of(fixture)
        await subscribe(broad.session, "n >= 0", "g", group=True, ordering_key="secret")
        assert (await broad.session.subscription("g")).ordering_key == "secret"
        assert (await narrow.session.subscription("g")).ordering_key == ""
        said = await refusal(subscribe(narrow.session, "n >= 0", "g", group=True))
        assert "has another ordering key" in said
        assert "secret" not in said


@run_async
async def test_no_refusal_names_what_another_credential_has_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as fixture:
        narrow, broad = await member_of(fixture, "narrow"), await member_of(fixture)
        await subscribe(broad.session, "secret = 1", "g")
        session = narrow.session
        for asked in (
            session.fetch("g"),
            session.explain(id_="g", event=b'{"n": 1}'),
            session.renew("g", 60.0),
            session.delete("g"),
        ):
            said = await refusal(asked)
            assert "tests attributes that you may not see" in said
            assert "secret" not in said


def test_members_may_start_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as fixture:
            members = [await member_of(fixture) for _ in range(8)]
            await asyncio.gather(*(one.join() for one in members))
            view = await members[0].session.subscription("g")
            assert (view.group, view.connected, len(view.members)) == (True, True, 8)
            metrics = fixture.broker.metrics.registry.get_sample_value("tamis_group_members")
            assert metrics == 8

    asyncio.run(main())


@pytest.mark.parametrize("key", ["", "key"])
@run_async
async def test_a_group_is_a_group_after_a_restart(tmp_path: Path, key: str) -> None:
    async with opened(tmp_path) as fixture:
        member = await member_of(fixture)
        await subscribe(member.session, "n >= 0", "g", group=True, ordering_key=key)
    async with opened(tmp_path) as fixture:
        member = await member_of(fixture)
        view = await member.session.subscription("g")
        assert (view.group, view.ordering_key) == (True, key)
