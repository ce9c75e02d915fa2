"""Documents and queries that are made to do harm, on their way through an engine."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from tamis.errors import TamisError
from tamis.matching import Engine
from tamis.xml import Document, XMLLimits, XMLQueryLimits, query
from xml_attacks import ATTACKS

LIMITS = XMLLimits(nodes=20_000)
SECONDS = 5
MEGABYTES = 64


def small_engine() -> Engine:
    engine = Engine()
    engine.add("some", "//b = 5", language="xql")
    engine.add("key", "//a[b = 5 $and$ @x = 'y']", language="xql")
    engine.add("first", "//a/b[0]", language="xql")
    engine.add("path", "//a[count(b) > 1]", language="xpath")
    engine.add("plain", "price < 5")
    return engine


@pytest.fixture(scope="module")
def engine() -> Engine:
    found = small_engine()
    assert found.match_xml("<a x='y'><b>5</b></a>") == ["some", "key", "first"]
    found.match_xml_batch(["<a x='y'><b>5</b></a>"])
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_an_engine_refuses_an_attack_with_its_sentence_and_answers_all_others(
    name: str, engine: Engine
) -> None:
    text, error, sentence = ATTACKS[name]
    start = time.process_time()
    with pytest.raises(error) as refused:
        engine.match_xml(text, limits=LIMITS)
    assert sentence in str(refused.value)
    good = "<a><b>5</b></a>"
    found = engine.match_xml_batch([good, text, good], limits=LIMITS)
    assert [*found] == [["some", "first"], [], ["some", "first"]]
    assert sentence in str(found.errors[1])
    assert time.process_time() - start < SECONDS


SHAPES = {
    "wide": lambda count: f"<a>{'<b>5</b>' * count}</a>",
    "crowded": lambda count: f"<a x='y'>{''.join(f'<b>{n}</b>' for n in range(count))}</a>",
    "long": lambda count: f"<a x='y'><b>{'5' * 40 * count}</b><b>{' ' * count}</b></a>",
    "names": lambda count: f"<a>{''.join(f'<b{n}/>' for n in range(count))}</a>",
}


@pytest.mark.parametrize("count", [1_500, pytest.param(19_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_within_limits_is_answered_soon_and_in_little_memory(
    shape: str, count: int, engine: Engine
) -> None:
    text = SHAPES[shape](count)
    documents = [Document.parse(text)]
    expected = [
        name
        for name, each in {
            "some": query("//b = 5"),
            "key": query("//a[b = 5 $and$ @x = 'y']"),
            "first": query("//a/b[0]"),
            "path": query("//a[count(b) > 1]", language="xpath"),
        }.items()
        if each.matches(documents[0])
    ]
    tracemalloc.start()
    start = time.process_time()
    try:
        assert engine.match_xml(text) == expected
        assert [*engine.match_xml_batch([text])] == [expected]
        # Counting memory takes several times as long.
        assert time.process_time() - start < 2 * SECONDS
        assert tracemalloc.get_traced_memory()[1] < MEGABYTES * 2**20
    finally:
        tracemalloc.stop()


EXPONENTIAL = {
    "xql": (
        "//b" + "/../b" * 60,
        "//a" + "[.//b" * 20 + "]" * 20,
        "//*[//*[//*[//* = //*]]]",
        "/" + "/".join(["(a|b)"] * 25),
    ),
    "xpath": (
        "//b" + "/parent::a/child::b" * 40,
        "//*" + "[.//*" * 15 + "]" * 15,
        "//a[" + " or ".join(f"count(//b) = {n} + sum(//b)" for n in range(60)) + "]",
    ),
}


@pytest.mark.parametrize("language", EXPONENTIAL)
def test_queries_that_are_exponential_in_naive_evaluators_are_answered_or_undecided(
    language: str,
) -> None:
    engine = small_engine()
    limits = XMLQueryLimits(work=200_000)
    for number, text in enumerate(EXPONENTIAL[language]):
        engine.add(number, query(text, language=language, limits=limits))
    document = f"<a>{'<b>5</b>' * 300}</a>"
    engine.match_xml("<a/>")
    start = time.process_time()
    found = engine.match_xml(document)
    assert [id_ for id_ in found if isinstance(id_, str)] == ["some", "first", "path"]
    assert {*engine.undecided} <= {*range(len(EXPONENTIAL[language]))}
    assert engine.undecided
    for each in engine.undecided.values():
        assert "work of one evaluation: more than 200,000 exceeds" in each.reason
    assert time.process_time() - start < SECONDS


def test_a_query_that_is_too_long_or_too_deep_is_refused_by_an_engine() -> None:
    engine = Engine()
    for text in ("a" * 20_000, "a" + "[b" * 40 + "]" * 40):
        with pytest.raises(TamisError, match="exceeds the limit"):
            engine.add(1, text, language="xql")
    assert len(engine) == 0
