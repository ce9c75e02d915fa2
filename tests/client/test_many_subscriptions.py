"""Many subscriptions in one call: each is created, resumed or refused by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tamis.errors import DisconnectedError
from tamis.protocol.management import NewSubscription
from waiting import let_others_run

from .buses import Connect, events_of, on_every_bus, topic

COUNT = 1_200
"""More than one request takes."""


@on_every_bus
async def test_each_of_many_subscriptions_has_a_result_of_its_own(connect: Connect) -> None:
    name = topic()
    wanted = f"topic = '{name}'"
    async with connect() as bus:
        new = [
            NewSubscription(id=f"{name}-1", filter=f"{wanted} and n = 1"),
            NewSubscription(id=f"{name}-2", filter=f"{wanted} and"),
            NewSubscription(id=f"{name}-1", filter=f"{wanted} and n = 2"),
            NewSubscription(filter=f"{wanted} and n = 3"),
        ]
        first, bad, other, unnamed = await bus.create_subscriptions(new)
        assert (first.id, first.resumed, first.code) == (f"{name}-1", False, None)
        assert (bad.id, bad.code) == (f"{name}-2", "bad_filter")
        assert "and" in str(bad.message)
        assert (other.id, other.code) == (f"{name}-1", "conflict")
        assert unnamed.code is None
        [again] = await bus.create_subscriptions(new[:1])
        assert (again.resumed, again.code) == (True, None)
        await bus.publish_many([{"topic": name, "n": n} for n in (1, 2, 3)])
        consumer = await bus.subscribe(f"{wanted} and n = 1", durable=f"{name}-1")
        assert [event["n"] for event in await events_of(consumer, 1)] == [1]
        for one in (first, unnamed):
            await bus.delete(one.id)


@on_every_bus
async def test_very_many_subscriptions_take_several_requests(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        new = [NewSubscription(id=f"{name}-{n}", filter=f"{name} = {n}") for n in range(COUNT)]
        results = await bus.create_subscriptions(new)
        assert [one.id for one in results] == [one.id for one in new]
        assert {one.code for one in results} == {None}
        assert len([one for one in await bus.subscriptions() if one.id.startswith(name)]) == COUNT
        assert await bus.create_subscriptions([]) == []


@on_every_bus
async def test_one_that_comes_again_in_a_later_request_is_resumed(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        new = [NewSubscription(id=f"{name}-{n}", filter=f"{name} = {n}") for n in range(COUNT)]
        results = await bus.create_subscriptions([*new, *new])
        assert {one.code for one in results} == {None}
        assert [one.resumed for one in results] == [False] * COUNT + [True] * COUNT


@on_every_bus
async def test_a_request_that_fails_ends_the_others(connect: Connect) -> None:
    asked, ended = list[int](), list[int]()

    async def fail_first(_: object) -> Any:
        asked.append(len(asked))
        if len(asked) == 1:
            await let_others_run(3)
            raise DisconnectedError("the broker is gone")
        try:
            await asyncio.Future[None]()
        finally:
            ended.append(len(asked) - 1)

    new = [NewSubscription(filter=f"a = {n}") for n in range(3_500)]
    async with connect() as bus:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bus, "call", fail_first)
            with pytest.raises(DisconnectedError, match="is gone"):
                await bus.create_subscriptions(new)
    assert (asked, ended) == ([0, 1], [1])
