"""The queue of a group does what a plain model of it does, whatever its members do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest

from tamis.broker.deliver import group_queues
from tamis.broker.deliver.group_queues import GroupQueue, KeysOf
from tamis.broker.deliver.queues import QueuedEvent, UnwrittenQueues
from tamis.ports import ThreadExecutor
from tamis.storage import Retry, Storage, StoredSubscription
from waiting import let_others_run

THREADS = ThreadExecutor("test")
MEMBERS = ("ann", "bob", "cy", "dora")
NARROW = "narrow"
STEPS = 120


class GroupModel:
    """Events by sequence: which wait and until when, which a member has, and which are settled."""

    def __init__(self, *, is_keyed: bool) -> None:
        self.is_keyed = is_keyed
        self.keys: dict[int, int | None] = {}
        self.due: dict[int, float] = {}
        """The events that wait, by when they may be sent."""
        self.held: dict[int, str] = {}
        self.attempts: dict[int, int] = {}

    def publish(self, sequence: int, key: int | None) -> None:
        self.keys[sequence] = key
        self.due[sequence] = 0.0
        self.attempts[sequence] = 0

    def shows(self, sequence: int, reader: str) -> bool:
        return reader != NARROW or sequence % 3 != 0

    def blocked_by(self, sequence: int, reader: str) -> list[int]:
        """Return what must be settled before an event is sent, as far as a reader sees it."""
        key = self.keys[sequence]
        if key is None or not self.is_keyed:
            return []
        held = [one for one in self.held if self.keys[one] == key]
        earlier = [
            one
            for one in self.due
            if self.keys[one] == key and one < sequence and self.shows(one, reader)
        ]
        return held + earlier

    def free(self, now: float) -> list[int]:
        """Return what could be sent to somebody who sees everything."""
        return [one for one in self.due if self.due[one] <= now and not self.blocked_by(one, "")]

    def take(self, queued: QueuedEvent, member: str, reader: str, now: float) -> None:
        sequence = queued.sequence
        assert sequence in self.due, f"{sequence} is held, settled or unknown"
        assert self.due[sequence] <= now, f"{sequence} is not due"
        assert not self.blocked_by(sequence, reader), f"{sequence} must wait for others of its key"
        assert queued.attempts == self.attempts[sequence]
        del self.due[sequence]
        self.held[sequence] = member
        self.attempts[sequence] += 1

    def give_back(self, sequence: int, due: float) -> None:
        del self.held[sequence]
        self.due[sequence] = due


class GroupRun:
    """A queue on a real disk, driven at random beside the model."""

    def __init__(self, store: Storage, number: int, seed: int) -> None:
        self.random = Random(seed)
        self.store = store
        self.number = number
        self.model = GroupModel(is_keyed=self.random.random() < 0.7)
        self.window = self.random.choice([2, 3, 1_000])
        self.has_narrow = self.random.random() < 0.3
        self.most_held_back = self.random.choice([5, 4_000])
        self.now = 1.0
        self.queue = self._open()
        self.taken = 0

    def _open(self) -> GroupQueue:
        keys_of: KeysOf | None = self._keys_of if self.model.is_keyed else None
        queue = GroupQueue(
            self.number,
            self.store.state,
            self.window,
            THREADS,
            UnwrittenQueues(),
            nothing_yet=False,
            keys_of=keys_of,
        )
        queue.is_attended = True
        return queue

    async def _keys_of(self, sequences: Sequence[int]) -> list[int | None]:
        await let_others_run()
        return [self.model.keys[one] for one in sequences]

    async def run(self) -> None:
        steps = [self.publish, self.take, self.take, self.settle, self.reject, self.leave]
        bound = mock.patch.object(group_queues, "MAX_HELD_BACK", self.most_held_back)
        with bound, self.queue.listening(), self.queue.listening():
            for _ in range(STEPS):
                self.now += 0.1
                await self.random.choice(steps)()
                self.check()
        await self.drain()

    def check(self) -> None:
        assert {*self.queue.in_flight} == {*self.model.held}
        for member in MEMBERS:
            has = [*self.model.held.values()].count(member)
            assert self.queue.held_by(member) == has <= self.window

    async def publish(self) -> None:
        first = len(self.model.keys) + 1
        new = range(first, first + self.random.randint(1, 6))
        self.store.state.commit_matches(new[-1], [(self.number, one) for one in new], {})
        for sequence in new:
            self.model.publish(sequence, self.random.choice([1, 1, 2, 3, None]))
        self.queue.offer(new)

    async def take(self) -> None:
        member = self.random.choice(MEMBERS)
        reader = NARROW if self.has_narrow and member == "dora" else ""
        limit = self.random.choice([1, 2, 100])
        model, queue = self.model, self.queue
        could = model.free(self.now) if not reader and queue.held_by(member) < self.window else []
        if len(model.due) > self.most_held_back:
            # What is held back has a bound, and holds up what is behind it.
            could = []
        taken = await queue.take(limit, self.now, inf, reader, member)
        for queued in taken:
            if model.shows(queued.sequence, reader):
                model.take(queued, member, reader, self.now)
                queue.unwritten[queued.sequence] = queue.in_flight[queued.sequence]
        queue.leave([one for one in taken if not model.shows(one.sequence, reader)], reader)
        assert len(taken) <= limit
        assert taken or not could, f"{could[:5]} could have been sent"
        self.taken += len(taken)

    async def settle(self) -> None:
        for sequence in self._some_held():
            assert self.queue.settle([sequence], 0) == [sequence]
            del self.model.held[sequence]

    async def reject(self) -> None:
        for sequence in self._some_held():
            due = self.now + self.random.choice([0.0, 0.5])
            attempts = self.model.attempts[sequence]
            self.queue.put_back(sequence, attempts, due)
            self.queue.unwritten[sequence] = Retry(self.number, sequence, attempts, due)
            self.model.give_back(sequence, due)

    async def leave(self) -> None:
        """Let a member go: others get what it had."""
        member = self.random.choice(MEMBERS)
        self.queue.forget_sent(member)
        for sequence in [one for one, who in self.model.held.items() if who == member]:
            self.model.give_back(sequence, 0.0)

    def _some_held(self) -> list[int]:
        held = sorted(self.model.held)
        return self.random.sample(held, min(len(held), self.random.randint(1, 4)))

    async def drain(self) -> None:
        """Let one member who sees everything take what is left."""
        for member in MEMBERS:
            self.queue.forget_sent(member)
        for sequence in [*self.model.held]:
            self.model.give_back(sequence, 0.0)
        self.now += 100.0
        while self.model.due:
            taken = await self.queue.take(100, self.now, inf, "", "ann")
            assert taken, f"{sorted(self.model.due)[:5]} are lost"
            for queued in taken:
                self.model.take(queued, "ann", "", self.now)
            self.queue.settle([one.sequence for one in taken], 0)
            self.model.held.clear()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Storage]:
    with Storage.open(tmp_path) as opened:
        yield opened


def add_group(store: Storage, name: str) -> int:
    return store.state.add_subscription(
        StoredSubscription(
            owner="ann",
            name=name,
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


def check(store: Storage, chosen: Sequence[int]) -> int:
    taken = 0
    for seed in chosen:
        run = GroupRun(store, add_group(store, f"g{seed}"), seed)
        try:
            asyncio.run(run.run())
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
        taken += run.taken
    return taken


def test_members_share_events_as_in_the_model(store: Storage) -> None:
    assert check(store, range(12)) > 200


@pytest.mark.slow
def test_members_share_events_as_in_the_model_in_thousands_of_runs(store: Storage) -> None:
    taken = check(store, range(12, 2_000))
    print(f"\ngroup queues: 1,988 runs of {STEPS} steps, {taken:,} events taken, 0 differences")


def test_a_queue_that_forgets_which_keys_are_in_flight_is_found_out(store: Storage) -> None:
    remove = GroupQueue._remove_from_others

    def forget(queue: GroupQueue, *args: Any) -> None:
        remove(queue, *args)
        queue.in_flight.busy.clear()

    with (
        mock.patch.object(GroupQueue, "_remove_from_others", forget),
        pytest.raises(AssertionError, match="must wait for others of its key"),
    ):
        check(store, range(20))


def test_a_queue_that_loses_what_a_member_had_is_found_out(store: Storage) -> None:
    with (
        mock.patch.object(GroupQueue, "forget_sent", GroupQueue._take_held),
        pytest.raises(AssertionError, match=r"are lost|could have been sent"),
    ):
        check(store, range(20))


def test_a_member_with_a_full_window_holds_up_nobody(store: Storage) -> None:
    run = GroupRun(store, add_group(store, "slow"), 1)
    run.model.is_keyed, run.window = False, 3
    run.queue = run._open()

    async def take_all() -> None:
        for _ in range(4):
            await run.publish()
        taken = {member: await run.queue.take(100, 1.0, inf, "", member) for member in "ab"}
        assert {member: len(events) for member, events in taken.items()} == {"a": 3, "b": 3}
        assert await run.queue.take(100, 1.0, inf, "", "a") == []
        run.queue.settle([one.sequence for one in taken["b"]], 0)
        assert len(await run.queue.take(100, 1.0, inf, "", "b")) == 3

    asyncio.run(take_all())


def test_what_waits_is_dealt_out_among_those_who_listen(store: Storage) -> None:
    run = GroupRun(store, add_group(store, "dealt"), 1)
    run.model.is_keyed, run.window = False, 1_000
    run.queue = run._open()

    async def take_all() -> list[int]:
        while len(run.model.keys) < 12:
            await run.publish()
        with run.queue.listening(), run.queue.listening(), run.queue.listening():
            return [len(await run.queue.take(100, 1.0, inf, "", member)) for member in "abc"]

    counts = asyncio.run(take_all())
    assert counts[0] == -(-len(run.model.keys) // 3)
    assert min(counts) >= 2
