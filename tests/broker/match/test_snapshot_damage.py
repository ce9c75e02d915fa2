"""Snapshots damaged by chance: used if whole, else compiled anew, with a line in the log."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from broker.log_lines import log_lines
from storage.damage import flipped, mutated
from tamis.broker.match import snapshots
from tamis.broker.match.snapshots import Snapshots
from tamis.filters import Mode
from tamis.matching import Engine
from tamis.ports import SYSTEM_FILES, SystemClock, system_random

EVENTS = [{"a": n, "b": text} for n in range(5) for text in ("x", "y")]


class Compiled(NamedTuple):
    """What a snapshot asks of a subscription."""

    number: int
    mark: bytes


def opened(folder: Path) -> Snapshots:
    return Snapshots(
        folder, None, Mode.SQL, SystemClock(), files=SYSTEM_FILES, random=system_random
    )


def damage_often(folder: Path, seed: int, inputs: int) -> None:
    engine = Engine()
    for number in range(1, 30):
        engine.add(number, f"a > {number % 4} and b = '{'xyz'[number % 3]}' or a = {number}")
    marks = [Compiled(number, bytes([number]) * 16) for number in range(1, 30)]
    assert opened(folder).save(engine, marks)  # type: ignore[arg-type]
    files = {path: path.read_bytes() for path in folder.iterdir()}
    wanted = [sorted(ids) for ids in map(engine.match, EVENTS)]
    rng, used = Random(seed), 0
    for _ in range(inputs):
        hit = rng.choice([*files])
        for path, data in files.items():
            path.write_bytes(data)
        what = rng.choice(("flip", "any", "remove"))
        if what == "remove":
            hit.unlink()
        elif what == "flip":
            hit.write_bytes(flipped(files[hit], rng.randrange(8 * len(files[hit]))))
        else:
            hit.write_bytes(mutated(files[hit], rng, (1, 8, 300)))
        with log_lines() as lines:
            loaded, found = opened(folder).load()
        if found:
            assert [sorted(ids) for ids in map(loaded.match, EVENTS)] == wanted
            assert found == {one.number: one.mark for one in marks}
            used += 1
        else:
            assert not [*loaded.ids()]
            is_missing = what == "remove" and hit.name == "manifest"
            assert is_missing or [line for line in lines if line.levelname == "WARNING"]
    assert 0 < used < inputs / 2


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MIN_CHANGED_SUBSCRIPTIONS", 1)


def test_a_damaged_snapshot_is_never_used(tmp_path: Path) -> None:
    damage_often(tmp_path / "engine", 1, 150)


@pytest.mark.slow
def test_a_damaged_snapshot_is_never_used_in_bulk(tmp_path: Path) -> None:
    damage_often(tmp_path / "engine", 2, 3_000)
