"""Events as applications publish them: nothing changes silently on its way into JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest

import tamis
from tamis import Event
from tamis.client import XMLText
from tamis.client.messages import check_several, check_size, encode_event
from tamis.errors import EventError, RefusedError
from tamis.protocol import Welcome
from tamis.protocol.views import DeadLetterView

from .buses import Connect, on_every_bus


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


NAIVE = datetime(2026, 1, 31, 12)
REFUSED: list[tuple[Any, str]] = [
    ({"a": {"x": [1, 1j]}}, "a.x[1]: a value of type 'complex' is not one that Tamis knows"),
    ({"t": NAIVE}, "t: the datetime 2026-01-31T12:00:00 has no time zone"),
    ({"a": [{"t": NAIVE}]}, "a[0].t: the datetime 2026-01-31T12:00:00 has no time zone"),
    ({1: 2}, "1 is not an attribute name: a name is a text"),
    ({None: 2}, "None is not an attribute name"),
    ({True: 2}, "True is not an attribute name"),
    ({"a": {1.5: 2}}, "a: 1.5 is not an attribute name"),
    ({"a": [{"b": 1}, {2: 3}]}, "a[1]: 2 is not an attribute name"),
    ({"a": ({"b": {3: 4}},)}, "a[0].b: 3 is not an attribute name"),
    ({"a": MappingProxyType({1: 2})}, "a: 1 is not an attribute name"),
    (MappingProxyType({1: 2}), "1 is not an attribute name"),
    ({"x": {1, 2}}, "x: a value of type 'set' is not one that Tamis knows"),
    ({"x": "\ud800"}, "lone surrogate"),
]


@pytest.mark.parametrize(
    ("event", "sentence"), REFUSED, ids=[sentence[:40] for _, sentence in REFUSED]
)
def test_what_json_would_change_is_refused_with_its_place(event: Any, sentence: str) -> None:
    with pytest.raises(tamis.EventError) as caught:
        encode_event(event)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"a": 1, "b": [1.5, "x", None, True]}, b'{"a":1,"b":[1.5,"x",null,true]}'),
        ({"a": {"b": {"c": ()}}}, b'{"a":{"b":{"c":[]}}}'),
        (MappingProxyType({"a": MappingProxyType({"b": 1})}), b'{"a":{"b":1}}'),
        ({Color.RED: Level.HIGH}, b'{"red":3}'),
        ({"t": datetime(2026, 1, 31, 12, tzinfo=UTC)}, b'{"t":"2026-01-31T12:00:00Z"}'),
        ({"b": tamis.Bits([0, 2])}, b'{"b":5}'),
        ({"x": b"abc", "y": bytearray(b"d")}, b'{"x":"YWJj","y":"ZA=="}'),
        ({"x": Decimal("1.50"), "y": date(2026, 1, 31)}, b'{"x":1.5,"y":"2026-01-31"}'),
        ({"x": UUID(int=1)}, b'{"x":"00000000-0000-0000-0000-000000000001"}'),
        ({"ü": "é"}, '{"ü":"é"}'.encode()),
        ({}, b"{}"),
    ],
)
def test_what_json_can_express_is_sent_as_it_is(event: Mapping[str, Any], text: bytes) -> None:
    assert encode_event(event).text == text


@on_every_bus
async def test_a_bus_publishes_nothing_that_json_would_change(connect: Connect) -> None:
    async with connect() as bus:
        for event, _ in REFUSED:
            with pytest.raises(tamis.EventError):
                await bus.publish(event)
            with pytest.raises(tamis.EventError):
                await bus.publish_many([event])
        assert (await bus.publish({"a": 1})).count == 1


def test_a_synchronous_bus_does_not_either() -> None:
    with tamis.open_bus_sync() as bus:
        for event, _ in REFUSED:
            with pytest.raises(tamis.EventError):
                bus.publish(event)


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ({"x": float("nan")}, "x: nan has no form in JSON; leave the attribute out"),
        ({"a": {"b": [1.0, math.inf]}}, "a.b: inf has no form in JSON; leave the attribute out"),
    ],
)
def test_what_json_has_no_form_for_is_named_with_its_place(
    event: dict[str, object], sentence: str
) -> None:
    with pytest.raises(EventError) as refused:
        encode_event(event)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("text", ["<order/>", b" <order/>"])
def test_a_text_that_looks_like_xml_is_told_from_json(text: str | bytes) -> None:
    with pytest.raises(EventError, match=r"looks like XML.*publish XMLText\(text\)"):
        encode_event(text)


def test_a_document_is_measured_without_the_escapes_of_json() -> None:
    document = encode_event(XMLText("<a>" + '"\n' * 40 + "</a>"))
    assert len(document.text) > 160
    welcome = Welcome(
        principal="a", version="1", largest_frame=5_000, largest_event=87, largest_batch=5
    )
    check_size(document, welcome)
    with pytest.raises(RefusedError, match="an event of 87 bytes exceeds the limit of 86"):
        check_size(document, msgspec.structs.replace(welcome, largest_event=86))


def test_numbers_of_numpy_are_published_as_numbers() -> None:
    event = {"n": np.int64(5), "x": np.float32(0.5), "ok": np.bool_(True), "list": [np.uint8(3)]}
    assert encode_event(event).text == b'{"n":5,"x":0.5,"ok":true,"list":[3]}'


@pytest.mark.parametrize("events", [{"price": 4}, Event({"price": 4}), '{"price": 4}', b"{}"])
def test_one_event_is_not_several(events: object) -> None:
    with pytest.raises(EventError, match=r"publish_many takes several events, not one .*publish"):
        check_several(events)


def test_a_dead_letter_shows_its_event() -> None:
    letter = DeadLetterView(7, 1.0, 2.0, "press", 3, "no paper", msgspec.Raw(b'{"price":5}'))
    assert repr(letter) == (
        "DeadLetterView(sequence=7, time=1.0, died_at=2.0, publisher='press', attempts=3, "
        """reason='no paper', data=b'{"price":5}', format='json')"""
    )
