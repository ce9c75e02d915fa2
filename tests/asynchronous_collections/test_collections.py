"""Collections: what is added comes to those who watch, and is there for those who read."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import contains
from random import Random
from typing import Any, Protocol

import pytest

import tamis
from seeds import seeds
from tamis import (
    EventError,
    FilterTypeError,
    OptionError,
    RefusedError,
    message,
    open_bus,
    open_bus_sync,
)
from tamis.collections import (
    DABag,
    DACertifiedBag,
    DAList,
    DASet,
    DAStrongSet,
    SyncDABag,
    SyncDACertifiedBag,
    SyncDAQueue,
    SyncDASet,
    SyncDAStrongSet,
)
from tamis.objects.collection_names import in_collection
from waiting import eventually, eventually_async

from .shop_floor import Job

job = message(Job)


async def until(is_so: Callable[[], bool]) -> None:
    await eventually_async(is_so)


def in_process(test: Callable[[tamis.Bus], Any]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            async with open_bus() as bus:
                await test(bus)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@in_process
async def test_members_to_come_are_watched_and_present_ones_are_read(bus: tamis.Bus) -> None:
    jobs = DABag[Job]("/jobs/today", bus)
    await jobs.add(Job(1))
    odd: list[Job] = []
    large: list[Job] = []
    watches = [
        await jobs.contains(job.is_odd(), odd.append),
        await jobs.contains(lambda j: j.number > 2, large.append),
    ]
    for number in (2, 3, 4, 3):
        await jobs.add(Job(number))
    await until(lambda: len(odd) == 2 and len(large) == 3)
    assert [each.number for each in odd] == [3, 3]
    assert [each.number for each in large] == [3, 4, 3]
    assert [each.number async for each in jobs] == [1, 2, 3, 4, 3]
    for watching in watches:
        assert not watching.is_over
        await watching.cancel()
        assert watching.is_over
    await jobs.add(Job(5))
    assert [each.number async for each in jobs][-1] == 5
    assert (len(odd), len(large)) == (2, 3)


@in_process
async def test_members_are_pulled_one_by_one(bus: tamis.Bus) -> None:
    jobs = DABag[Job]("/jobs", bus)
    assert await jobs.pull() is None
    for number in (1, 2, 3, 4):
        await jobs.add(Job(number))
    assert await jobs.pull() == Job(1)
    assert await jobs.pull(job.number > 2) == Job(3)
    # What was passed over was not pulled.
    assert [await jobs.pull() for _ in range(3)] == [Job(2), Job(4), None]
    await jobs.add(Job(5))
    assert await jobs.pull(job.number > 2) == Job(5)
    assert await jobs.pull() is None
    # Another proxy reads for itself.
    assert await DABag[Job]("/jobs", bus).pull() == Job(1)


@in_process
async def test_of_several_who_pull_at_the_same_time_one_gets_a_member(bus: tamis.Bus) -> None:
    kinds: tuple[Any, ...] = (DABag, DASet)
    for kind in kinds:
        jobs = kind[Job](f"/{kind.__name__}", bus)
        for number in range(8):
            await jobs.add(Job(number))
        # Odd ones are asked for twice as often as there are any.
        asked = [None, job.is_odd(), job.number > 5, job.is_odd(), None, job.is_odd()] * 2
        pulled = await asyncio.gather(*map(jobs.pull, asked))
        numbers = [each.number for each in pulled if each is not None]
        while (each := await jobs.pull()) is not None:
            numbers.append(each.number)
        assert sorted(numbers) == [*range(8)]


@pytest.mark.parametrize("seed", seeds(50))
def test_no_member_is_pulled_twice_or_passed_over(seed: int) -> None:
    rng = Random(seed)
    conditions = [None, job.is_odd(), job.number > 10, (job.number > 4) & (job.number < 15)]
    says: list[Callable[[int], bool]] = [
        lambda _: True,
        lambda n: n % 2 == 1,
        lambda n: n > 10,
        lambda n: 4 < n < 15,
    ]

    @in_process
    async def test(bus: tamis.Bus) -> None:
        jobs, left = DABag[Job]("/jobs", bus), list[int]()
        for number in range(20):
            await jobs.add(Job(number))
            left.append(number)
            for _ in range(rng.randrange(3)):
                place = rng.randrange(4)
                found = next((one for one in left if says[place](one)), None)
                pulled = await jobs.pull(conditions[place])
                assert pulled == (None if found is None else Job(found))
                left = [one for one in left if one != found]

    test()


@in_process
async def test_a_set_has_each_member_once(bus: tamis.Bus) -> None:
    kinds: tuple[Any, ...] = (DASet, DAStrongSet)
    for kind in kinds:
        seen: list[Job] = []
        jobs = kind[Job](f"/{kind.__name__}", bus)
        await jobs.contains(None, seen.append)
        for number in (1, 2, 1, 3, 2, 4):
            await jobs.add(Job(number))
        await until(partial(contains, seen, Job(4)))
        assert seen == [Job(1), Job(2), Job(3), Job(4)]
        assert [each async for each in jobs] == seen
        assert [await jobs.pull() for _ in range(5)] == [*seen, None]


@in_process
async def test_names_are_hierarchical(bus: tamis.Bus) -> None:
    heard: dict[str, list[Job]] = {}
    for pattern in ("/shop/*", "/shop/**", "/*/toys", "/shop/*/**", "/shop/toys"):
        heard[pattern] = []
        await DAList[Job](pattern, bus).contains(None, heard[pattern].append)
    for number, name in enumerate(("/shop/toys", "/shop/toys/new", "/shop", "/farm/toys")):
        await DAList[Job](name, bus).add(Job(number))
    await bus.publish(Job(9))  # It is in no collection.
    await until(lambda: len(heard["/*/toys"]) == 2)
    await asyncio.sleep(0.05)  # in which more might come
    assert {pattern: [each.number for each in jobs] for pattern, jobs in heard.items()} == {
        "/shop/*": [0],
        "/shop/**": [0, 1],
        "/*/toys": [0, 3],
        "/shop/*/**": [1],
        "/shop/toys": [0],
    }
    assert [each.number async for each in DAList[Job]("/shop/**", bus)] == [0, 1]


@in_process
async def test_a_watch_may_cancel_itself_and_waits_for_its_function(bus: tamis.Bus) -> None:
    jobs, seen = DAList[Job]("/jobs", bus), []

    async def once(each: Job) -> None:
        seen.append(each)
        await watching.cancel()

    async def slowly(each: Job) -> None:
        started.set()
        await asyncio.sleep(0.05)  # a function that takes a while
        finished.append(each)

    watching = await jobs.contains(None, once)
    started = asyncio.Event()
    finished: list[Job] = []
    slow = await jobs.contains(None, slowly)
    await jobs.add(Job(1))
    await started.wait()
    await slow.cancel()
    assert finished == [Job(1)]
    await jobs.add(Job(2))
    await until(lambda: watching.is_over)
    assert seen == [Job(1)]


@in_process
async def test_a_certified_name_is_for_one_collection(bus: tamis.Bus) -> None:
    seen: list[Job] = []
    watching = await DACertifiedBag[Job]("/jobs", bus).contains(None, seen.append, name="eve")
    await watching.cancel()
    with pytest.raises(RefusedError, match="the subscription 'eve' has another filter"):
        await DACertifiedBag[Job]("/toys", bus).contains(None, seen.append, name="eve")
    await DACertifiedBag[Job]("/jobs", bus).add(Job(1))
    await DACertifiedBag[Job]("/toys", bus).add(Job(2))
    await DACertifiedBag[Job]("/jobs", bus).contains(None, seen.append, name="eve")
    await until(lambda: seen == [Job(1)])


@in_process
async def test_a_function_that_fails_gets_a_certified_member_again(bus: tamis.Bus) -> None:
    jobs, seen = DACertifiedBag[Job]("/jobs", bus), []

    def handle(each: Job) -> None:
        seen.append(each.number)
        if len(seen) == 1:
            raise ValueError("not yet")

    watching = await jobs.contains(None, handle, name="eve")
    await jobs.add(Job(1))
    await until(lambda: len(seen) == 2)
    await watching.cancel()
    await jobs.add(Job(2))  # It is kept while nobody watches.
    watching = await jobs.contains(None, handle, name="eve")
    await until(lambda: seen == [1, 1, 2])
    await watching.cancel(forget=True)
    assert await bus.subscriptions() == []


@in_process
async def test_a_function_that_meets_the_cancellation_of_something_else_has_failed(
    bus: tamis.Bus,
) -> None:
    jobs, seen = DACertifiedBag[Job]("/jobs", bus), []

    async def handle(each: Job) -> None:
        seen.append(each.number)
        if len(seen) == 1:
            helper = asyncio.create_task(asyncio.sleep(60))  # something to wait for
            helper.cancel()
            await helper

    watching = await jobs.contains(None, handle, name="eve")
    await jobs.add(Job(1))
    await until(lambda: len(seen) == 2)
    await watching.cancel(forget=True)


@in_process
async def test_a_slow_watcher_of_a_best_effort_set_misses_members_and_knows(bus: tamis.Bus) -> None:
    seen: list[int] = []
    go_on = asyncio.Event()

    async def handle(each: Job) -> None:
        await go_on.wait()
        seen.append(each.number)

    watching = await DASet[Job]("/jobs", bus).contains(None, handle)
    text = [tamis.objects.encode_object(Job(number), "/jobs") for number in range(3_000)]
    await bus.publish_many(text)
    go_on.set()
    await until(lambda: 2_999 in seen)
    assert seen == sorted(set(seen))
    assert watching.missed == 3_000 - len(seen) > 0


def test_synchronous_collections_do_the_same() -> None:
    seen: list[Job] = []
    with open_bus_sync() as bus:
        jobs = SyncDAStrongSet[Job]("/jobs", bus)
        watching = jobs.contains(job.number > 1, seen.append)
        for number in (1, 2, 2, 3):
            jobs.add(Job(number))
        assert eventually(lambda: len(seen) == 2)
        assert [each.number for each in jobs] == [1, 2, 3]
        assert (jobs.pull(job.is_odd()), jobs.pull(job.is_odd())) == (Job(1), Job(3))
        assert (watching.missed, watching.refused, watching.is_over) == (0, 0, False)
        watching.cancel()
        assert watching.is_over
        watching.wait()
        kept = SyncDACertifiedBag[Job]("/kept", bus)
        again: list[Job] = []
        kept.contains(None, again.append, name="eve").cancel()
        kept.add(Job(7))
        kept.contains(None, again.append, name="eve")
        assert eventually(lambda: again == [Job(7)])
        queue = SyncDAQueue[Job]("/queue", bus)
        queue.add(Job(8))
        assert (queue.pull(), queue.pull()) == (Job(8), None)
        queue.contains(None, again.append)
        queue.add(Job(9))
        assert eventually(lambda: again == [Job(7), Job(9)])
    assert seen == [Job(2), Job(3)]


def test_a_function_may_cancel_its_own_watch() -> None:
    seen: list[Job] = []
    with open_bus_sync() as bus:
        jobs = SyncDAStrongSet[Job]("/jobs", bus)

        def take(one: Job) -> None:
            watching.cancel()
            seen.append(one)

        watching = jobs.contains(None, take)
        jobs.add(Job(1))
        assert eventually(lambda: watching.is_over)
        jobs.add(Job(2))
        watching.cancel()
    assert seen == [Job(1)]


def test_a_function_that_exits_ends_no_bus() -> None:
    seen: list[Job] = []

    def take(each: Job) -> None:
        seen.append(each)
        if each.number == 1:
            sys.exit(3)

    with open_bus_sync() as bus:
        jobs = SyncDABag[Job]("/jobs", bus)
        jobs.contains(None, take)
        jobs.add(Job(1))
        assert eventually(lambda: seen == [Job(1)])
        jobs.add(Job(2))
        assert eventually(lambda: seen == [Job(1), Job(2)])


def test_a_function_may_not_wait_for_its_own_watch() -> None:
    told: list[str] = []

    def take(_: Job) -> None:
        try:
            watching.wait()
        except OptionError as error:
            told.append(str(error))

    with open_bus_sync() as bus:
        jobs = SyncDABag[Job]("/jobs", bus)
        watching = jobs.contains(None, take)
        jobs.add(Job(1))
        assert eventually(lambda: told)
        watching.cancel()
    [sentence] = told
    assert sentence.startswith("wait was called by the function of the watch itself")


@in_process
async def test_an_asynchronous_function_may_not_wait_for_its_own_watch(bus: tamis.Bus) -> None:
    told: list[str] = []

    async def take(_: Job) -> None:
        with pytest.raises(OptionError, match="wait was called by the function") as caught:
            await watching.wait()
        told.append(str(caught.value))

    jobs = DABag[Job]("/jobs", bus)
    watching = await jobs.contains(None, take)
    await jobs.add(Job(1))
    await until(lambda: len(told) == 1)


def test_what_cannot_be_read_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with open_bus_sync() as bus:
        header = {"type": ["tests.Job"], "version": 1, "collection": "/jobs"}
        bus.publish({"number": "many", "_object": header})
        SyncDASet[Job]("/jobs", bus).add(Job(1))
        assert [*SyncDASet[Job]("/jobs", bus)] == [Job(1)]
    [record] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "number: must be an integer, not a text" in record.getMessage()


class Jobs(DASet[Job]):
    pass


@dataclass
class Toy:
    size: int


class Playful(Protocol):
    def plays(self) -> bool: ...


class Special(Job):
    def rare(self) -> bool:
        return True


NAMES = ["", "jobs", "/", "/jobs/", "//a", "/a/**/b", "/a*", "/\n", "/" + "a" * 600, 5, "/a" * 40]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(OptionError, match="it must be a text such as '/market/acme'"):
        DASet[Job](name)


def test_names_are_taken_literally_in_patterns() -> None:
    pattern = in_collection("/a.c+(/*")
    assert pattern.matches({"_object": {"collection": "/a.c+(/x y"}})
    assert not pattern.matches({"_object": {"collection": "/abcc(/x"}})
    assert not pattern.matches({"_object": {"collection": "/a.c+(/x/y"}})


LOOSELY: Any = DASet
"""What type checkers refuse anyway."""

MISTAKES: list[tuple[Callable[[tamis.Bus], Any], type[Exception], str]] = [
    (lambda bus: DASet[Job]("/a/*", bus).add(Job(1)), OptionError, "is the pattern /a/"),
    (lambda bus: DASet[Any]("/a", bus).add("x"), OptionError, "DASet has no class of members"),
    (lambda bus: DASet[Job]("/a", bus).add("x"), EventError, "'x' is not of the class Job"),  # type: ignore[arg-type]
    (lambda bus: DASet[Job]("/a", bus).contains(5, print), FilterTypeError, "a condition is"),  # type: ignore[arg-type]
    (lambda bus: DASet[Job]("/a", bus).contains(None, 5), OptionError, "callback is 5; it must"),  # type: ignore[arg-type]
    (
        lambda bus: DASet[Job]("/a", bus).contains(None, print, name="x"),
        OptionError,
        "DASet takes no name",
    ),
    (
        lambda bus: DACertifiedBag[Job]("/a", bus).contains(None, print),
        OptionError,
        "DACertifiedBag needs a name",
    ),
    (lambda _: DASet[Job]("/a", "bus"), OptionError, "bus is 'bus'; it must be a bus for"),  # type: ignore[arg-type]
    (lambda bus: SyncDASet[Job]("/a", bus), OptionError, "it must be a synchronous bus"),  # type: ignore[arg-type]
    (
        lambda bus: DASet("/a", bus),
        OptionError,
        r'DASet has no class of .*: write DASet\[Trade\]\("/',
    ),
    (
        lambda bus: SyncDAStrongSet("/a", bus),  # type: ignore[arg-type]
        OptionError,
        "SyncDAStrongSet has no class of members",
    ),
    (lambda bus: LOOSELY(Job, "/a", bus), OptionError, "DASet has no class of members"),
    (lambda bus: DASet[Job](bus, "/a"), OptionError, "name is a bus, which comes after it: write"),  # type: ignore[arg-type]
    (lambda bus: DASet[int]("/a", bus), OptionError, "of a class with fields, which int is not"),
    (lambda bus: DASet[list[Job]]("/a", bus), OptionError, "with fields, which list is not"),
    (lambda bus: LOOSELY[Job(1)]("/a", bus), OptionError, r"with one class, not Job\(number=1"),
    (lambda bus: DASet[Job | Toy]("/a", bus), OptionError, "with one class, not .*Job | "),
    (lambda bus: DASet["Job"]("/a", bus), OptionError, "with one class, not 'Job'"),
    (lambda bus: DASet[Playful]("/a", bus), OptionError, "Playful only describes structure"),
    (
        lambda bus: DASet[Job]("/a", bus).contains(message(Toy).size > 1, print),
        FilterTypeError,
        r"message\(Toy\).size > 1 asks for Toy, and members are Job: write message\(Job\)",
    ),
    (
        lambda bus: DASet[Job]("/a", bus).contains(message(Playful).plays(), print),
        FilterTypeError,
        "Job has no member 'plays', nor has a class that is derived from it",
    ),
    (
        lambda bus: DASet[Job]("/a", bus).pull(message().numbr == 1),
        FilterTypeError,
        "Job has no member 'numbr', nor .*; did you mean \"number\"",
    ),
]


@in_process
async def test_mistakes_are_refused(bus: tamis.Bus) -> None:
    for mistake, error, sentence in MISTAKES:
        with pytest.raises(error, match=sentence):
            await mistake(bus)


@in_process
async def test_a_condition_may_be_about_derived_classes(bus: tamis.Bus) -> None:
    jobs, seen = DAList[Job]("/jobs", bus), list[Job]()
    await jobs.contains(message().rare(), seen.append)
    await jobs.contains(message(Special).number > 0, seen.append)
    await jobs.add(Job(1))
    await jobs.add(Special(2))
    await until(lambda: seen == [Special(2), Special(2)])


@in_process
async def test_the_class_of_members_is_known(bus: tamis.Bus) -> None:
    assert Jobs("/jobs", bus).member_class is DASet[Job]("/jobs", bus).member_class is Job


@in_process
async def test_members_of_sets_are_equal_whoever_wrote_them(bus: tamis.Bus) -> None:
    jobs = DAStrongSet[Job]("/jobs/today", bus)
    heard: list[Job] = []
    await jobs.contains(None, heard.append)
    await jobs.add(Job(1))
    [written] = [one.data async for one in bus.history("number = 1", start="earliest")]
    # With a field that this version of the class does not have, and by another version.
    await bus.publish({**written, "note": "new"})
    await bus.publish({**written, "_object": {**written["_object"], "schema": "0123456789abcdef"}})
    await jobs.add(Job(2))
    await until(lambda: Job(2) in heard)
    assert heard == [Job(1), Job(2)]
    assert [one async for one in jobs] == [Job(1), Job(2)]
