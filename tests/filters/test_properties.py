"""Laws that hold for every filter, event, schema and mode, on random ones in volume."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from seeds import in_volume, seeds
from strategies import World, generators, random_event, random_filter, random_world
from tamis.events import Event
from tamis.filters import Filter, Mode
from tamis.filters.simplify import PASSES, simplify
from tamis.languages import parse


def check_filter(filter_: Filter, world: World, mode: Mode, events: list[Event]) -> int:
    """Compare the filter with every form of it on every event; return the number of pairs."""
    bound = filter_ if world.schema is None else filter_.bind(world.schema)
    printed = parse(str(filter_))
    assert printed == filter_, f"{filter_!r} reads back as {printed!r}"
    assert hash(printed) == hash(filter_)
    forms = [printed, bound, simplify(filter_, mode)]
    forms += [one_pass(filter_, mode) for one_pass in PASSES]
    forms += [parse(str(form)) for form in forms]
    for event in events:
        expected = filter_.matches(event, mode, world.schema)
        for form in forms:
            assert form.matches(event, mode, world.schema) is expected, (
                f"{mode} {world.schema}: {filter_} became {form}, which differs on {event}"
            )
    return len(events) * len(forms)


def random_case(rng: Random) -> tuple[Filter, World, Mode, list[Event]]:
    typed = rng.random() < 0.5
    world = random_world(rng, typed=typed)
    modes = list(Mode) if typed else [mode for mode in Mode if mode is not Mode.TOTAL]
    mode = rng.choice(modes)
    total = mode is Mode.TOTAL
    events = [random_event(rng, world, total=total) for _ in range(5)]
    return random_filter(rng, world, depth=rng.choice((0, 1, 2, 3, 4))), world, mode, events


@given(generators())
@settings(max_examples=in_volume(100))
def test_printing_and_simplifying_keep_the_meaning(rng: Random) -> None:
    check_filter(*random_case(rng))


@pytest.mark.parametrize("seed", seeds(2, by_default=0))
def test_printing_and_simplifying_keep_the_meaning_in_volume(seed: int) -> None:
    rng = Random(seed)
    assert sum(check_filter(*random_case(rng)) for _ in range(400)) > 20_000


@pytest.mark.slow
def test_a_hundred_thousand_pairs_through_every_simplification_and_printing() -> None:
    rng = Random(47)
    pairs = 0
    while pairs < 1_000_000:
        pairs += check_filter(*random_case(rng))
    print(f"\nprinting and simplifying: {pairs:,} (form, event) pairs, 0 differences")
