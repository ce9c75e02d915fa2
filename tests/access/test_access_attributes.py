"""Which attributes a set has, and what is left of documents."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.access.attributes import AttributeSet, project


@pytest.mark.parametrize(
    ("shown", "hidden", "inside", "outside"),
    [
        (None, [], ["a", "a.b", "data_base64"], []),
        (None, ["a"], ["b", "ab", "b.a"], ["a", "a.b", "a.b.c", "a."]),
        (None, ["a.b"], ["a", "a.c", "a.bc"], ["a.b", "a.b.c"]),
        (["a"], [], ["a", "a.b"], ["b", "ab", "data_base64"]),
        (["a.b"], [], ["a.b", "a.b.c"], ["a", "a.c"]),
        (["a"], ["a.b"], ["a", "a.c"], ["a.b", "a.b.c", "c"]),
        (["a.b"], ["a"], [], ["a", "a.b"]),
        ([], [], [], ["a", "data_base64"]),
        # The bytes of a CloudEvent are its data, and whatever is hidden of it may be in them.
        (None, ["data"], ["database64"], ["data", "data_base64"]),
        (None, ["data.level"], ["data", "data.price"], ["data.level", "data_base64"]),
        (None, ["data_base64"], ["data"], ["data_base64"]),
        (["data"], [], ["data", "data_base64"], ["type"]),
        (["data"], ["data.level"], ["data"], ["data_base64"]),
        (["data.price"], [], ["data.price"], ["data", "data_base64"]),
    ],
)
def test_a_name_includes_everything_nested_in_it(
    shown: list[str] | None, hidden: list[str], inside: list[str], outside: list[str]
) -> None:
    attributes = AttributeSet(shown=shown, hidden=hidden)
    assert [name for name in inside + outside if attributes.include(name)] == inside


@pytest.mark.parametrize(
    ("document", "left"),
    [
        ({"a": 1, "h": 2}, {"a": 1}),
        ({"h": {"x": 1}, "a": 1}, {"a": 1}),
        ({"b": {"h": 1, "c": 2}}, {"b": {"c": 2}}),
        ({"b.h": 1, "b.c": 2}, {"b.c": 2}),
        ({"b": {"h.x": 1, "hx": 2}}, {"b": {"hx": 2}}),
        # What could tell that something was there goes too.
        ({"b": {"h": 1}}, {}),
        ({"b": {}, "c": [], "d": None, "e": [{}, [None]]}, {}),
        ({"b": [{"h": 1}, {"h": 2, "c": 3}, {"c": 4}]}, {"b": [{"c": 3}, {"c": 4}]}),
        ({"b": [[{"h": 1}], [2], 3]}, {"b": [[2], 3]}),
        ({"b": [{"h": 1}]}, {}),
        # What is there stays, however little it is.
        ({"b": {"c": ""}, "d": False, "e": 0}, {"b": {"c": ""}, "d": False, "e": 0}),
        ({"id": "1", "h": "x", "data": {"h": 1}}, {"id": "1", "data": {"h": 1}}),
        ({}, {}),
    ],
)
def test_what_is_hidden_leaves_no_trace_in_a_document(
    document: dict[str, Any], left: dict[str, Any]
) -> None:
    assert project(document, [AttributeSet(hidden=["h", "b.h"])]) == left


def test_what_one_of_several_sets_has_stays() -> None:
    sets = [AttributeSet(hidden=["a", "b.c"]), AttributeSet(shown=["b.c"])]
    assert project({"a": 1, "b": {"c": 2, "d": 3}}, sets) == {"b": {"c": 2, "d": 3}}


def test_a_cloudevent_keeps_its_bytes_only_where_nothing_of_its_data_is_hidden() -> None:
    document = {"specversion": "1.0", "id": "1", "type": "t", "data_base64": "eA=="}
    assert project(document, [AttributeSet(hidden=["id"])])["data_base64"] == "eA=="
    assert "data_base64" not in project(document, [AttributeSet(hidden=["data.level"])])
