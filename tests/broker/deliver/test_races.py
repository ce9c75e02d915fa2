"""What happens at the same time: each of these was found by the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from broker.authorization_clients import Collector
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    exhaust_attempts,
    fetched,
    refusal,
    run_async,
    subscribe,
)
from tamis.broker.deliver.notifier import FetchedEvents, Notifier
from tamis.broker.deliver.queues import DiskQueue, QueuedEvent
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.publish.event_cache import EventCache
from tamis.broker.subscribe.manager import SubscriptionManager
from tamis.errors import RefusedError, StorageError, StorageFullError
from tamis.protocol import Dropped, Ended, Subscribe
from tamis.storage import Pending, Retry, StateStore
from waiting import eventually_async

POLICY = """
[roles.reader]
see = true
[roles.narrow]
see = { filter = "level < 3" }
"""


@run_async
async def test_events_that_were_read_from_disk_are_not_offered_again(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1}, {"n": 2})
        [subscription] = fixture.broker.subscription_index
        queue = subscription.queue
        queue.is_attended = True
        assert len(await queue.take(10, 0.0, 100.0)) == 2
        # The matcher has written 2 before it was read, and offers it only now.
        queue.offer([2])
        assert await queue.take(10, 0.0, 100.0) == []


@run_async
async def test_events_that_another_reader_has_settled_are_not_offered(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        [subscription] = fixture.broker.subscription_index
        queue = subscription.queue
        assert isinstance(queue, DiskQueue)
        queue.is_attended = True
        assert await queue.take(10, 0.0, 100.0, "slow reader") == []
        await fixture.publish({"n": 1})
        queue._cursors["slow reader"].ready.clear()
        queue._cursors["slow reader"].last = 0
        # As above, but the one who read it from disk has other rights, and acknowledges it.
        assert len(await queue.take(10, 0.0, 100.0, "quick reader")) == 1
        await ann.acknowledge("s", [1])
        await ann.flush()
        queue.offer([1])
        assert await queue.take(10, 0.0, 100.0, "slow reader") == []


@run_async
async def test_a_lease_ends_although_reading_the_queue_took_long(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, notifier = await fixture.login("ann", "reader"), fixture.broker.notifier
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1})
        take = DiskQueue.take

        async def take_slowly(queue: DiskQueue, *args: Any) -> Any:
            await notifier.reject_late()
            return await take(queue, *args)

        with patch.object(DiskQueue, "take", take_slowly):
            assert await fetched(ann, "s") == [{"n": 1}]
        fixture.clock.now += 1_000.0
        await notifier.reject_late()
        fixture.clock.now += 1_000.0
        assert await fetched(ann, "s") == [{"n": 1}]


@run_async
async def test_a_subscription_that_is_renewed_just_in_time_does_not_expire(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        fixture.clock.now += 9.0
        renew = asyncio.create_task(ann.renew("s", 100.0))
        await asyncio.sleep(0)  # until it waits for the matcher
        fixture.clock.now += 2.0
        # Nobody is told meanwhile that it is not there.
        assert (await ann.subscription("s")).id == "s"
        await asyncio.gather(renew, fixture.broker.subscription_manager.purge_expired())
        assert (await ann.subscription("s")).id == "s"
        fixture.clock.now += 200.0
        assert "no subscription" in await refusal(ann.subscription("s"))


@run_async
async def test_a_subscription_that_is_renewed_in_time_misses_nothing(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        await subscribe(ann, "n > 0", "t", lifetime=10.0)
        fixture.clock.now += 9.0
        match, loop = fixture.broker.engine.match, asyncio.get_running_loop()
        renewals: list[asyncio.Task[object]] = []

        async def renew() -> None:
            renewals.append(asyncio.create_task(ann.renew("s", 100.0)))
            await asyncio.sleep(0)  # until it waits for the matcher

        def match_late(*args: Any, **options: Any) -> list[Any]:
            asyncio.run_coroutine_threadsafe(renew(), loop).result(10)
            fixture.clock.now += 2.0
            return match(*args, **options)

        with patch.object(fixture.broker.engine, "match", match_late):
            await fixture.publish({"n": 1})
        await asyncio.gather(*renewals)
        await fixture.publish({"n": 2})
        assert await fetched(ann, "s") == [{"n": 1}, {"n": 2}]
        # Nor does anybody else's lifetime get longer.
        assert "no subscription" in await refusal(ann.fetch("t"))


@run_async
async def test_a_subscription_that_has_just_ended_is_not_renewed(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        delete = asyncio.create_task(ann.delete("s"))
        await asyncio.sleep(0)  # until it waits for the matcher
        renew = asyncio.create_task(ann.renew("s", 100.0))
        await delete
        with pytest.raises(RefusedError, match="has just ended"):
            await renew


@run_async
async def test_an_expired_subscription_is_unknown_before_it_is_purged(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        await fixture.publish({"n": 1})
        fixture.clock.now += 11.0
        unknown = "not_found: there is no subscription 's'"
        assert await refusal(ann.renew("s", 100.0)) == unknown
        assert await refusal(ann.fetch("s")) == unknown
        assert await refusal(ann.attach("s", Collector(), credit=1)) == unknown
        await fixture.broker.subscription_manager.purge_expired()
        assert fixture.broker.store.state.subscriptions() == []


@run_async
async def test_nothing_is_sent_after_a_subscription_has_expired(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        await fixture.publish({"n": 1}, {"n": 2})
        live = Collector()
        attachment = await ann.attach("s", live, credit=1, acknowledge="manual")
        await eventually_async(lambda: live.got)
        fixture.clock.now += 11.0
        # The matcher may be busy, so that it is not purged yet.
        attachment.give_credit(1)
        await ann.flush()
        assert len(live.got) == 1
        await fixture.broker.subscription_manager.purge_expired()
        assert live.end == "expired"


@run_async
async def test_events_are_sent_again_once_a_subscription_is_renewed(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, live = await fixture.login("ann", "reader"), Collector()
        renew = StateStore.renew_subscription
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        await fixture.publish({"n": 1})
        attachment = await ann.attach("s", live, credit=0, acknowledge="manual")

        def renew_late(*args: Any) -> None:
            fixture.clock.now += 11.0
            asyncio.run_coroutine_threadsafe(look(), loop).result(10)
            renew(*args)

        async def look() -> None:
            attachment.give_credit(1)
            await ann.flush()

        loop = asyncio.get_running_loop()
        with patch.object(StateStore, "renew_subscription", renew_late):
            await ann.renew("s", 100.0)
        await eventually_async(lambda: live.got)


@run_async
async def test_nothing_is_fetched_that_expired_while_the_matcher_was_busy(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, narrow = await fixture.login("ann", "reader"), await fixture.login("ann", "narrow")
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        await fixture.publish({"n": 1, "level": 0})
        fetch = asyncio.create_task(narrow.fetch("s"))
        await asyncio.sleep(0)  # until it waits for the matcher
        fixture.clock.now += 11.0
        assert "has just ended" in await refusal(fetch)


@run_async
async def test_an_event_acknowledged_while_it_is_prepared_is_not_sent(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, find, acknowledging = await fixture.login("ann", "reader"), EventCache.find, [1]
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1}, {"n": 2})
        fixture.broker.event_cache.recent.clear()

        async def find_slowly(cache: EventCache, sequences: Sequence[int]) -> Any:
            acknowledged, acknowledging[:] = [*acknowledging], []
            await ann.acknowledge("s", acknowledged)
            return await find(cache, sequences)

        live = Collector()
        with patch.object(EventCache, "find", find_slowly):
            await ann.attach("s", live, credit=10, acknowledge="manual")
            await eventually_async(lambda: live.got)
        assert [one["data"] for one in live.got] == [{"n": 2}]
        await ann.flush()
        assert (await ann.subscription("s")).pending == 1


@run_async
async def test_nothing_is_fetched_from_a_subscription_that_is_deleted_meanwhile(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, find = await fixture.login("ann", "reader"), EventCache.find
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1})
        fixture.broker.event_cache.recent.clear()

        async def find_slowly(cache: EventCache, sequences: Sequence[int]) -> Any:
            await ann.delete("s")
            return await find(cache, sequences)

        with patch.object(EventCache, "find", find_slowly):
            assert "not_found" in await refusal(ann.fetch("s"))


@run_async
async def test_whoever_waits_for_events_learns_that_the_subscription_is_deleted(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        fetching = asyncio.create_task(refusal(ann.fetch("s", wait=30.0)))
        await eventually_async(lambda: bool(subscription_of(fixture).queue.listeners))
        await ann.delete("s")
        async with asyncio.timeout(10):
            assert "not_found" in await fetching


class SlowSink(Collector):
    """Takes its time over frames of one kind."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind
        self.is_waiting = False
        self.may_go_on = asyncio.Event()

    async def send(self, frame: Any) -> None:
        if isinstance(frame, self.kind):
            self.is_waiting = True
            await self.may_go_on.wait()
        await super().send(frame)


