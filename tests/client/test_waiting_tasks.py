"""Several tasks may wait for the events of one consumer; each event goes to one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
import pytest

from tamis.client import Consumer
from tamis.client.options import ConsumerOptions
from tamis.errors import DisconnectedError, SubscriptionEndedError
from tamis.protocol import Delivery, Subscribed
from waiting import let_others_run

from .buses import run


class ConfirmingRegistry:
    """Confirms every subscription at once."""

    timeout = 20.0

    def register(self, consumer: Consumer) -> None:
        consumer.confirmed(Subscribed(ref=1, subscription="s"))

    async def unsubscribe(self, consumer: Consumer, *, delete: bool) -> None: ...

    def leave(self, consumer: Consumer) -> None: ...

    def remove(self, consumer: Consumer) -> None: ...

    def schedule_flush(self, consumer: Consumer) -> None: ...

    async def flush_acknowledgements(self, consumers: Iterable[Consumer]) -> None: ...


async def started() -> Consumer:
    return await Consumer(ConfirmingRegistry(), ConsumerOptions.of("true", 100, {}))


def deliver(consumer: Consumer, *sequences: int) -> None:
    consumer.deliver(
        [
            Delivery(sequence=one, time=0.0, publisher="p", data=msgspec.Raw(b"{}"))
            for one in sequences
        ]
    )


async def waiting_tasks(consumer: Consumer, count: int) -> list[asyncio.Task[int]]:
    async def take() -> int:
        return (await anext(consumer)).sequence

    tasks = [asyncio.create_task(take()) for _ in range(count)]
    await let_others_run()
    return tasks


def test_tasks_that_wait_get_one_event_each_in_the_order_in_which_they_came() -> None:
    async def main() -> None:
        consumer = await started()
        tasks = await waiting_tasks(consumer, 3)
        deliver(consumer, 1)
        await let_others_run()
        assert [task.done() for task in tasks] == [True, False, False]
        deliver(consumer, 2, 3)
        assert await asyncio.gather(*tasks) == [1, 2, 3]

    run(main())


def test_a_task_that_is_cancelled_leaves_the_others_waiting() -> None:
    async def main() -> None:
        consumer = await started()
        tasks = await waiting_tasks(consumer, 3)
        tasks[1].cancel()
        await let_others_run()
        assert [task.done() for task in tasks] == [False, True, False]
        deliver(consumer, 1, 2)
        assert [await tasks[0], await tasks[2]] == [1, 2]

    run(main())


@pytest.mark.parametrize("is_cancelled_first", [False, True])
def test_a_task_that_is_cancelled_as_an_event_arrives_does_not_lose_it(
    is_cancelled_first: bool,
) -> None:
    async def main() -> None:
        consumer = await started()
        first, second = await waiting_tasks(consumer, 2)
        if is_cancelled_first:
            first.cancel()
        deliver(consumer, 1)
        first.cancel()
        assert await second == 1
        assert first.cancelled()
        [third] = await waiting_tasks(consumer, 1)
        deliver(consumer, 2)
        third.cancel()
        # Nobody waits now, and it is there for whoever asks next.
        await let_others_run()
        assert third.cancelled()
        assert (await consumer.next()).sequence == 2

    run(main())


def test_two_deliveries_may_come_before_a_task_runs() -> None:
    async def main() -> None:
        consumer = await started()
        tasks = await waiting_tasks(consumer, 2)
        deliver(consumer, 1)
        deliver(consumer, 2)
        assert await asyncio.gather(*tasks) == [1, 2]

    run(main())


def test_time_that_runs_out_again_and_again_leaves_nothing_behind() -> None:
    async def main() -> None:
        consumer = await started()
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await consumer.next(0)
        assert not consumer._waiters
        deliver(consumer, 1)
        assert (await consumer.next(0)).sequence == 1

    run(main())


def test_all_tasks_learn_of_the_end() -> None:
    async def main() -> None:
        for error in (None, SubscriptionEndedError("s", "expired"), DisconnectedError("gone")):
            consumer = await started()
            tasks = await waiting_tasks(consumer, 3)
            consumer.end(error)
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            if error is None:
                assert [type(end) for end in ends] == [StopAsyncIteration] * 3
            else:
                assert ends == [error] * 3

    run(main())


def test_asking_a_closed_consumer_again_and_again_leaves_others_their_turns() -> None:
    async def main() -> None:
        consumer = await started()
        await consumer.close()
        asked = 0

        async def ask() -> None:
            nonlocal asked
            # More often than others get turns.
            while asked < 100_000 and not await consumer.take(1):
                asked += 1

        asking = asyncio.create_task(ask())
        await let_others_run(10)
        asking.cancel()
        await asyncio.wait([asking])
        assert 0 < asked < 1_000

    run(main())
