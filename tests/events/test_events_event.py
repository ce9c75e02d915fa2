"""One event, and how nested data becomes its attributes."""

from __future__ import annotations

import copy
import math
import pickle
from array import array
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given

from tamis import events
from tamis.errors import EventError
from tamis.events import Bits, Event, Kind

from . import event_strategies as some


@pytest.mark.parametrize(
    ("data", "attributes"),
    [
        ({"a": 1}, {"a": (1,)}),
        ({"a": [1]}, {"a": (1,)}),
        ({"a": [1, 2, 1]}, {"a": (1, 2, 1)}),
        ({"a": {"b": {"c": 1}}}, {"a.b.c": (1,)}),
        ({"a": [{"b": 1}, {"b": [2, 3]}, {"c": 4}]}, {"a.b": (1, 2, 3), "a.c": (4,)}),
        ({"a": [[1, [2]], 3]}, {"a": (1, 2, 3)}),
        ({"a": None, "b": [], "c": {}, "d": [None], "e": [{}]}, {}),
        ({"a": [1, None, 2]}, {"a": (1, 2)}),
        ({"a": 1, "a.b": 2}, {"a": (1,), "a.b": (2,)}),
        ({"a": [1, {"b": 2}]}, {"a": (1,), "a.b": (2,)}),
        ({"a": (1, 2)}, {"a": (1, 2)}),
        ({"a": range(3)}, {"a": (0, 1, 2)}),
        ({"a": array("d", [0.5])}, {"a": (0.5,)}),
        ({"a": MappingProxyType({"b": 1})}, {"a.b": (1,)}),
        ({"a": Bits([3])}, {"a": (Bits([3]),)}),
        ({}, {}),
    ],
)
def test_nested_data_becomes_dotted_names_with_several_values(
    data: Mapping[str, object], attributes: Mapping[str, object]
) -> None:
    assert dict(Event(data)) == attributes


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": {"b": 1}, "a.b": 2}, "a.b: the attribute 'a.b' is given twice, as a nested"),
        ({"a.b": 2, "a": {"b": 1}}, "a.b: the attribute 'a.b' is given twice, as a nested"),
        ({"": 1}, "'' is not an attribute name"),
        ({"a": {"": 1}}, "a: '' is not an attribute name"),
        ({"a": {5: 1}}, "a: 5 is not an attribute name"),
        ({"a": {"\ud800": 1}}, "a: the name has a lone surrogate (U+D800)"),
        ({"a": ["x", {"b": "\udfff"}]}, "a[1].b: the text has a lone surrogate (U+DFFF)"),
        ({"a": [0, [1, 1j]]}, "a[1][1]: a value of type 'complex'"),
        ({"a\nb": 1j}, r"a\nb: a value of type 'complex'"),
        ({"a": {1, 2}}, "a: a value of type 'set'"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_its_place(data: Any, message: str) -> None:
    with pytest.raises(EventError) as caught:
        Event(data)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("data", [None, 5, "text", [("a", 1)]])
def test_an_event_is_made_of_a_mapping(data: Any) -> None:
    with pytest.raises(EventError, match="an event is a mapping of names to values"):
        Event(data)


def test_data_that_contains_itself_is_refused() -> None:
    data: dict[str, object] = {}
    data["again"] = data
    with pytest.raises(Exception, match="levels of nesting: 33 exceeds the limit of 32"):
        Event(data)


DIFFERENT = [
    {"a": 1},
    {"a": 1.0},
    {"a": True},
    {"a": "1"},
    {"a": Bits([0])},
    {"a": [1, 1]},
    {"a": [1, 2]},
    {"a": [2, 1]},
    {"b": 1},
    {"a": 1, "b": 1},
    {"a": math.nan},
    {},
]


@pytest.mark.parametrize("left", DIFFERENT)
@pytest.mark.parametrize("right", DIFFERENT)
def test_events_are_equal_when_names_types_and_values_are(
    left: dict[str, object], right: dict[str, object]
) -> None:
    assert (Event(left) == Event(right)) is (left is right)


def test_one_value_in_a_sequence_is_one_value() -> None:
    assert Event({"a": [1]}) == Event({"a": 1})


def test_an_event_with_nan_equals_its_copies() -> None:
    event, other = Event({"a": float("nan")}), Event({"a": float("nan")})
    assert event == other
    assert hash(event) == hash(other)


def test_the_order_of_attributes_does_not_matter() -> None:
    left, right = Event({"a": 1, "b": 2}), Event({"b": 2, "a": 1})
    assert left == right
    assert hash(left) == hash(right)


def test_an_event_is_not_equal_to_other_things() -> None:
    assert Event({"a": 1}) != {"a": (1,)}
    assert Event({}) != 0


@given(some.events(some.all_values))
def test_an_event_can_be_made_again_from_its_parts(event: Event) -> None:
    for again in (
        Event(event.as_dict()),
        Event(event),
        Event.of(event),
        event.with_values({}),
        pickle.loads(pickle.dumps(event)),  # noqa: S301
        copy.deepcopy(event),
    ):
        assert again == event
        assert hash(again) == hash(event)


def test_only_values_of_the_asked_kind_are_seen() -> None:
    event = Event({"a": [1, "x", True, 2.5, math.nan]})
    assert event.of_kind("a", Kind.NUMBER) == (1, 2.5)
    assert event.of_kind("a", Kind.TEXT) == ("x",)
    assert event.of_kind("a", Kind.BITS) == ()
    assert event.of_kind("b", Kind.NUMBER) == ()


def test_given_values_replace_or_join_the_others() -> None:
    event = Event({"a": 1, "b": 2})
    assert event.with_values({"b": (3,), "c": (4, 5)}) == Event({"a": 1, "b": 3, "c": [4, 5]})
    assert event == Event({"a": 1, "b": 2})


def test_one_value_is_shown_plain_and_several_as_a_list() -> None:
    assert repr(Event({"a": 1, "b": [2, 3]})) == "Event({'a': 1, 'b': [2, 3]})"


@pytest.mark.parametrize("name", events.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert hasattr(events, name)
