"""However accessors are evaluated, the same objects match: the reference decides."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from seeds import in_volume, seeds
from tamis import Engine
from tamis.objects.accessors import AccessorFailures, ByName
from tamis.objects.patterns import ObjectFilter
from tamis.objects.schemes import ByType, InvocationTree, StaticCode

from .plain_python import TypedCollections
from .random_objects import POOLS, Patterns, World


def check_world(rng: Random, filters: int, objects: int) -> int:
    """Compare all ways on a random world; return the number of pairs."""
    world = World(rng)
    patterns = [Patterns(rng, world).pattern() for _ in range(filters)]
    given = world.roots_of(rng, objects)
    expected = [[p.truth(one, ByName(AccessorFailures())) for p in patterns] for one in given]
    failures = AccessorFailures()
    by_type, static = ByType(failures), StaticCode(failures)
    tree = InvocationTree(patterns, failures)
    for one, truths in zip(given, expected, strict=True):
        read = tree.reader(one)
        for pattern, truth in zip(patterns, truths, strict=True):
            assert pattern.truth(one, by_type) is truth, (pattern, vars(one))
            assert pattern.truth(one, read) is truth, (pattern, vars(one))
            assert pattern.truth(one, static) is truth, (pattern, vars(one))
    check_engine(rng, patterns, given, expected)
    return filters * objects


def check_engine(
    rng: Random, patterns: list[ObjectFilter], given: list[Any], expected: list[list[bool | None]]
) -> None:
    engine = Engine()
    for number, pattern in enumerate(patterns):
        engine.add(number, pattern)
    wanted = [[n for n, truth in enumerate(truths) if truth is True] for truths in expected]
    few = rng.sample(range(len(given)), min(3, len(given)))
    batch: list[Any] = list(engine.match_batch(given))
    found: list[tuple[int, Any]] = [(at, engine.match(given[at])) for at in few]
    found += enumerate(batch)
    for at, matched in found:
        assert matched == wanted[at], [
            (patterns[n], patterns[n].__translation__(), vars(given[at]))
            for n in set(matched) ^ set(wanted[at])
        ]


@pytest.mark.parametrize("seed", range(4))
def test_every_way_of_evaluating_gives_the_same(seed: int) -> None:
    check_world(Random(seed), 25, 12)


@pytest.mark.slow
def test_every_way_of_evaluating_gives_the_same_in_volume() -> None:
    pairs, seed = 0, 100
    while pairs < 1_000_000:
        pairs += check_world(Random(seed), 200, 100)
        seed += 1


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("cls", POOLS, ids=lambda cls: cls.__name__)
def test_conditions_on_typed_collections_say_what_plain_python_says(cls: Any, seed: int) -> None:
    holder = TypedCollections(Random(seed), cls)
    conditions = [holder.condition() for _ in range(in_volume(60))]
    given = holder.objects(15)
    expected = [[said(one) for _, said in conditions] for one in given]
    patterns = [filter_ for filter_, _ in conditions]
    for one, truths in zip(given, expected, strict=True):
        for pattern, truth in zip(patterns, truths, strict=True):
            assert pattern.truth(one) is truth, (pattern, one)
    check_engine(Random(seed), patterns, given, expected)
