"""Every conformance case on the reference semantics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import EventError, FilterError
from tamis.events import Schema, schema_of
from tamis.filters import Filter
from tamis.languages import parse

FILES = sorted((Path(__file__).parent.parent / "conformance").glob("*.json"))


def cases() -> list[Any]:
    found = []
    for path in FILES:
        topic = json.loads(path.read_text(encoding="utf-8"))
        found += [
            pytest.param(topic, case, id=f"{path.stem}:{case['id']}") for case in topic["filters"]
        ]
    return found


def read_schema(topic: dict[str, Any]) -> Schema | None:
    declared = topic.get("schema")
    return None if declared is None else schema_of(declared)


def read_filter(text: str, language: str, schema: Schema | None) -> Filter:
    filter_ = parse(text, language)
    return filter_ if schema is None else filter_.bind(schema)


@pytest.mark.parametrize(("topic", "case"), cases())
def test_the_reference_semantics_gives_the_expected_matches(
    topic: dict[str, Any], case: dict[str, Any]
) -> None:
    language = case.get("language", topic.get("language", "tamis"))
    mode = case.get("mode", topic.get("mode", "sql"))
    schema = read_schema(topic)
    if "error" in case:
        with pytest.raises(FilterError, match=re.escape(case["error"])):
            read_filter(case["filter"], language, schema)
        return
    filter_ = read_filter(case["filter"], language, schema)
    outcome: dict[str, list[str]] = {"matches": [], "refuses": []}
    for name, event in topic["events"].items():
        try:
            if filter_.matches(event, mode=mode, schema=schema):
                outcome["matches"].append(name)
        except EventError:
            outcome["refuses"].append(name)
    assert outcome == {"matches": case["matches"], "refuses": case.get("refuses", [])}
