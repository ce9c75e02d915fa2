"""Single events against the oracle: one after the other, so that each finds the memory clean."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from strategies import (
    CONSTANTS,
    VALUES,
    World,
    fits,
    generators,
    random_filter,
    random_world,
)
from tamis import Engine, Event, Mode, Schema, Subscription, attribute
from tamis.events import Kind, Value
from tamis.filters import Filter
from tamis.matching.compile import access

Kept = list[tuple[int, Filter, Mode]]


def random_data(rng: Random, world: World, *, total: bool) -> dict[str, Value]:
    """Return an event with one value for each attribute, and some that nobody asks about."""
    data: dict[str, Value] = {}
    for name in world.names:
        if total or rng.random() < 0.75:
            declared = world.schema[name] if world.schema else None
            kind = rng.choice(list(Kind)) if declared is None else declared.kind
            pool = [v for v in VALUES[kind] if declared is None or fits(v, declared.type)]
            data[name] = rng.choice(pool)
            if kind is Kind.NUMBER and isinstance(data[name], float) and rng.random() < 0.1:
                data[name] = math.nan
    if rng.random() < 0.3:
        data["nobody asks"] = rng.choice(CONSTANTS[Kind.TEXT])
    names = list(data)
    rng.shuffle(names)
    return {name: data[name] for name in names}


def engine_of(rng: Random, world: World, mode: Mode) -> tuple[Engine, Kept]:
    modes = [mode] if mode is Mode.TOTAL else [Mode.SQL, Mode.STRICT, Mode.DEFAULT]
    engine = Engine(world.schema, mode)
    kept: Kept = []
    for number in range(rng.choice((1, 20, 60))):
        filter_ = random_filter(rng, world, rng.choice((0, 1, 2, 3, 5)))
        kept.append((number, filter_, rng.choice(modes)))
        engine.add(number, filter_, mode=kept[-1][2])
    engine.compact()
    return engine, kept


def expected(kept: Kept, event: Event, world: World) -> list[int]:
    return [number for number, f, mode in kept if f.matches(event, mode, world.schema)]


def compare(rng: Random, events: int) -> int:
    """Match single events in every form that they can have; return how many matched."""
    world = random_world(rng, typed=rng.random() < 0.5)
    total = world.schema is not None and rng.random() < 0.2
    most = rng.choice((access.MAX_EVENT_SHARE, 10.0))
    matched = 0
    with (
        patch.object(access, "MAX_EVENT_SHARE", most),
        patch.object(access, "MAX_EVENT_SHARE_OF_PROGRAM", most),
    ):
        engine, kept = engine_of(rng, world, Mode.TOTAL if total else Mode.SQL)
    for _ in range(events):
        data = random_data(rng, world, total=total)
        wanted = expected(kept, Event(data), world)
        matched += len(wanted)
        assert engine.match(data) == wanted, f"{world.schema} {kept} on {data}"
        assert engine.match(Event(data)) == wanted
    return matched


@given(generators())
@settings(max_examples=60)
def test_a_single_event_finds_what_the_oracle_finds(rng: Random) -> None:
    compare(rng, events=6)


@pytest.mark.parametrize("seed", range(3))
def test_a_single_event_finds_what_the_oracle_finds_in_volume(seed: int) -> None:
    rng = Random(seed)
    assert sum(compare(rng, events=30) for _ in range(60)) > 10_000


def test_many_matches_come_in_order() -> None:
    engine = Engine()
    engine.add_many(Subscription(n, f"x < {n % 7} or y = {n}") for n in range(3_000))
    engine.compact()
    assert engine.match({"x": 3.0, "y": 5}) == sorted({5, *(n for n in range(3_000) if n % 7 > 3)})
    assert engine.match({"x": 9.0, "y": 5}) == [5]


def test_nodes_that_depend_on_nodes_wait_for_them() -> None:
    schema = Schema({name: attribute("int") for name in "abcdef"})
    engine = Engine(schema)
    nested = "(a < 5 or b < 5) and (c < 5 or (d < 5 and (e < 5 or f < 5)))"
    engine.add("nested", nested)
    engine.add("odd", f"({nested}) xor (e < 5 or f < 9) xor (a = 1 and f = 9)")
    engine.compact()
    rng = Random(7)
    for _ in range(500):
        data = {name: rng.randrange(10) for name in "abcdef" if rng.random() < 0.8}
        wanted = [id_ for id_ in ("nested", "odd") if engine.filter(id_)[0].matches(Event(data))]
        assert engine.match(data) == wanted


def test_threads_do_not_disturb_each_other() -> None:
    engine = Engine()
    engine.add_many(
        Subscription(n, f'x = {n} or (y < {n} and t contains "{n}")') for n in range(500)
    )
    engine.compact()
    events = [{"x": n, "y": n - 3, "t": f"a {n} b"} for n in range(500)]
    wanted = [engine.match(event) for event in events]
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: [engine.match(event) for event in events], range(8)):
            assert found == wanted