@run_async
async def test_of_two_connections_at_the_same_time_one_is_ended(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, both = await fixture.login("ann", "reader"), [Collector(), Collector()]
        await subscribe(ann, "n > 0", "s")
        await ann.attach("s", SlowSink(Ended), credit=10)
        attaching = [asyncio.create_task(ann.attach("s", one, credit=10)) for one in both]
        attachments = [await one for one in attaching]
        [subscription] = fixture.broker.subscription_index
        [running] = [one for one in attachments if one.task is not None and not one.task.done()]
        assert subscription.attachments == (running,)
        assert sorted(one.end for one in both) == ["", "taken over by another connection"]
        await fixture.publish({"n": 1}, {"n": 2})
        [told] = [one for one in both if not one.end]
        await eventually_async(lambda: len(told.got) == 2)


@run_async
async def test_a_loss_is_told_once_while_somebody_else_fetches(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, sink = await fixture.login("ann", "reader"), SlowSink(Dropped)
        await subscribe(ann, "n > 0", "s")
        subscription = subscription_of(fixture)
        fetching = asyncio.create_task(ann.fetch("s", wait=0.5))
        await eventually_async(lambda: len(subscription.queue.listeners) == 1)
        await ann.attach("s", sink, credit=10)
        await eventually_async(lambda: len(subscription.queue.listeners) == 2)
        subscription.lose(3, "retention")
        subscription.queue.listeners[-1].set()
        await eventually_async(lambda: sink.is_waiting)
        subscription.queue.wake()
        got = await fetching
        sink.may_go_on.set()
        await eventually_async(lambda: sink.lost)
        await fixture.publish({"n": 1})
        await eventually_async(lambda: sink.got or sink.end)
        assert (got.dropped, sink.lost, sink.end) == (0, [(3, "retention")], "")
        assert not subscription.untold


@run_async
async def test_a_loss_that_could_not_be_told_is_told_again(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, sink, next_sink = await fixture.login("ann", "reader"), SlowSink(Dropped), Collector()
        await subscribe(ann, "n > 0", "s")
        fixture.broker.acknowledgement_writer.count_lost(subscription_of(fixture), 3, "retention")
        attachment = await ann.attach("s", sink, credit=10)
        await eventually_async(lambda: sink.is_waiting)
        await ann.detach(attachment)
        await ann.attach("s", next_sink, credit=10)
        await eventually_async(lambda: next_sink.lost)
        assert (sink.lost, next_sink.lost) == ([], [(3, "retention")])


def subscription_of(fixture: BrokerFixture) -> ActiveSubscription:
    [subscription] = fixture.broker.subscription_index
    return subscription


@run_async
async def test_an_event_acknowledged_while_it_is_buried_is_no_dead_letter(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, find = await fixture.login("ann", "reader"), EventCache.find
        await subscribe(ann, "n > 0", "s", max_attempts=1)
        await fixture.publish({"n": 1}, {"n": 2})
        await ann.fetch("s")

        async def find_slowly(cache: EventCache, sequences: Sequence[int]) -> Any:
            if 1 in sequences:
                await ann.acknowledge("s", [1])
                await ann.flush()
            return await find(cache, sequences)

        with patch.object(EventCache, "find", find_slowly):
            await ann.reject("s", 1)
            await asyncio.gather(ann.reject("s", 2), ann.reject("s", 2))
        await ann.flush()
        assert [letter.sequence for letter in await ann.dead_letters("s")] == [2]
        assert fixture.broker.metrics.dead._value.get() == 1


@run_async
async def test_an_expired_subscription_is_made_anew_and_not_resumed(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        await fixture.publish({"n": 1})
        fixture.clock.now += 10.5
        _, is_resumed = await ann.open_subscription(
            Subscribe(ref=0, filter="n > 0", durable="s", lifetime=10.0)
        )
        assert not is_resumed
        assert await fetched(ann, "s") == []


@run_async
async def test_an_expired_subscription_that_could_not_be_deleted_is_deleted_later(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, manager = await fixture.login("ann", "reader"), fixture.broker.subscription_manager
        await subscribe(ann, "n > 0", "s", lifetime=10.0)
        fixture.clock.now += 11.0
        full = StorageFullError("disk", "full")
        with (
            patch.object(StateStore, "remove_subscriptions", side_effect=full),
            pytest.raises(RefusedError, match="full"),
        ):
            await manager.purge_expired()
        await manager.purge_expired()
        assert await ann.subscriptions() == []


@run_async
async def test_an_event_acknowledged_while_another_may_not_see_it_stays_so(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, narrow = await fixture.login("ann", "reader"), await fixture.login("ann", "narrow")
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1, "level": 9})
        live, find = Collector(), EventCache.find
        attachment = await ann.attach("s", live, credit=10, acknowledge="manual")
        await eventually_async(lambda: live.got)
        await ann.detach(attachment)
        fixture.broker.event_cache.recent.clear()

        async def find_slowly(cache: EventCache, sequences: Sequence[int]) -> Any:
            await ann.acknowledge("s", [1])
            return await find(cache, sequences)

        with patch.object(EventCache, "find", find_slowly):
            assert await fetched(narrow, "s") == []
        assert await fetched(ann, "s") == []


@run_async
async def test_events_of_a_fetch_that_fails_can_be_fetched_at_once(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1}, {"n": 2})
        fixture.broker.event_cache.recent.clear()
        with (
            patch.object(EventCache, "_read", side_effect=StorageError(tmp_path, "cannot be read")),
            pytest.raises(StorageError),
        ):
            await ann.fetch("s", limit=1)
        got = [(one.sequence, one.attempt) for one in await ann.fetch("s")]
        assert got == [(1, 1), (2, 1)]


@run_async
async def test_a_late_rejection_is_not_that_of_a_later_attempt(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY, max_attempts=2) as fixture:
        ann, narrow = await fixture.login("ann", "reader"), await fixture.login("ann", "narrow")
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1, "level": 0})
        first, second, find = Collector(), Collector(), EventCache.find
        await narrow.attach("s", first, credit=10, acknowledge="manual")
        await eventually_async(lambda: first.got)

        async def find_slowly(cache: EventCache, sequences: Sequence[int]) -> Any:
            if not second.got:
                await ann.attach("s", second, credit=10, acknowledge="manual")
                await eventually_async(lambda: second.got)
            return await find(cache, sequences)

        with patch.object(EventCache, "find", find_slowly):
            await narrow.reject("s", 1)
        await ann.flush()
        assert second.got[0]["attempt"] == 2
        assert await ann.dead_letters("s") == []
        assert [*subscription_of(fixture).queue.in_flight] == [1]


@run_async
async def test_whoever_lost_a_subscription_to_another_rejects_nothing(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, POLICY, max_attempts=2) as fixture:
        ann, other = await fixture.login("ann", "reader"), await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1})
        first, second = Collector(), Collector()
        await ann.attach("s", first, credit=10, acknowledge="manual")
        await eventually_async(lambda: first.got)
        await other.attach("s", second, credit=10, acknowledge="manual")
        await eventually_async(lambda: second.got)
        await ann.reject("s", 1)
        assert [*subscription_of(fixture).queue.in_flight] == [1]
        # A request that uses no connection may reject what a stream is sent.
        await (await fixture.login("ann", "reader")).reject("s", 1)
        await ann.flush()
        assert [one.sequence for one in await ann.dead_letters("s")] == [1]


