"""Collections with more values than are looked at: all ways leave out the same, and tell of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tamis import Engine
from tamis.objects import FAILURES, message
from tamis.objects.accessors import MAX_VALUES


@dataclass
class Part:
    numbers: list[int]


@dataclass
class Large:
    numbers: list[int] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


large = message(Large)
CONDITIONS = [
    large.numbers.any(lambda each: each == 7),
    large.numbers.contains(7),
    large.numbers.all(lambda each: each == 0),
    ~large.numbers.contains(7),
    message().numbers.contains(7),
    large.parts.any(lambda part: part.numbers.contains(7)),
    large.parts.any(lambda part: part.numbers.any(lambda each: each > 6)),
    message().parts.numbers == 7,
]


def check(given: Large) -> list[bool]:
    engine = Engine()
    for number, condition in enumerate(CONDITIONS):
        engine.add(number, condition)
    said = [condition.matches(given) for condition in CONDITIONS]
    expected = [number for number, truth in enumerate(said) if truth]
    [batch] = engine.match_batch([given])
    assert engine.match(given) == batch == expected
    return said


@pytest.mark.parametrize("before", [MAX_VALUES - 1, MAX_VALUES, MAX_VALUES + 1])
def test_what_comes_after_the_limit_is_left_out_everywhere_and_counted(before: int) -> None:
    FAILURES.clear()
    is_seen = before < MAX_VALUES
    said = check(Large(numbers=[0] * before + [7]))
    assert said[:5] == [is_seen, is_seen, not is_seen, not is_seen, is_seen]
    assert (FAILURES.total > 0) is not is_seen
    if not is_seen:
        [failure] = FAILURES.first.values()
        assert (failure.accessor, failure.error) == ("numbers", "LimitError")
    FAILURES.clear()


def test_collections_inside_of_each_other_may_hold_more_together() -> None:
    FAILURES.clear()
    parts = [Part([0] * 10) for _ in range(7_000)]
    said: list[Any] = check(Large(parts=[*parts, Part([7])]))
    assert said[5:] == [True, True, True]
    assert FAILURES.total == 0
