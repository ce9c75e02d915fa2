"""Links that are made anywhere, at any time, leave an overlay without cycles that connects all."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from routing.world import World
from tamis.routing import LinkOpened

QUICK_SEEDS = 100
SLOW_SEEDS = 20_000


def components(names: list[str], edges: set[frozenset[str]]) -> dict[str, str]:
    """Return for each broker the least that it is connected with."""
    least = {name: name for name in names}
    for _ in names:
        for edge in edges:
            lower = min(least[name] for name in edge)
            least.update(dict.fromkeys(edge, lower))
    return least


def make_links(world: World, rng: Random) -> set[frozenset[str]]:
    """Make links at random, many of them too much; return those that somebody asked for."""
    names = [world.add_broker("ignore") for _ in range(rng.randint(2, 7))]
    pairs = [*combinations(names, 2)]
    asked = {frozenset(pair) for pair in rng.choices(pairs, k=rng.randint(1, 2 * len(names)))}
    span = rng.choice((0.0, 1.0, 30.0))
    for edge in sorted(map(sorted, asked)):
        world.later(lambda edge=edge: world.connect(*edge), rng.random() * span)  # type: ignore[misc]
    for broker in world.brokers.values():
        world.subscribe(broker)
    for edge in rng.sample(sorted(map(sorted, asked)), k=rng.choice((0, 0, 1))):
        world.later(lambda edge=edge: world.cut(frozenset(edge)), rng.random() * 10)  # type: ignore[misc]
    return asked


def linked(world: World) -> set[frozenset[str]]:
    """Return the links that at least one side has."""
    return {
        frozenset((name, view.peer))
        for name, broker in world.brokers.items()
        for view in broker.router.links()
    }


def violations(seed: int) -> list[str]:
    world, rng = World(seed), Random(seed)
    asked = make_links(world, rng)
    world.run()
    left, names = linked(world), [*world.brokers]
    found = world.violations
    if components(names, left) != components(names, asked):
        found.append(f"{sorted(map(sorted, asked))} became {sorted(map(sorted, left))}")
    if len(left) != len(names) - len(set(components(names, left).values())):
        found.append(f"{sorted(map(sorted, left))} is not a forest")
    for name, broker in world.brokers.items():
        for view in broker.router.links():
            if not view.is_synchronised:
                found.append(f"{name} and {view.peer} are not synchronised")
            rest = left - {frozenset((name, view.peer))}
            within = components(names, rest)
            behind = {one for one in names if within[one] == within[view.peer]}
            if {entry.id for entry in view.brokers} != behind:
                found.append(f"{name} does not know who is behind {view.peer}")
    return found


@pytest.mark.parametrize("first", range(0, QUICK_SEEDS, 50))
def test_links_leave_a_forest_that_connects_all(first: int) -> None:
    for seed in range(first, first + 50):
        assert not violations(seed), seed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK_SEEDS, SLOW_SEEDS, 1_000))
def test_links_leave_a_forest_that_connects_all_in_thousands_of_worlds(first: int) -> None:
    for seed in range(first, first + 1_000):
        assert not violations(seed), seed


def test_a_link_is_refused_where_the_path_is_known() -> None:
    world = World(1)
    names = [world.add_broker("ignore") for _ in range(3)]
    for pair in (names[:2], names[1:]):
        world.connect(*pair)
        world.run()
    world.connect(names[0], names[2])
    world.run()
    refusals = [one for broker in world.brokers.values() for one in broker.refusals]
    assert any("b0 – b1 – b2 are linked already" in reason for _, reason in refusals) or any(
        "b2 – b1 – b0 are linked already" in reason for _, reason in refusals
    )
    assert linked(world) == {frozenset(names[:2]), frozenset(names[1:])}
    assert world.brokers[names[0]].router.handle(LinkOpened(names[2]))
