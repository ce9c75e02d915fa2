"""Turns come in order, whoever is cancelled; a queue with a limit lets nobody overtake."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.authorization_fixture import run_async
from seeds import seeds
from tamis.broker.operations.turns import TurnQueue, Turns
from waiting import let_others_run


async def use(turns: Turns, number: int, done: list[int], may_end: asyncio.Event) -> None:
    """Take a turn as `Session.publish` does."""
    if turns.is_taken:
        await turns.take()
    else:
        turns.is_taken = True
    try:
        await may_end.wait()
        done.append(number)
    finally:
        if turns.waiting:
            turns.end()
        else:
            turns.is_taken = False


@run_async
async def test_turns_come_one_after_the_other_in_the_order_of_those_who_wait() -> None:
    turns, done = Turns(), list[int]()
    may_end = [asyncio.Event() for _ in range(5)]
    users = [
        asyncio.create_task(use(turns, number, done, event)) for number, event in enumerate(may_end)
    ]
    await let_others_run()
    for event in may_end[1:]:
        event.set()
    await let_others_run()
    assert done == []
    may_end[0].set()
    await asyncio.gather(*users)
    assert done == [0, 1, 2, 3, 4]
    assert not turns.is_taken


@pytest.mark.parametrize("seed", seeds(200, by_default=20))
@run_async
async def test_a_cancelled_turn_is_passed_on_whenever_it_is_cancelled(seed: int) -> None:
    random, turns, done = Random(seed), Turns(), list[int]()
    may_end = [asyncio.Event() for _ in range(12)]
    users = [
        asyncio.create_task(use(turns, number, done, event)) for number, event in enumerate(may_end)
    ]
    left = [*range(12)]
    while left:
        number = random.choice(left)
        if random.random() < 0.5:
            # Perhaps in the same moment in which it gets its turn.
            users[number].cancel()
        may_end[number].set()
        left.remove(number)
        if random.random() < 0.5:
            await let_others_run()
    await asyncio.gather(*users, return_exceptions=True)
    assert done == sorted(done)
    assert {*done} == {n for n, user in enumerate(users) if not user.cancelled()}
    assert not turns.is_taken
    assert not turns.waiting


@run_async
async def test_nobody_overtakes_who_waits_for_room() -> None:
    queue = TurnQueue[int](2)
    assert queue.put_now(0)
    assert queue.put_now(1)
    assert not queue.put_now(9)
    waiting = [asyncio.create_task(queue.put(number)) for number in (2, 3, 4)]
    await let_others_run()
    waiting[1].cancel()
    found = [await queue.get()]
    # There is room, but somebody else waits for it.
    assert not queue.put_now(9)
    while len(found) < 4:
        found.append(await queue.get())
    assert found == [0, 1, 2, 4]
    assert queue.put_now(5)
    assert [queue.qsize(), await queue.get()] == [1, 5]


@run_async
async def test_a_queue_is_joined_when_all_that_was_read_is_finished() -> None:
    queue = TurnQueue[int](5)
    await queue.join()
    for number in range(3):
        queue.put_now(number)
    joining = asyncio.create_task(queue.join())
    for _ in range(3):
        await queue.get()
    await let_others_run()
    queue.finish(2)
    await let_others_run()
    assert not joining.done()
    queue.finish(1)
    await joining


@run_async
async def test_a_reader_waits_for_what_comes_and_a_cancelled_one_loses_nothing() -> None:
    queue = TurnQueue[int](5)
    reading = asyncio.create_task(queue.get())
    await let_others_run()
    queue.put_now(1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await queue.get() == 1


@run_async
async def test_nobody_waits_for_room_in_a_queue_that_is_closed() -> None:
    queue = TurnQueue[int](2)
    queue.put_now(0)
    queue.put_now(1)
    waiting = [asyncio.create_task(queue.put(number)) for number in range(2, 9)]
    await let_others_run()
    assert queue.close() == [0, 1]
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    assert queue.put_now(9)
    assert [*queue.waiting] == [2, 3, 4, 5, 6, 7, 8, 9]


@run_async
async def test_what_is_urgent_is_taken_at_once_and_the_rest_in_the_next_turn() -> None:
    queue, taken = TurnQueue[int](5), list[int]()

    async def take() -> None:
        while True:
            taken.append(await queue.get())

    task, loop = asyncio.create_task(take()), asyncio.get_running_loop()
    seen: list[list[int]] = []

    def put(number: int, *, is_urgent: bool) -> None:
        assert queue.put_now(number, is_urgent=is_urgent)
        seen.append([*taken])

    await let_others_run()
    # Not inside of another task: it cannot be resumed there.
    assert queue.put_now(1, is_urgent=True)
    assert not taken
    await let_others_run()
    loop.call_soon(lambda: put(2, is_urgent=False))
    await let_others_run()
    loop.call_soon(lambda: put(3, is_urgent=True))
    await let_others_run()
    assert seen == [[1], [1, 2, 3]]
    assert taken == [1, 2, 3]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # Whoever was waiting has gone; nothing is lost with it.
    assert queue.put_now(4, is_urgent=True)
    assert await queue.get() == 4
