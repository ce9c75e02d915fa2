"""Advertising and quenching: publishers hear whether anybody wants their events."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tamis
from broker.authorization_fixture import broker_fixture
from broker.server import running
from tamis.broker.advertising import service
from tamis.broker.operations.settings import BrokerSettings
from tamis.errors import RefusedError
from tamis.protocol import Subscribe
from tamis.protocol.advertising import Advertise, WantedChange
from waiting import eventually_async

from .buses import Connect, events_of, on_every_bus, run, topic


class WantedChanges:
    """Hears what publishers are told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bool | None]] = []

    def offer(self, frame: WantedChange) -> None:
        self.heard.append((frame.advertisement, frame.wanted))


@on_every_bus
async def test_a_publisher_hears_whether_anybody_wants_what_it_advertised(connect: Connect) -> None:
    name = topic()
    heard: list[bool | None] = []
    async with connect() as publisher, connect() as subscriber:
        made = await publisher.advertise(f"topic = '{name}'", on_wanted=heard.append)
        assert made.wanted is False
        async with subscriber.subscribe(f"topic = '{name}' and price < 5"):
            await made.wait_until(wanted=True)
        await made.wait_until(wanted=False)
        await made.close()
        assert heard == [False, True, False, None]


@on_every_bus
async def test_unwanted_events_are_not_sent_and_no_wanted_one_is_dropped(connect: Connect) -> None:
    name = topic()
    async with connect() as publisher, connect() as subscriber:
        made = await publisher.advertise(f"topic = '{name}'", quench=True)
        receipt = await publisher.publish({"topic": name, "n": 0})
        assert (receipt.count, receipt.quenched, made.quenched) == (0, 1, 1)
        # What was not advertised is sent.
        assert (await publisher.publish({"topic": f"{name}?"})).count == 1
        async with subscriber.subscribe(f"topic = '{name}'") as consumer:
            # It is in force, so the publisher knows.
            await eventually_async(lambda: made.wanted is True)
            assert (await publisher.publish({"topic": name, "n": 1})).quenched == 0
            many = [{"topic": name, "n": n} for n in range(2, 700)]
            assert (await publisher.publish_many(many)).count == len(many)
            found = [event["n"] for event in await events_of(consumer, 699)]
        assert found == [*range(1, 700)]
        await made.wait_until(wanted=False)
        mixed = [{"topic": name}, {"topic": f"{name}?"}, {"topic": name}]
        receipt = await publisher.publish_many(mixed)
        assert (receipt.count, receipt.quenched) == (1, 2)


@on_every_bus
async def test_a_subscription_on_the_same_bus_counts_from_its_confirmation(
    connect: Connect,
) -> None:
    name = topic()
    async with connect() as bus:
        await bus.advertise(f"topic = '{name}'", quench=True)
        for n in range(5):
            async with bus.subscribe(f"topic = '{name}'") as consumer:
                assert (await bus.publish({"topic": name, "n": n})).count == 1
                assert (await consumer.next(20))["n"] == n


@on_every_bus
async def test_a_durable_subscription_that_is_away_wants_its_events(connect: Connect) -> None:
    name = topic()
    async with connect() as publisher, connect() as subscriber:
        await (await subscriber.subscribe(f"topic = '{name}'", durable=name)).close()
        made = await publisher.advertise(f"topic = '{name}'", quench=True)
        assert made.wanted is True
        assert await publisher.wanted({"topic": name})
        assert (await publisher.publish({"topic": name})).count == 1
        await subscriber.delete(name)
        await made.wait_until(wanted=False)
        assert not await publisher.wanted({"topic": name})


@on_every_bus
async def test_an_error_in_a_batch_has_its_index_although_events_were_left_out(
    connect: Connect,
) -> None:
    name = topic()
    async with connect() as publisher:
        await publisher.advertise(f"topic = '{name}'", quench=True)
        events: list[dict[str, object] | str] = [{"topic": name}, {"a": 1}, {"topic": name}]
        events.append('{"a":1,"a":2}')
        with pytest.raises(tamis.TamisError) as caught:
            await publisher.publish_many(events)
        assert caught.value.index == 3  # type: ignore[attr-defined]


@on_every_bus
async def test_bad_advertisements_are_refused_with_a_sentence(connect: Connect) -> None:
    async with connect() as bus:
        with pytest.raises(tamis.FilterError):
            bus.advertise("price <")
        with pytest.raises(tamis.OptionError, match="quench"):
            bus.advertise("price < 5", quench="yes")  # type: ignore[arg-type]
        made = await bus.advertise("price < 5")
        await made.close()
        assert made.is_closed
        assert made.wanted is None
        with pytest.raises(tamis.DisconnectedError, match="no longer advertised"):
            await made.wait_until(wanted=True)


