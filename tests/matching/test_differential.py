"""The engine against the oracle, on random filters and events, while subscriptions come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from tempfile import NamedTemporaryFile
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

from seeds import seeds
from strategies import World, generators, random_event, random_filter, random_world
from tamis.events import Event
from tamis.filters import Filter, Mode
from tamis.matching import Engine
from tamis.matching.compile import access, chunks, plans
from tamis.matching.evaluate import evaluator as evaluation
from tamis.matching.store import collection

Kept = dict[int, tuple[Filter, Mode]]


def modes_of(world: World, rng: Random) -> tuple[Mode, list[Mode]]:
    """Return the mode of an engine, and those of its subscriptions."""
    if world.schema is not None and rng.random() < 0.2:
        return Mode.TOTAL, [Mode.TOTAL, Mode.SQL]
    return Mode.SQL, [Mode.SQL, Mode.STRICT, Mode.DEFAULT]


def expected(kept: Kept, event: Event, world: World) -> list[int]:
    return [n for n, (f, mode) in kept.items() if f.matches(event, mode, world.schema)]


def change(engine: Engine, kept: Kept, world: World, modes: list[Mode], rng: Random) -> None:
    """Add, remove or replace some subscriptions, in the engine and in the plain dict."""
    for _ in range(rng.choice((1, 3, 12))):
        number = rng.randrange(40)
        filter_, mode = random_filter(rng, world, rng.choice((0, 1, 2, 3, 4))), rng.choice(modes)
        if number not in kept:
            engine.add(number, filter_, mode=mode)
        elif rng.random() < 0.5:
            engine.remove(number)
            del kept[number]
            continue
        else:
            engine.replace(number, filter_, mode=mode)
            del kept[number]
        kept[number] = (filter_, mode)


@contextmanager
def paths_of_all_sorts(rng: Random) -> Iterator[None]:
    """Index subscriptions that would not be in so small a test, or force graphs."""
    with (
        patch.object(plans, "PLANS", rng.choice((plans.PLANS, (1,), (2,), (3,)))),
        patch.object(plans, "ROW_NS", rng.choice((plans.ROW_NS, 1e9))),
        patch.object(plans, "LOOKUP_NS", rng.choice((plans.LOOKUP_NS, 0.0))),
        patch.object(plans, "PROGRAM_STEP_NS", rng.choice((plans.PROGRAM_STEP_NS, 1e-6))),
        patch.object(chunks, "NODES_PER_CODE", rng.choice((chunks.NODES_PER_CODE, 0, -1))),
        patch.object(
            collection, "MAX_OPEN_SUBSCRIPTIONS", rng.choice((collection.MAX_OPEN_SUBSCRIPTIONS, 1))
        ),
        patch.object(
            collection,
            "MAX_TRIED_SUBSCRIPTIONS",
            rng.choice((collection.MAX_TRIED_SUBSCRIPTIONS, 0)),
        ),
        patch.object(
            collection,
            "MAX_RECOMPILED_SUBSCRIPTIONS",
            rng.choice((collection.MAX_RECOMPILED_SUBSCRIPTIONS, 0)),
        ),
        patch.object(collection, "MAX_FEW_TESTS", rng.choice((collection.MAX_FEW_TESTS, 0, 1_000))),
        patch.object(collection, "MAX_SEGMENTS", rng.choice((collection.MAX_SEGMENTS, 2))),
        patch.object(
            evaluation,
            "MAX_TILE_WORDS",
            rng.choice((evaluation.MAX_TILE_WORDS, evaluation.MIN_TILE_WORDS)),
        ),
        patch.object(
            evaluation, "MAX_PREDICATE_BYTES", rng.choice((evaluation.MAX_PREDICATE_BYTES, 1))
        ),
        patch.object(access, "MAX_CELLS_PER_LEAF", rng.choice((access.MAX_CELLS_PER_LEAF, 1))),
    ):
        yield


def saved_and_loaded(engine: Engine, threads: int) -> Engine:
    with NamedTemporaryFile(suffix=".tamis") as file:
        engine.save(file.name)
        return Engine.load(file.name, threads=threads)


def compare_engine(rng: Random, rounds: int) -> int:
    """Run an engine through some rounds of change and matching; return the number of pairs."""
    with paths_of_all_sorts(rng):
        return compare_rounds(rng, rounds)


def compare_rounds(rng: Random, rounds: int) -> int:
    world = random_world(rng, typed=rng.random() < 0.5)
    mode, modes = modes_of(world, rng)
    engine = Engine(world.schema, mode, threads=rng.choice((1, 2)))
    kept: Kept = {}
    pairs = 0
    for _ in range(rounds):
        change(engine, kept, world, modes, rng)
        if rng.random() < 0.2:
            engine.compact()
        if rng.random() < 0.1:
            engine = saved_and_loaded(engine, threads=rng.choice((1, 2)))
        total = mode is Mode.TOTAL
        events = [random_event(rng, world, total=total) for _ in range(rng.choice((1, 5, 70)))]
        found = engine.match_batch(events)
        for number, event in enumerate(events):
            wanted = expected(kept, event, world)
            assert found[number] == wanted, f"{mode} {world.schema} {kept} on {event}"
        for number in range(0, len(events), 1 + len(events) // 10):
            assert engine.match(events[number]) == found[number]
        assert found.counts().tolist() == [len(ids) for ids in found]
        bits = np.unpackbits(found.bitmap().view(np.uint8), axis=1, bitorder="little")
        assert bits.sum(axis=0)[: len(events)].tolist() == found.counts().tolist()
        assert len(engine) == len(kept)
        for number, (filter_, filter_mode) in kept.items():
            bound = filter_ if world.schema is None else filter_.bind(world.schema)
            assert engine.filter(number) == (bound, filter_mode)
        pairs += len(events) * len(kept)
    return pairs


@given(generators())
@settings(max_examples=25)
def test_the_engine_finds_what_the_oracle_finds(rng: Random) -> None:
    compare_engine(rng, rounds=3)


@pytest.mark.parametrize("seed", seeds(4, by_default=0))
def test_the_engine_finds_what_the_oracle_finds_in_volume(seed: int) -> None:
    rng = Random(seed)
    pairs = 0
    while pairs < 50_000:
        pairs += compare_engine(rng, rounds=8)


@pytest.mark.slow
def test_ten_million_pairs() -> None:
    rng = Random(2026)
    pairs = 0
    while pairs < 10_000_000:
        pairs += compare_engine(rng, rounds=20)
    print(f"\nengine against oracle: {pairs:,} pairs, 0 differences")
