"""Engines on disk: saved, opened by memory map, and refused where a byte is wrong."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from seeds import seeds
from strategies import random_event, random_filter, random_world
from tamis.errors import SnapshotError
from tamis.events import Schema, attribute
from tamis.filters import Mode
from tamis.matching import Engine, Subscription


@pytest.mark.parametrize("seed", seeds(12, by_default=4))
def test_a_loaded_engine_finds_what_the_saved_one_did(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    world = random_world(rng, typed=seed % 2 == 0)
    modes = [Mode.SQL, Mode.STRICT, Mode.DEFAULT]
    engine = Engine(world.schema)
    for number in range(60):
        id_ = number if number % 3 else f"text {number}"
        engine.add(id_, random_filter(rng, world, rng.choice((1, 2, 4))), mode=rng.choice(modes))
    engine.remove(1)
    events = [random_event(rng, world) for _ in range(100)]
    wanted = list(engine.match_batch(events))
    engine.save(tmp_path / "all.tamis")
    loaded = Engine.load(tmp_path / "all.tamis")
    assert list(loaded.match_batch(events)) == wanted
    assert loaded.ids() == engine.ids()
    assert [loaded.filter(id_) for id_ in loaded.ids()] == [
        engine.filter(id_) for id_ in engine.ids()
    ]


def test_a_loaded_engine_goes_on_like_any_other(tmp_path: Path) -> None:
    now = [0.0]
    schema = Schema({"a": attribute("int", default=3), "tags": attribute("str", many=True)})
    engine = Engine(schema, "default", clock=lambda: now[0])
    engine.add("x", "a = 3")
    engine.add("soon", "a = 3", expires_at=10)
    engine.save(tmp_path / "s")
    loaded = Engine.load(tmp_path / "s", clock=lambda: now[0])
    assert loaded.schema == schema
    assert loaded.match({}) == ["x", "soon"]
    now[0] = 11
    assert loaded.match({}) == ["x"]
    loaded.add("y", "tags = 'new'")
    loaded.remove("x")
    assert loaded.match({"tags": ["old", "new"]}) == ["y"]
    loaded.save(tmp_path / "s")
    assert Engine.load(tmp_path / "s", clock=lambda: now[0]).ids() == ["soon", "y"]


def test_an_empty_engine_can_be_saved(tmp_path: Path) -> None:
    Engine().save(tmp_path / "empty")
    assert len(Engine.load(tmp_path / "empty")) == 0


def saved(tmp_path: Path) -> Path:
    engine = Engine()
    engine.add_many(Subscription(n, f"a > {n} and b = {n % 9}") for n in range(500))
    engine.save(tmp_path / "s")
    return tmp_path / "s"


def test_a_snapshot_with_a_wrong_byte_is_refused_with_the_part_named(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    rng = Random(1)
    refused: list[SnapshotError] = []
    for _ in range(300):
        at = rng.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        try:
            loaded = Engine.load(path)
        except SnapshotError as error:
            refused.append(error)
        else:
            # Only the padding between two parts is nobody's.
            assert len(loaded) == 500
    assert all("cannot be used" in str(error) for error in refused)
    assert {"compiled.programs.codes", "vocabulary.text"} <= {error.part for error in refused}


@pytest.mark.parametrize("kept", [0, 5, 20, 40, 3000, 0.5, 0.999])
def test_a_snapshot_that_is_cut_short_is_refused(kept: float, tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept if kept >= 1 else kept * len(whole))])
    with pytest.raises(SnapshotError, match="cannot be used"):
        Engine.load(path)


def test_what_is_no_snapshot_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("price < 5, and a good deal more than that" * 9)
    with pytest.raises(SnapshotError, match="cannot be used: it is not a Tamis snapshot"):
        Engine.load(tmp_path / "x")
    with pytest.raises(SnapshotError, match="cannot be opened: No such file"):
        Engine.load(tmp_path / "missing")
    with pytest.raises(SnapshotError, match=r"there is no folder .*nowhere; make it first"):
        Engine().save(tmp_path / "nowhere" / "x")
