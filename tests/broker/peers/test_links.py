"""Linked brokers work as one: what is subscribed to at one is published at another."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

import httpx
import pytest

from broker.server import ServerProcess, running
from cli.commands import tamis
from tamis.filters import Filter
from tamis.languages import parse
from waiting import eventually

from .brokers import QUICK, LinkedBrokers, linked


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBrokers]:
    """Three brokers in a line: north, hub and south."""
    links = [("north", "hub"), ("south", "hub")]
    with linked(tmp_path_factory.mktemp("line"), links, **QUICK) as brokers:
        yield brokers


def test_an_event_goes_two_hops_to_whoever_asked_for_it_and_no_other_leaves(
    line: LinkedBrokers,
) -> None:
    line.subscribe("north", "cheap", "price < 5")
    line.subscribe("north", "cheaper", "price < 3")
    line.wait_for_routes("south", "hub", 1)
    before = line.peers("south")["hub"]
    line.publish("south", {"price": 4}, {"price": 7}, {"price": 2})
    assert line.take("north", "cheap", 2) == [{"price": 4}, {"price": 2}]
    assert line.take("north", "cheaper", 1) == [{"price": 2}]

    def counted(what: str) -> int:
        return int(line.peers("south")["hub"].get(what, 0) - before.get(what, 0))

    assert counted("sent") == 2
    # What was sent also waits, until the peer says that it has it.
    eventually(lambda: counted("stopped") == 1)
    # The wider filter covers the other.
    assert line.peers("north")["hub"]["forwarded"] == 1
    assert line.peers("north")["hub"]["suppressed"] == 1
    line.unsubscribe("north", "cheap")
    eventually(lambda: line.peers("north")["hub"].get("suppressed", 0) == 0)
    line.publish("south", {"price": 4}, {"price": 1})
    assert line.take("north", "cheaper", 1) == [{"price": 1}]
    line.unsubscribe("north", "cheaper")
    line.wait_for_routes("south", "hub", 0)


def siena_triples(constants: int) -> list[tuple[str, object]]:
    """Return every operator of Siena that JSON has values for, with constants where they meet."""
    comparisons = ["=", "!=", "<", ">", "<=", ">="]
    return [
        *product(comparisons, [1, 2][:constants]),
        *product([*comparisons, ">*", "*<", "*"], ["a", "ab"][:constants]),
        *product(["=", "!="], [True, False][:constants]),
        ("any", None),
    ]


VALUES = [0, 1, 1.5, 2, 3, True, False, "", *map("".join, product("ab", "ab", ["", "a", "b"]))]


def check_siena(line: LinkedBrokers, filters: dict[str, Filter]) -> None:
    """Publish every value, and check that each subscription gets what its filter matches."""
    line.publish("south", *({"x": value, "place": n} for n, value in enumerate(VALUES)))
    for id_, filter_ in filters.items():
        expected = [n for n, value in enumerate(VALUES) if filter_.matches({"x": value})]
        found = [event["place"] for event in line.take("north", id_, len(expected))]
        assert found == expected, str(filter_)


@pytest.mark.parametrize("constants", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_pair_of_siena_operators_is_routed_as_the_oracle_says(
    line: LinkedBrokers, constants: int
) -> None:
    triples = siena_triples(constants)
    texts = [json.dumps([["x", *(part for part in one if part is not None)]]) for one in triples]
    filters = {f"siena-{n}": parse(text, "siena") for n, text in enumerate(texts)}
    for (id_, _), text in zip(filters.items(), texts, strict=True):
        line.subscribe("north", id_, text, language="siena")
    # One filter covers all others, so it alone is forwarded; without it, many are.
    line.wait_for_routes("south", "hub", 1)
    check_siena(line, filters)
    widest = f"siena-{len(triples) - 1}"
    line.unsubscribe("north", widest)
    del filters[widest]
    eventually(lambda: line.count_routes("south", "hub") > 3)
    eventually(lambda: line.count_routes("south", "hub") == line.count_routes("hub", "north"))
    check_siena(line, filters)
    for id_ in filters:
        line.unsubscribe("north", id_)
    line.wait_for_routes("south", "hub", 0)


def covers_by_values(one: Filter, other: Filter) -> bool:
    """Return whether one filter matches each value that the other matches, of very many."""
    return all(one.matches({"x": v}) for v in MANY_VALUES if other.matches({"x": v}))


# Between and around all constants: of any two of these filters that do not cover one another, some
# value shows it.
MANY_VALUES = [*VALUES, -1, 0.5, 2.5, "a", "b", "A", " a", " ab", " ab ", "ac", "xab"]


@pytest.mark.parametrize(
    ("constants", "rows"), [(1, 4), pytest.param(2, None, marks=pytest.mark.slow)]
)
def test_of_every_pair_of_siena_operators_only_what_is_not_covered_is_forwarded(
    line: LinkedBrokers, constants: int, rows: int | None
) -> None:
    """Each pair has a value of its own, so that nothing else covers its filters."""
    triples = [[part for part in one if part is not None] for one in siena_triples(constants)]
    filters = [parse(json.dumps([["x", *one]]), "siena") for one in triples]
    for number, (one, own) in islice(enumerate(zip(triples, filters, strict=True)), rows):
        wanted: list[dict[str, object]] = []
        expected = 0
        for place, (other, theirs) in enumerate(zip(triples, filters, strict=True)):
            pair = [[["pair", "=", f"{number}-{place}"], ["x", *each]] for each in (one, other)]
            for role, text in enumerate(pair):
                id_ = f"pair-{place}-{role}"
                wanted.append({"id": id_, "filter": json.dumps(text), "language": "siena"})
            expected += 2 - (covers_by_values(own, theirs) or covers_by_values(theirs, own))
        made = line.post("north", "/v1/subscriptions/batch", {"subscriptions": wanted})
        assert all("code" not in each for each in made), made
        for name, peer in (("hub", "north"), ("south", "hub")):
            line.wait_for_routes(name, peer, expected)
        for each in wanted:
            line.unsubscribe("north", str(each["id"]))
        line.wait_for_routes("south", "hub", 0)


def test_the_broker_in_the_middle_gets_and_gives_as_well(line: LinkedBrokers) -> None:
    for name in ("north", "hub", "south"):
        line.subscribe(name, "all-news", 'kind = "news"')
    line.wait_for_routes("north", "hub", 1)
    line.wait_for_routes("south", "hub", 1)
    eventually(lambda: line.count_routes("hub", "north") == line.count_routes("hub", "south") == 1)
    for name in ("north", "hub", "south"):
        line.publish(name, {"kind": "news", "from": name})
    for name in ("north", "hub", "south"):
        found = [event["from"] for event in line.take(name, "all-news", 3)]
        assert sorted(found) == ["hub", "north", "south"]
        assert line.take(name, "all-news", 1, seconds=0.2) == []
        line.unsubscribe(name, "all-news")


def test_a_subscription_is_brought_over_http(line: LinkedBrokers) -> None:
    line.subscribe("north", "brought", "carried = 1")
    line.wait_for_routes("south", "hub", 1)
    line.publish("south", *({"carried": 1, "n": n} for n in range(3)))
    eventually(lambda: line.get("north", "/v1/subscriptions/brought")["pending"] == 3)
    line.subscribe("south", "brought", "carried = 1", roaming=True)
    assert [one["n"] for one in line.take("south", "brought", 3)] == [0, 1, 2]
    # The former home forgets it once it knows that everything has arrived.
    eventually(lambda: line.get("north", "/v1/subscriptions")["subscriptions"] == [])
    url = f"{line['south'].url}/v1/subscriptions"
    for body, sentence in [
        ({"filter": "a = 1", "roaming": True}, "only a durable subscription can be brought"),
        ({"id": "g", "filter": "a = 1", "group": True, "roaming": True}, "cannot be brought"),
    ]:
        refused = httpx.post(url, json=body)
        assert (refused.status_code, sentence in refused.text) == (400, True), refused.text
    batch = {"subscriptions": [{"id": "x", "filter": "a = 1", "roaming": True}]}
    refused = httpx.post(f"{url}/batch", json=batch)
    assert (refused.status_code, "roaming" in refused.text) == (400, True), refused.text
    line.unsubscribe("south", "brought")


def test_a_link_that_would_close_a_cycle_is_refused_by_its_path(line: LinkedBrokers) -> None:
    address = line["south"].url
    line.post("north", "/v1/peers", {"url": address})

    def refusal() -> str:
        links = line.get("north", "/v1/peers")["peers"]
        problems = (one.get("problem", "") for one in links if one.get("url") == address)
        return next((one for one in problems if "cycle" in one), "")

    found = eventually(refusal)
    assert all(name in found for name in ("north", "hub", "south"))
    assert "cycle" in line["south"].log or "cycle" in line["north"].log
    # The links that there are go on.
    assert line.are_connected()
    with line["north"].client() as client:
        assert client.delete("/v1/peers", params={"peer": address}).status_code == 204
    assert address not in str(line.get("north", "/v1/peers"))


def test_the_topology_is_shown_from_any_broker(line: LinkedBrokers, tmp_path: Path) -> None:
    for name in ("north", "hub", "south"):
        found = line.get(name, "/v1/topology")
        names = [one["name"] for one in found["brokers"]]
        assert names[0] == name
        assert sorted(names) == ["hub", "north", "south"]
        assert found["missing"] == []
        assert sorted(len(one["links"]) for one in found["brokers"]) == [1, 1, 2]
    shown = tamis("topology", "--url", line["south"].url)
    assert shown.code == 0
    titles = [row.strip(" └─").split(":")[0] for row in shown.out.splitlines() if "stored" in row]
    assert titles == ["south", "hub", "north"]
    picture = tmp_path / "overlay.svg"
    assert tamis("topology", "--url", line["south"].url, "--svg", picture).code == 0
    text = ET.tostring(ET.parse(picture).getroot(), method="text", encoding="unicode")  # noqa: S314
    assert all(name in text for name in ("north", "hub", "south"))


def test_the_metrics_have_the_links(line: LinkedBrokers) -> None:
    with line["hub"].client() as client:
        text = client.get("/metrics").text
    assert "tamis_links 2.0" in text
    assert "tamis_links_connected 2.0" in text
    assert len(re.findall(r'\ntamis_link_connected{peer="[0-9a-f]{32}"} 1\.0', text)) == 2
    assert len(re.findall(r'\ntamis_link_received_events{peer="[0-9a-f]{32}"} ', text)) == 2


def test_peers_are_added_and_removed_by_command_and_after_a_restart_are_still_there(
    line: LinkedBrokers, tmp_path: Path
) -> None:
    with running(tmp_path, name="branch", **QUICK) as branch:
        at = ("--url", branch.url)
        assert tamis("peer", "list", *at).err == "there are no links to other brokers\n"
        assert tamis("peer", "add", line["south"].url, *at).code == 0
        assert "dials" in tamis("peer", "add", line["south"].url, *at).err
        assert "address" in tamis("peer", "add", "nowhere", *at).err
        eventually(lambda: tamis("peer", "list", "--format", "json", *at).json[0].get("connected"))
        branch.kill()
        branch.start()
        at = ("--url", branch.url)
        eventually(lambda: tamis("peer", "list", "--format", "json", *at).json[0].get("connected"))
        [link] = tamis("peer", "list", "--format", "json", *at).json
        assert (link["name"], link["made_by"]) == ("south", "command")
        assert tamis("peer", "remove", "south", *at).code == 0
        assert tamis("peer", "list", *at).out == ""
        assert "no peer" in tamis("peer", "remove", "south", *at).err
    # The other side forgets it as well.
    eventually(lambda: "branch" not in line.peers("south"))


def test_peers_of_the_settings_are_removed_there(line: LinkedBrokers) -> None:
    refused = tamis("peer", "remove", "hub", "--url", line["north"].url)
    assert refused.code == 2
    assert "the settings name" in refused.err


def test_two_brokers_that_dial_each_other_have_one_link(tmp_path: Path) -> None:
    links = [("left", "right")]
    with linked(tmp_path, links, **QUICK) as brokers:
        brokers.post("right", "/v1/peers", {"url": brokers["left"].url})
        brokers.subscribe("left", "all", "true")
        brokers.wait_for_routes("right", "left", 1)
        for number in range(20):
            brokers.publish("right", {"number": number})
        found = [one["number"] for one in brokers.take("left", "all", 20)]
        assert found == [*range(20)]
        eventually(brokers.are_connected)
        assert [len(brokers.get(name, "/v1/topology")["brokers"]) for name in brokers.servers] == [
            2,
            2,
        ]


def test_without_a_policy_a_broker_accepts_links_only_if_it_is_told_to(tmp_path: Path) -> None:
    with linked(tmp_path, [("left", "right")], **QUICK) as brokers:
        closed = ServerProcess(tmp_path / "closed", {"name": "closed"}).start()
        try:
            brokers.post("left", "/v1/peers", {"url": closed.url})
            eventually(lambda: "--accept-peers true" in str(brokers.get("left", "/v1/peers")))
            assert "link refused" in closed.log
        finally:
            closed.kill()
