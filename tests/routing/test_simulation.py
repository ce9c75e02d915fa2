"""An overlay keeps its promises in every simulated world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from routing.bugs import BUGS
from routing.pool import Pool, PoolIndex, the_pool
from routing.story import SMALL_SEEDS, simulate, simulate_queries
from seeds import seeds
from tamis.covering import CoveringIndex, ExhaustiveCoveringIndex
from tamis.diagrams import Space
from tamis.routing.data_advertisements import DataAdvertisements

SLOW_SEEDS = 20_000
SEEDS_PER_TEST = 50
SEEDS_PER_SLOW_TEST = 2_000
MOST_SEEDS_FOR_A_BUG = 2_000

QUICK_BUGS = (
    "filters are not forwarded again when what covered them goes",
    "the numbers of events are reset when a link connects again",
    "advertisements are withdrawn before their events have passed",
)


def check(numbers: range) -> tuple[int, int]:
    """Run seeds; return the numbers of events and deliveries."""
    events, deliveries = 0, 0
    for seed in numbers:
        outcome = simulate(seed)
        assert not outcome.violations, f"seed {seed}: {outcome.violations[:5]}"
        events, deliveries = events + outcome.events, deliveries + outcome.deliveries
    return events, deliveries


@pytest.mark.parametrize("first", range(0, SMALL_SEEDS, SEEDS_PER_TEST))
def test_an_overlay_keeps_its_promises(first: int) -> None:
    events, deliveries = check(range(first, first + SEEDS_PER_TEST))
    # Otherwise nothing was tested.
    assert events > SEEDS_PER_TEST * 10
    assert deliveries > SEEDS_PER_TEST * 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SLOW_SEEDS, SEEDS_PER_SLOW_TEST))
def test_an_overlay_keeps_its_promises_in_thousands_of_worlds(first: int) -> None:
    events, deliveries = check(range(first, first + SEEDS_PER_SLOW_TEST))
    print(f"\nseeds from {first:,}: {events:,} events, {deliveries:,} deliveries")


@pytest.mark.parametrize("first", seeds(1_000, by_default=10)[::10])
def test_an_overlay_keeps_its_promises_with_the_covering_index(first: int) -> None:
    for seed in range(first, first + 10):
        assert not simulate(seed, CoveringIndex).violations, seed


@pytest.mark.parametrize("first", seeds(SLOW_SEEDS, by_default=10)[::10])
def test_queries_are_answered_while_links_break_brokers_crash_and_clients_roam(first: int) -> None:
    queries = 0
    for seed in range(first, first + 10):
        outcome = simulate_queries(seed)
        assert not outcome.violations, f"seed {seed}: {outcome.violations[:5]}"
        queries += outcome.events
    assert queries > 50


def test_it_is_found_if_peers_are_not_told_again_of_data_after_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[tuple[int, str], set[str]] = {}
    begin, end = DataAdvertisements.open, DataAdvertisements.close

    def begin_as_it_was(
        self: DataAdvertisements, peer: str, held: Iterable[str], *more: Any
    ) -> None:
        begin(self, peer, told.get((id(self), peer), held), *more)

    def end_and_remember(self: DataAdvertisements, peer: str) -> None:
        if peer in self._forwarded:
            told[id(self), peer] = self._forwarded[peer]
        end(self, peer)

    monkeypatch.setattr(DataAdvertisements, "open", begin_as_it_was)
    monkeypatch.setattr(DataAdvertisements, "close", end_and_remember)
    assert any(simulate_queries(seed).violations for seed in range(60))


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_replays_exactly(seed: int) -> None:
    assert simulate(seed) == simulate(seed)


# --- the simulation itself -------------------------------------------------------------------


def first_seed(phrase: str, most: int) -> int | None:
    """Return the first seed in which a bug breaks a promise."""
    for seed in range(most):
        with BUGS[phrase]():
            if simulate(seed).violations:
                return seed
    return None


@pytest.mark.parametrize("phrase", QUICK_BUGS)
def test_a_planted_bug_is_found_soon(phrase: str) -> None:
    assert first_seed(phrase, SMALL_SEEDS) is not None


@pytest.mark.slow
@pytest.mark.parametrize("phrase", BUGS)
def test_every_planted_bug_is_found(phrase: str) -> None:
    seed = first_seed(phrase, MOST_SEEDS_FOR_A_BUG)
    assert seed is not None
    print(f"\n{phrase}: found by seed {seed}")
    # Nothing else is wrong with that world.
    assert not simulate(seed).violations


def test_the_relations_of_the_pool_are_those_of_the_diagrams() -> None:
    pool, space = the_pool(), Space()
    for one in pool.digests[::3]:
        for other in pool.digests[::2]:
            wide, narrow = pool.filters[one], pool.filters[other]
            assert bool(space.covers(wide, narrow)) is (one in pool.above[other])
            assert bool(space.intersects(wide, narrow)) is (one in pool.meeting[other])


def test_the_index_of_the_pool_is_one_that_compares() -> None:
    pool = Pool()
    fast, slow = PoolIndex(), ExhaustiveCoveringIndex(many=False)
    for name in pool.digests[::2]:
        changes = [index.add(name, pool.filters[name]) for index in (fast, slow)]
        assert {*changes[0].became} == {*changes[1].became}
        assert {*changes[0].ceased} == {*changes[1].ceased}
    for name in pool.digests[::4]:
        changes = [index.remove(name) for index in (fast, slow)]
        assert {*changes[0].became} == {*changes[1].became}
    assert {*fast.roots()} == {*slow.roots()}
