"""How a bus, its subscriptions and its waits end, and what it refuses, over both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest

import tamis
from tamis.broker import BrokerSettings
from tamis.client import Receipt
from tamis.client.connection import ClientConnection
from tamis.protocol import Code
from waiting import cancelled_in, eventually_async, let_others_run

from .buses import Connect, events_of, on_every_bus, run, topic

# --- the end -------------------------------------------------------------------------------------


@on_every_bus
async def test_closing_waits_for_what_is_on_its_way(connect: Connect) -> None:
    async with connect() as bus:
        tasks = [asyncio.create_task(bus.publish({"n": n})) for n in range(200)]
        await let_others_run()
    receipts = await asyncio.gather(*tasks)
    assert len({receipt.first for receipt in receipts}) == 200


@on_every_bus
async def test_closing_ends_the_loops(connect: Connect) -> None:
    async with connect() as bus:

        async def listen() -> int:
            return len([event async for event in bus.subscribe("never = 1")])

        tasks = [asyncio.create_task(listen()) for _ in range(3)]
        await eventually_async(lambda: len(bus._reconnector.consumers) == 3)
    assert await asyncio.gather(*tasks) == [0, 0, 0]


@on_every_bus
async def test_a_subscription_that_was_cancelled_before_it_began_leaves_nothing(
    connect: Connect,
) -> None:
    name = topic()
    async with connect() as bus, connect() as other:
        for wait, ready in product(range(3), (False, True)):
            durable = bus.subscribe(f"topic = '{name}'", durable=name)
            brief = bus.subscribe(f"topic = '{name}'")
            begun = [await cancelled_in(one.start(), wait, ready=ready) for one in (durable, brief)]
            assert begun[0] is None or wait > 0
            for one in filter(None, begun):
                await one.close()
            assert bus._reconnector.consumers == []
        # The name is free at once, here and elsewhere, and the broker sends nothing to nobody.
        for each in (bus, other):
            async with each.subscribe(f"topic = '{name}'", durable=name) as consumer:
                await each.publish({"topic": name})
                assert (await consumer.next())["topic"] == name

        async def ids() -> list[str]:
            return [view.id for view in await bus.subscriptions() if name in view.filter]

        await eventually_async(lambda: _is(ids(), [name]))
        await bus.delete(name)


async def _is(found: Awaitable[object], expected: object) -> bool:
    return await found == expected


@on_every_bus
async def test_a_subscription_that_was_cancelled_may_begin_again(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        consumer = bus.subscribe(f"topic = '{name}'", durable=name)
        assert await cancelled_in(consumer.start(), 0) is None
        async with consumer:
            await bus.publish({"topic": name})
            assert (await consumer.next())["topic"] == name
        await bus.delete(name)


@on_every_bus
async def test_of_several_who_wait_for_a_subscription_one_may_be_cancelled(
    connect: Connect,
) -> None:
    name = topic()
    async with connect() as bus:
        consumer = bus.subscribe(f"topic = '{name}'", durable=name)
        one, other = asyncio.create_task(consumer.start()), asyncio.create_task(consumer.start())
        await let_others_run()
        one.cancel()
        assert await other is consumer
        await bus.publish({"topic": name})
        assert (await consumer.next())["topic"] == name
        await consumer.close(delete=True)


@on_every_bus
async def test_a_name_that_was_given_up_before_it_was_confirmed_is_free(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        given_up = bus.subscribe(f"topic = '{name}'", durable=name)
        starting = asyncio.create_task(given_up.start())
        await let_others_run()
        await given_up.close()
        async with bus.subscribe(f"topic = '{name}'", durable=name) as consumer:
            await bus.publish({"topic": name})
            assert (await consumer.next())["topic"] == name
        with pytest.raises(tamis.DisconnectedError):
            await starting
        await bus.delete(name)


@on_every_bus
async def test_a_subscription_that_is_not_confirmed_in_time_leaves_nothing(
    connect: Connect,
) -> None:
    name = topic()
    async with connect(timeout=0.5) as bus:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ClientConnection, "subscribe", lambda *_: None)
            with pytest.raises(tamis.DisconnectedError, match="did not confirm the subscription"):
                await bus.subscribe(f"topic = '{name}'", durable=name)
        assert bus._reconnector.consumers == []


@on_every_bus
async def test_a_closed_bus_says_so(connect: Connect) -> None:
    bus = connect()
    assert "not open" in repr(bus)
    with pytest.raises(tamis.DisconnectedError, match="the bus is not open; use `async with`"):
        await bus.publish({"a": 1})
    with pytest.raises(tamis.DisconnectedError, match="the bus is not open; use `async with`"):
        await bus.subscribe("a = 1")
    async with bus:
        assert "connected, 0 subscriptions, 0 unacknowledged" in repr(bus)
    assert "closed" in repr(bus)
    for _ in range(2):
        with pytest.raises(tamis.DisconnectedError, match="the bus is closed"):
            await bus.publish({"a": 1})
    with pytest.raises(tamis.DisconnectedError, match="the bus is closed"):
        await bus.subscribe("a = 1")
    await bus.close()


@on_every_bus
async def test_an_ended_subscription_gives_no_events_and_can_be_deleted(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name)
        assert subscription.id == name
        assert repr(subscription) == f"<Consumer {name} \"topic = '{name}'\", active, 0 waiting>"
        await subscription.close()
        assert "closed" in repr(subscription)
        assert [event async for event in subscription] == []
        with pytest.raises(tamis.DisconnectedError, match="the subscription is closed"):
            await subscription.next()
        assert [view.id for view in await bus.subscriptions() if view.id == name] == [name]
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name)
        await subscription.close(delete=True)
        with pytest.raises(tamis.RefusedError) as caught:
            await bus.subscription(name)
        assert caught.value.code == Code.NOT_FOUND


@on_every_bus
async def test_a_passing_subscription_is_gone_after_its_end(connect: Connect) -> None:
    async with connect() as bus:
        subscription = await bus.subscribe("a = 1")
        before = {view.id for view in await bus.subscriptions()}
        await subscription.close()
        after = {view.id for view in await bus.subscriptions()}
    assert before - after == {subscription.id}


# --- cancellation --------------------------------------------------------------------------------


@on_every_bus
async def test_cancelling_a_wait_for_an_event_loses_none(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name)
        for n in range(20):
            with pytest.raises(TimeoutError):
                await subscription.next(0.001)
            waiting = asyncio.create_task(anext(subscription))
            await let_others_run()
            waiting.cancel()
            await bus.publish({"topic": name, "n": n})
            assert (await subscription.next(20))["n"] == n
        await subscription.close(delete=True)


@on_every_bus
async def test_cancelling_a_wait_for_a_receipt_disturbs_no_other(connect: Connect) -> None:
    name = topic()
    async with connect(publish_window=3) as bus:
        subscription = await bus.subscribe(f"topic = '{name}' and keep = true")
        kept: list[asyncio.Task[Receipt]] = []
        given_up: list[asyncio.Task[Receipt]] = []
        for n in range(60):
            event = {"topic": name, "n": n, "keep": n % 3 != 0}
            task = asyncio.create_task(bus.publish(event))
            (given_up if n % 3 == 0 else kept).append(task)
        await let_others_run()
        for task in given_up:
            task.cancel()
        await asyncio.gather(*kept)
        events = await events_of(subscription, 40)
        assert [event["n"] for event in events] == [n for n in range(60) if n % 3]
        assert await asyncio.gather(*given_up, return_exceptions=True)


@on_every_bus
async def test_a_subscription_given_up_before_it_was_granted_is_gone(connect: Connect) -> None:
    async with connect() as bus:
        subscription = bus.subscribe("a = 1")
        starting = asyncio.create_task(subscription.start())
        await let_others_run()
        starting.cancel()
        await subscription.close()

        async def is_gone() -> bool:
            return not await bus.subscriptions()

        await eventually_async(is_gone)


# --- refusals ------------------------------------------------------------------------------------


@on_every_bus
async def test_a_bad_filter_is_shown_with_the_place(connect: Connect) -> None:
    async with connect() as bus:
        for start in (bus.subscribe("price <").start, bus.subscribe("price <").__anext__):
            with pytest.raises(tamis.RefusedError) as caught:
                await start()
            assert caught.value.code == Code.BAD_FILTER
            assert str(caught.value).endswith("(line 1, column 8)\n  price <\n         ^")
        assert (await bus.publish({"still": "there"})).count == 1


@on_every_bus
async def test_a_bad_event_is_refused_and_others_are_not(connect: Connect) -> None:
    async with connect() as bus:
        tasks = [bus.publish(event) for event in ({"a": 1}, b"[1]", {"a": 2})]
        first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(first, Receipt)
        assert isinstance(second, tamis.RefusedError)
        assert second.code == Code.BAD_EVENT
        assert isinstance(third, Receipt)
        for event in ({"a": float("nan")}, {"a": object()}, b"\xff", "{", '{"a": NaN}', 5):
            with pytest.raises(tamis.EventError):
                await bus.publish(event)


@on_every_bus
async def test_an_event_that_is_too_large_is_refused(connect: Connect) -> None:
    async with connect() as bus:
        with pytest.raises(tamis.RefusedError, match="an event of 300,011 bytes exceeds") as caught:
            await bus.publish({"text": "x" * 300_000})
        assert caught.value.code == Code.TOO_LARGE
        # Many large ones do not fit into one frame.
        assert (await bus.publish_many({"text": "x" * 200_000} for _ in range(50))).count == 50


@on_every_bus
async def test_a_durable_name_belongs_to_one_filter(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe("a = 1", durable=name)
        with pytest.raises(tamis.RefusedError, match="this bus has a subscription") as caught:
            await bus.subscribe("a = 1", durable=name)
        assert caught.value.code == Code.CONFLICT
        async with connect() as other:
            with pytest.raises(tamis.RefusedError) as caught:
                await other.subscribe("a = 2", durable=name)
            assert caught.value.code == Code.CONFLICT
        await subscription.close(delete=True)


@on_every_bus
async def test_taking_a_subscription_over_ends_it_for_the_former_consumer(connect: Connect) -> None:
    name = topic()
    async with connect() as bus, connect() as other:
        subscription = await bus.subscribe(f"topic = '{name}'", durable=name)
        taken = await other.subscribe(f"topic = '{name}'", durable=name)
        with pytest.raises(tamis.SubscriptionEndedError, match="taken over") as caught:
            await subscription.next(20)
        assert caught.value.subscription == name
        await bus.publish({"topic": name})
        assert (await taken.next(20))["topic"] == name
        await taken.close(delete=True)


@on_every_bus
async def test_a_subscription_ends_after_its_lifetime(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        subscription = await bus.subscribe("a = 1", durable=name, lifetime=0.2)
        with pytest.raises(tamis.SubscriptionEndedError, match="expired"):
            await subscription.next(20)
        subscription = await bus.subscribe("a = 1", durable=name, lifetime=0.5)
        view = await bus.renew(name, 3600)
        assert view.expires_at is not None
        assert view.expires_at > datetime.now(UTC).timestamp() + 3000
        with pytest.raises(TimeoutError):
            await subscription.next(1)
        await subscription.close(delete=True)


def test_a_name_without_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="publisher and sequence go together"):
        tamis.connect(publisher="feed")
    with pytest.raises(ValueError, match="publisher and sequence go together"):
        tamis.connect(sequence=1)


def test_a_window_for_nothing_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="window is 0; it must be a whole number from 1"):
            tamis.connect().subscribe("a = 1", window=0)

    asyncio.run(main())


def test_a_bus_in_this_process_keeps_its_folder(tmp_path: Path) -> None:
    """All is there again when it is opened again, by its name or by settings."""
    settings = BrokerSettings(data=tmp_path / "kept")

    async def main() -> None:
        async with tamis.open_bus(tmp_path / "kept") as bus:
            await (await bus.subscribe("n > 0", durable="mine")).close()
            await bus.publish({"n": 1})
        async with tamis.open_bus(settings=settings) as bus:
            assert (await bus.subscribe("n > 0", durable="mine").next(20))["n"] == 1
            with pytest.raises(tamis.TamisError, match="kept"):
                await tamis.open_bus(tmp_path / "kept").open()

    run(main())
