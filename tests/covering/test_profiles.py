"""What cubes prove is true, each proof on its own: in an index, others would hide a wrong one."""

from __future__ import annotations

from random import Random

import pytest

from seeds import seeds
from strategies import random_filter, random_world
from tamis.covering.profiles import FilterRelations


def check(rng: Random, pairs: int) -> int:
    """Compare proofs by cubes with diagrams; return how many there were."""
    world = random_world(rng, typed=rng.random() < 0.5)
    relations, proofs = FilterRelations(schema=world.schema), 0
    for _ in range(pairs):
        narrow, wide = random_filter(rng, world, 1), random_filter(rng, world, 1)
        one, other = relations.profile(narrow), relations.profile(wide | narrow & wide)
        if relations.is_proved(other, one):
            proofs += 1
            assert relations.space.surely_covers(other.filter, one.filter), (narrow, wide)
        for probe in one.probes:
            if probe.is_event:
                assert narrow.matches(probe.view.event, schema=world.schema)
    return proofs


def test_what_cubes_prove_is_true() -> None:
    assert sum(check(Random(seed), 40) for seed in range(3)) > 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(40, 40))
def test_what_cubes_prove_is_true_of_many(seed: int) -> None:
    check(Random(seed), 2_000)
