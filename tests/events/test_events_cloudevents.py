"""CloudEvents 1.0 in their JSON format."""

from __future__ import annotations

import json
import math
import pickle
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from tamis.errors import CloudEventError, EventError, JSONError, LimitError
from tamis.events import (
    CloudEvent,
    Event,
    EventLimits,
    decode_cloudevent,
    decode_cloudevents,
    encode_cloudevent,
    encode_cloudevents,
)

from . import event_strategies as some

REQUIRED: dict[str, Any] = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "/mycontext",
    "type": "com.example.someevent",
}


def text(**members: object) -> str:
    return json.dumps(REQUIRED | members)


def test_context_and_data_become_attributes() -> None:
    cloudevent = decode_cloudevent(
        text(
            time="2018-04-05T19:31:00+02:00",
            subject=None,
            comexampleothervalue=5,
            urgent=True,
            unsetextension=None,
            data={"order": {"price": 9.5}, "tags": ["new", "red"]},
        )
    )
    assert cloudevent.extensions == {"comexampleothervalue": 5, "urgent": True}
    assert cloudevent.event() == Event(
        REQUIRED
        | {
            "time": some.moment(2018, 4, 5, 17, 31),
            "comexampleothervalue": 5,
            "urgent": True,
            "data.order.price": 9.5,
            "data.tags": ["new", "red"],
        }
    )


@pytest.mark.parametrize(
    ("members", "data", "attributes"),
    [
        ({}, UNSET, {}),
        ({"data": None}, None, {}),
        ({"data_base64": None}, UNSET, {}),
        ({"data": 5, "data_base64": None}, 5, {"data": 5}),
        ({"data": "I'm just a string"}, "I'm just a string", {"data": "I'm just a string"}),
        ({"data": [1, {"a": 2}]}, [1, {"a": 2}], {"data": 1, "data.a": 2}),
        ({"data": "<x/>", "datacontenttype": "text/xml"}, "<x/>", {"data": "<x/>"}),
        ({"data": {"a": 1}, "datacontenttype": "Application/Geo+JSON ; q=1"}, {"a": 1}, None),
        ({"data": {"a": 1}, "datacontenttype": "text/json"}, {"a": 1}, None),
        ({"data_base64": "emlw", "datacontenttype": "application/zip"}, b"zip", {}),
        ({"data_base64": ""}, b"", {}),
    ],
)
def test_data_survives_a_round_trip(members: Any, data: object, attributes: Any) -> None:
    cloudevent = decode_cloudevent(text(**members))
    assert cloudevent.data == data
    assert type(cloudevent.data) is type(data)
    if attributes is not None:
        seen = {n: v for n, v in cloudevent.event().as_dict().items() if n.startswith("data")}
        seen.pop("datacontenttype", None)
        assert seen == attributes
    filled = {name: value for name, value in members.items() if name != "data_base64" or value}
    if data == b"":
        filled["data_base64"] = ""
    assert json.loads(encode_cloudevent(cloudevent)) == REQUIRED | filled


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"id": None}, "id: it is missing"),
    ({"id": ""}, "id: it is empty"),
    ({"id": 5}, "id: it is a text, not of type 'int'"),
    ({"type": None}, "type: it is missing"),
    ({"source": None}, "source: it is missing"),
    ({"source": ""}, "source: it is empty"),
    ({"source": "a b"}, "source: 'a b' is not a URI reference"),
    ({"source": "http://[::1"}, "source: 'http://[::1' is not a URI reference"),
    ({"source": "http://host:port/"}, "source: 'http://host:port/' is not a URI reference"),
    ({"source": "//host:port/"}, "source: '//host:port/' is not a URI reference"),
    ({"source": "1a:b"}, "source: '1a:b' is not a URI reference"),
    ({"source": "/100%"}, "source: '/100%' is not a URI reference"),
    ({"subject": ""}, "subject: it is empty"),
    ({"subject": "a\nb"}, "subject: it has the character U+000A at 2"),
    ({"subject": "\x7f"}, "subject: it has the character U+007F"),
    ({"subject": "\x85"}, "subject: it has the character U+0085"),
    ({"subject": "\ufdd0"}, "subject: it has the character U+FDD0"),
    ({"subject": "\U0010ffff"}, "subject: it has the character U+10FFFF"),
    ({"subject": "a\ud800"}, "subject: the text has a lone surrogate (U+D800) at character 2"),
    ({"dataschema": "/relative"}, "dataschema: '/relative' is not a URI with a scheme"),
    ({"dataschema": ""}, "dataschema: it is empty"),
    ({"datacontenttype": "json"}, "datacontenttype: 'json' is not a media type"),
    ({"datacontenttype": "text/xml; charset"}, "datacontenttype: 'text/xml; charset' is not"),
    ({"time": "yesterday"}, "time: 'yesterday' is not a full RFC 3339 timestamp"),
    ({"time": "2018-04-05"}, "time: '2018-04-05' is not a full"),
    ({"time": "2018-04-05T17:31:00"}, "time: '2018-04-05T17:31:00' is not a full"),
    ({"time": "2018-02-30T17:31:00Z"}, "time: '2018-02-30T17:31:00Z' is not a timestamp: day"),
    ({"time": 1522949460}, "time: '1522949460' is not a full"),
    ({"specversion": None}, "specversion: it is missing"),
    ({"specversion": "0.3"}, "specversion: it is '0.3', and Tamis knows '1.0'"),
    ({"specversion": 1.0}, "specversion: it is 1.0, and Tamis knows '1.0'"),
    ({"comExample": "x"}, "comExample: the name of an attribute has only lower-case letters"),
    ({"com_example": "x"}, "com_example: the name of an attribute has only"),
    ({"": "x"}, ": the name of an attribute has only"),
    ({"é": "x"}, "é: the name of an attribute has only"),
    ({"x1": 1.5}, "x1: an extension is a boolean, an integer or a text, not of type 'float'"),
    ({"x1": {"a": 1}}, "x1: an extension is a boolean"),
    ({"x1": [1]}, "x1: an extension is a boolean"),
    ({"x1": 2**31}, "x1: the integer 2147483648 does not fit in 32 bits"),
    ({"x1": -(2**31) - 1}, "x1: the integer -2147483649 does not fit in 32 bits"),
    ({"x1": "\0"}, "x1: it has the character U+0000"),
    ({"data": 1, "data_base64": "emlw"}, "data_base64: it is given beside 'data'"),
    ({"data": None, "data_base64": "emlw"}, "data_base64: it is given beside 'data'"),
    ({"data_base64": "emlw="}, "data_base64: it is not Base64 text"),
    ({"data_base64": "em-_"}, "data_base64: it is not Base64 text"),
    ({"data_base64": "em9="}, "data_base64: it is not Base64 text"),
    ({"data_base64": "em lw"}, "data_base64: it is not Base64 text"),
    ({"data_base64": "é"}, "data_base64: it is not Base64 text"),
    ({"data_base64": 5}, "data_base64: it is not Base64 text"),
    ({"data": {"a": 1}, "datacontenttype": "text/xml"}, "data: data of content type 'text/xml'"),
    ({"data": {"a": [1, math.inf]}}, "data.a[1]: Infinity is not JSON"),
    ({"data": {"a": [2**64]}}, "data.a[0]: the integer 18446744073709551616 does not fit"),
    ({"data": {"a": {"": 1}}}, "data.a: '' is not an attribute name"),
    ({"x1": math.nan}, "x1: NaN is not JSON"),
]


