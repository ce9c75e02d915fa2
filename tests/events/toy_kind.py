"""A program that runs on a package to whose table of kinds `duration` was added; see test_kinds."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from tamis import Engine
from tamis.diagrams import covers, intersects
from tamis.events import Event, Schema, attribute, decode_json, encode_json
from tamis.events.arrow import batch_of_arrow
from tamis.events.batch import EventBatch
from tamis.events.json_text import decode_schema, schema_data
from tamis.languages import parse

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
FILTERS = {
    "long": 'wait > duration "60s"',
    "exact": 'wait = duration "60s"',
    "some": 'wait in (duration "60s", duration "3600s")',
    "range": 'wait between duration "1s" and duration "60s"',
    "kind": "wait is a duration",
    "other": "wait > 5",
    "two": "wait < limit",
    "not": 'not (wait <= duration "60s")',
}
CONTENTS: list[dict[str, object]] = [
    {"wait": MINUTE},
    {"wait": HOUR, "limit": timedelta(days=1)},
    {"wait": [timedelta(0), HOUR]},
    {"wait": 60},
    {},
]


def check_language_and_oracle(events: list[Event]) -> None:
    for text in FILTERS.values():
        assert str(parse(text)) == text, str(parse(text))
    matched = {name: [parse(text).matches(e) for e in events] for name, text in FILTERS.items()}
    assert matched["long"] == [False, True, True, False, False]
    assert matched["two"] == [False, True, False, False, False]
    assert matched["other"] == [False, False, False, True, False]


def check_json_and_schema(events: list[Event]) -> None:
    schema = Schema({"wait": attribute("duration", default="60s")})
    assert encode_json(events[0]) == '{"wait":"60s"}'
    assert decode_json('{"wait":"60s"}', schema=schema) == events[0]
    assert parse('wait > "60s"').bind(schema) == parse(FILTERS["long"])
    assert decode_schema('{"wait": {"type": "duration", "default": "60s"}}') == schema
    assert schema_data(schema) == {"wait": {"type": "duration", "default": "60s"}}


def check_columns_and_arrow(events: list[Event]) -> None:
    batch = EventBatch.of_events(events)
    assert [batch.event(number) for number in range(len(events))] == events
    table = pa.table({"wait": pa.array([MINUTE, None, HOUR], pa.duration("us"))})
    arrow = batch_of_arrow(table)
    assert [arrow.event(n) for n in range(3)] == [events[0], Event({}), Event({"wait": HOUR})]
    texts = batch_of_arrow(pa.table({"wait": ["60s", "soon"]}), Schema({"wait": "duration"}))
    assert texts.event(0) == events[0]
    assert list(texts.errors) == [1]


def check_relations() -> None:
    wide, narrow = parse('wait > duration "1s"'), parse(FILTERS["long"])
    assert covers(wide, narrow)
    witness = covers(narrow, wide).witness()
    assert witness is not None
    assert type(witness["wait"][0]).__name__ == "timedelta"
    assert not intersects(parse('wait < duration "1s"'), narrow)


def check_engine(events: list[Event], folder: Path) -> None:
    engine = Engine()
    for name, text in FILTERS.items():
        engine.add(name, text)
    expected = [sorted(n for n, t in FILTERS.items() if parse(t).matches(e)) for e in events]
    assert [sorted(engine.match(event)) for event in events] == expected
    assert [sorted(found) for found in engine.match_batch(events * 3)] == expected * 3
    engine.save(folder / "engine")
    restored = Engine.load(folder / "engine")
    assert [sorted(found) for found in restored.match_batch(events * 3)] == expected * 3
    assert "wait" in str(engine.explain("long", events[0]))


if __name__ == "__main__":
    made = [Event(content) for content in CONTENTS]
    check_language_and_oracle(made)
    check_json_and_schema(made)
    check_columns_and_arrow(made)
    check_relations()
    check_engine(made, Path(sys.argv[1]))
