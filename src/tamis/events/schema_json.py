"""A schema as JSON: `{"price": "float", "tag": {"type": "str", "many": true}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tamis.errors import JSONError, SchemaError
from tamis.events.json_text import json_form, kind_of_json, parse_json
from tamis.events.limits import EventLimits
from tamis.events.places import path
from tamis.events.schema import Attribute, Schema, attribute, did_you_mean
from tamis.events.strict_json import RejectedValue

_MEMBERS: Final = ("type", "default", "many")


def decode_schema(text: str | bytes) -> Schema:
    """Return the schema that a JSON object describes, or say what is wrong and where.

    >>> decode_schema('{"price": "float", "tag": {"type": "str", "many": true}}')
    Schema({'price': 'float', 'tag': Attribute('str', many=True)})
    >>> decode_schema('{"price": {"typ": "float"}}')
    Traceback (most recent call last):
    tamis.errors.SchemaError: price: "typ" says nothing in a schema; did you mean "type"?
    """
    if not text.strip():
        raise SchemaError("there is no schema in an empty text")
    try:
        return schema_of(parse_json(text, EventLimits()))
    except JSONError as error:
        raise SchemaError(str(error)) from None


def schema_of(data: object) -> Schema:
    """Return the schema that decoded JSON describes.

    >>> schema_of({"flags": {"type": "bits", "default": 0}})
    Schema({'flags': Attribute('bits', default=Bits(0b0))})
    """
    if not isinstance(data, Mapping):
        raise SchemaError(f"a schema is a JSON object, not {kind_of_json(data)}")
    return Schema({name: _declaration(str(name), given) for name, given in data.items()})


def schema_data(schema: Schema) -> dict[str, object]:
    """Return a schema as the data that `schema_of` reads, ready for JSON.

    >>> schema_data(Schema({"price": "float", "flags": attribute("bits", default=5)}))
    {'price': {'type': 'float'}, 'flags': {'type': 'bits', 'default': 5}}
    """
    return {name: _members(declared) for name, declared in schema.items()}


def _members(declared: Attribute) -> dict[str, object]:
    members: dict[str, object] = {"type": declared.type.value}
    if declared.default is not None:
        members["default"] = json_form(declared.default)
    if declared.many:
        members["many"] = True
    return members


def _declaration(name: str, given: object) -> str | Attribute:
    match given:
        case str():
            return given
        case Mapping():
            return _attribute(path([name]), given)
        case RejectedValue(reason=reason):
            raise SchemaError(f"{path([name])}: {reason}")
        case _:
            raise SchemaError(
                f"{path([name])}: a type, or an object with one, should stand here, "
                f"not {kind_of_json(given)}"
            )


def _attribute(place: str, members: Mapping[str, object]) -> Attribute:
    for member, value in members.items():
        if member not in _MEMBERS:
            hint = did_you_mean(member, _MEMBERS) or "it has type, default and many"
            raise SchemaError(f'{place}: "{path([member])}" says nothing in a schema; {hint}')
        if isinstance(value, RejectedValue):
            raise SchemaError(f"{place}.{member}: {value.reason}")
    type_, many = members.get("type"), members.get("many", False)
    if not isinstance(type_, str):
        raise SchemaError(f"{place}: its type is missing")
    if not isinstance(many, bool):
        raise SchemaError(f"{place}.many: true or false should stand here")
    try:
        return attribute(type_, default=members.get("default"), many=many)
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None