@run_async
async def test_a_requeued_event_that_is_read_at_once_is_sent_once(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY, max_attempts=1) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1})
        await exhaust_attempts(ann, "s")
        subscription, state = subscription_of(fixture), fixture.broker.store.state
        loop, requeue, got = asyncio.get_running_loop(), state.requeue, list[int]()

        def requeue_slowly(*args: Any, **more: Any) -> list[int]:
            found = requeue(*args, **more)
            # Somebody begins to read the queue before the broker knows.
            loop.call_soon_threadsafe(subscription.queue.forget_readers)
            fetching = asyncio.run_coroutine_threadsafe(ann.fetch("s"), loop)
            got.extend(one.sequence for one in fetching.result(10))
            return found

        with patch.object(state, "requeue", requeue_slowly):
            assert await ann.requeue("s", [1]) == 1
        got += [one.sequence for one in await ann.fetch("s")]
        assert got == [1]


@run_async
async def test_a_loss_is_told_again_if_a_fetch_could_not_be_answered(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, other = await fixture.login("ann", "reader"), await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        fixture.broker.acknowledgement_writer.count_lost(subscription_of(fixture), 3, "retention")
        fetch = Notifier.fetch

        async def fetch_and_be_revoked(*args: Any) -> FetchedEvents:
            found = await fetch(*args)
            ann.revoke("revoked")
            return found

        with (
            patch.object(Notifier, "fetch", fetch_and_be_revoked),
            pytest.raises(RefusedError, match="revoked"),
        ):
            await ann.fetch("s")
        assert (await other.fetch("s")).dropped == 3
        assert (await other.fetch("s")).dropped == 0


@run_async
async def test_a_lease_begins_when_the_events_are_there(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, find = await fixture.login("ann", "reader"), EventCache.find
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1}, {"n": 2})
        fixture.broker.event_cache.recent.clear()

        async def find_slowly(cache: EventCache, sequences: Sequence[int]) -> Any:
            if fixture.clock.now == began_at:
                fixture.clock.now += 1_000.0
                await fixture.broker.notifier.reject_late()
            return await find(cache, sequences)

        began_at = fixture.clock.now
        with patch.object(EventCache, "find", find_slowly):
            got = [(one.sequence, one.attempt) for one in await ann.fetch("s", limit=1)]
        assert got == [(1, 1)]


