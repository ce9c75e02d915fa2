"""Documents on every bus: checked by the broker, or here, where queries have Python in them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import tamis
from broker.document_cases import ITEMS, RIGHT_ITEMS, WRONG_ITEMS, order
from broker.server import ServerProcess
from tamis import EventError, OptionError
from tamis.client import QueryConsumer, XMLText
from tamis.xml import Document, query

from .buses import Connect, on_every_bus, topic


def orders(name: str) -> tuple[str, str]:
    """Return an order with many chairs, and one with many tables, of one test."""
    return (
        order(("chair", 9), ("table", 1), topic=name),
        order(("chair", 1), ("table", 9), topic=name),
    )


def many_chairs(name: str) -> str:
    return f"order[@topic = '{name}']/line[sku = 'chair' $and$ $not$ quantity < 5]"


@on_every_bus
async def test_the_broker_checks_queries_given_as_text(connect: Connect) -> None:
    name = topic()
    chairs, tables = orders(name)
    async with connect() as bus:
        found = await bus.subscribe(many_chairs(name), language="xql")
        await bus.publish_many([XMLText(tables), Document.parse(chairs), {"a": 1}])
        message = await found.next(20)
        assert (message.xml, message.format, message.attempt) == (chairs, "xml", 1)
        assert message.document is not None
        assert [node.value for node in query("//sku").select(message.document)] == [
            "chair",
            "table",
        ]
        # Each node once, though events have the text as well.
        assert message["/order/line/quantity"] == [9, 1]
        assert message["/order/@number"] == 17
        # What was received can be published again.
        await bus.publish(message)
        assert (await found.next(20)).xml == chairs


@on_every_bus
async def test_the_client_checks_queries_with_operators_of_its_own(connect: Connect) -> None:
    name = topic()
    chairs, tables = orders(name)
    text = f"order[@topic = '{name}']/line[sku $like$ 'CHAIR' $and$ $not$ quantity < 5]"
    like = query(text, operators={"like": lambda left, right: str(left).upper() == right})
    async with connect() as bus:
        found = await bus.subscribe(like)
        assert isinstance(found, QueryConsumer)
        await bus.publish_many([XMLText(tables), XMLText(chairs), XMLText(tables)])
        await bus.publish(XMLText(chairs))
        assert [(await found.next(20)).xml for _ in range(2)] == [chairs, chairs]
        assert (found.residue, found.refused) == (2, 0)


@on_every_bus
async def test_what_the_client_drops_does_not_wait_for_it_again(connect: Connect) -> None:
    name = topic()
    chairs, tables = orders(name)
    options: dict[str, Any] = {"durable": name, "acknowledge": "manual"}
    async with connect() as bus:
        async with bus.subscribe(query(many_chairs(name)), **options) as found:
            await bus.publish_many([XMLText(tables), XMLText(chairs), XMLText(tables)])
            message = await found.next(20)
            await message.ack()
            with pytest.raises(TimeoutError):
                await found.next(0.2)
            await found.flush()
        view = next(one for one in await bus.subscriptions() if one.id == name)
        assert (view.pending, view.dead) == (0, 0)


@on_every_bus
async def test_whether_a_document_is_wanted_can_be_asked(connect: Connect) -> None:
    name = topic()
    chairs, _ = orders(name)
    async with connect() as bus:
        assert not await bus.wanted(XMLText(chairs))
        async with bus.subscribe(many_chairs(name), language="xql"):
            assert await bus.wanted(XMLText(chairs))
            assert await bus.wanted(Document.parse(chairs))
            assert not await bus.wanted(XMLText(order(("sofa", 9), topic=name)))
            assert not await bus.wanted({"topic": name})
        assert not await bus.wanted(XMLText(chairs))
        with pytest.raises(tamis.RefusedError, match="not well-formed"):
            await bus.wanted(XMLText("<a>"))


def is_nine(left: object, right: object) -> bool:
    """Compare as somebody would who expects numbers only, and complains in strange characters."""
    if not str(left).isdigit():
        raise ValueError("\ud800" + str(left) * 1_000)
    return left == right


@on_every_bus
async def test_a_document_on_which_an_operator_raises_is_refused_alone(connect: Connect) -> None:
    name = topic()
    nine = query(f"a[@topic = '{name}']/n[. $nine$ '9']", operators={"nine": is_nine})
    texts = [f"<a topic='{name}'><n>{n}</n></a>" for n in ("1", "none", "9", "two", "09", "9")]
    async with connect() as bus:
        found = await bus.subscribe(nine, durable=name, acknowledge="manual", max_attempts=1)
        passing = await bus.subscribe(nine)
        await bus.publish_many(map(XMLText, texts))
        for consumer in (found, passing):
            for wanted in (texts[2], texts[5]):
                message = await consumer.next(20)
                await message.ack()
                assert message.xml == wanted
            assert (consumer.residue, consumer.refused) == (2, 2)
        await found.flush()
        view = await bus.subscription(name)
        assert (view.pending, view.in_flight, view.dead) == (0, 0, 2)
        [first, _] = await bus.dead_letters(name)
        assert first.reason.startswith("a function of the query raised ValueError: ?nonenone")


@on_every_bus
async def test_elements_are_checked_by_the_broker(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        found = await bus.subscribe(f'topic = "{name}" and {ITEMS}')
        await bus.publish_many([{"topic": name, **one} for one in (WRONG_ITEMS, RIGHT_ITEMS)])
        assert (await found.next(20)).data == {"topic": name, **RIGHT_ITEMS}


def test_documents_come_without_asyncio(server: ServerProcess) -> None:
    name = topic()
    chairs, tables = orders(name)
    with tamis.connect_sync(server.url) as bus:
        by_broker = bus.subscribe(many_chairs(name), language="xql")
        by_client = bus.subscribe(query(many_chairs(name)))
        bus.publish_many([XMLText(tables), XMLText(chairs)])
        assert by_broker.next(20).xml == by_client.next(20).xml == chairs
        assert (by_client.residue, by_client.refused) == (1, 0)
        assert by_client.query.text == many_chairs(name)


@on_every_bus
async def test_mistakes_are_told(connect: Connect) -> None:
    async with connect() as bus:
        with pytest.raises(OptionError, match="leave it out"):
            bus.subscribe(query("a"), language="xql")
        with pytest.raises(EventError, match="several events, not one XMLText"):
            await bus.publish_many(XMLText("<a/>"))
        with pytest.raises(EventError, match="lone surrogate"):
            await bus.publish(XMLText("<a>\ud800</a>"))
        with pytest.raises(EventError, match="XMLText has a text, not 'bytes'; for bytes, write"):
            await bus.publish(XMLText(b"<a/>"))  # type: ignore[arg-type]
        with pytest.raises(tamis.RefusedError, match="not well-formed"):
            await bus.publish(XMLText("<a>"))
        plain = await bus.subscribe("true")
        await bus.publish({"a": 1})
        message = await plain.next(20)
        assert (message.xml, message.document) == (None, None)


def test_large_documents_are_checked_beside_the_event_loop(tmp_path: Path) -> None:
    filler = "<x>" + "y" * 50_000 + "</x>"

    async def main() -> None:
        async with tamis.open_bus(tmp_path) as bus:
            found = await bus.subscribe(query("a/b[0] = 'y'"))
            await bus.publish_many(
                [XMLText(f"<a><b>{first}</b><b>y</b>{filler}</a>") for first in "xy"]
            )
            message = await found.next(20)
            assert message.xml is not None
            assert message.xml.startswith("<a><b>y")
            assert found.residue == 1

    asyncio.run(main())


def test_documents_whose_check_was_interrupted_are_checked_again(tmp_path: Path) -> None:
    checks = threading.Semaphore(0)
    first = threading.Event()

    def slowly(left: object, right: object) -> bool:
        first.set()
        return checks.acquire(timeout=20) and left == right

    filler = "<x>" + "y" * 50_000 + "</x>"

    async def main() -> None:
        async with tamis.open_bus(tmp_path) as bus:
            found = await bus.subscribe(query("a/b $is$ 'y'", operators={"is": slowly}))
            await bus.publish(XMLText(f"<a><b>y</b>{filler}</a>"))
            waiting = asyncio.create_task(found.next())
            await asyncio.to_thread(first.wait, 20)
            waiting.cancel()
            checks.release(2)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await found.next(20)).sequence == 1

    asyncio.run(main())
