"""Aggregates: the same whatever way rows are added up."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any

import msgspec
import pytest

from tamis.errors import OptionError
from tamis.routing.aggregates import Aggregate, AggregateState, StateFrame

VALUES = (0, 1, -3, 0.1, 0.2, 1e308, -1e308, 5e-324, 2**53 + 1, "a", "b", True, None, [1, 2.5])


def rows(rng: Random) -> list[bytes]:
    return [
        json.dumps({"n": n, "x": rng.choice(VALUES)}).encode() for n in range(rng.randrange(12))
    ]


def added(aggregate: Aggregate, given: list[bytes]) -> AggregateState:
    state = aggregate.state()
    for row in given:
        state.add(row)
    return state


@pytest.mark.parametrize("text", ["count", "sum x", "min x", "max x", "top 3 x", "bottom 2 x"])
def test_a_state_does_not_depend_on_the_way_of_the_rows(text: str) -> None:
    rng, aggregate = Random(text), Aggregate.parse(text)
    for _ in range(100):
        parts = [rows(rng) for _ in range(rng.randrange(1, 4))]
        whole = added(aggregate, [row for part in parts for row in part])
        merged = aggregate.state()
        for part in rng.sample(parts, len(parts)):
            frame = msgspec.json.encode(added(aggregate, part).frame())
            merged.merge(msgspec.json.decode(frame, type=StateFrame))
        assert merged.rows() == whole.rows()


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([], None),
        (["a", True, None], None),
        ([1, 2], 3),
        ([2**62, 2**62], 2**63),
        ([0.1] * 10, math.fsum([0.1] * 10)),
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], None),
        ([2**53, 1.0, 1], float(2**53 + 2)),
    ],
)
def test_sums_are_exact_and_rounded_once(values: list[Any], total: float | None) -> None:
    state = added(Aggregate.parse("sum x"), [json.dumps({"x": v}).encode() for v in values])
    assert json.loads(state.rows()[0]) == {"sum": total}


def test_a_ranking_of_large_rows_is_cut_and_says_so() -> None:
    large = [json.dumps({"x": n, "text": "t" * 200_000}).encode() for n in range(8)]
    state = added(Aggregate.parse("top 8 x"), large)
    assert [json.loads(row)["x"] for row in state.rows()] == [7, 6, 5, 4, 3]
    assert state.is_cut
    assert state.frame().is_cut


@pytest.mark.parametrize("text", ["union", "count", "sum a b", "min x", "max x", "top 9 x.y"])
def test_an_aggregate_prints_as_it_is_written(text: str) -> None:
    assert str(Aggregate.parse(text)) == text
    assert Aggregate.parse(f"  {text} ").check() == Aggregate.parse(text)


@pytest.mark.parametrize(
    "text", ["", "average x", "sum", "top x", "top 0 x", "top 1001 x", "count x", 5, "top 5"]
)
def test_what_is_no_aggregate_is_refused(text: Any) -> None:
    with pytest.raises(OptionError, match="aggregate"):
        Aggregate.parse(text)
