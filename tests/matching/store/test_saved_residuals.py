"""Engines on disk that leave something to check: a loaded one checks it like the saved one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from broker.document_cases import Asked, random_asked, random_published
from seeds import seeds
from tamis.errors import FilterError
from tamis.events import Schema, attribute
from tamis.matching import Engine
from tamis.xml import Document, XMLQueryLimits, query
from tamis.xml.queries import QuerySource


@pytest.mark.parametrize("seed", seeds(40, by_default=2))
def test_a_loaded_engine_checks_what_the_saved_one_did(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    asked = [random_asked(random) for _ in range(60)]
    engine = Engine()
    for number, one in enumerate(asked):
        engine.add(number, one.text, language=one.language)
    engine.save(tmp_path / "engine")
    loaded = Engine.load(tmp_path / "engine")
    published = [random_published(random) for _ in range(40)]
    events = [Document.parse(one) if isinstance(one, str) else one for one in published]
    for given, event in zip(published, events, strict=True):
        expected = [number for number, each in enumerate(asked) if each.is_satisfied(given)]
        assert loaded.match(event) == engine.match(event) == expected
    assert [*loaded.match_batch(events)] == [*engine.match_batch(events)]
    assert [loaded.filter(id_) for id_ in loaded.ids()] == [engine.filter(i) for i in engine.ids()]
    # What was loaded is saved again, and left out by number.
    loaded.save(tmp_path / "again")
    again = Engine.load(tmp_path / "again", without=np.arange(3))
    for event in events:
        assert again.match(event) == [id_ for id_ in engine.match(event) if id_ not in {0, 1, 2}]


MANY = Asked("order/line[sku = 'chair' $and$ $not$ n < 5]", "xql")
ORDER = "<order><line><sku>chair</sku><n>9</n></line></order>"


def test_a_query_is_parsed_when_a_document_has_to_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = QuerySource.parsed

    def noted(source: QuerySource) -> object:
        parsed.append(source.text)
        return parse(source)

    engine = Engine()
    for number in range(50):
        engine.add(
            number, f"order/line[sku = 'chair{number or ''}' $and$ $not$ n < 5]", language="xql"
        )
    engine.save(tmp_path / "engine")
    monkeypatch.setattr(QuerySource, "parsed", noted)
    loaded = Engine.load(tmp_path / "engine")
    for _ in range(2):
        assert loaded.match_xml(ORDER) == [0]
    assert parsed == [MANY.text]


def test_prefixes_limits_and_keys_are_saved(tmp_path: Path) -> None:
    engine = Engine()
    engine.add("prefix", query("//n:b[0] = 5", namespaces={"n": "urn:n"}))
    engine.add("costly", query("//b[c[0] = 5]", limits=XMLQueryLimits(work=60)))
    engine.add("keys", "//b[c = 5 $and$ d = 6]", language="xql")
    engine.save(tmp_path / "engine")
    loaded = Engine.load(tmp_path / "engine")
    assert loaded.match_xml('<a xmlns:x="urn:n"><x:b>5</x:b></a>') == ["prefix"]
    assert loaded.match_xml(f"<a>{'<b><c>5</c></b>' * 20}</a>") == []
    assert [*loaded.undecided] == ["costly"]
    assert loaded.match_xml("<a><b><c>5</c><d>6</d></b></a>") == ["costly", "keys"]
    assert loaded.match_xml("<a><b><c>5</c></b><b><d>6</d></b></a>") == ["costly"]


def test_tests_of_elements_are_saved_with_their_schema_and_mode(tmp_path: Path) -> None:
    schema = Schema(
        {"items.a": attribute("float", many=True), "items.b": attribute("float", many=True)}
    )
    engine = Engine(schema)
    engine.add("sql", "items[a = 1 and b = 2]")
    engine.add("strict", "items[a = 1 or b = 2]", mode="strict")
    engine.save(tmp_path / "engine")
    loaded = Engine.load(tmp_path / "engine")
    events = [{"items": [{"a": 1}, {"b": 2}]}, {"items": [{"a": 1, "b": 2}]}, {"items": [{"a": 1}]}]
    assert [loaded.match(event) for event in events] == [engine.match(event) for event in events]
    assert loaded.match(events[1]) == ["sql", "strict"]


def test_a_query_with_functions_in_it_is_not_saved(tmp_path: Path) -> None:
    engine = Engine()
    engine.add("mine", query("//b $near$ 5", operators={"near": lambda a, b: a == b}))
    with pytest.raises(
        FilterError, match="the filter of 'mine' leaves something to check in Python"
    ):
        engine.save(tmp_path / "engine")


def test_an_earlier_version_of_tamis_would_refuse_the_file(tmp_path: Path) -> None:
    engine = Engine()
    engine.add("plain", "a = 1")
    engine.save(tmp_path / "plain")
    engine.add("left", MANY.text, language="xql")
    engine.save(tmp_path / "left")
    assert (tmp_path / "plain").read_bytes()[:16] == b"tamis snapshot 2"
    assert (tmp_path / "left").read_bytes()[:16] == b"tamis snapshot 3"
