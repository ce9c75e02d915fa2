"""Queues: each member comes to one of those who watch, and to another if that one goes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import pytest

import tamis
from tamis import RefusedError, message, open_bus
from tamis.broker.local import LocalBus
from tamis.broker.subscribe.replay import Replayer
from tamis.collections import DACertifiedBag, DAQueue
from waiting import cancelled_in

from .shop_floor import Job
from .test_collections import until

job = message(Job)
Connect = Callable[[], tamis.Bus]


def in_process(test: Callable[[Connect], Any]) -> Callable[[], None]:
    """Run a test that connects several buses: each is one worker."""

    def run() -> None:
        async def main() -> None:
            async with open_bus() as bus:
                assert isinstance(bus, LocalBus)
                await test(bus.connect)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


class Workers:
    """Who handled which jobs."""

    def __init__(self) -> None:
        self.handled = defaultdict[int, list[int]](list)

    def of(self, worker: int) -> Callable[[Job], None]:
        return partial(self._handle, worker)

    def _handle(self, worker: int, each: Job) -> None:
        self.handled[worker].append(each.number)

    def have(self, count: int) -> bool:
        return sorted(chain(*self.handled.values())) == [*range(count)]


@in_process
async def test_a_member_comes_to_one_of_those_who_watch(connect: Connect) -> None:
    workers = Workers()
    async with connect() as first, connect() as second:
        jobs = DAQueue[Job]("/jobs", first)
        await jobs.add(Job(0))  # It waits until somebody watches.
        one = await jobs.contains(None, workers.of(1))
        other = await DAQueue[Job]("/jobs", second).contains(None, workers.of(2))
        assert one.name == other.name
        for number in range(1, 40):
            await jobs.add(Job(number))
        await until(lambda: workers.have(40))
        assert min(map(len, workers.handled.values())) >= 5
        is_taken = "<DAQueue /jobs> is watched or pulled from through this bus already"
        with pytest.raises(RefusedError, match=is_taken):
            await jobs.contains(None, print)
        with pytest.raises(RefusedError, match=is_taken):
            await jobs.pull()


@in_process
async def test_what_a_watcher_leaves_behind_comes_to_another(connect: Connect) -> None:
    workers = Workers()
    stuck = asyncio.Event()

    async def never(_: Job) -> None:
        stuck.set()
        await asyncio.Event().wait()

    async with connect() as staying:
        async with connect() as leaving:
            await DAQueue[Job]("/jobs", leaving).contains(None, never)
            for number in range(10):
                await DAQueue[Job]("/jobs", staying).add(Job(number))
            await stuck.wait()
        await DAQueue[Job]("/jobs", staying).contains(None, workers.of(1))
        await until(lambda: workers.have(10))


@in_process
async def test_those_who_want_other_members_take_none_away(connect: Connect) -> None:
    """A broker does not know `is_odd`: it sends all, and each watcher checks them itself."""
    workers = Workers()
    async with connect() as bus:
        jobs = DAQueue[Job]("/jobs", bus)
        odd = await jobs.contains(job.is_odd(), workers.of(1))
        even = await jobs.contains(lambda each: not each.is_odd(), workers.of(2))
        assert odd.name != even.name
        for number in range(6):
            await jobs.add(Job(number))
        await until(lambda: workers.have(6))
        assert workers.handled == {1: [1, 3, 5], 2: [0, 2, 4]}


@in_process
async def test_who_pulls_takes_the_member_away(connect: Connect) -> None:
    async with connect() as bus, connect() as elsewhere:
        one, another = DAQueue[Job]("/jobs", bus), DAQueue[Job]("/jobs", elsewhere)
        assert await one.pull() is None
        for number in range(8):
            await one.add(Job(number))
        assert {*await asyncio.gather(one.pull(), another.pull())} == {Job(0), Job(1)}
        assert [await one.pull(), await another.pull()] == [Job(2), Job(3)]
        # What was not taken was not sent either: it would count as an attempt.
        group = (await bus.subscriptions())[0].id
        async with bus.subscribe(
            job, group=group, collection="/jobs", acknowledge="manual"
        ) as rest:
            messages = rest.messages()
            assert [(await anext(messages))[1].attempt for _ in range(4)] == [1, 1, 1, 1]
        assert [await one.pull() for _ in range(5)] == [*map(Job, range(4, 8)), None]
        # To read is not to take.
        assert [each.number async for each in one] == [*range(8)]


@pytest.mark.parametrize("ready", [False, True])
def test_whoever_cancels_a_pull_loses_no_member(ready: bool) -> None:
    @in_process
    async def test(connect: Connect) -> None:
        async with connect() as bus:
            jobs = DAQueue[Job]("/jobs", bus)
            for number in range(20):
                await jobs.add(Job(number))
            pulled = [await cancelled_in(jobs.pull(), wait, ready=ready) for wait in range(20)]
            taken = [each.number for each in pulled if each is not None]
            while (each := await jobs.pull()) is not None:
                taken.append(each.number)
            assert sorted(taken) == [*range(20)]
            assert pulled[0] is None
            assert pulled[-1] is not None

    test()


@in_process
async def test_a_watch_that_was_cancelled_before_it_began_leaves_its_name_free(
    connect: Connect,
) -> None:
    async with connect() as bus:
        jobs, seen = DACertifiedBag[Job]("/jobs", bus), list[Job]()
        for wait in range(6):
            watch = await cancelled_in(jobs.contains(None, seen.append, name="me"), wait)
            if watch is not None:
                await watch.cancel()
        await jobs.add(Job(1))
        await jobs.contains(None, seen.append, name="me")
        await until(lambda: seen == [Job(1)])


@in_process
async def test_who_pulls_waits_for_a_broker_that_is_busy(connect: Connect) -> None:
    looked = asyncio.Event()
    replay = Replayer._replay

    async def late(self: Replayer, *given: Any) -> None:
        await looked.wait()
        await replay(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Replayer, "_replay", late)
        async with connect() as bus:
            ask = bus.subscription

            async def subscription(name: str) -> Any:
                view = await ask(name)
                looked.set()
                return view

            patched.setattr(bus, "subscription", subscription)
            jobs = DAQueue[Job]("/jobs", bus)
            await jobs.add(Job(1))
            assert await jobs.pull() == Job(1)
            assert await jobs.pull() is None


@in_process
async def test_who_pulls_gets_none_while_others_have_the_rest(connect: Connect) -> None:
    async with connect() as bus, connect() as elsewhere:
        jobs = DAQueue[Job]("/jobs", bus)
        begun, done = asyncio.Event(), asyncio.Event()

        async def slowly(_: Job) -> None:
            begun.set()
            await done.wait()

        await jobs.contains(None, slowly)
        await jobs.add(Job(0))
        await begun.wait()
        assert await DAQueue[Job]("/jobs", elsewhere).pull() is None
        done.set()


@in_process
async def test_a_member_comes_again_if_the_function_fails(connect: Connect) -> None:
    async with connect() as bus:
        jobs, seen = DAQueue[Job]("/jobs", bus), []

        def handle(each: Job) -> None:
            seen.append(each.number)
            if len(seen) == 1:
                raise ValueError("not yet")

        watching = await jobs.contains(None, handle)
        await jobs.add(Job(1))
        await until(lambda: seen == [1, 1])
        await watching.cancel(forget=True)
        assert await bus.subscriptions() == []


@in_process
async def test_a_name_of_any_length_is_a_queue(connect: Connect) -> None:
    async with connect() as bus:
        first, second = ("/" + "a" * 400 + end for end in "bc")
        await DAQueue[Job](first, bus).add(Job(1))
        assert await DAQueue[Job](second, bus).pull() is None
        assert await DAQueue[Job](first, bus).pull() == Job(1)
