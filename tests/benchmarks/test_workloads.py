"""The workloads: the same for the same seed, and what the papers and issue 3 say they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.baselines.scan import ScanMatcher
from benchmarks.engines import Workload
from benchmarks.sigma import SqliteRules
from benchmarks.workloads import boolean, conjunctions, paper, sigma
from benchmarks.workloads.boolean import JOIN, distinct, zipf
from benchmarks.workloads.boolean_kernels import XNOR
from benchmarks.workloads.drawn import Drawn, parsed
from benchmarks.workloads.forms import AND, NOT, OR, XOR, Programs

from seeds import in_volume
from tamis.events import Event
from tamis.filters import Filter
from tamis.languages import parse
from tamis.workloads import Workload as TamisWorkload

Draw = Callable[[int, int], Workload]

WORKLOADS: dict[str, Draw] = {
    "paper": paper.subscriptions,
    "boolean": boolean.subscriptions,
    "a": conjunctions.workload_a,
    "b": conjunctions.workload_b,
    "c": conjunctions.workload_c,
    "growth": conjunctions.growth,
    "growth by one key": lambda count, seed: conjunctions.growth(count, seed, even=False),
}

every_workload = pytest.mark.parametrize("draw", WORKLOADS.values(), ids=WORKLOADS)


@every_workload
def test_the_same_seed_gives_the_same_and_another_seed_something_else(draw: Draw) -> None:
    one, same, other = draw(300, 1), draw(300, 1), draw(300, 2)
    assert one.filters() == same.filters() != other.filters()
    assert one.events(20, 1).dicts() == same.events(20, 1).dicts() != one.events(20, 2).dicts()
    assert np.array_equal(one.programs.code, same.programs.code)


@every_workload
def test_some_of_the_filters_are_the_same_filters(draw: Draw) -> None:
    workload = draw(50, 3)
    assert len(workload.filters()) == len(workload.programs) == 50
    assert workload.filters(10, 20) == workload.filters()[10:20]


@every_workload
def test_events_are_the_same_in_every_form(draw: Draw) -> None:
    events = draw(100, 3).events(30, 4)
    dicts = events.dicts()
    from_arrow = [
        {name: value for name, value in row.items() if value is not None}
        for row in events.record_batch().to_pylist()
    ]
    assert list(map(Event, from_arrow)) == list(map(Event, dicts))
    for name, column in events.columns().items():
        found = [value for value, is_there in zip(*column, strict=True) if is_there]
        assert found == [event[name] for event in dicts if name in event]


def test_the_paper_has_208_atoms_of_which_120_are_primitive() -> None:
    assert len(paper.ATOMS) == len({atom.as_filter() for atom in paper.ATOMS}) == 208
    assert len(paper.PRIMITIVES) == 6 * 4 * 3 + 4 * 4 * 3
    assert len(set(paper.ALTERNATIVES)) == 20
    assert len({len(text) for text in paper.ALTERNATIVES}) > 5


@pytest.mark.slow
def test_the_papers_filters_have_the_papers_averages() -> None:
    count = in_volume(5_000)
    workload = paper.subscriptions(count, 1)
    code = workload.programs.code
    assert abs((code >= 0).mean() * len(code) / count - 7.6) < 0.2
    assert set(code[code >= 0]) == set(range(208))


@pytest.mark.slow  # The other matcher's kernels take seconds to compile.
def test_nearly_half_of_the_papers_pairs_match() -> None:
    workload = paper.subscriptions(20_000, 1)
    scan = ScanMatcher(workload.fields, workload.predicates, workload.programs)
    rate = scan.counts(workload.events(100, 1).rows).mean() / 20_000
    assert abs(rate - 0.47) < 0.03


@pytest.mark.parametrize("density", paper.DENSITIES)
def test_the_papers_messages_have_the_density_asked_for(density: float) -> None:
    workload = paper.subscriptions(1, 1)
    events = workload.events(2000, 1, density)
    assert abs(len(events.rows.value) / (2000 * 10) - density) < 0.02
    numbers = events.columns()["double0"]
    assert numbers.values.min() >= 0
    assert numbers.values.max() <= 80


def test_boolean_expressions_have_the_operators_and_the_shape_of_the_a_tree_paper() -> None:
    workload = boolean.subscriptions(20_000, 1)
    ops = Counter(workload.graph.op.tolist())
    shares = {op: count / ops.total() for op, count in ops.items()}
    expected = {AND: 0.4, OR: 0.4, NOT: 0.1, XOR: 0.05, XNOR: 0.05}
    assert shares == pytest.approx(expected, abs=0.01)
    arity = np.diff(workload.graph.start)
    assert set(arity[workload.graph.op == NOT]) == {1}
    assert set(arity[workload.graph.op != NOT]) == {4}
    atoms = (workload.programs.code >= 0).sum() / 20_000
    assert atoms == pytest.approx((0.9 * 4 + 0.1) ** 2, rel=0.02)


def test_boolean_predicates_have_the_documented_mix_over_1000_attributes() -> None:
    workload = boolean.subscriptions(20_000, 1)
    code = workload.programs.code
    drawn = Counter(workload.predicates.op[code[code >= 0]].tolist())
    shares = {op: count / drawn.total() for op, count in drawn.items()}
    assert shares == pytest.approx(boolean.TESTS, abs=0.01)
    assert set(workload.predicates.attribute) == set(range(1000))


def rebuilt(programs: Programs, atoms: Sequence[Filter]) -> list[Filter]:
    """Return the filters that postfix programs build."""
    found = []
    for first, last in pairwise(programs.start.tolist()):
        stack: list[Filter] = []
        for token in programs.code[first:last].tolist():
            operands = 0 if token >= 0 else (-1 - token) >> 2
            terms = stack[len(stack) - operands :]
            del stack[len(stack) - operands :]
            stack.append(atoms[token] if token >= 0 else JOIN[(-1 - token) & 3](terms))
        found += stack
    return found


@pytest.mark.parametrize("draw", [paper.subscriptions, conjunctions.workload_c])
def test_the_flat_form_is_that_of_the_filters(draw: Callable[[int, int], Drawn]) -> None:
    workload = draw(300, 1)
    assert rebuilt(workload.programs, workload._flat[1]) == workload.filters()


def test_a_conjunction_put_together_from_atoms_is_the_one_that_the_parser_makes() -> None:
    for name in ("be-a", "be-b", "be-c", "paper"):
        for text in TamisWorkload.load(name).subscriptions(0, 200, 1).column("filter").to_pylist():
            assert parsed(text) == parse(text)


@pytest.mark.parametrize("shape", [boolean.Shape(), boolean.Shape(depth=5), boolean.Shape(3, 12)])
def test_boolean_filters_share_what_the_programs_write_out(shape: boolean.Shape) -> None:
    workload = boolean.subscriptions(40, 1, shape)
    assert rebuilt(workload.programs, workload.nodes) == workload.filters()
    assert max(filter_.depth for filter_ in workload.filters()) < 2 * shape.depth


def test_boolean_events_have_20_different_attributes() -> None:
    events = boolean.subscriptions(10, 1).events(50, 1).dicts()
    assert {len(event) for event in events} == {20}


def test_zipf_draws_the_first_as_often_as_its_weight() -> None:
    drawn = zipf(np.random.default_rng(1), 100_000, 1000, 0.6)
    weights = np.arange(1, 1001) ** -0.6
    expected = 100_000 * weights / weights.sum()
    assert np.bincount(drawn)[:3] == pytest.approx(expected[:3], rel=0.1)
    assert drawn.max() < 1000


def test_distinct_draws_every_choice_as_often() -> None:
    rows = distinct(np.random.default_rng(1), 10_000, 20, 3)
    assert np.all(np.diff(rows, axis=1) > 0)
    assert np.bincount(rows.reshape(-1)) == pytest.approx(np.full(20, 1500), rel=0.1)


def test_workload_a_asks_for_equality_on_the_first_three_of_eight_fields() -> None:
    workload = conjunctions.workload_a(100, 1)
    assert all(filter_.attributes() == {"f0", "f1", "f2"} for filter_ in workload.filters())
    assert {len(event) for event in workload.events(10, 1).dicts()} == {8}
    assert np.all(workload.predicates.attribute[workload.terms] == (0, 1, 2))
    assert np.all(workload.predicates.low[workload.terms] < (1000, 100, 100))


def test_workload_b_has_five_equalities_and_a_planted_match_in_every_event() -> None:
    workload = conjunctions.workload_b(1000, 1)
    filters = list(workload.filters())
    assert {len(filter_.attributes()) for filter_ in filters} == {5}
    events = workload.events(50, 1).dicts()
    assert {len(event) for event in events} == {20}
    for event in map(Event, events):
        assert any(filter_.matches(event) for filter_ in filters)


def test_workload_c_has_three_ranges_of_100_values() -> None:
    workload = conjunctions.workload_c(1000, 1)
    assert {len(filter_.attributes()) for filter_ in workload.filters()} == {3}
    assert set(workload.predicates.high - workload.predicates.low + 1) == {100}
    assert (workload.predicates.low.min(), workload.predicates.high.max()) == (0, 999)


@pytest.mark.slow  # as above
@pytest.mark.parametrize("count", [10_000, 100_000])
@pytest.mark.parametrize("even", [True, False])
def test_growth_keeps_the_matches_per_event(count: int, even: bool) -> None:
    workload = conjunctions.growth(count, 1, even=even)
    scan = ScanMatcher(workload.fields, workload.predicates, workload.programs)
    assert scan.counts(workload.events(100, 1).rows).mean() == pytest.approx(10, rel=0.1)


@pytest.mark.slow
def test_detection_rules_are_drawn_by_seed_and_ignore_case_as_sqlite_does() -> None:
    rules = sigma.rules(400, 1)
    assert rules == sigma.rules(400, 1) != sigma.rules(400, 2)
    ops = Counter(test.op for rule in rules for test in rule.selections)
    assert set(ops) == {"contains", "starts with", "ends with", "=", "like", "matches"}
    events = sigma.events(200, 1, 400)
    assert events == sigma.events(200, 1, 400)
    filters = [parse(rule.tamis()) for rule in rules]
    table = SqliteRules(rules, events, indexed=False)
    counts = [sum(filter_.matches(event) for filter_ in filters) for event in events]
    assert table.counts().tolist() == counts
    assert sum(counts) > 100
