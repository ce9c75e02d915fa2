"""What a worker decodes is what decoding event by event gives."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from events.json_texts import JsonTexts
from tamis.errors import TamisError
from tamis.events import Event, Schema, decode_json
from tamis.spark.matching.worker import EventDecoder

WANTED = ("a", "price", "a.b")
SCHEMAS = (None, Schema({"a": float, "price": "timestamp"}))


def strictly(text: bytes | None, schema: Schema | None) -> Event | str:
    if text is None:
        return "there is no event: the text is null"
    try:
        event = decode_json(text, schema=schema)
    except TamisError as error:
        return str(error)
    return Event.of_checked({name: event[name] for name in WANTED if name in event})


def decoded(texts: pa.Array[Any], schema: Schema | None) -> list[Event | str]:
    batch = EventDecoder(schema, total=False, wanted=WANTED).from_json(texts)
    return [
        str(batch.errors[n]) if n in batch.errors else batch.event(n, WANTED)
        for n in range(len(batch))
    ]


def by_value(outcome: Event | str) -> object:
    # Columns keep the values of one kind together.
    if isinstance(outcome, str):
        return outcome
    return {name: sorted(map(repr, values)) for name, values in outcome.items()}


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("type_", [pa.string(), pa.binary(), pa.large_string()])
def test_a_column_of_json_is_decoded_as_each_text_would_be(
    schema: Schema | None, type_: pa.DataType
) -> None:
    texts: list[bytes | None] = [JsonTexts(seed).draw() for seed in range(300)]
    texts = [text for text in texts if type_ == pa.binary() or _is_unicode(text)]
    texts[5:5] = [None, b"", b'{"price": "2026-01-01T00:00:00Z", "a": 3}']
    array = pa.array(texts, pa.binary()).cast(type_)
    for part in (array, array.slice(3), array.slice(6, 1), array.slice(0, 0)):
        wanted = [strictly(text, schema) for text in part.cast(pa.binary()).to_pylist()]
        assert [*map(by_value, decoded(part, schema))] == [*map(by_value, wanted)]


def _is_unicode(text: bytes | None) -> bool:
    try:
        return text is None or bool(text.decode()) or True
    except UnicodeDecodeError:
        return False


def test_in_mode_total_events_have_all_attributes() -> None:
    schema = Schema({"a": int})
    texts = pa.array([json.dumps({"a": 1}), json.dumps({"b": 1})])
    batch = EventDecoder(schema, total=True, wanted=WANTED).from_json(texts)
    assert [*batch.errors] == [1]
