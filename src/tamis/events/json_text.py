"""One event as JSON text, strictly: nothing is guessed, repaired or silently dropped.

The decoder marks what must be refused, and the walk that flattens the data refuses it in its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite

from tamis.errors import EventError, JSONError, LimitError
from tamis.events import places
from tamis.events.event import Event
from tamis.events.flatten import flatten
from tamis.events.limits import EventLimits, too_deep
from tamis.events.schema import Schema
from tamis.events.strict_json import DECODER
from tamis.events.timestamps import format_timestamp
from tamis.events.values import Bits, Type, Value


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
    """Return data of values that Tamis knows as compact JSON."""
    return json.dumps(
        data, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_form
    )


def check_finite(name: str, values: tuple[Value, ...]) -> None:
    """Refuse values that JSON cannot express."""
    for value in values:
        if isinstance(value, float) and not isfinite(value):
            raise JSONError(
                f"{value} has no form in JSON; leave the attribute out", place=places.path([name])
            )


def kind_of_json(data: object) -> str:
    """Return how a sentence names the kind of some JSON data."""
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
        return Event.of_checked(flatten(data, limits))
    masks = {name for name, declared in schema.items() if declared.type is Type.BITS}
    return schema.conform(Event.of_checked(flatten(data, limits, masks=masks)))


def _readable(text: str | bytes, limits: EventLimits) -> str:
    _check_size(len(text), limits)
    if isinstance(text, str):
        _check_size(len(_utf8(text)), limits)
    else:
        text = _from_utf8(text)
    if text.startswith("\ufeff"):
        raise JSONError("JSON starts without a byte order mark; remove it", place=places.end_of(""))
    if not text.strip(" \t\r\n"):
        raise JSONError("there is no event in an empty text", place=places.end_of(text))
    return text


def _check_size(size: int, limits: EventLimits) -> None:
    if size > limits.size:
        raise LimitError("bytes of JSON text", actual=size, limit=limits.size)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
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
    match value:
        case datetime():
            return format_timestamp(value)
        case Bits():
            return value.mask
        case _:
            return value


def _json_form(value: object) -> object:
    match value:
        case datetime() | Bits():
            return json_form(value)
        case Mapping():
            return dict(value)
        case Sequence():
            return list(value)
        case _:
            raise TypeError(f"{type(value).__name__!r} has no form in JSON")
