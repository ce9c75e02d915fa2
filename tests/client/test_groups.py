"""Members of a group share events, over the network and in one process, asynchronous or not."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

import tamis
from tamis.client.options import GROUP_WINDOW_EVENTS, ConsumerOptions
from tamis.errors import OptionError, RefusedError
from waiting import eventually_async, let_others_run

from .buses import Connect, events_of, on_every_bus, topic

EVENTS = 60


@on_every_bus
async def test_members_share_the_events_and_keep_the_order_of_each_key(connect: Connect) -> None:
    name = topic()
    handled = defaultdict[int, list[int]](list)
    by_member = defaultdict[int, int](int)
    at_work = set[int]()

    async def work(member: int, bus: tamis.Bus) -> None:
        async for event in bus.subscribe(f"topic = '{name}'", group=name, ordering_key="key"):
            assert event["key"] not in at_work
            at_work.add(event["key"])
            await let_others_run()
            at_work.discard(event["key"])
            handled[event["key"]].append(event["n"])
            by_member[member] += 1

    async with connect() as first, connect() as second, connect() as third:
        buses = [first, second, third]
        tasks = [asyncio.create_task(work(n, bus)) for n, bus in enumerate(buses)]

        async def has_members() -> bool:
            views = [one for one in await first.subscriptions() if one.id == name]
            return bool(views) and len(views[0].members) == len(buses)

        await eventually_async(has_members)
        await first.publish_many([{"topic": name, "n": n, "key": n % 7} for n in range(EVENTS)])
        await eventually_async(lambda: sum(by_member.values()) == EVENTS)
        view = await first.subscription(name)
        assert (view.group, view.ordering_key) == (True, "key")
        assert len({member.id for member in view.members}) == len(buses)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await first.delete(name)
    assert {key: [*range(key, EVENTS, 7)] for key in range(7)} == handled
    assert min(by_member[n] for n in range(len(buses))) >= 1


@on_every_bus
async def test_what_a_member_leaves_behind_goes_to_another(connect: Connect) -> None:
    name = topic()
    wanted = f"topic = '{name}'"
    async with connect() as bus, connect() as other:
        leaving = await bus.subscribe(wanted, group=name, acknowledge="manual")
        await bus.publish_many([{"topic": name, "n": n} for n in range(3)])
        first, *_ = await events_of(leaving, 3)
        await first.ack()
        staying = await other.subscribe(wanted, group=name)
        with pytest.raises(RefusedError, match="several tasks can take the events"):
            await bus.subscribe(wanted, group=name)
        await leaving.close()
        assert [(one["n"], one.attempt) for one in await events_of(staying, 2)] == [(1, 2), (2, 2)]
        await staying.close(delete=True)


@on_every_bus
async def test_what_is_no_group_is_not_joined(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        consumer = await bus.subscribe("a = 1", durable=name)
        await consumer.close()
        with pytest.raises(RefusedError, match="is no group; delete it first"):
            await bus.subscribe("a = 1", group=name)
        await bus.delete(name)
        [made] = await bus.create_subscriptions([{"filter": "a = 1", "id": name, "group": True}])
        assert made.code is None
        with pytest.raises(RefusedError, match="is a group: join it"):
            await bus.subscribe("a = 1", durable=name)
        await bus.delete(name)


def test_a_synchronous_member() -> None:
    with (
        tamis.open_bus_sync() as bus,
        bus.subscribe("n >= 0", group="workers", ordering_key="n") as worker,
    ):
        bus.publish({"n": 1})
        assert worker.next(timeout=20)["n"] == 1
        [member] = bus.subscription("workers").members
        assert member.in_flight <= 1


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"group": ""}, "group is ''; it must be a text of 1 to 200 printable characters"),
    ({"group": 7}, "group is 7; it must be a text"),
    ({"group": "g", "durable": "d"}, "group is the name of a durable subscription"),
    ({"ordering_key": "k"}, "ordering_key needs group"),
    ({"group": "g", "ordering_key": ""}, "ordering_key is ''; it must be the name of an attribute"),
    ({"group": "g", "ordering_key": 5}, "ordering_key is 5; it must be the name of an attribute"),
    ({"group": "g", "roaming": True}, "roaming is not for a group"),
]


@pytest.mark.parametrize(("options", "sentence"), MISTAKES)
def test_mistakes_are_found_before_anything_is_sent(options: Any, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        ConsumerOptions.of("a = 1", 256, options)


def test_few_events_wait_in_a_member_unless_it_asks_for_more() -> None:
    assert ConsumerOptions.of("a = 1", 256, {"group": "g"}).window == GROUP_WINDOW_EVENTS
    assert ConsumerOptions.of("a = 1", 2, {"group": "g"}).window == 2
    assert ConsumerOptions.of("a = 1", 256, {"group": "g", "window": 99}).window == 99
