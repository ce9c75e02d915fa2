"""What is kept for attributes with several values: bounded, whatever publishers combine."""

from __future__ import annotations

from itertools import combinations, islice
from typing import Any

import numpy as np
import pytest

from tamis.matching import Engine
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