@pytest.mark.parametrize(("members", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_cloudevent_is_refused_in_its_place(
    members: dict[str, object], message: str
) -> None:
    with pytest.raises(CloudEventError) as caught:
        decode_cloudevent(text(**members))
    assert str(caught.value).startswith(message.removeprefix(": "))
    with pytest.raises(CloudEventError) as caught:
        decode_cloudevents(f"[{text()}, {text(**members)}]")
    assert str(caught.value).startswith(f"[1].{message}".replace("].:", "]:"))


@pytest.mark.parametrize(
    "source",
    [
        "https://github.com/cloudevents",
        "mailto:cncf-wg-serverless@lists.cncf.io",
        "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
        "/cloudevents/spec/pull/123",
        "1-555-123-4567",
        "//pubsub.googleapis.com/projects/p/topics/t",
        "http://user:pw@[::1]:8080/a%20b?q=/?#f",
        "a/b:c",
        "?q",
        "#f",
    ],
)
def test_every_uri_reference_is_a_source(source: str) -> None:
    assert decode_cloudevent(text(source=source)).source == source


def test_a_name_given_twice_is_refused() -> None:
    twice = text().replace('"id"', '"id": "1", "id"')
    with pytest.raises(CloudEventError, match=r"^id: the name is given twice"):
        decode_cloudevent(twice)
    with pytest.raises(CloudEventError, match=r"^\[1\].data.a: the name is given twice"):
        decode_cloudevents(f'[{text()}, {text(data=0)[:-2]}{{"a": 1, "a": 1}}}}]')


@pytest.mark.parametrize(
    ("decode", "given_text", "message"),
    [
        (decode_cloudevent, "[]", "a CloudEvent is a JSON object, not an array"),
        (decode_cloudevents, "{}", "a batch is a JSON array, not an object"),
        (decode_cloudevents, "[null]", "[0]: a CloudEvent is a JSON object, not null"),
    ],
)
def test_a_text_of_another_shape_is_refused(decode: Any, given_text: str, message: str) -> None:
    with pytest.raises(CloudEventError) as caught:
        decode(given_text)
    assert str(caught.value) == message


@pytest.mark.parametrize("decode", [decode_cloudevent, decode_cloudevents])
def test_what_is_not_json_is_a_json_error_in_its_line(decode: Any) -> None:
    with pytest.raises(JSONError, match="line 1, column 2: this is not JSON"):
        decode("[,")


def test_limits_hold_for_each_event_of_a_batch() -> None:
    limits = EventLimits(attributes=5)
    assert decode_cloudevents(f"[{text()}, {text(data=1)}]", limits=limits)
    with pytest.raises(LimitError, match=r"^\[1\]: attributes of the event: more than 5"):
        decode_cloudevents(f"[{text()}, {text(data=1, x=1)}]", limits=limits)
    with pytest.raises(LimitError, match="bytes of JSON text"):
        decode_cloudevents("[" + text() + "]", limits=EventLimits(size=50))


def test_an_empty_batch_is_a_batch() -> None:
    assert decode_cloudevents("[]") == []
    assert encode_cloudevents([]) == "[]"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"extensions": {"id": "x"}}, "id: an extension cannot have this name"),
        ({"extensions": {"specversion": "2"}}, "specversion: an extension cannot have this name"),
        ({"extensions": {"data": "x"}}, "data: an extension cannot have this name"),
        ({"extensions": {"X": "x"}}, "X: the name of an attribute"),
        ({"extensions": {"x": 10**5000}}, "x: the integer a huge int does not fit"),
        ({"time": "2026-01-01T00:00:00Z"}, "time: it is a datetime with a time zone"),
        ({"time": some.moment(2026, 1, 1).replace(tzinfo=None)}, "time: the datetime"),
        ({"data": {"a": math.nan}}, "data.a: nan has no form in JSON"),
        ({"data": {"a": {1}}}, "data.a: a value of type 'set'"),
        ({"data": {"a": 1j}}, "data.a: a value of type 'complex'"),
    ],
)
def test_an_invalid_cloudevent_cannot_be_made(fields: Any, message: str) -> None:
    with pytest.raises(EventError) as caught:
        CloudEvent(**({"id": "1", "source": "/s", "type": "t"} | fields))
    assert str(caught.value).startswith(message)


