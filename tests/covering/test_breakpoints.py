"""Labels stand in the order of the breakpoints, whatever comes between them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from tamis.covering import breakpoints
from tamis.covering.breakpoints import BreakpointNumbers
from tamis.diagrams.value_order import BEGIN, END, NUMBERS, TEXTS, Breakpoint


def ascending(points: BreakpointNumbers, attribute: int, known: set[Breakpoint]) -> bool:
    numbers = [points.number(attribute, one) for one in sorted(known)]
    return all(points.labels[low] < points.labels[high] for low, high in pairwise(numbers))


@pytest.mark.parametrize("step", [1, 1 << 40])
@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_labels_stand_in_order(step: int, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakpoints, "MAX_STEP", step)
    rng, points = Random(1), BreakpointNumbers()
    names = [points.attribute("a"), points.attribute("b")]
    values: list[Breakpoint] = [(NUMBERS, n / 2) for n in range(100)]
    values += [(TEXTS, str(n)) for n in range(100, 150)]
    if order == "random":
        rng.shuffle(values)
    for value in reversed(values) if order == "descending" else values:
        for name in names:
            points.number(name, value)
    for name in names:
        assert ascending(points, name, {BEGIN, END, *values})


def test_some_breakpoints_are_kept_under_new_numbers() -> None:
    points = BreakpointNumbers()
    a, b = points.attribute("a"), points.attribute("b")
    values: list[Breakpoint] = [(NUMBERS, n) for n in (5, 3, 9, 1)]
    numbers = [points.number(b, value) for value in values]
    points.number(a, (NUMBERS, 7))
    marks, attributes = np.zeros(len(points), np.int32), np.zeros(3, np.int32)
    marks[[numbers[0], numbers[2]]] = 1
    attributes[b] = 1
    kept = points.kept(marks, attributes)
    assert (kept.name(attributes[b]), kept.attribute_count, len(kept)) == ("b", 2, 4)
    assert [kept.breakpoint(marks[numbers[n]]) for n in (0, 2)] == [values[0], values[2]]
    assert kept.labels[marks[numbers[0]]] < kept.labels[marks[numbers[2]]]
