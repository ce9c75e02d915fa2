"""Every conformance case on every evaluator: the oracle, the engine in batches and one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tamis.errors import EventError, FilterError
from tamis.events import Schema, schema_of
from tamis.languages import parse
from tamis.matching import Engine

FOLDER = Path(__file__).parent.parent / "conformance"
FILES = [*sorted(FOLDER.glob("*.json")), *sorted(FOLDER.glob("elements/*.json"))]

# Which events match, and which are refused, by name.
Outcome = tuple[list[str], list[str]]
Events = Mapping[str, Mapping[str, object]]


def cases() -> list[Any]:
    found = []
    for path in FILES:
        topic = json.loads(path.read_text(encoding="utf-8"))
        found += [
            pytest.param(topic, case, id=f"{path.stem}:{case['id']}") for case in topic["filters"]
        ]
    return found


class Case:
    """One filter of a topic, with what holds for it."""

    def __init__(self, topic: Mapping[str, Any], case: Mapping[str, Any]) -> None:
        self.text: str = case["filter"]
        self.language: str = case.get("language", topic.get("language", "tamis"))
        self.mode: str = case.get("mode", topic.get("mode", "sql"))
        declared = topic.get("schema")
        self.schema: Schema | None = None if declared is None else schema_of(declared)
        self.events: Events = topic["events"]

    def engine(self) -> Engine:
        engine = Engine(self.schema, self.mode)
        engine.add("it", self.text, language=self.language)
        return engine

    def outcome(self, matches: Callable[[Mapping[str, object]], bool]) -> Outcome:
        matching, refused = [], []
        for name, event in self.events.items():
            try:
                if matches(event):
                    matching.append(name)
            except EventError:
                refused.append(name)
        return matching, refused


def by_the_oracle(case: Case) -> Outcome:
    filter_ = parse(case.text, case.language)
    bound = filter_ if case.schema is None else filter_.bind(case.schema)
    return case.outcome(lambda event: bound.matches(event, case.mode, case.schema))


def by_the_engine_one_by_one(case: Case) -> Outcome:
    engine = case.engine()
    return case.outcome(lambda event: engine.match(event) == ["it"])


def by_the_engine_in_a_batch(case: Case) -> Outcome:
    names = list(case.events)
    found = case.engine().match_batch(case.events.values())
    matching = [name for name, ids in zip(names, found, strict=True) if ids]
    return matching, [names[number] for number in sorted(found.errors)]


EVALUATORS = (by_the_oracle, by_the_engine_one_by_one, by_the_engine_in_a_batch)


@pytest.mark.parametrize("evaluate", EVALUATORS, ids=lambda evaluate: str(evaluate.__name__))
@pytest.mark.parametrize(("topic", "case"), cases())
def test_every_evaluator_gives_the_expected_matches(
    topic: dict[str, Any], case: dict[str, Any], evaluate: Callable[[Case], Outcome]
) -> None:
    if "error" in case:
        with pytest.raises(FilterError, match=re.escape(case["error"])):
            evaluate(Case(topic, case))
    else:
        assert evaluate(Case(topic, case)) == (case["matches"], case.get("refuses", []))
