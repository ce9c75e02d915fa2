"""Objects are published and subscribed to, mixed with plain events, on every bus."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tamis
from broker.server import ServerProcess
from tamis import EventError, LimitError, OptionError, RefusedError, message, where
from tamis.broker import BrokerSettings
from tamis.client import ObjectConsumer, SyncObjectConsumer
from tamis.collections import SyncDABag
from waiting import eventually, eventually_async, let_others_run

from .buses import Connect, on_every_bus, topic


@dataclass
class Offer:
    topic: str
    price: Decimal
    quantity: int = 1
    tags: list[str] = field(default_factory=list)

    def total(self) -> Decimal:
        return self.price * self.quantity


@dataclass
class LimitedOffer(Offer):
    until: str = ""


offer = message(Offer)


@on_every_bus
async def test_objects_come_that_satisfy_a_filter(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        big = await bus.subscribe((offer.topic == name) & (offer.total() > 10))
        assert 'topic = "' in big.pushed_down
        assert "total" not in big.pushed_down
        small, large = Offer(name, Decimal("9.90")), Offer(name, Decimal("9.90"), 2, ["new"])
        derived = LimitedOffer(name, Decimal(11), until="noon")
        for each in (small, large, {"topic": name, "price": 50}, derived):
            await bus.publish(each)
        assert [await big.next(20), await big.next(20)] == [large, derived]
        assert big.refused == 0


@on_every_bus
async def test_filters_in_text_see_the_fields_of_objects(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        cheap = await bus.subscribe(f'topic = "{name}" and price < 5 and tags = "new"')
        await bus.publish_many(
            [Offer(name, Decimal("4.99"), tags=["new", "red"]), Offer(name, Decimal(4))]
        )
        found = await cheap.next(20)
        assert (found["price"], found["tags"]) == (4.99, ["new", "red"])


@on_every_bus
async def test_without_a_class_objects_and_plain_events_come(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        m = message()
        both = await bus.subscribe((m.topic == name) & (m.price >= 2))
        called = await bus.subscribe(message().total() == Decimal(6))
        await bus.publish_many([{"topic": name, "price": 1}, {"topic": name, "price": 2}])
        await bus.publish(Offer(name, Decimal(3), 2))
        plain = await both.next(20)
        assert plain["price"] == 2
        assert await both.next(20) == await called.next(20) == Offer(name, Decimal(3), 2)


@on_every_bus
async def test_a_durable_subscription_to_objects_acknowledges_what_does_not_match(
    connect: Connect,
) -> None:
    name = topic()
    condition = (offer.topic == name) & (offer.total() > 10)
    async with connect() as bus:
        await (await bus.subscribe(condition, durable=name)).close()
        await bus.publish_many([Offer(name, Decimal(n)) for n in (1, 20, 2, 30, 3)])
        async with bus.subscribe(condition, durable=name) as consumer:
            assert [(await consumer.next(20)).price for _ in range(2)] == [20, 30]
        async with bus.subscribe(condition, durable=name) as consumer:
            with pytest.raises(TimeoutError):
                await consumer.next(0.2)
        await eventually_empty(bus, name)


async def eventually_empty(bus: tamis.Bus, name: str) -> None:
    async def is_empty() -> bool:
        found = await bus.subscription(name)
        return not (found.pending or found.in_flight)

    await eventually_async(is_empty)


@on_every_bus
async def test_objects_are_acknowledged_one_by_one(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        consumer = await bus.subscribe(offer.topic == name, durable=name, acknowledge="manual")
        with pytest.raises(OptionError, match="iterate over messages"):
            await consumer.next(1)
        await bus.publish(Offer(name, Decimal(1)))
        attempts = []
        async for found, received in consumer.messages():
            attempts.append((found.price, received.attempt))
            if received.attempt == 2:
                await received.ack()
                break
            await received.nack(delay=0)
        assert attempts == [(1, 1), (1, 2)]
        await consumer.close(delete=True)


@on_every_bus
async def test_an_object_that_cannot_be_read_is_reported_and_kept_as_a_dead_letter(
    connect: Connect,
) -> None:
    name = topic()
    refusals: list[EventError | LimitError] = []
    async with connect() as bus:
        consumer = await bus.subscribe(
            offer.topic == name, durable=name, max_attempts=1, on_refused=refusals.append
        )
        header = {"type": [f"{Offer.__module__}.Offer"], "version": 1}
        await bus.publish({"topic": name, "quantity": 5, "_object": header})
        await bus.publish(Offer(name, Decimal(1)))
        assert await consumer.next(20) == Offer(name, Decimal(1))
        assert consumer.refused == 1
        [refusal] = refusals
        assert isinstance(refusal, EventError | LimitError)
        assert "price: it is missing" in str(refusal)
        letters = await eventually_async(lambda: bus.dead_letters(name))
        assert "price: it is missing" in letters[0].reason
        await consumer.close(delete=True)


@on_every_bus
async def test_functions_are_called_with_objects(connect: Connect) -> None:
    name, seen = topic(), []
    async with connect() as bus:
        done = asyncio.Event()

        @bus.on(where(Offer, lambda o: o.topic == name and o.price > 1))
        async def take(found: Offer) -> None:
            seen.append(found)
            done.set()

        await let_others_run()
        async with asyncio.timeout(20):
            while not done.is_set():
                await bus.publish(Offer(name, Decimal(2)))
                await asyncio.sleep(0.01)  # the pace of a publisher
        assert seen[0] == Offer(name, Decimal(2))


@on_every_bus
async def test_random_objects_come_exactly_where_the_filter_matches(connect: Connect) -> None:
    rng, name = Random(3), topic()
    conditions: list[Any] = [
        offer.price > Decimal("0.1"),
        ~(offer.price == Decimal("0.3")),
        offer.total() >= 1,
        offer.tags.contains("a") ^ (offer.quantity > 2),
        offer.tags.all(lambda tag: tag == "a"),
        offer.is_a(LimitedOffer) | (offer.quantity == 0),
        where(Offer, lambda o: o.quantity in (1, 2) and not (o.price > 1)),
    ]
    async with connect() as bus:
        consumers = [await bus.subscribe((offer.topic == name) & each) for each in conditions]
        given = [
            rng.choice((Offer, LimitedOffer))(
                name,
                rng.choice(
                    [*map(Decimal, ("0.1", "0.1000000000000000000001", "0.3", "0.30", "2"))]
                ),
                rng.randrange(4),
                [rng.choice("ab") for _ in range(rng.randrange(3))],
            )
            for _ in range(200)
        ]
        last = LimitedOffer(name, Decimal(99), 0, ["a"], until="the end")
        await bus.publish_many([*given, last])
        for condition, consumer in zip(conditions, consumers, strict=True):
            expected = [each for each in given if condition.matches(each)]
            assert 0 < len(expected) < len(given)
            found = [await consumer.next(20) for _ in expected]
            assert found == expected
            if condition.matches(last):
                assert await consumer.next(20) == last


def test_synchronous_buses_have_objects_too() -> None:
    with tamis.open_bus_sync() as bus:
        with bus.subscribe(offer.total() > 10) as consumer:
            assert isinstance(consumer, SyncObjectConsumer)
            bus.publish_many([Offer("a", Decimal(n)) for n in (1, 20, 30)])
            assert consumer.next(20) == Offer("a", Decimal(20))
            assert consumer.take(5, 20) == [Offer("a", Decimal(30))]
            assert (consumer.refused, consumer.missed, consumer.is_closed) == (0, 0, False)
            assert "Offer" in consumer.pushed_down
            assert "total" in repr(consumer)
        seen = []

        @bus.on(offer.price == 7)
        def take(found: Offer) -> None:
            seen.append(found)
            bus.close()

        eventually(lambda: bool(bus.subscriptions()))
        bus.publish(Offer("b", Decimal(7)))
        bus.run()
    assert seen == [Offer("b", Decimal(7))]


def test_synchronous_messages_are_acknowledged_one_by_one() -> None:
    with tamis.open_bus_sync() as bus:
        consumer = bus.subscribe(offer, durable="mine", acknowledge="manual")
        bus.publish(Offer("a", Decimal(1)))
        for found, received in consumer.messages():
            assert found == Offer("a", Decimal(1))
            received.ack()
            break
        consumer.flush()
        with pytest.raises(OptionError, match="iterate over messages"):
            next(consumer)


def test_a_warning_is_logged_if_nobody_asks_for_refusals(caplog: pytest.LogCaptureFixture) -> None:
    with tamis.open_bus_sync() as bus, bus.subscribe(message().topic.is_present()) as consumer:
        bus.publish({"_object": {"type": ["a.Stranger"], "version": 1}})
        bus.publish(Offer("a", Decimal(1)))
        assert consumer.next(20) == Offer("a", Decimal(1))
    [record] = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "'a.Stranger' has come, which is not known here" in record.getMessage()


async def _subscribed(bus: tamis.Bus, **options: Any) -> object:
    return bus.subscribe(offer, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "strict"}, "mode is for filters over attributes: leave it out"),
        ({"language": "jms"}, "language is for filters over attributes: leave it out"),
        ({"on_refused": 5}, "on_refused is 5; it must be a function, or None"),
    ],
)
def test_options_that_objects_do_not_have_are_refused(options: Any, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        asyncio.run(_subscribed(tamis.connect("http://localhost:1"), **options))


async def _on_text() -> object:
    bus = tamis.connect("http://localhost:1")
    return bus.subscribe("true", on_refused=print)


def test_refusals_are_for_objects() -> None:
    with pytest.raises(OptionError, match="on_refused is for filters over objects"):
        asyncio.run(_on_text())


def test_what_is_no_event_is_refused() -> None:
    async def publish(what: Callable[[tamis.Bus], Any]) -> None:
        async with tamis.open_bus() as bus:
            await what(bus)

    with pytest.raises(EventError, match="'int' is not an event; give a mapping, JSON text, an"):
        asyncio.run(publish(lambda bus: bus.publish(5)))
    with pytest.raises(EventError, match="publish_many takes several events, not one Offer"):
        asyncio.run(publish(lambda bus: bus.publish_many(Offer("a", Decimal(1)))))  # type: ignore[arg-type]


def test_objects_arrive_over_kills_of_the_broker(tmp_path: Any) -> None:
    async def main() -> None:
        server = ServerProcess(tmp_path / "broker").start()
        server.settings["port"] = server.port
        try:
            async with tamis.connect(server.url, patient=True) as bus:
                consumer = await bus.subscribe(offer.total() > 5, durable="all")
                assert isinstance(consumer, ObjectConsumer)
                found: list[int] = []
                for number in range(30):
                    if number % 15 == 7:
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.start)
                    await bus.publish(Offer("a", Decimal(number), 2))
                while len(found) < 27:
                    found.append(int((await consumer.next(30)).price))
                assert found == [*range(3, 30)]
        finally:
            server.kill()

    asyncio.run(main())


def test_a_schema_declares_what_filters_over_objects_ask_for(tmp_path: Path) -> None:
    fields = {"topic": "str", "price": "float", "quantity": "int"}
    header = {
        "_object.type": {"type": "str", "many": True},
        "_object.schema": "str",
        "_object.collection": "str",
    }
    schema = tmp_path / "schema.json"
    cheap = (offer.topic == "a") & (offer.quantity > 1)
    schema.write_text(json.dumps(fields))
    with tamis.open_bus_sync(settings=BrokerSettings(schema_file=schema)) as bus:
        bus.publish(Offer("a", Decimal(1), 2))  # It may have more than the schema declares.
        with pytest.raises(RefusedError, match=r"no attribute '_object\.type'"):
            bus.subscribe(cheap)
    schema.write_text(json.dumps(fields | header))
    with tamis.open_bus_sync(settings=BrokerSettings(schema_file=schema)) as bus:
        offers, members = bus.subscribe(cheap), SyncDABag[Offer]("/offers", bus)
        seen: list[Offer] = []
        members.contains(cheap, seen.append)
        bus.publish(Offer("a", Decimal(1), 2))
        members.add(Offer("a", Decimal(2), 3))
        assert [offers.next(20).quantity, offers.next(20).quantity] == [2, 3]
        assert eventually(lambda: [one.quantity for one in seen] == [3])
        assert [one.quantity for one in members] == [3]
