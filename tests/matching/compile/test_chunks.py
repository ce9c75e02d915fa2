"""Diagrams are built chunk by chunk, and those are tried that may turn out small."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import pytest
from benchmarks.workloads import boolean

from strategies import random_event, random_filter, random_world
from tamis.matching import Engine, Subscription
from tamis.matching.compile import chunk_kernels, chunks


@pytest.mark.parametrize("seed", range(4))
def test_every_chunk_has_its_own_diagrams(seed: int) -> None:
    rng = Random(seed)
    world = random_world(rng, typed=rng.random() < 0.5)
    filters = [random_filter(rng, world) for _ in range(150)]
    engine = Engine(world.schema)
    with patch.object(chunks, "SUBSCRIPTIONS_PER_CHUNK", 10):
        engine.add_many(map(Subscription, range(150), filters))
        engine.compact()
    segment = engine._collection.state.segments[0]
    assert len(segment.evaluator.compiled.arrays.chunks.root_starts) > 10
    events = [random_event(rng, world) for _ in range(60)]
    found = engine.match_batch(events)
    for number, event in enumerate(events):
        expected = [n for n, f in enumerate(filters) if f.matches(event, schema=world.schema)]
        assert found[number] == expected


@pytest.mark.slow
def test_programs_whose_like_are_never_small_are_seldom_tried() -> None:
    work = boolean.subscriptions(3_000, 1)
    engine = Engine()
    with patch.object(chunks, "new_trials", return_value=chunk_kernels.new_trials(64)) as made:
        engine.add_many(map(Subscription, range(3_000), work.filters()))
        engine.compact()
    trials = made.return_value
    many = trials.asked > 500
    assert many.any()
    assert (trials.made[many] < trials.asked[many] / 4).all()
    # Short ones are often small.
    assert trials.cheap[:10].sum() > 0.3 * trials.made[:10].sum()
    filters, events = work.filters(), work.events(20, 2).dicts()
    found = engine.match_batch(events)
    for number, event in enumerate(events):
        assert found[number] == [n for n, f in enumerate(filters) if f.matches(event)]
