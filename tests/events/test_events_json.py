"""One event as JSON text."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tamis.errors import JSONError, LimitError
from tamis.events import (
    Bits,
    Event,
    EventLimits,
    Schema,
    attribute,
    decode_json,
    encode_json,
)

from . import event_strategies as some


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("{}", {}),
        (' \t\r\n{"a" : 1} \n', {"a": 1}),
        ('{"a": 1, "b": 1.0, "c": true, "d": "x", "e": null, "f": []}', None),
        ('{"order": {"items": [{"sku": "a"}, {"sku": "b"}]}}', {"order.items.sku": ["a", "b"]}),
        ('{"a": -9223372036854775808}', {"a": -(2**63)}),
        ('{"a": 9223372036854775807}', {"a": 2**63 - 1}),
        ('{"a": -0.0}', {"a": -0.0}),
        ('{"a": -0}', {"a": 0}),
        ('{"a": 1e308}', {"a": 1e308}),
        ('{"a": 1e-999}', {"a": 0.0}),
        ('{"a": 123456789012345678901234567890.0}', {"a": 123456789012345678901234567890.0}),
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}),
        (r'{"\u0061": "\u0000"}', {"a": "\0"}),
        ('{"a": "\u2028"}', {"a": "\u2028"}),
    ],
)
@pytest.mark.parametrize("form", [str, str.encode])
def test_json_text_or_its_utf8_gives_the_event(text: str, event: Any, form: Any) -> None:
    expected = json.loads(text) if event is None else event
    assert decode_json(form(text)) == Event(expected)


IN_TEXT = [
    (r'{"a": 1, "a": 2}', "a: the name is given twice in one object"),
    (r'{"a": 1, "\u0061": 2}', "a: the name is given twice in one object"),
    (r'{"x": [0, {"a": 1, "b": 0, "a": null}]}', "x[1].a: the name is given twice in one object"),
    (r'{"a": {"b": NaN}}', "a.b: NaN is not JSON"),
    (r'{"a": [Infinity]}', "a[0]: Infinity is not JSON"),
    (r'{"a": -Infinity}', "a: -Infinity is not JSON"),
    (r'{"a": 1e400}', "a: 1e400 is too large for a float"),
    (r'{"a": [1, -1e400]}', "a[1]: -1e400 is too large for a float"),
    (r'{"a": 9223372036854775808}', "a: the integer 9223372036854775808 does not fit in 64 bits"),
    (r'{"a": -9223372036854775809}', "a: the integer -9223372036854775809 does not fit"),
    (f'{{"a": {"9" * 21}}}', "a: an integer of 21 digits does not fit in 64 bits"),
    (f'{{"a": -{"9" * 5000}}}', "a: an integer of 5,000 digits does not fit in 64 bits"),
    (r'{"a": {"\ud800": 1}}', "a: the name has a lone surrogate (U+D800) at character 1"),
    (r'{"a": ["ok", "x\udc00"]}', "a[1]: the text has a lone surrogate (U+DC00) at character 2"),
    (r'{"a": "\ud800\ud800\udc00"}', "a: the text has a lone surrogate (U+D800) at character 1"),
    (r'{"a": {"": 1}}', "a: '' is not an attribute name"),
    (r'{"a": {"b": 1}, "a.b": 1}', "a.b: the attribute 'a.b' is given twice"),
    ("\ufeff{}", "line 1, column 1: JSON starts without a byte order mark"),
    ("", "line 1, column 1: there is no event in an empty text"),
    (" \n ", "line 2, column 2: there is no event in an empty text"),
    ('{"a": 1} {}', "line 1, column 10: there is more text after the end"),
    ('{"a": 1}\n}', "line 2, column 1: there is more text after the end"),
    ('{"a": 1}\0', "line 1, column 9: there is more text after the end"),
    ('{"a":\n  01}', "line 2, column 4: this is not JSON: expecting ',' delimiter"),
    ('{"a": "x\ny"}', "line 1, column 9: this is not JSON: invalid control character"),
    ("{'a': 1}", "line 1, column 2: this is not JSON"),
    ('{"a": .5}', "line 1, column 7: this is not JSON: expecting value"),
    ('{"a": +1}', "line 1, column 7: this is not JSON"),
    ('{"a": 0x10}', "line 1, column 8: this is not JSON"),
    ('{"a": 1,}', "line 1, column "),
    ('{"a": "\\x"}', "line 1, column 8: this is not JSON"),
    ('{"a"', "line 1, column 5: this is not JSON"),
    ("// {}", "line 1, column 1: this is not JSON"),
    ("[]", "top level: an event is a JSON object, not an array"),
    ("5", "top level: an event is a JSON object, not a number"),
    ("NaN", "top level: an event is a JSON object, not a number"),
    ('"a"', "top level: an event is a JSON object, not a text"),
    ("true", "top level: an event is a JSON object, not a boolean"),
    ("null", "top level: an event is a JSON object, not null"),
]


@pytest.mark.parametrize("form", [str, str.encode])
@pytest.mark.parametrize(("text", "message"), IN_TEXT, ids=range(len(IN_TEXT)))
def test_what_is_not_strict_json_is_refused_in_its_place(
    text: str, message: str, form: Any
) -> None:
    with pytest.raises(JSONError) as caught:
        decode_json(form(text))
    assert str(caught.value).startswith(message)
    assert caught.value.place or "'' is not" in message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":\n "\xff"}', "line 2, column 3: the byte 0xff is not part of valid UTF-8"),
        (b'{"a": "\xc0\xaf"}', "line 1, column 8: the byte 0xc0"),
        (b'{"a": "\xed\xa0\x80"}', "line 1, column 8: the byte 0xed"),
        (b'{"\xc3\xa9": "\xc3', "line 1, column 8: the byte 0xc3"),
        ("{}".encode("utf-16"), "line 1, column 1: the byte 0xff"),
        ("{}".encode("utf-16-le"), "line 1, column 2: this is not JSON"),
        (b"\xef\xbb\xbf{}", "line 1, column 1: JSON starts without a byte order mark"),
    ],
)
def test_bytes_that_are_not_utf8_are_refused_in_their_place(data: bytes, message: str) -> None:
    with pytest.raises(JSONError) as caught:
        decode_json(data)
    assert str(caught.value).startswith(message)


def test_a_text_with_a_raw_lone_surrogate_is_refused() -> None:
    with pytest.raises(JSONError, match="line 2, column 2: the text has a lone surrogate"):
        decode_json('{"a":\n"\ud800"}')


def test_a_contradiction_to_the_schema_is_a_json_error_in_its_place() -> None:
    with pytest.raises(JSONError, match=r"order\.price: 'x' is not of type 'int'"):
        decode_json('{"order": {"price": "x"}}', schema=Schema({"order.price": "int"}))


def test_a_schema_turns_text_and_masks_into_timestamps_and_bits() -> None:
    schema = Schema({"at": "timestamp", "flags": attribute("bits", many=True), "price": "float"})
    text = '{"at": "2026-01-01T00:00:00Z", "flags": [1, 18446744073709551615], "price": 5}'
    assert decode_json(text, schema=schema) == Event(
        {"at": some.moment(2026, 1, 1), "flags": [Bits([0]), Bits(range(64))], "price": 5.0}
    )


@pytest.mark.parametrize("number", [2**64, -1])
def test_a_mask_has_64_bits(number: int) -> None:
    with pytest.raises(JSONError, match="flags"):
        decode_json(f'{{"flags": {number}}}', schema=Schema({"flags": "bits"}))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_refused_when_encoding(value: float) -> None:
    with pytest.raises(JSONError, match=f"a.b: {value} has no form in JSON"):
        encode_json(Event({"a": {"b": [1, value]}}))


def test_an_encoded_event_is_one_flat_line() -> None:
    event = Event({"a": {"b": [1, 2.0]}, "at": some.moment(2026, 1, 1), "f": Bits([1]), "é": "\n"})
    assert encode_json(event) == (r'{"a.b":[1,2.0],"at":"2026-01-01T00:00:00Z","f":2,"é":"\n"}')


@given(some.events(some.plain_values))
def test_decoding_what_was_encoded_gives_the_same_event(event: Event) -> None:
    assert decode_json(encode_json(event)) == event


@given(some.schemas_with_events())
@example((Schema({"f": "bits"}), Event({"f": Bits([63])})))
def test_with_a_schema_it_does_so_for_every_type(pair: tuple[Schema, Event]) -> None:
    schema, event = pair
    assert decode_json(encode_json(event), schema=schema) == event


@given(some.json_objects)
def test_the_decoder_agrees_with_the_standard_library(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    assert decode_json(text) == Event(json.loads(text))


_PIECES = ["{", "}", "[", "]", '"a"', '"b"', ":", ",", "1", "-", "1e999", "NaN", "null", '"\\ud800']


@given(st.binary() | st.text() | st.lists(st.sampled_from(_PIECES)).map("".join))
def test_no_input_raises_anything_but_our_errors(text: str | bytes) -> None:
    assert isinstance(some.refusal(lambda: decode_json(text)), JSONError | LimitError | None)


def test_the_size_is_counted_in_bytes() -> None:
    text = '{"a": "é"}'
    limits = EventLimits(size=len(text.encode()))
    assert decode_json(text, limits=limits) == decode_json(text.encode(), limits=limits)
    with pytest.raises(LimitError, match="bytes of JSON text: 11 exceeds the limit of 10"):
        decode_json(text, limits=EventLimits(size=10))
