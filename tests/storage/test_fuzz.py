"""Files of the store damaged by chance: no crash, and nothing that goes unsaid."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from storage.damage import Outcomes, fuzz_logs, fuzz_states


def fuzz(logs: int, states: int, folder: Path) -> Outcomes:
    """Damage this many logs, and this many states, each in a hundred ways."""
    outcomes: Outcomes = Counter()
    for seed in range(logs):
        outcomes += fuzz_logs(seed, 100, folder / f"log {seed}")
    for seed in range(states):
        outcomes += fuzz_states(seed, 100, folder / f"state {seed}")
    print(
        f"storage fuzz: {outcomes.total():,} inputs, "
        f"{outcomes['crashed']} crashes, {outcomes['silent']} silent"
    )
    return outcomes


def check(outcomes: Outcomes, at_least: int) -> None:
    assert not outcomes["crashed"]
    assert not outcomes["silent"]
    # Most of it was worth opening.
    assert min(outcomes["same"], outcomes["refused"], outcomes["reported"]) > at_least


def test_files_damaged_by_chance_are_never_silent(quick_path: Path) -> None:
    check(fuzz(8, 3, quick_path), at_least=40)


@pytest.mark.slow
def test_files_damaged_by_chance_are_never_silent_in_bulk(quick_path: Path) -> None:
    check(fuzz(4_800, 300, quick_path), at_least=100)
