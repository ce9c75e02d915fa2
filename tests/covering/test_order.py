"""What every covering index does: one suite for the exhaustive one and the fast one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tamis.covering import CoveringIndex, CoveringOrder, ExhaustiveCoveringIndex, RootChange
from tamis.errors import FilterError
from tamis.events import Schema, attribute
from tamis.filters import FALSE, TRUE, attr
from tamis.languages import parse

Make = Callable[..., CoveringOrder]

pytestmark = pytest.mark.parametrize("make", [ExhaustiveCoveringIndex, CoveringIndex])


def filled(make: Make, *texts: str) -> CoveringOrder:
    index = make()
    index.add_many((text, parse(text)) for text in texts)
    return index


def test_a_wider_filter_takes_the_place_of_those_it_covers(make: Make) -> None:
    index = filled(make, "price < 5", "price between 1 and 2", 'name = "x"')
    assert index.roots() == ["price < 5", 'name = "x"']
    assert index.add("wide", parse("price < 10")) == RootChange(("wide",), ("price < 5",))
    assert index.parent("price between 1 and 2") in ("price < 5", "wide")
    assert index.parent("price < 5") == "wide"
    assert index.parent("wide") is None


def test_what_only_the_removed_filter_covered_becomes_a_root(make: Make) -> None:
    index = filled(make, "price < 10", "price < 5", "price < 4", "price < 20", "size = 1")
    assert index.roots() == ["price < 20", "size = 1"]
    assert index.remove("price < 10") == RootChange()
    assert index.remove("price < 20") == RootChange(("price < 5",), ("price < 20",))
    assert index.remove("price < 5") == RootChange(("price < 4",), ("price < 5",))
    assert index.roots() == ["price < 4", "size = 1"]


def test_of_equal_filters_the_first_is_the_root(make: Make) -> None:
    index = make()
    index.add("first", parse("price in (1, 2)"))
    assert index.add("second", parse("price = 2 or price = 1")) == RootChange()
    assert index.add("third", parse("price in (1, 2)")) == RootChange()
    assert index.remove("first") == RootChange(("second",), ("first",))
    assert index.add("first", parse("price in (1, 2)")) == RootChange()
    assert index.roots() == ["second"]
    assert index.remove("second") == RootChange(("third",), ("second",))


def test_questions_about_a_filter_that_is_not_there(make: Make) -> None:
    index = filled(make, "price < 10", "price < 5", "size > 1", "price > 20 and size > 1")
    asked = parse("price < 7 and size > 1")
    assert index.covering(asked) == ["price < 10", "size > 1"]
    assert index.covered_by(parse("price is present")) == [
        "price < 10",
        "price < 5",
        "price > 20 and size > 1",
    ]
    assert index.intersecting(asked) == ["price < 10", "price < 5", "size > 1"]
    assert len(index) == 4


def test_a_filter_that_never_matches_is_covered_by_all(make: Make) -> None:
    index = make()
    assert index.add("never", parse("price < 1 and price > 2")) == RootChange(("never",))
    assert index.add("some", parse("size = 1")) == RootChange(("some",), ("never",))
    assert index.add("false", FALSE) == RootChange()
    assert index.covering(FALSE) == ["never", "some", "false"]
    assert index.covered_by(FALSE) == ["never", "false"]
    assert index.intersecting(TRUE) == ["some"]
    assert index.remove("some") == RootChange(("never",), ("some",))


def test_a_filter_that_always_matches_covers_all(make: Make) -> None:
    index = filled(make, "a = 1", "b = 2", 'name matches "x+"')
    assert index.add("all", TRUE) == RootChange(("all",), ("a = 1", "b = 2", 'name matches "x+"'))
    assert index.covering(parse("c = 3")) == ["all"]
    change = index.remove("all")
    assert sorted(map(str, change.became)) == ["a = 1", "b = 2", 'name matches "x+"']


def test_what_is_not_proved_covers_nothing_and_may_intersect(make: Make) -> None:
    index = filled(make, 'name matches "a+"', 'name matches "aa+"', "x * x < 0")
    assert len(index.roots()) == 3
    assert index.covering(parse("x * x < 0 and x > 5")) == ["x * x < 0"]
    assert index.intersecting(parse("x > 5")) == index.ids()


def test_a_subset_has_roots_of_its_own(make: Make) -> None:
    index = filled(make, "price < 20", "price < 10", "price < 5", "size = 1")
    some = index.subset()
    assert some.add("price < 5") == RootChange(("price < 5",))
    assert some.add("price < 10") == RootChange(("price < 10",), ("price < 5",))
    assert some.add("size = 1") == RootChange(("size = 1",))
    assert some.roots() == ["price < 10", "size = 1"]
    assert (len(some), "price < 20" in some, some.parent("price < 5")) == (3, False, "price < 10")
    with pytest.raises(FilterError, match=r"'price < 10' is still in a subset"):
        index.remove("price < 10")
    assert some.remove("price < 10") == RootChange(("price < 5",), ("price < 10",))
    assert index.remove("price < 10") == RootChange()


def test_the_schema_and_the_mode_count(make: Make) -> None:
    schema = Schema({"n": "int", "tags": attribute("str", many=True)})
    index = make(schema=schema)
    index.add("one", parse("n > 0 and n < 2"))
    assert index.add("same", parse("n = 1")) == RootChange()
    index.add("new", parse('tags = "new"'))
    assert index.add("both", parse('tags = "new" and tags = "red"')) == RootChange()
    assert index.intersecting(parse('tags = "red"')) == ["one", "same", "new", "both"]
    absent = make(mode="default", schema=schema)
    absent.add("not", parse("not (n = 1)"))
    assert absent.add("absent", parse("n is absent")) == RootChange()


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (lambda index: index.add("a", attr("x") == 1), "there is a filter 'a' already"),
        (lambda index: index.add(1.5, attr("x") == 1), "an id is a text or an integer, not 1.5"),
        (lambda index: index.add("b", "x = 1"), "a Filter is needed, not 'x = 1': write parse"),
        (lambda index: index.remove("b"), "there is no filter 'b'"),
        (lambda index: index.filter("b"), "there is no filter 'b'"),
        (lambda index: index.parent("b"), "there is no filter 'b'"),
        (lambda index: index.covering("x = 1"), "a Filter is needed"),
        (lambda index: index.subset().add("b"), "there is no filter 'b'"),
        (lambda index: index.subset().remove("a"), "there is no filter 'a'"),
    ],
)
def test_mistakes_get_a_sentence(
    make: Make, work: Callable[[CoveringOrder], object], sentence: str
) -> None:
    index = make()
    index.add("a", attr("x") == 1)
    with pytest.raises(FilterError, match=sentence):
        work(index)
    assert index.roots() == ["a"]