def test_any_mapping_sequence_or_value_of_an_event_can_be_data() -> None:
    data = MappingProxyType({"a": range(2), "at": some.moment(2026, 1, 1)})
    encoded = encode_cloudevent(CloudEvent(id="1", source="/s", type="t", data=data))
    assert json.loads(encoded)["data"] == {"a": [0, 1], "at": "2026-01-01T00:00:00Z"}


def test_extensions_are_copied_and_unset_ones_left_out() -> None:
    extensions: dict[str, Any] = {"x": 1, "y": None}
    cloudevent = CloudEvent(id="1", source="/s", type="t", extensions=extensions)
    extensions["Z"] = object()
    assert cloudevent.extensions == {"x": 1}
    assert decode_cloudevent(encode_cloudevent(cloudevent)) == cloudevent


def test_equal_data_of_other_types_makes_another_cloudevent() -> None:
    one, true = (CloudEvent(id="1", source="/s", type="t", data=[v]) for v in (1, True))
    assert one != true
    assert one == CloudEvent(id="1", source="/s", type="t", data=[1])


@given(some.cloudevents())
def test_a_cloudevent_survives_a_round_trip_through_text(cloudevent: CloudEvent) -> None:
    again = decode_cloudevent(encode_cloudevent(cloudevent).encode())
    assert again == cloudevent
    assert hash(again) == hash(cloudevent)
    assert again.event() == cloudevent.event()


@given(st.lists(some.cloudevents(), max_size=3))
def test_a_batch_survives_a_round_trip_through_text(cloudevents: list[CloudEvent]) -> None:
    assert decode_cloudevents(encode_cloudevents(cloudevents)) == cloudevents


@given(some.cloudevents())
def test_a_cloudevent_can_be_pickled(cloudevent: CloudEvent) -> None:
    assert pickle.loads(pickle.dumps(cloudevent)) == cloudevent  # noqa: S301


@pytest.mark.parametrize("decode", [decode_cloudevent, decode_cloudevents])
@given(data=some.json_data | some.json_objects.map(REQUIRED.__or__))
def test_no_json_raises_anything_but_our_errors(decode: Any, data: object) -> None:
    some.refusal(lambda: decode(json.dumps(data)))
