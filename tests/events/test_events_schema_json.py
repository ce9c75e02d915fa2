"""Schemas from JSON."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tamis.errors import SchemaError
from tamis.events import Attribute, Bits, Type, decode_schema, schema_of
from tamis.events.json_text import schema_data


def test_types_defaults_and_several_values_are_read() -> None:
    schema = decode_schema(
        '{"price": "float", "order.at": {"type": "timestamp", "default": "2026-01-01"},'
        ' "flags": {"type": "bits", "default": 5, "many": true}}'
    )
    assert dict(schema) == {
        "price": Attribute(Type.FLOAT),
        "order.at": Attribute(Type.TIMESTAMP, datetime(2026, 1, 1, tzinfo=UTC)),
        "flags": Attribute(Type.BITS, Bits([0, 2]), many=True),
    }


def test_decoded_json_is_read_as_well() -> None:
    assert schema_of({"price": {"type": "float"}}) == decode_schema('{"price": "float"}')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no schema in an empty text"),
        ('{"a": }', "line 1, column 7"),
        ('"a"', "a schema is a JSON object, not a text"),
        ('{"": "int"}', "not empty"),
        ('{"a": null}', "a: expected a type, or an object with one, not null"),
        ('{"a": {}}', "a: its type is missing"),
        ('{"a": {"type": 5}}', "a: its type is missing"),
        ('{"a": {"type": "number"}}', "a: 'number' is not a type"),
        ('{"a": {"type": "int", "default": "x"}}', "a: the default is not valid"),
        ('{"a": {"type": "int", "default": 1e400}}', "a.default: 1e400 is too large"),
        ('{"a": {"type": "int", "many": "yes"}}', "a.many: expected true or false"),
        ('{"a": {"type": "int", "x": 1}}', 'a: "x" is not a key of a schema; it has type'),
        ('{"a": "int", "a": "str"}', "a: the name is given twice in one object"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        decode_schema(text)
    assert words in str(caught.value)


def test_a_default_mask_may_have_the_sixty_fourth_bit() -> None:
    schema = decode_schema('{"flags": {"type": "bits", "default": 9223372036854775809}}')
    assert schema_of(schema_data(schema)) == schema
