"""IP addresses in networks."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from random import Random

import pytest

from tamis.diagrams import covers, equivalent, intersects, is_never
from tamis.errors import FilterError, FilterSyntaxError
from tamis.events import Schema, attribute
from tamis.filters import attr
from tamis.filters.networks import AFTER_LAST, network_of, position_of, text_at
from tamis.languages import parse
from tamis.matching import Engine


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("ip in 10.0.0.0/8", ["10.0.0.0", "10.255.255.255"], ["11.0.0.0", "9.255.255.255", "x"]),
        ("ip in 192.168.1.7", ["192.168.1.7"], ["192.168.1.8", "192.168.1.07", "192.168.1.7/32"]),
        ("ip in 0.0.0.0/0", ["0.0.0.1", "255.255.255.255"], ["::1", "", "256.0.0.0"]),
        ("ip in 2001:db8::/32", ["2001:DB8::1", "2001:0db8:0::"], ["2001:db9::", "10.0.0.1"]),
        ("ip in ::/0", ["::", "::ffff:10.0.0.1"], ["10.0.0.1", "fe80::1%eth0"]),
        ("ip in (10.0.0.0/8, fe80::/10, ::1)", ["10.1.1.1", "fe80::1", "::1"], ["::2"]),
    ],
)
def test_an_address_lies_in_a_network(text: str, inside: list[str], outside: list[str]) -> None:
    filter_ = parse(text)
    assert parse(str(filter_)) == filter_
    engine = Engine()
    engine.add("it", text)
    engine.compact()
    for value in inside:
        assert filter_.matches({"ip": value})
        assert engine.match({"ip": value}) == ["it"]
    for value in outside:
        assert filter_.truth({"ip": value}) is False
        assert engine.match({"ip": value}) == []
    assert filter_.truth({}) is None
    assert filter_.truth({"ip": 167772161}) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ip in 10.1.0.0/8", "10.1.0.0/8 has more bits than 8: write 10.0.0.0/8"),
        ("ip in 10.0.0.0/33", "is not a network such as 10.0.0.0/8"),
        ("ip in 10.0.0.256/32", "is not a network such as 10.0.0.0/8"),
        ("ip in 1:2:3/16", "is not a network such as 10.0.0.0/8"),
        ("ip in (10.0.0.0/8, 5)", "expected a network such as 10.0.0.0/8, found"),
        ("ip = 10.0.0.1", "an address is a text: write '10.0.0.1' in quotes"),
        ("ip ~in 10.0.0.0/8", "only tests of texts do"),
    ],
)
def test_wrong_networks_are_told_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert said in str(caught.value)


def test_python_writes_networks_as_texts() -> None:
    assert attr("ip").in_network("10.0.0.0/8", "::1") == parse("ip in (10.0.0.0/8, ::1)")
    with pytest.raises(FilterError, match="the list is empty"):
        attr("ip").in_network()
    with pytest.raises(FilterError, match="takes a text"):
        attr("ip").in_network(5)  # type: ignore[arg-type]
    with pytest.raises(FilterError, match="number of bits"):
        attr("ip").in_network("10.0.0.0/255.0.0.0")


def test_a_schema_knows_addresses_as_texts() -> None:
    schema = Schema({"ip": attribute("str", caseless=True), "port": "int"})
    bound = parse("ip in ::/0").bind(schema)
    assert str(bound) == "ip in ::/0"
    with pytest.raises(FilterError, match="asks for text"):
        parse("port in 10.0.0.0/8").bind(schema)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("ip in 10.0.0.0/8", "ip in 10.1.0.0/16"),
        ("ip in 10.0.0.0/8", "ip = '10.1.2.3'"),
        ("ip in (10.0.0.0/9, 10.128.0.0/9)", "ip in 10.0.0.0/8"),
        ("not (ip in 10.0.0.0/8)", "ip in ::/0"),
        ("ip in 0.0.0.0/0", "ip in 10.0.0.0/8 and port = 5"),
    ],
)
def test_relations_of_networks_are_exact(wide: str, narrow: str) -> None:
    assert covers(parse(wide), parse(narrow)) == (True, True, None, "")
    back = covers(parse(narrow), parse(wide))
    assert back.exact


def test_networks_meet_or_do_not() -> None:
    assert equivalent(parse("ip in (10.0.0.0/9, 10.128.0.0/9)"), parse("ip in 10.0.0.0/8"))
    assert intersects(parse("ip in 10.0.0.0/8"), parse("ip in 11.0.0.0/8")) == (
        False,
        True,
        None,
        "",
    )
    assert is_never(parse("ip in 10.0.0.0/8 and ip = '11.0.0.1'"))
    assert is_never(parse("ip in ::/0 and ip in 0.0.0.0/0"))
    # With several values, each may lie in its own.
    assert (
        intersects(parse("ip in ::/0"), parse("ip in 0.0.0.0/0"), many=True).witness() is not None
    )
    nowhere = parse("ip is text and not (ip in ::/0) and not (ip in 0.0.0.0/0)")
    witness = is_never(nowhere).witness()
    assert witness is not None
    assert nowhere.matches(witness)


def test_positions_are_those_of_addresses() -> None:
    rng = Random(3)
    for _ in range(300):
        address = rng.choice(
            (
                IPv4Address(rng.getrandbits(32)),
                IPv6Address(rng.getrandbits(rng.choice((1, 64, 128)))),
            )
        )
        assert ip_address(text_at(position_of(str(address)))) == address
        bits = rng.randint(0, address.max_prefixlen)
        network = network_of(str(ip_network(f"{address}/{bits}", strict=False)))
        assert network.first <= position_of(str(address)) < network.end <= AFTER_LAST


def test_many_networks_are_found_with_one_lookup_for_each_size() -> None:
    rng = Random(4)
    engine, filters = Engine(), {}
    for number in range(300):
        address = IPv4Address(0x0A000000 + rng.getrandbits(12))
        network = ip_network(f"{address}/{rng.randint(18, 32)}", strict=False)
        filters[number] = attr("ip").in_network(str(network), "2001:db8::/32")
        engine.add(number, filters[number])
    events = [{"ip": str(IPv4Address(0x0A000000 + rng.getrandbits(12)))} for _ in range(100)]
    events += [{"ip": "2001:db8::5"}, {"ip": "nothing"}, {}]
    for event, found in zip(events, engine.match_batch(events), strict=True):
        assert sorted(found) == [n for n, filter_ in filters.items() if filter_.matches(event)]
