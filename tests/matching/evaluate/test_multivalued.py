"""What is kept for attributes with several values: bounded, whatever publishers combine."""

from __future__ import annotations

from itertools import combinations, islice
from random import Random
from typing import Any

import numpy as np
import pytest

from seeds import seeds
from tamis import parse
from tamis.matching import Engine
from tamis.matching.compile import access, plans
from tamis.matching.compile.plans import ChosenPlan, Selectivity, choose_key_plan
from tamis.matching.evaluate import multivalued
from tamis.matching.store.segments import Segment

NAMES = "abcdefgh"
# Large enough that a dozen copies of it exceed what may be kept here.
ATOMS_PER_FILTER = 1_000
FILTERS = 60
KEPT_BYTES = 3 * 1024 * 1024


def large_engine() -> Engine:
    engine = Engine()
    for number in range(FILTERS):
        names = NAMES[number % len(NAMES) :] + NAMES[: number % len(NAMES)]
        atoms = (f"{names[n % len(names)]} != {n % 40}" for n in range(ATOMS_PER_FILTER))
        engine.add(number, " or ".join(atoms))
    engine.compact()
    return engine


def the_segment(engine: Engine) -> Segment:
    (segment,) = engine._collection.state.segments
    return segment


def kept_bytes(owner: object) -> int:
    """Return the bytes of all arrays that an object and its containers hold."""
    if isinstance(owner, np.ndarray):
        return int(owner.nbytes)
    if isinstance(owner, dict):
        return sum(map(kept_bytes, owner.values()))
    if isinstance(owner, tuple):
        return sum(map(kept_bytes, owner))
    return 0


def kept_by(engine: Engine) -> int:
    """Return the bytes that are kept for combinations of attributes, wherever they are."""
    evaluator: Any = the_segment(engine).evaluator._multivalued
    cache = getattr(evaluator, "_selections", evaluator)
    return kept_bytes(cache._kept)


def test_programs_kept_for_combinations_of_attributes_are_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multivalued, "MAX_KEPT_SELECTION_BYTES", KEPT_BYTES)
    engine = large_engine()
    for names in islice(combinations(NAMES, 3), 15):
        engine.match_batch([{name: [1, 2] for name in names}])
    assert 0 < kept_by(engine) <= KEPT_BYTES


def test_selections_not_used_for_longest_are_forgotten_first() -> None:
    engine = Engine()
    for name in "abcdefghijklmnopqrstuvwxyz":
        engine.add(name, f"{name} = 1")
    engine.compact()
    cache = the_segment(engine).evaluator._multivalued._selections
    for name in "bcdefghijklmnopqrstuvwxyz":
        assert engine.match_batch([{"a": [1, 2]}, {name: [0, 1]}, {}])[1] == [name]
        assert engine.match_batch([{"a": [1, 2]}])[0] == ["a"]
    assert len(cache._kept) == multivalued.MAX_KEPT_SELECTIONS
    assert cache.get(frozenset("a")) is not None
    assert cache.get(frozenset("ab")) is None
    assert cache.nbytes == kept_bytes(cache._kept)


def test_a_selection_too_large_to_keep_still_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multivalued, "MAX_KEPT_SELECTION_BYTES", 1)
    engine = Engine()
    engine.add(1, "a = 1 and b = 2")
    engine.compact()
    event = {"a": [0, 1], "b": [2, 3]}
    assert list(engine.match_batch([event, {"a": [2, 3], "b": 2}])) == [[1], []]
    assert the_segment(engine).evaluator._multivalued._selections.nbytes == 0


def several_values(random: Random, most: int) -> dict[str, Any]:
    """Return an event; attributes hold one value, some, or very many."""
    return {
        name: [random.choice((random.randrange(40), f"t{random.randrange(40)}")) for _ in range(n)]
        for name in NAMES[:5]
        for n in (random.choice((0, 1, 1, 2, 3, most)),)
        if n
    }


def selective_filter(random: Random) -> str:
    """Return a filter that is mostly filed under one, two or three cells."""
    names = random.sample(NAMES[:5], 4)
    one, other, third = (f"{name} = {random.randrange(40)}" for name in names[:3])
    text = f'{names[2]} = "t{random.randrange(40)}"'
    last = f"{names[3]} {random.choice(('<', '>=', '!='))} {random.randrange(40)}"
    return random.choice(
        (
            f"{one} and {other} and {third}",
            f"{one} and {other} and {third}",
            f"{one} and {other} and {last}",
            f"{one} and {text} and {last}",
            f"{one} and not ({last})",
            f"({one} or {text}) and not ({other} and {last})",
            f'{one} and {names[2]} starts with "t{random.randrange(4)}"',
            f"{one} and ({other} xor {last})",
            f"{one} and {names[1]} is absent",
            f"{last} and {names[1]} <= {random.randrange(40)}",
        )
    )


def file_under(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have subscriptions filed under keys of up to so many cells, whatever that costs."""

    def chosen(known: Selectivity, attributes: int, _: int | None) -> ChosenPlan:
        return choose_key_plan(known, attributes, cells)

    monkeypatch.setattr(plans, "ROW_NS", 1e6)
    monkeypatch.setattr(access, "choose_key_plan", chosen)


@pytest.mark.parametrize("cells", [1, 2, 3])
@pytest.mark.parametrize("seed", seeds(20))
def test_events_with_several_values_find_what_the_filters_find(
    seed: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    file_under(cells, monkeypatch)
    filters = [parse(selective_filter(random)) for _ in range(400)]
    engine = Engine()
    for number, each in enumerate(filters):
        engine.add(number, each)
    engine.compact()
    compiled = the_segment(engine).evaluator.compiled
    assert len(compiled.unindexed) < len(filters) / 4
    assert (len(compiled.arrays.postings.compound.keys) > 100) is (cells > 1)
    events = [several_values(random, random.choice((5, 30))) for _ in range(20)]
    found = engine.match_batch(events)
    for event, ids in zip(events, found, strict=True):
        expected = [number for number, each in enumerate(filters) if each.matches(event)]
        assert ids == expected
        assert engine.match(event) == expected


def test_more_combinations_than_compound_keys_are_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file_under(3, monkeypatch)
    engine = Engine()
    for number in range(300):
        engine.add(number, f"a = {number} and b = {number} and c = {number}")
    engine.compact()
    compound = the_segment(engine).evaluator.compiled.arrays.postings.compound
    assert len(compound.keys) == 300
    # A million million combinations.
    values = [*range(10_000)]
    event = {"a": values, "b": values[::-1], "c": [*range(5, 10_000)]}
    assert engine.match(event) == [*range(5, 300)]
