"""Events and schemas as JSON text, strictly: nothing is guessed, repaired or silently dropped.

The standard library's scanner is in C. Its hooks see what must be refused but not where it is, so
they leave a `RejectedValue` in its place; the walk that flattens the data, which knows the place,
refuses it. The hooks cost about an eighth of such a walk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Final

from tamis.errors import EventError, JSONError, LimitError, SchemaError
from tamis.events import places
from tamis.events.event import SINGLE, Event, EventLimits, too_deep
from tamis.events.kinds import Value, check_value, traits_of
from tamis.events.places import path
from tamis.events.schema import Attribute, Schema, attribute, did_you_mean
from tamis.events.values import RejectedValue, brief

BYTES_OF_JSON: Final = "bytes of JSON text"
_PART: Final = 1 << 16

# --- the decoder ---------------------------------------------------------------------------


# Longer integers do not fit in 64 bits, and converting them takes quadratic time.
_MAX_INTEGER_CHARACTERS: Final = len(str(-(2**63)))


_GIVEN_TWICE: Final = RejectedValue("the name is given twice in one object")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                members[key] = _GIVEN_TWICE
            seen.add(key)
    return members


def _integer(digits: str) -> int | RejectedValue:
    if len(digits) <= _MAX_INTEGER_CHARACTERS:
        return int(digits)
    return RejectedValue(
        f"an integer of {len(digits.lstrip('-')):,} digits does not fit in 64 bits; "
        "send it as text or as a float"
    )


def _float(digits: str) -> float | RejectedValue:
    number = float(digits)
    return number if isfinite(number) else RejectedValue(f"{digits:.40} is too large for a float")


def _constant(name: str) -> RejectedValue:
    return RejectedValue(f"{name} is not JSON; leave the attribute out")


DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


# --- events --------------------------------------------------------------------------------


def decode_json(
    text: str | bytes, *, schema: Schema | None = None, limits: EventLimits | None = None
) -> Event:
    """Return the event that a JSON object describes, or say what is wrong and where.

    >>> decode_json('{"order": {"price": 9.5, "tags": ["new", "red"]}}')
    Event({'order.price': 9.5, 'order.tags': ['new', 'red']})
    >>> decode_json('{"order": {"price": 1, "price": 2}}')
    Traceback (most recent call last):
    tamis.errors.JSONError: order.price: the name is given twice in one object
    """
    limits = limits or EventLimits()
    data = parse_json(text, limits)
    if not isinstance(data, dict):
        raise JSONError(f"an event is a JSON object, not {kind_of_json(data)}", place="top level")
    try:
        return _event(data, schema, limits)
    except EventError as error:
        raise JSONError(error.reason, place=error.place) from None


def encode_json(event: Event) -> str:
    """Return the event as one line of JSON: flat, with dotted names.

    Timestamps become RFC 3339 text and bit sets their integer mask; a schema turns them back.

    >>> encode_json(Event({"order": {"price": 9.5, "tags": ["new", "red"]}}))
    '{"order.price":9.5,"order.tags":["new","red"]}'
    """
    for name, values in event.items():
        check_finite(name, values)
    return dump_json(event.as_dict())


def parse_json(text: str | bytes, limits: EventLimits) -> object:
    """Return the data in a JSON text; parts that must be refused are marked `RejectedValue`."""
    text = _readable(text, limits)
    try:
        return DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _syntax_error(error) from None
    except RecursionError:
        raise too_deep(limits) from None


def dump_json(data: object) -> str:
    """Return data made of Tamis values as compact JSON; other values raise an error.

    Names must be texts: of others, JSON makes texts.
    """
    return _ENCODER.encode(data)


def check_finite(name: str, values: tuple[Value, ...]) -> None:
    """Refuse values that JSON cannot express."""
    for value in values:
        if isinstance(value, float) and not isfinite(value):
            raise JSONError(
                f"{value} has no form in JSON; leave the attribute out", place=places.path([name])
            )


def kind_of_json(data: object) -> str:
    """Return the name of the JSON type of some data, for a sentence."""
    match data:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a text"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return "a number"


def _event(data: Mapping[str, object], schema: Schema | None, limits: EventLimits) -> Event:
    if schema is None:
        return Event.of_data(data, limits)
    return schema.conform(Event.of_data(data, limits, masks=schema.masks))


def require_json_text(text: object) -> None:
    """Refuse what is no text: a mapping is an event already."""
    if not isinstance(text, str | bytes | bytearray):
        hint = "; a mapping needs no decoding, so call match" if isinstance(text, Mapping) else ""
        raise JSONError(f"an event in JSON is text or bytes, not {brief(text)}{hint}")


def _readable(text: str | bytes, limits: EventLimits) -> str:
    require_json_text(text)
    if isinstance(text, str):
        _check_text(text, limits)
    else:
        _check_size(len(text), limits)
        text = _from_utf8(text)
    if text.startswith("\ufeff"):
        raise JSONError("JSON starts without a byte order mark; remove it", place=places.end_of(""))
    if not text.strip(" \t\r\n"):
        raise JSONError("there is no event in an empty text", place=places.end_of(text))
    return text


def _check_size(size: int, limits: EventLimits) -> None:
    if size > limits.size:
        raise LimitError(BYTES_OF_JSON, actual=size, limit=limits.size)


def _check_text(text: str, limits: EventLimits) -> None:
    """Refuse a text that would be too large in UTF-8, or has no such form."""
    if text.isascii():
        _check_size(len(text), limits)
        return
    # A part at a time: it may be far too large.
    parts = (text[first : first + _PART] for first in range(0, len(text), _PART))
    _check_size(sum(len(part.encode(errors="surrogatepass")) for part in parts), limits)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = places.end_of(text[: error.start])
        raise JSONError(
            "the text has a lone surrogate, so it is not Unicode", place=place
        ) from None


def _from_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        place = places.end_of(data[: error.start].decode())
        raise JSONError(
            f"the byte 0x{data[error.start]:02x} is not part of valid UTF-8", place=place
        ) from None


def _syntax_error(error: json.JSONDecodeError) -> JSONError:
    place = f"line {error.lineno}, column {error.colno}"
    if error.msg == "Extra data":
        return JSONError("there is more text after the end of the JSON value", place=place)
    return JSONError(f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}", place=place)


def json_form(value: object) -> object:
    """Return a value as JSON writes it: timestamps as text, bit sets as their mask."""
    traits = traits_of(value)
    return value if traits is None or traits.to_json is None else traits.to_json(value)


def _json_form(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, SINGLE):
        return list(value)
    return json_form(check_value(value))


# Made once: `json.dumps` would make one for every event.
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_form
)


# --- schemas -------------------------------------------------------------------------------


_MEMBERS: Final = ("type", "default", "many", "caseless")


def decode_schema(text: str | bytes) -> Schema:
    """Return the schema that a JSON object describes, or say what is wrong and where.

    >>> decode_schema('{"price": "float", "tag": {"type": "str", "many": true}}')
    Schema({'price': 'float', 'tag': Attribute('str', many=True)})
    >>> decode_schema('{"price": {"typ": "float"}}')
    Traceback (most recent call last):
    tamis.errors.SchemaError: price: "typ" is not a key of a schema; did you mean "type"?
    """
    _check_is_text(text)
    if not text.strip():
        raise SchemaError("there is no schema in an empty text")
    try:
        return schema_of(parse_json(text, EventLimits()))
    except JSONError as error:
        raise SchemaError(str(error)) from None


def _check_is_text(given: object) -> None:
    if not isinstance(given, str | bytes):
        advice = f": write Schema({given!r:.60})" if isinstance(given, Mapping) else ""
        raise SchemaError(f"a schema is JSON text, not {given!r:.60}{advice}")


def schema_of(data: object) -> Schema:
    """Return the schema that decoded JSON describes.

    >>> schema_of({"flags": {"type": "bits", "default": 0}})
    Schema({'flags': Attribute('bits', default=Bits(0b0))})
    """
    if not isinstance(data, Mapping):
        raise SchemaError(f"a schema is a JSON object, not {kind_of_json(data)}")
    return Schema({name: _declaration(str(name), given) for name, given in data.items()})


def schema_data(schema: Schema) -> dict[str, object]:
    """Return a schema as JSON data, which `schema_of` reads.

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
    if declared.caseless:
        members["caseless"] = True
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
                f"{path([name])}: expected a type, or an object with one, not {kind_of_json(given)}"
            )


def _attribute(place: str, members: Mapping[str, object]) -> Attribute:
    for member, value in members.items():
        if member not in _MEMBERS:
            hint = did_you_mean(member, _MEMBERS) or "it has type, default, many and caseless"
            raise SchemaError(f'{place}: "{path([member])}" is not a key of a schema; {hint}')
        if isinstance(value, RejectedValue):
            raise SchemaError(f"{place}.{member}: {value.reason}")
    type_ = members.get("type")
    if not isinstance(type_, str):
        raise SchemaError(f"{place}: its type is missing")
    many, caseless = _flag(place, members, "many"), _flag(place, members, "caseless")
    try:
        return attribute(type_, default=members.get("default"), many=many, caseless=caseless)
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None


def _flag(place: str, members: Mapping[str, object], name: str) -> bool:
    flag = members.get(name, False)
    if not isinstance(flag, bool):
        raise SchemaError(f"{place}.{name}: expected true or false")
    return flag
