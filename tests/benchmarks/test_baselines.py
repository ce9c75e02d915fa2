"""The baselines against the oracle: a figure is worth nothing if what it measures is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from benchmarks.baselines.atree import ATreeMatcher
from benchmarks.baselines.counting import CountingMatcher
from benchmarks.baselines.plain_bdd import Bdd, Builder
from benchmarks.baselines.scan import ScanMatcher
from benchmarks.workloads import boolean, conjunctions, paper
from benchmarks.workloads.events import Events

from tamis.events import Event
from tamis.filters import Filter

# They are no part of Tamis, and to compile their loops takes half a minute.
pytestmark = pytest.mark.slow

BOOLEAN = {
    "sparse": boolean.Shape(),
    "dense": boolean.Shape(attributes=30, cardinality=10, per_event=20),
    "deep": boolean.Shape(depth=5, attributes=30, cardinality=10, per_event=27),
    "wide": boolean.Shape(children=12, attributes=30, cardinality=20, per_event=27),
}


def expected(filters: Sequence[Filter], events: Events, mode: str = "sql") -> list[list[int]]:
    return [
        [number for number, filter_ in enumerate(filters) if filter_.matches(event, mode)]
        for event in map(Event, events.dicts())
    ]


def found(matcher: Any, events: Events) -> list[list[int]]:
    return [sorted(matcher.match(events.rows, event).tolist()) for event in range(len(events))]


@pytest.mark.parametrize("shape", BOOLEAN.values(), ids=BOOLEAN)
def test_a_tree_and_scan_agree_with_the_oracle_on_boolean_expressions(shape: boolean.Shape) -> None:
    workload = boolean.subscriptions(150, 5, shape)
    events = workload.events(24, 6)
    right = expected(workload.filters(), events)
    assert any(right)
    for matcher in (ATreeMatcher, ScanMatcher):
        made = matcher(workload.fields, workload.predicates, workload.programs)
        assert found(made, events) == right
        assert made.counts(events.rows).tolist() == list(map(len, right))


@pytest.mark.parametrize(
    "draw",
    [
        conjunctions.workload_a,
        conjunctions.workload_b,
        conjunctions.workload_c,
        conjunctions.growth,
    ],
)
def test_counting_and_scan_agree_with_the_oracle_on_conjunctions(
    draw: Callable[[int, int], conjunctions.Conjunctions],
) -> None:
    workload = draw(800, 5)
    events = workload.events(24, 6)
    right = expected(workload.filters(), events)
    for matcher in (CountingMatcher, ScanMatcher, ATreeMatcher):
        made = matcher(workload.fields, workload.predicates, workload.programs)
        assert found(made, events) == right
        # Again, so that nothing may be left from the events before.
        assert made.counts(events.rows).tolist() == list(map(len, right))


def test_counting_forgets_an_event_that_touched_little_and_one_that_touched_much() -> None:
    for matches in (1, 400):
        workload = conjunctions.growth(4000, 5, even=False, matches=matches)
        events = workload.events(30, 6)
        matcher = CountingMatcher(workload.fields, workload.predicates, workload.programs)
        first = matcher.counts(events.rows).tolist()
        assert matcher.counts(events.rows).tolist() == first


@pytest.mark.parametrize("density", [0.154, 0.6, 1.0])
def test_scan_agrees_with_the_oracle_on_the_papers_filters(density: float) -> None:
    workload = paper.subscriptions(300, 5)
    events = workload.events(24, 6, density)
    matcher = ScanMatcher(workload.fields, workload.predicates, workload.programs)
    assert found(matcher, events) == expected(workload.filters(), events)


def bdd_found(bdd: Bdd, events: Events, *, partial: bool, split: bool) -> list[list[int]]:
    answers = []
    for event in range(len(events)):
        bdd.evaluate(events.rows.part(event, event + 1), partial=partial, split=split)
        answers.append(bdd.matches(split=split).tolist())
    return answers


@pytest.mark.parametrize("every", [False, True])
def test_the_papers_bdd_plain_and_restricted_agrees_with_the_oracle_on_total_messages(
    every: bool,
) -> None:
    workload = paper.subscriptions(400, 5)
    events = workload.events(40, 6)
    right = expected(workload.filters(), events)
    builder = Builder(workload.programs, every=every)
    plain = builder.bdd()
    builder.restrict()
    restricted = builder.bdd()
    assert restricted.node_count < 0.75 * plain.node_count
    for bdd in (plain, restricted):
        assert_reduced_and_ordered(bdd)
        for split in (False, True):
            assert bdd_found(bdd, events, partial=False, split=split) == right
            assert bdd_found(bdd, events, partial=True, split=split) == right


def assert_reduced_and_ordered(bdd: Bdd) -> None:
    label, low, high, output = bdd.diagram
    nodes = list(zip(label.tolist(), low.tolist(), high.tolist(), strict=True))
    assert len(set(nodes)) == len(nodes)
    assert np.all(low != high)
    # The terminals come after everything, as the variables' order goes on.
    beyond = np.append(label, [len(bdd.variables)] * 2)
    assert np.all(label < beyond[low])
    assert np.all(label < beyond[high])
    assert np.all(np.diff(label) >= 0)
    assert set(range(len(nodes))) <= {*low.tolist(), *high.tolist(), *output.tolist()}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("density", [0.3, 0.7])
def test_mv_eval_bdd_is_mode_strict_where_the_bdd_still_has_every_attribute(
    density: float, split: bool
) -> None:
    workload = paper.subscriptions(300, 5)
    filters = workload.filters()
    events = workload.events(40, 6, density)
    bdd = Builder(workload.programs).bdd()
    kept = {
        number
        for number, filter_ in enumerate(filters)
        if filter_.attributes() == attributes_below(bdd, number)
    }
    assert len(kept) > 0.9 * len(filters)
    right = expected(filters, events, "strict")
    answers = bdd_found(bdd, events, partial=True, split=split)
    assert any(right)
    for answer, truth in zip(answers, right, strict=True):
        assert kept & set(answer) == kept & set(truth)
        # What has lost an attribute can only match more: the paper's remark on adequacy.
        assert set(truth) <= set(answer)


def attributes_below(bdd: Bdd, number: int) -> set[str]:
    label, low, high, output = bdd.diagram
    waiting, met = [int(output[number])], set()
    while waiting:
        node = waiting.pop()
        if node < len(label) and node not in met:
            met.add(node)
            waiting += [int(low[node]), int(high[node])]
    return {paper.FIELDS[bdd.variables[label[node]].field].name for node in met}


def test_a_bdd_that_outgrows_its_store_is_the_same_bdd(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = paper.subscriptions(5000, 5).programs
    roomy = Builder(programs)
    monkeypatch.setattr("benchmarks.baselines.plain_bdd.FIRST_STORE", 1 << 17)
    tight = Builder(programs)
    for _ in range(2):
        for one, other in zip(roomy.bdd().diagram, tight.bdd().diagram, strict=True):
            assert np.array_equal(one, other)
        roomy.restrict()
        tight.restrict()
