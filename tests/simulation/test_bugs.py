"""The simulation finds bugs: each of those planted, in few worlds."""

from __future__ import annotations

import pytest

from simulation.bugs import BUGS
from simulation.world import simulate

MOST_SEEDS = 500
QUICK = (
    "numbers out of order are taken for duplicates",
    "a consumer sees what the subscription may see",
    "a matcher that fails ends without a word",
)


def first_seed(phrase: str, most: int) -> int | None:
    """Return the first seed in which a bug breaks a promise."""
    for seed in range(most):
        with BUGS[phrase]():
            if simulate(seed).violations:
                return seed
    return None


@pytest.mark.parametrize("phrase", QUICK)
def test_a_planted_bug_is_found_soon(phrase: str) -> None:
    assert first_seed(phrase, 100) is not None


@pytest.mark.slow
@pytest.mark.parametrize("phrase", BUGS)
def test_every_planted_bug_is_found(phrase: str) -> None:
    seed = first_seed(phrase, MOST_SEEDS)
    assert seed is not None
    print(f"\n{phrase}: found by seed {seed}")
    # Nothing else is wrong with that world.
    assert not simulate(seed).violations
