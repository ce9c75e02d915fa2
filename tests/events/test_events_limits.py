"""Limits, and inputs made to be slow: refused in linear time, in a fraction of a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tamis.errors import EventError, LimitError
from tamis.events import Event, EventLimits, decode_cloudevent, decode_cloudevents, decode_json


@pytest.mark.parametrize(
    ("limits", "fits", "exceeds", "message"),
    [
        (
            EventLimits(depth=2),
            {"a": [1]},
            {"a": [[1]]},
            "a[0]: levels of nesting: 3 exceeds the limit of 2",
        ),
        (
            EventLimits(depth=2),
            {"a": {"b": 1}},
            {"a": {"b": {}}},
            "a.b: levels of nesting: 3 exceeds the limit of 2",
        ),
        (
            EventLimits(attributes=2),
            {"a": [1, 1], "b": 1},
            {"a": 1, "b": 1, "c": 1},
            "attributes of the event: more than 2 exceeds the limit of 2",
        ),
        (
            EventLimits(values=3),
            {"a": [1, 2, None], "b": 3},
            {"a": [1, 2], "b": [3, 4]},
            "values of the event: more than 3 exceeds the limit of 3",
        ),
        (
            EventLimits(name=3),
            {"a": {"b": 1}, "abc": 1},
            {"a": {"bc": None}},
            "a.bc: characters of the name: 4 exceeds the limit of 3",
        ),
    ],
)
def test_a_limit_admits_as_much_as_it_says_and_no_more(
    limits: EventLimits, fits: Any, exceeds: Any, message: str
) -> None:
    Event(fits, limits=limits)
    with pytest.raises(LimitError) as caught:
        Event(exceeds, limits=limits)
    assert str(caught.value) == message


def test_a_depth_beyond_the_interpreters_stack_is_still_a_limit() -> None:
    data: dict[str, object] = {}
    for _ in range(100_000):
        data = {"a": data}
    with pytest.raises(LimitError, match="levels of nesting: more than"):
        Event(data, limits=EventLimits(depth=10**9, name=10**9))


MEGABYTE = 1024 * 1024 - 64

HOSTILE: dict[str, Callable[[], str | bytes]] = {
    "deep arrays": lambda: '{"a":' + "[" * MEGABYTE,
    "deep objects": lambda: '{"a":' * (MEGABYTE // 5),
    "deep and closed": lambda: '{"a":' + "[" * 900 + "]" * 900 + "}",
    "one huge integer": lambda: '{"a":' + "9" * MEGABYTE + "}",
    "many long integers": lambda: '{"a":[' + ",".join(["9" * 4300] * 240) + "]}",
    "a huge float": lambda: '{"a":' + "9" * MEGABYTE + ".0}",
    "a huge exponent": lambda: '{"a":1e' + "9" * MEGABYTE + "}",
    "a long name above many nulls": lambda: (
        '{"' + "k" * (MEGABYTE // 2) + '":[' + "null," * (MEGABYTE // 11) + "null]}"
    ),
    "long names inside each other": lambda: ('{"' + "k" * 30_000 + '":') * 31 + "1" + "}" * 31,
    "many duplicates": lambda: '{"a":0' + ',"a":0' * (MEGABYTE // 6) + "}",
    "many attributes": lambda: "{" + ",".join(f'"k{n}":0' for n in range(90_000)) + "}",
    "many values": lambda: '{"a":[' + "0," * (MEGABYTE // 2 - 10) + "0]}",
    "late lone surrogate": lambda: '{"a":"' + "é" * (MEGABYTE // 2 - 20) + '\\ud800"}',
    "late invalid byte": lambda: b'{"a":"' + b"\n" * (MEGABYTE - 20) + b"\xff",
    "only white space": lambda: " \n" * (MEGABYTE // 2),
    "open text full of escapes": lambda: '{"a":"' + "\\\\" * (MEGABYTE // 2 - 10),
    "dots": lambda: '{"' + "." * (MEGABYTE - 10) + '":1}',
    "too much": lambda: b"[" * 20_000_000,
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> str | bytes:
    return HOSTILE[request.param]()


def best_of_three(attempt: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.thread_time()
        attempt()
        times.append(time.thread_time() - start)
    return min(times)


def refuse(decode: Callable[[str | bytes], object], text: str | bytes) -> None:
    with pytest.raises((EventError, LimitError)) as caught:
        decode(text)
    assert len(str(caught.value)) < 500


# Processor time; a megabyte takes up to 0.1 here, and in quadratic time would take ten or more.
QUICKLY = 0.4


@pytest.mark.timing
def test_hostile_json_is_refused_quickly(hostile: str | bytes) -> None:
    assert best_of_three(lambda: refuse(decode_json, hostile)) < QUICKLY


@pytest.fixture
def _unlimited_digits() -> Iterator[None]:
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(digits)


@pytest.mark.timing
@pytest.mark.usefixtures("_unlimited_digits")
@pytest.mark.parametrize("name", ["one huge integer", "many long integers"])
def test_long_integers_are_refused_quickly_also_where_python_takes_them(name: str) -> None:
    text = HOSTILE[name]()
    assert best_of_three(lambda: refuse(decode_json, text)) < 0.05


@pytest.mark.timing
@pytest.mark.parametrize("text", ["[" * 1000, '{"a":NaN}', "{" * 50_000, '{"a":' + "9" * 20_000])
def test_small_hostile_input_is_refused_at_once(text: str) -> None:
    assert best_of_three(lambda: refuse(decode_json, text)) < 0.05


HEAD = '{"specversion":"1.0","id":"1","type":"t"'

HOSTILE_CLOUDEVENTS: dict[str, str] = {
    "almost a URI": f'{HEAD},"source":"http://{"a" * 500_000}@{"b" * 500_000}^"}}',
    "escapes in a URI": f'{HEAD},"source":"{"%20" * 300_000}%"}}',
    "colons in a URI": f'{HEAD},"source":"a:{":" * 1_000_000}^"}}',
    "parameters": f'{HEAD},"source":"/","datacontenttype":"a/b{"; c=d" * 160_000};"}}',
    "blanks in a media type": f'{HEAD},"source":"/","datacontenttype":"a/b{" " * 1_000_000}"}}',
    "digits in a time": f'{HEAD},"source":"/","time":"2026-01-01T00:00:00.{"0" * 1_000_000}"}}',
    "a long extension name": f'{HEAD},"source":"/","{"a" * 1_000_000}A":"1"}}',
    "almost Base64": f'{HEAD},"source":"/","data_base64":"{"A" * 1_000_001}"}}',
}


@pytest.mark.timing
@pytest.mark.parametrize("text", HOSTILE_CLOUDEVENTS.values(), ids=HOSTILE_CLOUDEVENTS)
def test_hostile_cloudevents_are_refused_quickly(text: str) -> None:
    assert best_of_three(lambda: refuse(decode_cloudevent, text)) < QUICKLY


@pytest.mark.timing
def test_hostile_json_is_no_cloudevent_either(hostile: str | bytes) -> None:
    assert best_of_three(lambda: refuse(decode_cloudevents, hostile)) < QUICKLY
