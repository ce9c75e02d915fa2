"""What is left to check moves with its subscription, and what is too much work is undecided."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from clocks import Stopwatch
from seeds import seeds
from tamis.errors import FilterError, WorkLimitError
from tamis.filters import attr
from tamis.filters.translations import Translation
from tamis.matching import Engine, MatchingBudget
from tamis.xml import Document, XMLQueryLimits, query

PRESENT = attr("n").is_present()


class Divides(NamedTuple):
    """What no filter says: that a number divides another."""

    number: int

    def holds(self, event: object) -> bool:
        """Return whether the number divides that of an event."""
        return isinstance(event, dict) and event["n"] % self.number == 0

    def __translation__(self) -> Translation:
        return Translation(PRESENT, self)


@pytest.mark.parametrize("seed", seeds(10))
def test_what_is_left_moves_with_its_subscription(seed: int) -> None:
    random, engine = Random(seed), Engine()
    expected: dict[int, int | None] = {}
    for step in range(400):
        id_, number = random.randrange(60), random.choice((None, 2, 3, 5))
        filter_ = PRESENT if number is None else Divides(number)
        if id_ not in expected:
            engine.add(id_, filter_)
        elif random.random() < 0.5:
            engine.replace(id_, filter_)
        else:
            engine.remove(id_)
            number = -1
        if number == -1:
            del expected[id_]
        else:
            expected[id_] = number
        if step % 20 == 0:
            random.choice((engine.compact, lambda: None))()
            value = random.randrange(30)
            found = {id_ for id_, each in expected.items() if each is None or value % each == 0}
            assert {*engine.match({"n": value})} == found
            assert {*engine.match_batch([{"n": value}])[0]} == found


@pytest.mark.timing
def test_adding_what_leaves_something_takes_the_same_for_the_last_as_for_the_first() -> None:
    engine, seconds = Engine(), []
    for first in range(0, 32_000, 2_000):
        watch = Stopwatch()
        for number in range(first, first + 2_000):
            engine.add(number, Divides(7))
        seconds.append(watch.seconds())
    assert sum(seconds[-4:]) < 2.5 * sum(seconds[:4])


def test_a_query_that_is_too_much_work_is_undecided_and_all_others_are_answered() -> None:
    engine = Engine()
    limits = XMLQueryLimits(work=30)
    engine.add("costly", query("//b[c[0] = 5]", limits=limits))
    engine.add("same", query("//b[c[0] = 5]"))
    engine.add("plain", "//c = 5", language="xql")
    small, large = "<a><b><c>5</c></b></a>", f"<a>{'<b><c>5</c></b>' * 20}</a>"
    assert engine.match_xml(small) == ["costly", "same", "plain"]
    assert not engine.undecided
    assert engine.match_xml(large) == ["same", "plain"]
    found = engine.match_xml_batch([small, large, "<a>", small])
    assert [*found] == [["costly", "same", "plain"], ["same", "plain"], [], found[0]]
    assert found.undecided == {1: ["costly"]}
    assert engine.undecided["costly"].times == 2
    assert "work of one evaluation" in engine.undecided["costly"].reason
    with pytest.raises(WorkLimitError):
        engine.explain("costly", Document.parse(large))
    engine.remove("costly")
    assert not engine.undecided


def test_a_budget_knows_what_is_undecided() -> None:
    engine = Engine()
    engine.add("costly", query("//b[c[0] = 5]", limits=XMLQueryLimits(work=30)))
    budget = MatchingBudget(lambda _: "all", burst=1, share=1)
    budget.event = 7
    large = Document.parse(f"<a>{'<b><c>5</c></b>' * 20}</a>")
    assert engine.match(large, budget=budget) == []
    assert budget.undecided == {"costly": 7}


def test_what_leaves_something_is_not_saved_until_it_is_removed(tmp_path: Path) -> None:
    engine = Engine()
    engine.add("plain", PRESENT)
    engine.add("seven", Divides(7))
    with pytest.raises(FilterError, match="the filter of 'seven' leaves something"):
        engine.save(tmp_path / "engine")
    engine.remove("seven")
    engine.save(tmp_path / "engine")
    assert Engine.load(tmp_path / "engine").match({"n": 3}) == ["plain"]


def test_an_operator_that_raises_is_undecided_and_all_others_are_answered() -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("boom")

    engine = Engine()
    engine.add("good", "//a", language="xql")
    engine.add("bad", query("//a[. $fails$ 'x']", operators={"fails": fail}))
    documents = ["<r><a>1</a></r>", "<r/>", "<a/>"]
    assert engine.match_xml(documents[0]) == ["good"]
    found = engine.match_xml_batch(documents)
    assert found.undecided == {0: ["bad"], 2: ["bad"]}
    assert engine.undecided["bad"] == (3, "RuntimeError: boom")
