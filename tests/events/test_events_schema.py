"""Schemas, and events that conform to them."""

from __future__ import annotations

import pytest
from hypothesis import given

from tamis.errors import EventError, SchemaError
from tamis.events import Attribute, Bits, Event, Kind, Schema, Type, Value, attribute
from tamis.events.schema import AttributeDeclaration, brief_value, did_you_mean, fit

from . import event_strategies as some


@pytest.mark.parametrize(
    ("declaration", "type_", "kind"),
    [
        ("int", Type.INT, Kind.NUMBER),
        (float, Type.FLOAT, Kind.NUMBER),
        (Type.STR, Type.STR, Kind.TEXT),
        (bool, Type.BOOL, Kind.BOOLEAN),
        ("timestamp", Type.TIMESTAMP, Kind.TIMESTAMP),
        (Bits, Type.BITS, Kind.BITS),
        (attribute("int", many=True), Type.INT, Kind.NUMBER),
    ],
)
def test_a_type_is_named_by_a_word_or_a_class(
    declaration: AttributeDeclaration, type_: Type, kind: Kind
) -> None:
    declared = Schema({"a": declaration})["a"]
    assert declared.type is type_
    assert declared.kind is kind


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"a": "integer"}, "a: 'integer' is not a type; the types are 'int', 'float'"),
        ({"a": complex}, "a: <class 'complex'> is not a type"),
        ({"a": 5}, "a: 5 is not a type"),
        ({"": "int"}, "a text that is not empty"),
        ({5: "int"}, "not 5"),
        ({"\ud800": "int"}, "lone surrogate"),
        ({"a": Attribute(Type.INT, default="x")}, "a: the default is not valid: 'x' is not"),
    ],
)
def test_a_wrong_schema_is_refused_with_a_sentence(attributes: object, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        Schema(attributes)  # type: ignore[arg-type]


def test_a_default_must_be_of_the_declared_type() -> None:
    with pytest.raises(SchemaError, match="the default is not valid"):
        attribute("int", default="many")


def test_a_default_is_converted_like_a_value() -> None:
    assert attribute("bits", default=5).default == Bits([0, 2])
    assert attribute("timestamp", default="2026-01-01").default == some.moment(2026, 1, 1)


@pytest.mark.parametrize(
    ("type_", "value", "fitted"),
    [
        (Type.FLOAT, 5, 5.0),
        (Type.FLOAT, -(2**63), -(2.0**63)),
        (Type.BITS, 6, Bits([1, 2])),
        (Type.TIMESTAMP, "2026-01-01T00:00:00Z", some.moment(2026, 1, 1)),
        (Type.INT, 5, 5),
        (Type.BOOL, True, True),
    ],
)
def test_a_value_fits_where_nothing_is_lost(type_: Type, value: Value, fitted: Value) -> None:
    result = fit(value, type_, "a")
    assert result == fitted
    assert type(result) is type(fitted)


@pytest.mark.parametrize(
    ("type_", "value", "words"),
    [
        (Type.FLOAT, 2**53 + 1, "has no exact float"),
        (Type.FLOAT, True, "is not of type 'float'"),
        (Type.INT, 5.0, "5.0 is not of type 'int'"),
        (Type.INT, True, "True is not of type 'int'"),
        (Type.BOOL, 1, "1 is not of type 'bool'"),
        (Type.BITS, -1, "-1 is not of type 'bits'"),
        (Type.BITS, True, "True is not of type 'bits'"),
        (Type.STR, 5, "5 is not of type 'str'"),
        (Type.TIMESTAMP, "today", "is not a timestamp"),
        (Type.TIMESTAMP, 5, "5 is not of type 'timestamp'"),
    ],
)
def test_a_value_that_would_change_is_refused(type_: Type, value: Value, words: str) -> None:
    with pytest.raises(EventError, match=words) as caught:
        fit(value, type_, "a")
    assert caught.value.place == "a"


def test_several_values_need_an_attribute_declared_for_them() -> None:
    event = Event({"tag": ["a", "b"]})
    with pytest.raises(EventError, match="tag: it holds 2 values, but the schema declares one"):
        Schema({"tag": "str"}).conform(event)
    assert Schema({"tag": attribute("str", many=True)}).conform(event) is event


def test_attributes_that_the_schema_does_not_name_pass() -> None:
    event = Event({"other": 1})
    assert Schema({"price": "int"}).conform(event) is event


def test_mode_total_requires_every_attribute() -> None:
    schema = Schema({"price": "int", "name": "str"})
    schema.require_all(Event({"price": 1, "name": "a"}))
    with pytest.raises(EventError, match="name: the event lacks it"):
        schema.require_all(Event({"price": 1}))


def test_mode_default_fills_in_only_what_is_absent() -> None:
    schema = Schema({"price": attribute("int", default=0), "name": "str"})
    assert schema.with_defaults(Event({"x": 1})) == Event({"x": 1, "price": 0})
    given_one = Event({"price": 7})
    assert schema.with_defaults(given_one) is given_one


@given(some.schemas_with_events())
def test_conforming_twice_is_conforming_once(pair: tuple[Schema, Event]) -> None:
    schema, event = pair
    assert schema.conform(event) is event
    assert schema.conform(schema.with_defaults(event)) == event


def test_a_misspelt_name_is_recognised() -> None:
    assert Schema({"price": "int"}).suggestion("prize") == 'did you mean "price"?'
    assert did_you_mean("unlike", ["price"]) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a", "'a'"), (some.moment(2026, 1, 1), "2026-01-01T00:00:00Z"), (Bits([1]), "Bits(0b10)")],
)
def test_a_value_is_shown_shortly_in_a_sentence(value: Value, shown: str) -> None:
    assert brief_value(value) == shown
    assert len(brief_value("x" * 1000)) <= 60
