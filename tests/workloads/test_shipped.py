"""The shipped workloads are those of the benchmarks, and of the papers these follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain

import numpy as np
import pytest
from benchmarks.workloads import boolean, conjunctions, paper

from tamis import Engine, Event, Filter, parse
from tamis.filters.atoms import Compare
from tamis.filters.boolean import And, Connective, Not, Or, Xor
from tamis.workloads import Workload, shipped

SEED = 11


def engine_of(workload: Workload, count: int) -> Engine:
    engine = Engine(workload.schema)
    added = engine.add_many(workload.subscriptions(0, count, SEED).to_pylist())
    assert not added.rejected
    return engine


@cache
def filters_of(name: str, count: int) -> Sequence[Filter]:
    return Workload.load(name).filters(0, count, SEED)


def operators(filter_: Filter) -> int:
    match filter_:
        case Connective():
            return len(filter_.terms) - 1 + sum(map(operators, filter_.terms))
        case Not():
            return 1 + operators(filter_.term)
    return 0


def atoms_of(filters: Sequence[Filter]) -> list[Filter]:
    return list(chain.from_iterable(filter_.atoms() for filter_ in filters))


def test_the_workloads_that_are_promised_are_shipped() -> None:
    assert shipped() == ["abe", "be-a", "be-b", "be-c", "market", "paper"]


# --- the paper's --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_papers_filters_have_the_atoms_and_operators_of_section_8() -> None:
    filters = filters_of("paper", 5000)
    assert len(atoms_of(filters)) / 5000 == pytest.approx(7.6, abs=0.15)
    assert sum(map(operators, filters)) / 5000 == pytest.approx(7.7, abs=0.2)
    often = Counter(map(str, atoms_of(filters)))
    assert set(often) == {str(atom.as_filter()) for atom in paper.ATOMS}
    assert len(often) == 208
    # All are equally likely: about 183 of each.
    assert min(often.values()) > 110
    assert max(often.values()) < 260


def test_the_papers_filters_are_built_of_its_connectives() -> None:
    kinds = Counter(type(filter_).__name__ for filter_ in filters_of("paper", 5000))
    shares = {kind: kinds[kind] / 5000 for kind in ("And", "Or", "Not")}
    assert shares == pytest.approx({"And": 0.51, "Or": 0.48, "Not": 0.01}, abs=0.03)


@pytest.mark.slow
def test_about_half_of_the_papers_pairs_match() -> None:
    workload = Workload.load("paper")
    matches = engine_of(workload, 6000).match_batch(workload.events(0, 400, SEED))
    assert matches.counts().mean() / 6000 == pytest.approx(0.47, abs=0.03)


@pytest.mark.parametrize("density", paper.DENSITIES)
def test_the_papers_densities(density: float) -> None:
    events = Workload.load("paper").events(0, 20_000, SEED, density)
    present = 1 - sum(column.null_count for column in events.columns) / (10 * 20_000)
    assert present == pytest.approx(density, abs=0.01)


def test_the_papers_messages_have_its_values() -> None:
    events = Workload.load("paper").events(0, 20_000, SEED)
    assert set(events.column("string2").to_pylist()) == set(paper.ALTERNATIVES)
    assert set(events.column("int1").to_pylist()) == set(range(81))
    assert set(events.column("double0").to_pylist()) == {n / 10 for n in range(801)}


# --- ABE and BE ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_boolean_expressions_have_the_shape_of_abe_gen() -> None:
    filters = filters_of("abe", 3000)
    same = boolean.subscriptions(3000, SEED).filters()
    for drawn in (filters, same):
        kinds = Counter(type(filter_) for filter_ in drawn)
        assert kinds[And] / 3000 == pytest.approx(0.4, abs=0.06)
        assert kinds[Or] / 3000 == pytest.approx(0.4, abs=0.06)
        assert kinds[Xor] / 3000 == pytest.approx(0.05, abs=0.03)
    assert len(atoms_of(filters)) == pytest.approx(len(atoms_of(same)), rel=0.05)
    tests = Counter(type(atom).__name__ for atom in atoms_of(filters))
    total = sum(tests.values())
    assert {kind: count / total for kind, count in tests.items()} == pytest.approx(
        {"Compare": 0.8, "Between": 0.1, "In": 0.1}, abs=0.02
    )


def test_boolean_expressions_share_operands_by_zipf() -> None:
    def operands(filters: Sequence[Filter]) -> Counter[str]:
        terms = chain.from_iterable(f.terms for f in filters if isinstance(f, Connective))
        return Counter(str(term) for term in terms if isinstance(term, Connective))

    often = operands(filters_of("abe", 3000))
    assert often.most_common(1)[0][1] > 10


def test_conjunctions_a_are_equalities_on_three_of_eight() -> None:
    workload = Workload.load("be-a")
    for filter_ in workload.filters(0, 200, SEED):
        assert isinstance(filter_, And)
        assert [atom.attribute for atom in filter_.terms if isinstance(atom, Compare)] == [
            "f0",
            "f1",
            "f2",
        ]
    cardinalities = [
        len(set(column.to_pylist())) for column in workload.events(0, 20_000, SEED).columns
    ]
    assert tuple(cardinalities) == conjunctions.CARDINALITIES_A


def test_conjunctions_b_are_five_equalities_and_events_of_twenty() -> None:
    workload = Workload.load("be-b")
    for filter_ in workload.filters(0, 500, SEED):
        assert len(filter_.attributes()) == 5
        assert str(filter_).count(" = ") == 5
    events = workload.events(0, 500, SEED)
    present = np.array([column.is_valid().to_numpy(zero_copy_only=False) for column in events])
    assert np.all(present.sum(axis=0) == 20)
    assert present.sum(axis=1).max() < 40


def test_conjunctions_c_are_three_ranges_of_a_tenth() -> None:
    workload = Workload.load("be-c")
    assert all(len(filter_.attributes()) == 3 for filter_ in workload.filters(0, 500, SEED))
    matches = engine_of(workload, 2000).match_batch(workload.events(0, 3000, SEED))
    # A range takes a tenth of the values, and each of three must be hit.
    assert matches.counts().mean() == pytest.approx(2000 / 10**3, rel=0.15)


# --- the market ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_event_of_the_market_matches_few_of_many_different_subscriptions() -> None:
    workload = Workload.load("market")
    count = 10_000
    matches = engine_of(workload, count).match_batch(workload.events(0, 5000, SEED))
    # Tens of 100,000 are a few of 10,000.
    assert 1 < matches.counts().mean() < 5
    texts = workload.subscriptions(0, count, SEED).column("filter").to_pylist()
    assert len(set(texts)) > 0.8 * count
    used = set().union(*(parse(text).attributes() for text in texts[:2_000]))
    assert used == set(workload.schema)


def test_the_engine_and_the_oracle_agree_on_the_market() -> None:
    workload = Workload.load("market")
    filters = workload.filters(0, 300, SEED)
    events = workload.events(0, 100, SEED)
    matches = engine_of(workload, 300).match_batch(events)
    for found, row in zip(matches, events.to_pylist(), strict=True):
        event = Event({name: value for name, value in row.items() if value is not None})
        expected = [n for n, f in enumerate(filters) if f.matches(event, schema=workload.schema)]
        assert sorted(map(int, found)) == expected