@run_async
async def test_events_that_a_forgotten_reader_has_settled_are_not_offered(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1})
        queue = subscription_of(fixture).queue
        assert isinstance(queue, DiskQueue)
        queue.is_attended = True
        assert len(await queue.take(10, 0.0, 100.0)) == 1
        await ann.acknowledge("s", [1])
        await ann.flush()
        queue.forget_readers()
        reading = asyncio.create_task(queue.take(10, 0.0, 100.0))
        await asyncio.sleep(0)  # until it waits for the disk
        # The matcher had written it long ago, and offers it only now.
        queue.offer([1])
        assert await reading == []
        assert await queue.take(10, 0.0, 100.0) == []


@run_async
async def test_who_reads_before_a_replay_begins_gets_the_past(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await fixture.publish({"n": 1})
        with patch.object(SubscriptionManager, "replay"):
            await subscribe(ann, "n > 0", "s", start="earliest")
            assert await fetched(ann, "s") == []
        fixture.broker.subscription_manager.replay(subscription_of(fixture))
        assert await fetched(ann, "s", wait=5.0) == [{"n": 1}]


@run_async
async def test_an_attempt_that_is_written_while_the_disk_is_read_counts(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        await fixture.publish({"n": 1})
        subscription, loop = subscription_of(fixture), asyncio.get_running_loop()
        queue, read = subscription.queue, DiskQueue._read
        assert isinstance(queue, DiskQueue)
        assert len(await queue.take(10, 0.0, 100.0, "broad")) == 1
        queue.leave([QueuedEvent(1, 1)], "narrow")

        async def write() -> None:
            sent = Retry(subscription.number, 1, 1, 0.0)
            fixture.broker.acknowledgement_writer.write(subscription, {1: sent})
            await ann.flush()

        def read_slowly(self: DiskQueue, after: int) -> list[Pending]:
            rows = read(self, after)
            asyncio.run_coroutine_threadsafe(write(), loop).result(10)
            return rows

        with patch.object(DiskQueue, "_read", read_slowly):
            taken = await queue.take(10, 0.0, 100.0, "narrow")
        assert taken == [QueuedEvent(1, attempts=1)]
