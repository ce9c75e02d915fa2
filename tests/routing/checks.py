"""What must be true of a world at rest, by definition: recomputed from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from routing.broker import ModelBroker, Publication
from routing.world import World

# In larger overlays, paths are not compared.
MOST_COMPARED: Final = 12


def neighbours(world: World, name: str) -> list[str]:
    return sorted(next(iter(edge - {name})) for edge in world.edges if name in edge)


class Sides:
    """For each direction of each link, the brokers on its side, computed once."""

    def __init__(self, world: World) -> None:
        self._near = {name: neighbours(world, name) for name in world.brokers}
        self._found: dict[tuple[str, str], frozenset[str]] = {}

    def links(self) -> Iterator[tuple[str, str]]:
        """Yield both directions of each link."""
        return ((name, peer) for name, peers in self._near.items() for peer in peers)

    def behind(self, root: str, away_from: str) -> frozenset[str]:
        """Return the brokers that are reached from one without passing another."""
        key = root, away_from
        if key not in self._found:
            found, ways = {root, away_from}, [root]
            while ways:
                new = [one for one in self._near[ways.pop()] if one not in found]
                found.update(new)
                ways += new
            self._found[key] = frozenset(found - {away_from})
        return self._found[key]


def check_everything(world: World) -> None:
    """Check all that must hold at rest."""
    sides = Sides(world)
    for broker in world.brokers.values():
        check_rest(world, broker)
    if world.violations:
        return
    for name, peer in sides.links():
        check_forwarded(world, sides, world.brokers[name], world.brokers[peer])
        check_advertised(world, sides, world.brokers[name], world.brokers[peer])
    check_map(world, sides)
    check_wanted(world)
    check_deliveries(world)


def check_rest(world: World, broker: ModelBroker) -> None:
    complain = world.violations.append
    if not broker.is_up or broker.instructions or broker.matched < len(broker.log):
        complain(f"{broker.id} still has work to do")
    moves = world.moves[broker.id]
    if broker.moving or moves.arriving or moves.departed:
        complain(f"subscriptions are still on their way to or from {broker.id}")
    if broker.waiting:
        complain(f"{broker.id} waits for links that are drained")
    if sorted(broker.links) != neighbours(world, broker.id):
        complain(f"{broker.id} has links to {sorted(broker.links)}")
    for view in broker.router.links():
        if not view.is_synchronised:
            complain(f"the link from {broker.id} to {view.peer} is not synchronised")
        if broker.links[view.peer].queue:
            complain(f"events wait at {broker.id} for {view.peer}")


def check_forwarded(world: World, sides: Sides, broker: ModelBroker, peer: ModelBroker) -> None:
    """Compare what a broker forwards with the roots of what is asked for on its side."""
    complain, pool = world.violations.append, world.pool
    forwarded = [*broker.router.forwarded(peer.id)]
    stored = peer.links[broker.id].routes.keys()
    if not {*forwarded} == stored == peer.router.routes(broker.id).keys():
        complain(f"{peer.id} has other routes than {broker.id} forwards")
    here = {one.filter for one in broker.subscriptions.values()}
    for other, end in broker.links.items():
        here |= end.routes.keys() if other != peer.id else set()
    everywhere = {
        one.filter
        for name in sides.behind(broker.id, peer.id)
        for one in world.brokers[name].subscriptions.values()
    }
    if broker.policy == "require":
        met = {one for name in broker.router.advertisements(peer.id) for one in pool.meeting[name]}
        here &= met
    if world.needs_advertisements:
        offered = offers(world, sides.behind(peer.id, broker.id))
        everywhere &= {one for name in offered for one in pool.meeting[name]}
    classes = {pool.above[one] & pool.below[one] for one in forwarded}
    if len(classes) != len(forwarded):
        complain(f"{broker.id} forwards equal filters to {peer.id}")
    if classes != pool.roots(here):
        complain(f"{broker.id} forwards other filters to {peer.id} than covering allows")
    if world.has_one_policy and classes != pool.roots(everywhere):
        complain(f"{broker.id} forwards other filters to {peer.id} than its side asks for")
    check_view(world, broker, peer.id, forwarded=len(forwarded), considered=len(here))


def check_view(
    world: World, broker: ModelBroker, peer: str, *, forwarded: int, considered: int
) -> None:
    [view] = [one for one in broker.router.links() if one.peer == peer]
    if (view.forwarded, view.covered) != (forwarded, considered - forwarded):
        world.violations.append(f"{broker.id} counts {view} for {considered} filters")


def offers(world: World, names: frozenset[str]) -> set[str]:
    return {one for name in names for one in world.brokers[name].offered.values()}


def check_advertised(world: World, sides: Sides, broker: ModelBroker, peer: ModelBroker) -> None:
    complain, pool = world.violations.append, world.pool
    sent = [*broker.router.advertised(peer.id)]
    if {*sent} != peer.router.advertisements(broker.id).keys():
        complain(f"{peer.id} has other advertisements than {broker.id} sends")
    if {*sent} != peer.links[broker.id].advertisements.keys():
        complain(f"{peer.id} has stored other advertisements than {broker.id} sends")
    classes = {pool.above[one] & pool.below[one] for one in sent}
    if classes != pool.roots(offers(world, sides.behind(broker.id, peer.id))):
        complain(f"{broker.id} advertises to {peer.id} what nobody will publish, or too little")


def check_map(world: World, sides: Sides) -> None:
    for name, broker in world.brokers.items():
        for view in broker.router.links():
            known = {entry.id for entry in view.brokers}
            if known != sides.behind(view.peer, name):
                world.violations.append(f"{name} knows {sorted(known)} behind {view.peer}")
        if len(world.brokers) <= MOST_COMPARED:
            for other in world.brokers:
                way = broker.router.path_to(other)
                if other != name and not (way and is_path(world, way, name, other)):
                    world.violations.append(f"{name} takes {way} for the path to {other}")


def is_path(world: World, way: list[str], first: str, last: str) -> bool:
    steps = pairwise(way)
    return way[0] == first and way[-1] == last and all(frozenset(s) in world.edges for s in steps)


def check_wanted(world: World) -> None:
    asked = {one.filter for one in world.subscriptions()}
    for broker in world.brokers.values():
        for id_, name in broker.offered.items():
            is_wanted = bool(world.pool.meeting[name] & asked)
            if not broker.wanted[id_] == broker.router.is_wanted(id_) == is_wanted:
                world.violations.append(f"{broker.id} takes {id_} for wanted, or not")


def check_deliveries(world: World) -> None:
    """Nobody gets what was not asked for, or something twice, or out of order."""
    complain, pool = world.violations.append, world.pool
    for one in (*world.retired, *world.subscriptions()):
        last: dict[str, int] = {}
        for publication in one.got:
            if publication.event not in pool.matched[one.filter]:
                complain(f"{one.id} got {publication}, which does not match")
            if publication.number <= last.get(publication.publisher, 0):
                complain(f"{one.id} got {publication} twice or late")
            last[publication.publisher] = publication.number
    present = {*world.subscriptions()}
    got = {one: {*one.got} for one in present}
    for one, publication in world.owed:
        if one in present and publication not in got[one]:
            complain(f"{one.id} did not get {publication}")
    world.owed.clear()


def check_settled(world: World, published: list[tuple[ModelBroker, Publication]]) -> None:
    """Each event that was published at rest reached all who ask for it, and nobody else."""
    for broker, publication in published:
        if not world.is_announced(broker, publication.event):
            continue
        for one in world.subscriptions():
            asked = publication.event in world.pool.matched[one.filter]
            if one.got.count(publication) != asked:
                world.violations.append(f"{one.id} and {publication}, published at {broker.id}")


def check_traffic(
    world: World,
    published: list[tuple[ModelBroker, Publication]],
    passed: dict[tuple[str, str], int],
) -> None:
    """An event crossed a link only if somebody behind it asked for it."""
    sides = Sides(world)
    for name, peer in sides.links():
        behind = sides.behind(peer, name)
        asked = {one.filter for b in behind for one in world.brokers[b].subscriptions.values()}
        expected = sum(
            any(publication.event in world.pool.matched[digest] for digest in asked)
            for broker, publication in published
            if broker.id not in behind
        )
        crossed = world.brokers[name].links[peer].queued - passed[name, peer]
        if crossed > expected or (not world.needs_advertisements and crossed < expected):
            world.violations.append(f"{crossed} events crossed from {name} to {peer}: {expected}")


def check_gone(world: World) -> None:
    """Nothing is left once everybody has gone."""
    for broker in world.brokers.values():
        router = broker.router
        left = [
            *(peer for peer in broker.links if router.routes(peer) or router.forwarded(peer)),
            *(p for p in broker.links if router.advertisements(p) or router.advertised(p)),
        ]
        if left or any(map(len, (router._filters, router._advertisements))):
            world.violations.append(f"{broker.id} still has filters, of {left}")
        if any(link.withdrawals for link in router._links.values()):
            world.violations.append(f"{broker.id} still has withdrawals")
        gate = router._interests._gate
        if any(gate._met.values()) or any(gate._meeting.values()):
            world.violations.append(f"{broker.id} still knows what meets what")
