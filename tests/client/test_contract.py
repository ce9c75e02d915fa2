"""What every bus does, over the network and within one process."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

import tamis
from tamis.client import Missed, Receipt
from tamis.protocol import Code
from tamis.protocol.management import IssueToken, ListTokens, RevokeToken
from waiting import eventually_async, let_others_run

from .buses import Connect, events_of, on_every_bus, topic

# --- publishing and subscribing ------------------------------------------------------------------


@on_every_bus
async def test_events_that_match_come_and_others_do_not(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}' and price < 5")
        for price in (4, 6, 2):
            await bus.publish({"topic": name, "price": price})
        assert [event["price"] for event in await events_of(subscription, 2)] == [4, 2]


@on_every_bus
async def test_an_event_is_a_mapping_and_knows_where_it_came_from(connect: Connect) -> None:
    name = topic()
    data = {"topic": name, "order": {"tags": ["new", "red"], "price": 9.5}, "none": None}
    async with connect(publisher="feed", sequence=1) as bus:
        subscription = await bus.subscribe(f"topic = '{name}'")
        receipt = await bus.publish(data)
        event = await subscription.next(20)
    assert event == data == event.data
    assert event["order"]["price"] == 9.5
    assert event.get("quantity", 1) == 1
    assert "quantity" not in event
    assert [*event] == ["topic", "order", "none"]
    assert event.sequence == receipt.first
    assert abs(event.time - datetime.now(UTC).timestamp()) < 60
    assert event.publisher.endswith("feed")
    assert (event.attempt, event.format) == (1, "json")
    assert repr(event).startswith(f"<Message {event.sequence}: {{'topic'")


@on_every_bus
async def test_a_receipt_describes_what_was_stored(connect: Connect) -> None:
    async with connect() as bus:
        one = await bus.publish({"a": 1})
        many = await bus.publish_many({"a": i} for i in range(1234))
        none = await bus.publish_many([])
    assert one.first is not None
    assert (one.count, one.duplicates) == (1, 0)
    assert many == Receipt(1234, 0, one.first + 1)
    assert none == Receipt(0, 0, None)


@on_every_bus
async def test_numbers_that_the_broker_knows_are_not_stored_again(connect: Connect) -> None:
    name = topic()
    events = [{"topic": name, "n": n} for n in range(1, 11)]
    async with connect(publisher=name, sequence=1) as bus:
        assert (await bus.publish_many(events[:6])).duplicates == 0
        assert bus.sequence == 7
    async with connect(publisher=name, sequence=1) as bus:
        receipt = await bus.publish_many(events)
        assert (receipt.count, receipt.duplicates) == (10, 6)
        subscription = bus.subscribe(f"topic = '{name}'", start="earliest")
        assert [event["n"] for event in await events_of(subscription, 10)] == [*range(1, 11)]


@on_every_bus
async def test_all_kinds_of_events_can_be_published(connect: Connect) -> None:
    name = topic()
    when = datetime(2026, 1, 31, 12, tzinfo=UTC)

    async def generated() -> Any:
        yield {"topic": name, "n": 6}

    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}' or type = '{name}'")
        await bus.publish({"topic": name, "n": 1, "at": when})
        await bus.publish(tamis.Event({"topic": name, "n": 2}))
        await bus.publish(f'{{"topic": "{name}", "n": 3}}')
        await bus.publish(f'{{"topic": "{name}", "n": 4}}'.encode())
        cloudevent = tamis.CloudEvent(id="5", source="/here", type=name, data={"n": 5})
        await bus.publish_many([cloudevent, {"topic": name, "n": 5}])
        await bus.publish_many(generated())
        events = await events_of(subscription, 7)
        assert events[0]["at"] == "2026-01-31T12:00:00Z"
        assert events[4]["data"] == {"n": 5}
        assert events[4].format == "cloudevents"
        assert [event["n"] for event in events if event.format == "json"] == [1, 2, 3, 4, 5, 6]
        await bus.publish(events[4])
        assert (await subscription.next(20)).text == events[4].text


@on_every_bus
async def test_events_published_at_the_same_time_keep_their_order(connect: Connect) -> None:
    name = topic()
    async with connect(publish_window=10) as bus:
        subscription = await bus.subscribe(f"topic = '{name}'")
        await asyncio.gather(*(bus.publish({"topic": name, "n": n}) for n in range(300)))
        events = await events_of(subscription, 300)
    assert [event["n"] for event in events] == [*range(300)]


@on_every_bus
async def test_one_connection_has_many_subscriptions(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        filters = [f"topic = '{name}' and n >= {k}" for k in range(5)]
        subscriptions = [await bus.subscribe(text) for text in filters]
        await bus.publish_many({"topic": name, "n": n} for n in range(10))
        for k, subscription in enumerate(subscriptions):
            events = await events_of(subscription, 10 - k)
            assert [event["n"] for event in events] == [*range(k, 10)]


@on_every_bus
async def test_a_filter_may_be_an_object(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe((tamis.attr("topic") == name) & (tamis.attr("n") > 1))
        await bus.publish_many({"topic": name, "n": n} for n in range(3))
        assert (await subscription.next(20))["n"] == 2


@on_every_bus
async def test_a_batch_takes_all_that_is_there(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name)
        await bus.publish_many({"topic": name, "n": n} for n in range(20))
        got: list[int] = []
        while len(got) < 20:
            batch = await subscription.take(8)
            assert 1 <= len(batch) <= 8
            got += [event["n"] for event in batch]
        assert got == [*range(20)]
        with pytest.raises(TimeoutError, match=r"no event arrived within 0\.01 s"):
            await subscription.take(8, timeout="10ms")
        await subscription.close(delete=True)


# --- replay --------------------------------------------------------------------------------------


@on_every_bus
async def test_a_subscription_can_begin_in_the_past(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        first = await bus.publish({"topic": name, "n": 0})
        assert first.first is not None
        published = datetime.now(UTC)
        await eventually_async(lambda: datetime.now(UTC) > published + timedelta(milliseconds=5))
        between = datetime.now(UTC)
        await bus.publish_many({"topic": name, "n": n} for n in range(1, 5))
        starts: list[tuple[int | str | datetime, int]] = [
            ("earliest", 0),
            (first.first + 2, 2),
            (between, 1),
        ]
        for start, expected in starts:
            async with bus.subscribe(f"topic = '{name}'", start=start) as subscription:
                assert (await subscription.next(20))["n"] == expected


# --- acknowledgement -----------------------------------------------------------------------------


@on_every_bus
async def test_an_event_whose_handling_failed_is_redelivered(connect: Connect) -> None:
    name = topic()
    handled: list[int] = []
    async with connect() as bus:
        await (await bus.subscribe(f"topic = '{name}'", durable=name)).close()
        await bus.publish_many({"topic": name, "n": n} for n in range(5))

    async def handle() -> None:
        async with connect() as bus:
            async for event in bus.subscribe(f"topic = '{name}'", durable=name):
                if event["n"] == 2:
                    raise ZeroDivisionError
                handled.append(event["n"])

    with pytest.raises(ZeroDivisionError):
        await handle()
    async with connect() as bus:
        events = await events_of(bus.subscribe(f"topic = '{name}'", durable=name), 3)
        await bus.delete(name)
    assert handled == [0, 1]
    assert events[0].attempt > 1
    assert [event["n"] for event in events] == [2, 3, 4]


@on_every_bus
async def test_leaving_the_block_acknowledges_the_event_in_hand(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        async with bus.subscribe(f"topic = '{name}'", durable=name) as subscription:
            await bus.publish_many({"topic": name, "n": n} for n in range(3))
            async for event in subscription:
                assert event["n"] == 0
                break
        async with bus.subscribe(f"topic = '{name}'", durable=name) as subscription:
            assert (await subscription.next(20))["n"] == 1
        await bus.delete(name)


@on_every_bus
async def test_a_break_without_a_block_acknowledges_nothing(connect: Connect) -> None:
    name = topic()
    for expected_attempt in (1, 2):
        async with connect() as bus:
            subscription = await bus.subscribe(f"topic = '{name}'", durable=name)
            if expected_attempt == 1:
                await bus.publish({"topic": name})
            async for event in subscription:
                assert event.attempt == expected_attempt
                break
    async with connect() as bus:
        await bus.delete(name)


@on_every_bus
async def test_by_hand_each_event_is_settled_alone(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        options: dict[str, Any] = {"durable": name, "acknowledge": "manual"}
        async with bus.subscribe(f"topic = '{name}'", **options) as subscription:
            await bus.publish_many({"topic": name, "n": n} for n in range(4))
            events = await events_of(subscription, 4)
            await events[3].ack()
            await events[0].ack()
            await events[0].nack(delay=0)
            assert events[0].is_settled
        async with bus.subscribe(f"topic = '{name}'", **options) as subscription:
            assert [event["n"] for event in await events_of(subscription, 2)] == [1, 2]
        await bus.delete(name)


@on_every_bus
async def test_a_rejected_event_is_redelivered_and_finally_becomes_a_dead_letter(
    connect: Connect,
) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name, max_attempts=2)
        await bus.publish_many({"topic": name, "n": n} for n in range(2))
        attempts = []
        for _ in range(3):
            event = await subscription.next(20)
            if event["n"] == 0:
                attempts.append(event.attempt)
                await event.nack(delay=0, reason="not today")
        assert attempts == [1, 2]
        await bus.flush()
        [letter] = await _when(bus.dead_letters, name)
        assert (letter.attempts, letter.reason) == (2, "not today")
        assert bytes(letter.data) == f'{{"topic":"{name}","n":0}}'.encode()
        assert await bus.requeue(name, [letter.sequence]) == 1
        event = await subscription.next(20)
        assert (event["n"], event.attempt) == (0, 1)
        assert await bus.dead_letters(name) == []
        await subscription.close(delete=True)


async def _when(ask: Any, *arguments: Any) -> Any:
    """Return the first answer that is not empty."""
    return await eventually_async(lambda: ask(*arguments))


@on_every_bus
async def test_acknowledgements_are_with_the_broker_after_a_flush(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name, acknowledge="manual")
        await bus.publish_many({"topic": name} for _ in range(3))
        for event in await events_of(subscription, 3):
            await event.ack()
        await bus.flush()
        view = await bus.subscription(name)
        assert (view.in_flight, view.pending) == (0, 0)
        await subscription.close(delete=True)


@on_every_bus
async def test_a_flushed_acknowledgement_is_on_disk(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name, acknowledge="manual")
        for round_ in range(10):
            await bus.publish({"topic": name})
            await (await subscription.next(20)).ack()
            await (subscription.flush() if round_ % 2 else bus.flush())
            # The broker counts what its database still holds.
            assert (await bus.subscription(name)).pending == 0
        await subscription.close(delete=True)


# --- flow ----------------------------------------------------------------------------------------


@on_every_bus
async def test_no_more_events_come_than_the_window_holds(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name, window=4)
        await bus.publish_many({"topic": name, "n": n} for n in range(100))
        for n in range(100):
            assert len(subscription._inbox) <= 4
            assert (await subscription.next(20))["n"] == n
            if n % 10 == 0:
                assert (await bus.subscription(name)).in_flight <= 4 + 1
        await subscription.close(delete=True)


@on_every_bus
async def test_the_past_can_be_read_without_a_subscription(connect: Connect) -> None:
    name = topic()
    filter_ = f"topic = '{name}'"
    async with connect() as bus:
        before = len([event async for event in bus.history(filter_)])
        receipt = await bus.publish_many({"topic": name, "n": n} for n in range(2_500))
        await bus.publish({"topic": f"not {name}", "n": -1})
        found = [event async for event in bus.history(filter_)]
        assert (before, [event["n"] for event in found]) == (0, [*range(2_500)])
        first = receipt.first or 0
        some = bus.history(filter_, start=first + 10, end=first + 12)
        assert [(event.sequence, event["n"]) async for event in some] == [
            (first + 10, 10),
            (first + 11, 11),
        ]
        # It is like any other event, and yet there is nothing to settle.
        await found[0].ack()
        moment = datetime.fromtimestamp(found[0].time - 0.001, UTC)
        assert [event async for event in bus.history(filter_, start=moment)] == found
        assert [event async for event in bus.history(filter_, end=moment)] == []
        assert [e async for e in bus.history("true", start="latest")] == []
        with pytest.raises(tamis.OptionError, match="start is 'yesterday'; it must be 'latest'"):
            _ = [e async for e in bus.history("true", start="yesterday")]
        with pytest.raises(tamis.RefusedError, match="missing at the end"):
            _ = [e async for e in bus.history("topic =")]


@on_every_bus
async def test_a_slow_subscription_does_not_hold_up_the_others(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        slow = await bus.subscribe(f"topic = '{name}'", window=1)
        fast = await bus.subscribe(f"topic = '{name}'")
        await bus.publish_many({"topic": name, "n": n} for n in range(500))
        assert [event["n"] for event in await events_of(fast, 500)] == [*range(500)]
        assert [event["n"] for event in await events_of(slow, 10)] == [*range(10)]


@on_every_bus
async def test_a_consumer_of_the_newest_events_learns_how_many_were_dropped(
    connect: Connect,
) -> None:
    name = topic()
    missed: list[Missed] = []
    async with connect() as bus:
        subscription = await bus.subscribe(
            f"topic = '{name}'", overflow="drop", window=10, on_missed=missed.append
        )
        for start in range(0, 5000, 500):
            await bus.publish_many({"topic": name, "n": n} for n in range(start, start + 500))
        numbers = [(await subscription.next(20))["n"]]
        while numbers[-1] < 4999:
            numbers.append((await subscription.next(20))["n"])
    assert all(a < b for a, b in pairwise(numbers))
    assert {one.reason for one in missed} == {"slow"}
    assert subscription.missed == sum(one.count or 0 for one in missed) == 5000 - len(numbers)


@on_every_bus
async def test_no_more_is_on_its_way_than_the_publish_window_holds(connect: Connect) -> None:
    async with connect(publish_window=7) as bus:
        tasks = [asyncio.create_task(bus.publish({"n": n})) for n in range(100)]
        most = 0
        while not all(task.done() for task in tasks):
            most = max(most, bus._outbox.events)
            await let_others_run()
        assert 0 < most <= 7
        await asyncio.gather(*tasks)


# --- managing ------------------------------------------------------------------------------------


@on_every_bus
async def test_filters_can_be_tried_and_explained(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        trials = await bus.try_filter("price < 5", [{"price": 4}, {"price": 6}, b"[1]"])
        assert [trial.matches for trial in trials] == [True, False, None]
        assert "an event is a JSON object" in trials[2].error
        assert "price is 4" in await bus.explain({"price": 4}, filter="price < 5")
        async with bus.subscribe("price < 7", durable=name):
            assert "price is 9" in await bus.explain({"price": 9}, id=name)
        await bus.delete(name)
        with pytest.raises(tamis.RefusedError, match="column 8"):
            await bus.try_filter("price <", [])
        with pytest.raises(TypeError, match="give either `filter` or `id`"):
            await bus.explain({"price": 4})


@on_every_bus
async def test_the_broker_reports_its_status_and_the_caller(connect: Connect) -> None:
    async with connect() as bus:
        await bus.publish({"a": 1})
        status = await bus.status()
        assert status["ready"] is True
        assert status["published"] >= 1
        assert bus.principal == "anonymous"
        assert bus.is_connected


@on_every_bus
async def test_tokens_can_be_made_and_taken_back(connect: Connect) -> None:
    async with connect() as bus:
        issued = await bus.call(IssueToken("alice", ["reader"], 3600.0, "laptop"))
        assert issued.token.principal == "alice"
        tokens = {token.id: token for token in await bus.call(ListTokens())}
        assert tokens[issued.token.id].roles == ["reader"]
        assert tokens[issued.token.id].note == "laptop"
        async with connect(token=issued.text) as hers:
            assert hers.principal == "alice"
            await bus.call(RevokeToken(issued.token.id))
            with pytest.raises(tamis.RefusedError) as caught:
                await hers.run()
            assert caught.value.code == Code.UNAUTHENTICATED
        with pytest.raises(tamis.RefusedError) as caught:
            await connect(token=issued.text).open()
        assert caught.value.code == Code.UNAUTHENTICATED
