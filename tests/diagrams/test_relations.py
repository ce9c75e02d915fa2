"""The relations against brute force over small domains, and on what they promise."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, product
from random import Random

import pytest

from strategies import VALUES, World, fits, random_filter, random_world
from tamis.diagrams import Answer, Space
from tamis.events import Event, Kind, Type, Value
from tamis.filters import Filter, Mode


def domain_of(world: World, name: str, mode: Mode, filters: tuple[Filter, ...]) -> list[object]:
    """Return everything of interest that an attribute may hold, as tuples of values."""
    declared = world.schema[name] if world.schema else None
    kinds = {declared.kind} if declared else asked_kinds(filters, name) | {Kind.BOOLEAN}
    values: list[Value] = [v for kind in sorted(kinds, key=str) for v in VALUES[kind]]
    if declared is not None:
        values = [v for v in values if fits(v, declared.type)]
    if declared is None or declared.type is Type.FLOAT:
        values.append(math.nan)
    held: list[object] = [(v,) for v in values]
    if declared is not None and declared.many:
        held += list(combinations(Random(1).sample(values, min(6, len(values))), 2))
    return held if mode is Mode.TOTAL else [(), *held]


def asked_kinds(filters: tuple[Filter, ...], name: str) -> set[Kind]:
    return {
        atom.kind
        for filter_ in filters
        for atom in filter_.atoms()
        if getattr(atom, "attribute", "") == name and hasattr(atom, "kind")
    }


def events_of(world: World, mode: Mode, filters: tuple[Filter, ...]) -> list[Event]:
    domains = [domain_of(world, name, mode, filters) for name in world.names]
    return [
        Event({}).with_values({n: v for n, v in zip(world.names, held, strict=True) if v})  # type: ignore[misc]
        for held in product(*domains)
    ]


class Tally(Counter[str]):
    """Counts answers, and checks each against all events of a small domain."""

    def check(self, world: World, mode: Mode, one: Filter, other: Filter) -> None:
        space = Space(mode, world.schema)
        events = events_of(world, mode, (one, other))
        first = [one.matches(event, mode, world.schema) for event in events]
        second = [other.matches(event, mode, world.schema) for event in events]
        pairs = set(zip(first, second, strict=True))
        shown = f"{mode} {world.schema}\n  {one}\n  {other}"
        self.judge(space.covers(one, other), (False, True) not in pairs, False, world, shown)
        self.judge(space.intersects(one, other), (True, True) in pairs, True, world, shown)
        same = (False, True) not in pairs and (True, False) not in pairs
        self.judge(space.equivalent(one, other), same, False, world, shown)
        self.judge(space.is_always(one), False not in first, False, world, shown)
        self.judge(space.is_never(one), True not in first, False, world, shown)
        for answer, wanted in (
            (space.covers(one, other), (False, True)),
            (space.intersects(one, other), (True, True)),
        ):
            event = answer.witness()
            if event is not None:
                found = (
                    one.matches(event, mode, world.schema),
                    other.matches(event, mode, world.schema),
                )
                assert found == wanted, f"{event} is no witness: {shown}"

    def judge(self, answer: Answer, brute: bool, safe: bool, world: World, shown: str) -> None:
        """Compare one answer with what the small domain shows, which may lack an event or two."""
        self["answers"] += 1
        if not answer.exact:
            self["not exact"] += 1
            assert not world.exact, f"an exact answer was promised: {answer} {shown}"
            assert answer.yes is safe, f"unsafe: {answer} {shown}"
        elif answer.event is None:
            # Proved without an event, so no event of any domain may show the opposite.
            assert answer.yes is brute, f"wrong: {answer} {shown}"


def compare_pairs(seed: int, count: int, *, exact: bool) -> Tally:
    rng = Random(seed)
    tally = Tally()
    for _ in range(count):
        typed = rng.random() < 0.7
        world = random_world(rng, typed=typed, exact=exact, most=2 if typed else 1)
        mode = rng.choice(list(Mode) if typed else [Mode.SQL, Mode.STRICT, Mode.DEFAULT])
        depth = rng.choice((0, 1, 1, 2))
        one = random_filter(rng, world, depth)
        # Half of the pairs are relatives, so that covering is not rare.
        other = random_filter(rng, world, 1)
        other = rng.choice((other, one & other, one | other, ~one))
        tally.check(world, mode, one, other)
        tally["pairs"] += 1
    return tally


@pytest.mark.parametrize("seed", range(4))
def test_exact_filters_get_exact_and_right_answers(seed: int) -> None:
    tally = compare_pairs(seed, 250, exact=True)
    assert tally["not exact"] == 0


@pytest.mark.parametrize("seed", range(4))
def test_no_answer_about_any_filter_is_unsafe(seed: int) -> None:
    compare_pairs(100 + seed, 250, exact=False)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
def test_twenty_thousand_pairs_against_brute_force(exact: bool) -> None:
    tally = compare_pairs(7, 20_000, exact=exact)
    share = tally["not exact"] / tally["answers"]
    print(
        f"\nrelations, exact fragment {exact}: {tally['pairs']:,} pairs, "
        f"{tally['answers']:,} answers, 0 wrong, {share:.2%} safe, not exact"
    )
