"""The fast way of decoding an event never differs from the strict one."""

from __future__ import annotations

import json
from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tamis.broker.operations.fair_executor import Slices
from tamis.broker.publish.payloads import JSON, Payload, PayloadDecoder
from tamis.errors import RefusedError
from tamis.events import Event, EventLimits, Schema

NAMES = st.sampled_from(["a", "b", "a.b", "", "é", 'q"', "x" * 300]) | st.text(max_size=3)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
MEMBERS = st.lists(st.tuples(NAMES, VALUES), max_size=4)


def outcome(decoder: PayloadDecoder, text: bytes, *, strictly: bool) -> object:
    decode = decoder._decode_strictly if strictly else decoder.decode
    try:
        return decode(text, JSON).event
    except RefusedError as error:
        return error.code, str(error)


def written(members: list[tuple[str, object]], *, ascii_only: bool) -> bytes:
    """Return a JSON object in which a name may stand twice."""
    dump = json.JSONEncoder(ensure_ascii=ascii_only).encode
    inside = ", ".join(f"{dump(name)}: {dump(value)}" for name, value in members)
    return f"{{{inside}}}".encode(errors="surrogatepass")


@given(MEMBERS, st.booleans())
@example([("a", 1), ("a", 2)], True)
@example([("a", "x"), ("a", 2)], True)
@example([("a", 2**63)], True)
def test_the_fast_way_agrees_with_the_strict_one(
    members: list[tuple[str, object]], ascii_only: bool
) -> None:
    text = written(members, ascii_only=ascii_only)
    for limits in (EventLimits(), EventLimits(size=20), EventLimits(attributes=1, values=1)):
        decoder = PayloadDecoder(None, limits, is_total=False)
        strict = outcome(decoder, text, strictly=True)
        assert outcome(decoder, text, strictly=False) == strict


@given(st.lists(MEMBERS, min_size=1, max_size=10), st.booleans(), st.booleans())
@example([[("\xa1", False)]], True, False)
def test_a_check_of_many_accepts_only_what_the_strict_way_does(
    events: list[list[tuple[str, object]]], ascii_only: bool, has_schema: bool
) -> None:
    texts = [written(members, ascii_only=ascii_only) for members in events]
    schema = Schema({"a": "int", "b": "float"}) if has_schema else None
    decoder = PayloadDecoder(schema, EventLimits(), is_total=has_schema)
    checked = decoder.check_all(texts, JSON)
    outcomes = [outcome(decoder, text, strictly=True) for text in texts]
    if checked is not None:
        assert [payload.event for payload in checked] == outcomes
    elif len(events) == 1 and not has_schema and ascii_only:
        # Most events must not need the strict way.
        assert not isinstance(outcomes[0], Event) or any(not is_plain(m) for m in events[0])


@given(st.lists(MEMBERS, min_size=1, max_size=10), st.integers(1, 3), st.booleans())
@example([[("a", 1)], [("a", 1), ("a", 2)]], 1, True)
def test_events_decoded_piece_by_piece_are_those_decoded_together(
    events: list[list[tuple[str, object]]], size: int, may_stay_undecoded: bool
) -> None:
    texts = [written(members, ascii_only=True) for members in events]
    decoder = PayloadDecoder(None, EventLimits(), is_total=False)
    with patch("tamis.broker.publish.payloads.EVENTS_PER_SLICE", size):
        slices = decoder.decode_slices(texts, JSON, may_stay_undecoded=may_stay_undecoded)
        found = together(lambda: run_all(slices))
    assert found == together(lambda: decoder.decode_all(texts, JSON))


def run_all(slices: Slices[list[Payload]]) -> list[Payload]:
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: list[Payload] = end.value
            return result


def together(decode: Callable[[], list[Payload]]) -> list[object]:
    """Return what events say, or where and why they are refused."""
    try:
        return [payload.event for payload in decode()]
    except RefusedError as error:
        return [error.index, str(error)]


def is_plain(member: tuple[str, object]) -> bool:
    name, value = member
    is_plain_name = name.isascii() and "\\" not in json.dumps(name)
    return is_plain_name and type(value) in (bool, float, int)


NO_EVENTS = [
    b"",
    b"[]",
    b"{",
    b"nul",
    b'{"a":1}x',
    b'{"a":01}',
    b'{"a":1e999}',
    b'{"a":NaN}',
    b"\xff",
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":"\n"}',
    b' {"a" : 1 }\n',
    b'{"a":"\xff"}',
    b'{"a":"\\ud800"}',
]


@pytest.mark.parametrize("text", NO_EVENTS)
def test_what_is_not_an_event_is_refused_in_the_same_words(text: bytes) -> None:
    decoder = PayloadDecoder(None, EventLimits(), is_total=False)
    assert outcome(decoder, text, strictly=False) == outcome(decoder, text, strictly=True)
