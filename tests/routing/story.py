"""What happens in a world: clients come and go, links break, brokers crash; then it is checked."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Literal, NamedTuple

from routing.checks import (
    check_everything,
    check_gone,
    check_settled,
    check_traffic,
    neighbours,
)
from routing.overlay_queries import ENOUGH_SECONDS, OverlayQueries
from routing.pool import PoolIndex
from routing.world import World
from tamis.covering import CoveringOrder
from tamis.routing import AdvertisementPolicy

ROUNDS: Final = 2
POLICIES: Final[tuple[AdvertisementPolicy, ...]] = ("ignore", "require")
SMALL_SEEDS: Final = 200
"""The first worlds are small, since they are run most often."""


class Outcome(NamedTuple):
    """What a world came to."""

    violations: list[str]
    events: int
    deliveries: int
    frames: int
    brokers: int


def simulate(seed: int, make_index: Callable[[], CoveringOrder] = PoolIndex) -> Outcome:
    """Run the world of a seed, and check it."""
    world = World(seed, make_index)
    make_overlay(world, size_of(world.rng, is_small=seed < SMALL_SEEDS))
    for _ in range(ROUNDS):
        if not world.violations:
            live(world)
            rest(world)
        if not world.violations:
            move_a_broker(world)
    if not world.violations:
        leave(world)
    return Outcome(
        world.violations,
        sum(world.published.values()),
        sum(len(one.got) for one in (*world.retired, *world.subscriptions())),
        world.messages,
        len(world.brokers),
    )


def simulate_queries(seed: int) -> Outcome:
    """Run a world in which queries are asked as well, over the same links."""
    world = World(seed)
    make_brokers(world, size_of(world.rng, is_small=seed < SMALL_SEEDS))
    queries = OverlayQueries(world)
    add_clients(world)
    for _ in range(len(world.brokers)):
        queries.add_source()
    asked = 0
    for _ in range(ROUNDS):
        world.run()
        for _ in range(world.rng.randint(2, 8)):
            world.later(queries.act, world.rng.random() * 20)
        live(world)
        asked += len(queries.queries)
        queries.check(is_complete=False)
        for _ in range(3):
            queries.ask_somewhere(ENOUGH_SECONDS)
        rest(world)
        asked += len(queries.queries)
        queries.check(is_complete=True)
        if world.violations:
            break
        move_a_broker(world)
        queries.removed.clear()
    if not world.violations:
        queries.leave()
        leave(world)
        queries.check_gone()
    return Outcome(world.violations, asked, queries.messages, world.messages, len(world.brokers))


def size_of(rng: Random, *, is_small: bool) -> int:
    roll = rng.random()
    if is_small:
        return rng.randint(2, 4)
    if roll < 0.8:
        return rng.randint(2, 6)
    if roll < 0.97:
        return rng.randint(5, 12)
    return rng.randint(12, 40) if roll < 0.999 else rng.randint(100, 200)


def make_overlay(world: World, size: int) -> None:
    """Make a tree of brokers, with some clients."""
    make_brokers(world, size)
    add_clients(world)


def make_brokers(world: World, size: int) -> None:
    """Make a tree of brokers."""
    rng = world.rng
    policy: AdvertisementPolicy | Literal["mixed"] = rng.choice((*POLICIES, "mixed"))
    shape = rng.choice(("line", "star", "random", "random"))
    for number in range(size):
        own = rng.choice(POLICIES) if policy == "mixed" else policy
        name = world.add_broker(own)
        if number:
            near = {"line": number - 1, "star": 0, "random": rng.randrange(number)}[shape]
            world.connect(f"b{near}", name)
    policies = {broker.policy for broker in world.brokers.values()}
    world.needs_advertisements = "require" in policies
    world.has_one_policy = len(policies) == 1


def add_clients(world: World) -> None:
    """Let clients subscribe and advertise."""
    rng, size = world.rng, len(world.brokers)
    for broker in rng.choices([*world.brokers.values()], k=2 * size):
        world.subscribe(broker)
    for broker in rng.choices([*world.brokers.values()], k=size):
        world.advertise(broker)
    if rng.random() < 0.5:
        world.run()
        check_everything(world)


ACTIONS: Final[dict[str, int]] = {
    "publish": 10,
    "subscribe": 3,
    "unsubscribe": 3,
    "change_subscription": 1,
    "advertise": 2,
    "withdraw": 1,
    "publish_and_go": 2,
    "roam": 2,
    "cut": 2,
    "crash": 1,
}


def live(world: World) -> None:
    """Let clients act and things break for a while, and come to rest."""
    rng = world.rng
    world.run()
    world.settle()
    count = rng.randint(4, 12) + 2 * len(world.brokers)
    kinds = [*ACTIONS]
    # Some faults hide others, so each time has only some of what may happen.
    weights = [weight * rng.choice((0, 1, 1, 3)) + 0.01 for weight in ACTIONS.values()]
    span = rng.choice((2.0, 10.0, 40.0))
    for kind in rng.choices(kinds, weights, k=count):
        world.later(lambda kind=kind: act(world, kind), rng.random() * span)  # type: ignore[misc]
    world.run()
    check_everything(world)


def act(world: World, kind: str) -> None:
    """Let one thing happen."""
    rng = world.rng
    broker = rng.choice([*world.brokers.values()])
    if kind == "cut":
        if world.edges:
            world.cut(rng.choice([*world.edges]))
    elif kind == "crash":
        world.crash(broker.id)
    elif broker.is_up:
        getattr(world, kind)(broker)


def rest(world: World) -> None:
    """Publish while nothing else happens."""
    world.settle()
    passed = {
        (name, peer): broker.links[peer].queued
        for name, broker in world.brokers.items()
        for peer in broker.links
    }
    publishing = world.rng.choices([*world.brokers.values()], k=4)
    published = [(broker, world.publish(broker)) for broker in publishing]
    world.run()
    check_settled(world, published)
    check_traffic(world, published, passed)
    check_everything(world)


def move_a_broker(world: World) -> None:
    """Remove the link of a leaf, and link it elsewhere."""
    leaves = [name for name in world.brokers if len(neighbours(world, name)) == 1]
    if len(world.brokers) < 3 or world.rng.random() < 0.5:
        return
    leaf = world.rng.choice(leaves)
    [former] = neighbours(world, leaf)
    del world.edges[frozenset((leaf, former))]
    who, whom = world.rng.sample((leaf, former), 2)
    world.brokers[who].remove_link(whom)
    world.run()
    world.connect(leaf, world.rng.choice([name for name in world.brokers if name != leaf]))
    world.run()
    check_everything(world)


def leave(world: World) -> None:
    """Let everybody go, and see that nothing is left."""
    for broker in world.brokers.values():
        for id_ in [*broker.subscriptions]:
            world.retired.append(broker.subscriptions[id_])
            broker.unsubscribe(id_)
        for id_ in [*broker.offered]:
            broker.withdraw(id_)
    world.run()
    check_everything(world)
    check_gone(world)
