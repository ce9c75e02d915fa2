"""Hypothesis strategies for values, events, schemas and CloudEvents."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from tamis.errors import TamisError
from tamis.events import Bits, CloudEvent, Event, Schema, Type, Value, attribute
from tamis.events.values import INT64_MAX, INT64_MIN

names = st.text(min_size=1, max_size=8)
integers = st.integers(INT64_MIN, INT64_MAX)
finite_floats = st.floats(allow_nan=False, allow_infinity=False)
timestamps = st.datetimes(timezones=st.just(UTC))
bits = st.builds(Bits.from_mask, st.integers(0, 2**64 - 1))

json_scalars: st.SearchStrategy[Any] = st.one_of(integers, finite_floats, st.text(), st.booleans())
plain_values: st.SearchStrategy[Value] = json_scalars
all_values: st.SearchStrategy[Value] = st.one_of(
    integers,
    st.floats(),
    st.text(),
    st.booleans(),
    timestamps,
    bits,
    st.dates(),
    st.uuids(),
    st.binary(),
)

VALUES_OF_TYPE: dict[Type, st.SearchStrategy[Any]] = {
    Type.INT: integers,
    Type.FLOAT: finite_floats,
    Type.STR: st.text(),
    Type.BOOL: st.booleans(),
    Type.TIMESTAMP: timestamps,
    Type.BITS: bits,
    Type.DATE: st.dates(),
    Type.UUID: st.uuids(),
    Type.BYTES: st.binary(),
}


def events(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Event]:
    """Events with one value or several per attribute."""
    attributes = st.dictionaries(names, st.lists(values, min_size=1, max_size=3), max_size=6)
    return attributes.map(Event)


@st.composite
def schemas_with_events(draw: st.DrawFn) -> tuple[Schema, Event]:
    """A schema of several-valued attributes, and an event that conforms to it."""
    types = draw(st.dictionaries(names, st.sampled_from(Type), max_size=6))
    schema = Schema({name: attribute(type_, many=True) for name, type_ in types.items()})
    values = {
        name: draw(st.lists(VALUES_OF_TYPE[type_], max_size=3)) for name, type_ in types.items()
    }
    return schema, Event(values)


# The keys have no dots, so that no attribute can be given twice.
keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1)
json_data: st.SearchStrategy[Any] = st.recursive(
    st.none() | json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
json_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(keys, json_data, max_size=5)

_attribute_text = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1)
_extension_names = st.from_regex(r"x[a-z0-9]{0,10}", fullmatch=True)
_extension_values = st.booleans() | st.integers(-(2**31), 2**31 - 1) | _attribute_text
_contents: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"data": json_data}),
    st.fixed_dictionaries({"data": st.text(), "datacontenttype": st.just("text/xml")}),
    st.fixed_dictionaries({"data": st.binary(), "datacontenttype": st.just("image/png")}),
)


@st.composite
def cloudevents(draw: st.DrawFn) -> CloudEvent:
    """CloudEvents with every kind of data, or none."""
    return CloudEvent(
        id=draw(_attribute_text),
        source=draw(st.sampled_from(["/shop", "urn:shop:1", "https://example.com/a?b#c"])),
        type=draw(_attribute_text),
        subject=draw(st.none() | _attribute_text),
        time=draw(st.none() | timestamps),
        dataschema=draw(st.none() | st.just("https://example.com/schema")),
        extensions=draw(st.dictionaries(_extension_names, _extension_values, max_size=3)),
        **draw(_contents),
    )


def refusal(attempt: Callable[[], object]) -> TamisError | None:
    """Return the error of ours that an attempt raises, after checking that it can be printed."""
    try:
        attempt()
    except TamisError as error:
        str(error).encode()
        return error
    return None


def moment(*parts: int) -> datetime:
    """Return a datetime in UTC."""
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]
