"""Brokers that require advertisements: filters travel only towards those that intersect them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tamis
from waiting import eventually

from .brokers import QUICK, LinkedBrokers, linked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBrokers]:
    """Three brokers in a line: north, hub and south."""
    links = [("north", "hub"), ("south", "hub")]
    folder = tmp_path_factory.mktemp("line")
    # Without one, an attribute might have several values, and more would intersect.
    (folder / "schema.json").write_text('{"price": "float", "kind": "str", "n": "int"}')
    settings = {
        "advertisements": "require",
        "advertisement_grace": 0.2,
        "schema_file": folder / "schema.json",
        **QUICK,
    }
    with linked(folder, links, **settings) as brokers:
        yield brokers


def test_a_filter_travels_only_towards_an_advertisement_that_it_intersects(
    line: LinkedBrokers,
) -> None:
    line.subscribe("north", "cheap", "price < 5")
    with tamis.connect_sync(line["south"].url) as south, south.advertise("price > 7"):
        eventually(lambda: line.peers("north")["hub"].get("advertisements") == 1)
        assert line.count_routes("hub", "north") == 0
        assert line.peers("north")["hub"]["unadvertised"] == 1
        with south.advertise("price > 3") as made:
            made.wait_until(wanted=True)
            assert line.count_routes("south", "hub") == line.count_routes("hub", "north") == 1
            south.publish_many([{"price": 4}, {"price": 8}])
        # What was published before an advertisement goes arrives.
        assert line.take("north", "cheap", 1) == [{"price": 4}]
        line.wait_for_routes("hub", "north", 0)
        # Nobody advertised it, so it finds no route.
        south.publish({"price": 1})
    line.wait_for_routes("south", "hub", 0)
    assert line.take("north", "cheap", 1, seconds=1) == []
    line.unsubscribe("north", "cheap")


def test_an_advertisement_outlives_a_short_absence_of_its_client(line: LinkedBrokers) -> None:
    line.subscribe("north", "all", "price < 5")
    with tamis.connect_sync(line["south"].url) as south:
        made = south.advertise("price > 3")
        made.wait_until(wanted=True)
    with tamis.connect_sync(line["south"].url) as south, south.advertise("price > 3") as made:
        # The filter of the north has not left.
        assert made.wanted
        assert line.count_routes("south", "hub") == 1
        south.publish({"price": 4})
        assert line.take("north", "all", 1) == [{"price": 4}]
    line.unsubscribe("north", "all")
    line.wait_for_routes("south", "hub", 0)


def test_a_publisher_hears_of_subscriptions_two_links_away_and_drops_nothing_they_want(
    line: LinkedBrokers,
) -> None:
    with (
        tamis.connect_sync(line["south"].url) as south,
        south.advertise("kind = 'tick'", quench=True) as made,
    ):
        made.wait_until(wanted=False)
        assert south.publish({"kind": "tick", "n": 0}).quenched == 1
        line.subscribe("north", "ticks", "kind = 'tick' and n > 0")
        made.wait_until(wanted=True)
        # The durable subscription wants them although nobody is connected, and the link is cut.
        line.proxies["north", "hub"].cut()
        assert south.publish_many([{"kind": "tick", "n": n} for n in range(1, 200)]).count == 199
        assert made.wanted
        line.proxies["north", "hub"].heal()
        line.wait_for_links()
        found = [event["n"] for event in line.take("north", "ticks", 199)]
        assert found == [*range(1, 200)]
        line.unsubscribe("north", "ticks")
        made.wait_until(wanted=False)
        assert south.publish({"kind": "tick", "n": 1}).quenched == 1
