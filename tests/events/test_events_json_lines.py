"""Many events as JSON lines."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import JSONError, LimitError
from tamis.events import (
    DecodedLine,
    Event,
    EventLimits,
    RejectedLine,
    Schema,
    decode_cloudevent_lines,
    decode_json_lines,
    encode_json,
    read_lines,
)

from . import event_strategies as some

GOOD = ['{"a": 1}', "{}", ' {"b": [1, 2]} ']
BAD = ["{", "[]", '{"a": NaN}', "\ud800", '{"a": 1} {"b": 2}', '{"a": {"a": {"a": 1}}}']
BLANK = ["", "\n", "  \r\n"]


def test_each_line_is_decoded_or_rejected_with_its_number() -> None:
    lines: list[str | bytes] = ['{"a": 1}\n', "\n", '{"a": }\r\n', '{"a": {"b": NaN}}', b'{"a": 2}']
    first, second, third, fourth = decode_json_lines(lines)
    assert first == DecodedLine(1, Event({"a": 1}))
    assert isinstance(second, RejectedLine)
    assert (second.number, second.text) == (3, '{"a": }\r\n')
    assert str(second.error) == "line 3, column 7: this is not JSON: expecting value"
    assert isinstance(third, RejectedLine)
    assert str(third.error) == "line 4, a.b: NaN is not JSON; leave the attribute out"
    assert fourth == DecodedLine(5, Event({"a": 2}))


def test_schema_and_limits_apply_to_each_line() -> None:
    lines = ['{"a": 1}', '{"a": "x"}', '{"b": "' + "x" * 100 + '"}']
    results = decode_json_lines(lines, schema=Schema({"a": "float"}), limits=EventLimits(size=50))
    first, *rejected = results
    assert first == DecodedLine(1, Event({"a": 1.0}))
    assert [str(line.error) for line in rejected if isinstance(line, RejectedLine)] == [
        "line 2, a: 'x' is not of type 'float', which the schema declares",
        "line 3: bytes of JSON text: 109 exceeds the limit of 50",
    ]


def test_a_rejected_line_keeps_the_class_of_its_error() -> None:
    deep = "[" * 100_000
    kinds = [
        type(line.error)
        for line in decode_json_lines(["{", deep])
        if isinstance(line, RejectedLine)
    ]
    assert kinds == [JSONError, LimitError]


@given(st.lists(st.sampled_from([*GOOD, *BAD, *BLANK])))
def test_every_line_becomes_an_event_or_is_rejected(lines: list[str]) -> None:
    results = list(decode_json_lines(lines, limits=EventLimits(depth=2)))
    filled = [(number, line) for number, line in enumerate(lines, 1) if line not in BLANK]
    assert [line.number for line in results] == [number for number, _ in filled]
    for (number, text), result in zip(filled, results, strict=True):
        if isinstance(result, RejectedLine):
            assert text in BAD
            assert result.text == text
            assert str(result.error).startswith(f"line {number}")
        else:
            assert text in GOOD


@given(st.lists(some.events(some.plain_values)))
def test_events_written_as_lines_come_back(events: list[Event]) -> None:
    stream = io.BytesIO("".join(f"{encode_json(event)}\n" for event in events).encode())
    results = list(decode_json_lines(read_lines(stream)))
    assert results == [DecodedLine(number, event) for number, event in enumerate(events, 1)]


LIMITS = EventLimits(size=10)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize(
    ("line", "fits"),
    [
        (b'{"a": 123}', True),
        (b'{"a": 1234}', False),
        (b'{"a": 12345}', False),
        (b'{"a": 1}  \r\rjunk', False),
        (b'{"a": "' + b"x" * 200_000 + b'"}', False),
    ],
)
def test_a_line_read_is_cut_so_that_it_is_rejected_and_the_next_is_not(
    line: bytes, end: bytes, fits: bool
) -> None:
    stream = io.BytesIO(line + end + (b"{}\n" if end else b""))
    read = list(read_lines(stream, limits=LIMITS))
    assert max(map(len, read)) <= LIMITS.size + 2
    first, *rest = decode_json_lines(read, limits=LIMITS)
    assert isinstance(first, DecodedLine) is fits
    assert rest == ([DecodedLine(2, Event({}))] if end else [])


def test_cloudevents_come_one_by_one_and_in_batches() -> None:
    sold = '{"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold"}'
    lines = list(decode_cloudevent_lines([sold, "", f"[{sold}, {sold}]", "[]", "{"]))
    assert [(type(line), line.number) for line in lines] == [
        (DecodedLine, 1),
        (DecodedLine, 3),
        (DecodedLine, 3),
        (RejectedLine, 5),
    ]
    assert str(lines[-1].error).startswith("line 5, column 2: ")  # type: ignore[union-attr]


def test_cloudevents_conform_to_the_schema_or_are_rejected() -> None:
    sold = '{"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold", "data": {"n": 1}}'
    (line,) = decode_cloudevent_lines([sold], schema=Schema({"data.n": "float"}))
    assert isinstance(line, DecodedLine)
    assert line.event["data.n"] == (1.0,)
    (line,) = decode_cloudevent_lines([sold], schema=Schema({"data.n": "str"}))
    assert isinstance(line, RejectedLine)
    assert str(line.error).startswith("line 1, data.n: ")


@pytest.mark.parametrize("text", ['{"éé":1}', '{"€":"\ud800"}', '{"ab":12}'])
def test_a_text_that_is_too_large_is_told_its_bytes_in_utf_8(text: str) -> None:
    """Found by a stranger: it was told its characters."""
    limits = EventLimits(size=7)
    (line,) = decode_json_lines([text], limits=limits)
    assert isinstance(line, RejectedLine)
    size = len(text.encode(errors="surrogatepass"))
    assert str(line.error) in {
        f"line 1: bytes of JSON text: {size} exceeds the limit of 7",
        "line 1: bytes of JSON text: more than 7 exceeds the limit of 7",
    }


def test_lines_that_are_no_texts_are_refused_in_a_sentence() -> None:
    with pytest.raises(JSONError, match="an event in JSON is text or bytes, not 1"):
        list(decode_json_lines([1]))  # type: ignore[list-item]
