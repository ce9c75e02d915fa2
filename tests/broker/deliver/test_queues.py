"""What waits on disk: in order, within the window, and not before earlier events were sought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from tamis.broker.deliver.group_queues import GroupQueue
from tamis.broker.deliver.memory_queue import MemoryQueue
from tamis.broker.deliver.queues import DeliveryQueue, DiskQueue, UnwrittenQueues
from tamis.ports import ThreadExecutor
from tamis.storage import StateStore, Storage, StoredSubscription
from waiting import let_others_run

P = ParamSpec("P")
T = TypeVar("T")

WINDOW = 4
THREADS = ThreadExecutor("test")


class HeldExecutor(ThreadExecutor):
    """Reads at once, and returns what it has read when it may."""

    def __init__(self) -> None:
        super().__init__("held")
        self.has_read = asyncio.Event()
        self.may_return = asyncio.Event()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        result = work(*args, **kwargs)
        self.has_read.set()
        await self.may_return.wait()
        return result


@pytest.fixture(params=[True, False], ids=["attended", "alone"], autouse=True)
def _somebody_there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with a connected subscriber and without: the difference is memory."""
    made = DeliveryQueue.__init__

    def make(queue: DeliveryQueue, window: int, *writing: UnwrittenQueues) -> None:
        made(queue, window, *writing)
        queue.is_attended = request.param

    monkeypatch.setattr(DeliveryQueue, "__init__", make)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Storage]:
    with Storage.open(tmp_path) as opened:
        yield opened


def subscription(state: StateStore) -> int:
    return state.add_subscription(
        StoredSubscription(
            owner="ann",
            name="laptop",
            filter="true",
            language="tamis",
            mode="sql",
            created_at=0.0,
            start=1,
            overflow="wait",
            durable=True,
            max_attempts=0,
        )
    )


def taken(queue: DiskQueue | MemoryQueue, limit: int = 100, now: float = 0.0) -> list[int]:
    return [one.sequence for one in asyncio.run(queue.take(limit, now, lease=inf))]


def test_what_lies_behind_a_replay_waits_for_it(store: Storage) -> None:
    number = subscription(store.state)
    queue = DiskQueue(number, store.state, WINDOW, THREADS, UnwrittenQueues(), nothing_yet=False)
    queue.below = 3
    store.state.commit_matches(9, [(number, 8), (number, 9)], {})
    queue.offer([8, 9])
    assert taken(queue) == []
    store.state.commit_replay(number, [1, 2], {}, "{}")
    assert taken(queue) == [1, 2]
    assert taken(queue) == []
    store.state.commit_replay(number, [5], {}, "{}")
    queue.below = inf
    assert taken(queue) == [5, 8]
    queue.settle([1, 2, 5, 8], 0)
    assert taken(queue) == [9]


def test_nothing_is_kept_in_memory_for_disconnected_subscribers(store: Storage) -> None:
    number = subscription(store.state)
    queue = DiskQueue(number, store.state, 100, THREADS, UnwrittenQueues(), nothing_yet=True)
    store.state.commit_matches(10, [(number, row) for row in range(1, 11)], {})
    assert taken(queue) == []
    queue.offer(range(1, 11))
    [cursor] = queue._cursors.values()
    assert len(cursor.ready) == (10 if queue.is_attended else 0)
    assert taken(queue) == [*range(1, 11)]


def test_more_than_the_window_waits_on_disk(store: Storage) -> None:
    number = subscription(store.state)
    queue = DiskQueue(number, store.state, WINDOW, THREADS, UnwrittenQueues(), nothing_yet=True)
    rows = list(range(1, 11))
    store.state.commit_matches(10, [(number, row) for row in rows], {})
    queue.offer(rows)
    seen = []
    while got := taken(queue, limit=3):
        seen += got
        queue.settle(got, 0)
    assert seen == rows


def test_no_more_than_the_window_is_unsettled(store: Storage) -> None:
    number = subscription(store.state)
    queue = DiskQueue(number, store.state, WINDOW, THREADS, UnwrittenQueues(), nothing_yet=True)
    store.state.commit_matches(10, [(number, row) for row in range(1, 11)], {})
    queue.offer(list(range(1, 11)))
    assert taken(queue) == [1, 2, 3, 4]
    assert taken(queue) == []
    queue.put_back(2, 1, due=50.0)
    assert taken(queue, now=10.0) == []
    assert queue.next_due() == 50.0
    assert taken(queue, now=60.0) == [2]


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_what_is_put_back_keeps_its_place(store: Storage, limit: int) -> None:
    """Another reader has taken events that this one has not reached, and could not read them."""
    number = subscription(store.state)
    queue = DiskQueue(number, store.state, 20, THREADS, UnwrittenQueues(), nothing_yet=False)
    store.state.commit_matches(6, [(number, row) for row in range(1, 7)], {})
    queue.offer(range(1, 7))
    other = asyncio.run(queue.take(10, 0.0, inf, "narrow"))
    queue.leave([one for one in other if one.sequence not in {3, 5}], "narrow")
    queue.return_taken([one for one in other if one.sequence in {3, 5}])
    seen = []
    while got := taken(queue, limit=limit):
        seen += got
    assert seen == [1, 2, 3, 4, 5, 6]


def test_unacknowledged_events_are_redelivered_after_a_lost_connection(store: Storage) -> None:
    number = subscription(store.state)
    queue = DiskQueue(number, store.state, WINDOW, THREADS, UnwrittenQueues(), nothing_yet=True)
    store.state.commit_matches(3, [(number, 1), (number, 2), (number, 3)], {})
    queue.offer([1, 2, 3])
    assert taken(queue, limit=2) == [1, 2]
    queue.forget_sent()
    # An acknowledgement that comes late still counts.
    assert queue.settle([1], 0) == [1]
    assert taken(queue) == [2, 3]
    assert queue.in_flight[2].attempts == 2


def test_a_buffer_in_memory_drops_the_oldest_and_counts_it() -> None:
    queue = MemoryQueue(WINDOW)
    queue.offer([1, 2, 3, 4, 5, 6])
    assert queue.dropped == 2
    assert taken(queue) == [3, 4, 5, 6]


@pytest.mark.parametrize("make", [DiskQueue, partial(GroupQueue, keys_of=None)])
def test_nobody_takes_an_event_before_those_that_are_being_read(
    store: Storage, make: Callable[..., DiskQueue]
) -> None:
    number = subscription(store.state)
    executor = HeldExecutor()
    queue = make(number, store.state, 10, executor, UnwrittenQueues(), nothing_yet=False)
    queue.is_attended = True
    store.state.commit_matches(4, [(number, row) for row in (1, 2, 3)], {})

    async def take() -> list[int]:
        first = asyncio.create_task(queue.take(1, 0.0, inf, holder="a"))
        await executor.has_read.wait()
        store.state.commit_matches(5, [(number, 4)], {})
        queue.offer([4])
        assert not queue.has_passed(2, "")
        second = asyncio.create_task(queue.take(1, 0.0, inf, holder="b"))
        await let_others_run()
        executor.may_return.set()
        return [one.sequence for task in (first, second) for one in await task]

    assert asyncio.run(take()) == [1, 2]