@on_every_bus
async def test_advertisements_end_with_their_client(connect: Connect) -> None:
    async with connect() as watcher:
        before = (await watcher.status())["advertisements"]
        async with connect() as publisher:
            await publisher.advertise("price < 5")
            assert (await watcher.status())["advertisements"] == before + 1

        async def is_gone() -> bool:
            return bool((await watcher.status())["advertisements"] == before)

        while not await is_gone():
            await asyncio.sleep(0.01)  # a pace at which to look again


@pytest.mark.slow
def test_after_a_lost_connection_nothing_is_dropped_until_the_broker_has_answered(
    tmp_path: Path,
) -> None:
    async def main(port: int) -> None:
        async with tamis.connect(f"http://127.0.0.1:{port}") as publisher:
            made = await publisher.advertise("price < 5", quench=True)
            assert made.wanted is False
            server.kill()
            await eventually_async(lambda: made.wanted is None)
            publishing = asyncio.create_task(publisher.publish({"price": 4}))
            await asyncio.sleep(0)  # a turn for the others
            assert not publishing.done()
            await asyncio.to_thread(server.start)
            assert (await publishing).count == 1
            await made.wait_until(wanted=False)
            assert (await publisher.publish({"price": 4})).quenched == 1

    with running(tmp_path) as server:
        server.settings["port"] = server.port
        run(main(server.port))


POLICY = """
[roles.sensor]
publish = 'room = "lab"'
[roles.teller]
publish = 'room = "lab"'
quench = true
[roles.reader]
see = true
"""


def test_only_a_role_with_quench_tells_what_others_ask_for_and_only_of_what_it_publishes(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with broker_fixture(tmp_path, POLICY) as fixture:
            sensor = await fixture.broker.authenticate(await fixture.token("ann", "sensor"))
            teller = await fixture.broker.authenticate(await fixture.token("bob", "teller"))
            reader = await fixture.broker.authenticate(await fixture.token("eve", "reader"))
            everything, sink = Advertise(ref=1, filter="true"), WantedChanges()
            hidden = await sensor.advertise(everything, sink)
            told = await teller.advertise(everything, sink)
            assert (hidden.confirm(), told.confirm()) == (None, False)
            await reader.subscribe(Subscribe(ref=1, filter="not (room = 'lab')"))
            await fixture.broker.advertising.settle()
            # Nobody asks for what this role may publish.
            assert sink.heard == []
            await reader.subscribe(Subscribe(ref=2, filter="room = 'lab' and heat > 9"))
            await eventually_async(lambda: sink.heard == [(told.id, True)])
            with pytest.raises(RefusedError, match="quench = true"):
                await sensor.wanted(b'{"room":"lab"}')
            with pytest.raises(RefusedError, match="may publish"):
                await teller.wanted(b'{"room":"attic"}')
            assert await teller.wanted(b'{"room":"lab","heat":10}')
            assert not await teller.wanted(b'{"room":"lab","heat":9}')
            with pytest.raises(RefusedError, match="do not allow you to publish"):
                await reader.advertise(everything, sink)
            (tmp_path / "policy.toml").write_text(POLICY.replace("quench = true", ""))
            await eventually_async(lambda: sink.heard[1:] == [(told.id, None)])

    run(main())


def test_more_advertisements_than_the_limit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_PER_PRINCIPAL", 2)

    async def main() -> None:
        async with tamis.open_bus(tmp_path) as bus:
            await bus.advertise("a = 1")
            await bus.advertise("a = 2")
            with pytest.raises(RefusedError, match="2 advertisements, the limit"):
                await bus.advertise("a = 3")

    run(main())


SCHEMA = """{"price": "float", "at": "timestamp", "name": {"type": "str", "caseless": true}}"""


@pytest.mark.parametrize(
    ("filter_", "quenched"),
    [("price < 5", 1), ("at < timestamp '2030-01-01'", 0), ("name = 'ACME'", 0), ("true", 1)],
)
def test_a_client_drops_only_what_it_reads_as_the_broker_does(
    tmp_path: Path, filter_: str, quenched: int
) -> None:
    (tmp_path / "schema.json").write_text(SCHEMA)
    settings = BrokerSettings(schema_file=tmp_path / "schema.json")

    async def main() -> None:
        async with tamis.open_bus(tmp_path / "data", settings=settings) as bus:
            made = await bus.advertise(filter_, quench=True)
            assert made.wanted is False
            event = {"price": 4, "at": "2029-01-01T00:00:00Z", "name": "ACME"}
            assert (await bus.publish(event)).quenched == quenched

    run(main())


def test_a_synchronous_publisher_hears_whether_it_is_wanted() -> None:
    with tamis.open_bus_sync() as bus, bus.advertise("price < 5", quench=True) as made:
        assert bus.publish({"price": 4}).quenched == 1
        assert (made.wanted, made.quenched, made.filter) == (False, 1, "price < 5")
        with bus.subscribe("price < 9"):
            made.wait_until(wanted=True)
            assert bus.publish({"price": 4}).count == 1
            assert bus.wanted({"price": 4})
        assert "SyncAdvertisement" in repr(made)
    assert made.is_closed
