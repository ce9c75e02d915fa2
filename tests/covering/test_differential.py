"""The covering index and comparing with all, on random filters that come and go."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from covering_ways import compile_from
from seeds import seeds
from strategies import World, generators, random_filter, random_world
from tamis.covering import CoveringForest, CoveringIndex, ExhaustiveCoveringIndex, RootChange
from tamis.covering.exhaustive import ExhaustiveForest
from tamis.diagrams.relations import RelationOptions
from tamis.filters import Filter, Mode


def same(one: RootChange, other: RootChange) -> bool:
    return set(one.became) == set(other.became) and set(one.ceased) == set(other.ceased)


class Pair:
    """Two indexes of the same filters, and a subset of each."""

    def __init__(self, rng: Random, options: RelationOptions, world: World) -> None:
        self.rng = rng
        self.world = world
        self.fast, self.slow = CoveringIndex(**options), ExhaustiveCoveringIndex(**options)
        self.some: CoveringForest = self.fast.subset()
        self.all: ExhaustiveForest = self.slow.subset()
        self.filters: list[Filter] = []

    def draw(self) -> Filter:
        """Return a random filter, perhaps one that was drawn before, or near one."""
        roll = self.rng.random()
        if self.filters and roll < 0.1:
            return self.rng.choice(self.filters)
        drawn = random_filter(self.rng, self.world, self.rng.choice((0, 1, 1, 2)))
        if self.filters and roll < 0.4:
            near = self.rng.choice(self.filters)
            drawn = near & drawn if self.rng.random() < 0.5 else near | drawn
        self.filters.append(drawn)
        return drawn

    def step(self, number: int) -> None:
        """Add or remove a filter, in the index or in the subset."""
        ids = self.slow.ids()
        roll = self.rng.random()
        if not ids or roll < 0.5:
            filter_ = self.draw()
            assert same(self.fast.add(number, filter_), self.slow.add(number, filter_)), filter_
        elif roll < 0.7:
            chosen = self.rng.choice(ids)
            if chosen in self.all:
                assert same(self.some.remove(chosen), self.all.remove(chosen))
            assert same(self.fast.remove(chosen), self.slow.remove(chosen))
        else:
            chosen = self.rng.choice(ids)
            if chosen in self.all:
                assert same(self.some.remove(chosen), self.all.remove(chosen))
            else:
                assert same(self.some.add(chosen), self.all.add(chosen))
        assert self.fast.roots() == self.slow.roots()
        assert self.some.roots() == self.all.roots()
        self.fast.assert_consistent()
        self.some.assert_consistent()


def check(rng: Random, steps: int) -> None:
    world = random_world(rng, typed=rng.random() < 0.5)
    options: RelationOptions = {"schema": world.schema, "many": rng.random() < 0.2}
    modes = list(Mode) if world.schema else [mode for mode in Mode if mode is not Mode.TOTAL]
    options["mode"] = rng.choice(modes) if rng.random() < 0.5 else Mode.SQL
    pair = Pair(rng, options, world)
    for number in range(steps):
        pair.step(number)
    for _ in range(4):
        asked = pair.draw()
        assert pair.fast.covering(asked) == pair.slow.covering(asked), asked
        assert pair.fast.covered_by(asked) == pair.slow.covered_by(asked), asked
        assert pair.fast.intersecting(asked) == pair.slow.intersecting(asked), asked


@pytest.mark.parametrize("seed", seeds(400, 2))
def test_the_forest_is_that_of_comparing_with_all(seed: int) -> None:
    check(Random(seed), 12)


@pytest.mark.slow
@pytest.mark.parametrize("compiled_from", [0, 4])
@pytest.mark.parametrize("seed", range(400, 800))
def test_the_forest_of_programs_is_that_of_comparing_with_all(
    seed: int, compiled_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_from(compiled_from, monkeypatch)
    check(Random(seed), 12)


@given(generators())
@settings(max_examples=4)
def test_the_forest_is_that_of_comparing_with_all_small(rng: Random) -> None:
    check(rng, 6)
