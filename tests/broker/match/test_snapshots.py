"""After a restart all is matched as if it had been compiled anew, whatever became of the files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from broker.authorization_fixture import broker_fixture, fetched, run_async, subscribe
from tamis.broker.match import snapshots
from tamis.matching import Engine

ALL = "[roles.reader]\nsee = true\n[roles.child]\nsee = 'level < 3'\n"
LOW = "[roles.reader]\nsee = 'level < 3'\n"
MIXED = [{"a": 1, "level": 1}, {"a": 2, "level": 5}]


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MIN_CHANGED_SUBSCRIPTIONS", 1)
    monkeypatch.setattr(snapshots, "MIN_CHANGED_SHARE", 0.0)


async def make(folder: Path) -> None:
    """Leave a store with three subscriptions, and a snapshot of them."""
    async with broker_fixture(folder, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        for name in ("x", "y", "z"):
            await subscribe(ann, "a > 0", name)
    assert (folder / "data" / "engine" / "manifest").exists()


async def check(folder: Path, policy: str = ALL, seen: object = MIXED, anew: int = 0) -> None:
    """Open the store, and see what is compiled and what matches."""
    with (
        patch.object(Engine, "add", autospec=True, side_effect=Engine.add) as added,
        patch.object(Engine, "replace", autospec=True, side_effect=Engine.replace) as replaced,
    ):
        async with broker_fixture(folder, policy) as fixture:
            assert added.call_count + replaced.call_count == anew
            ann = await fixture.login("ann", "reader")
            await fixture.publish(*MIXED)
            for name in ("x", "y", "z"):
                assert await fetched(ann, name) == seen


@run_async
async def test_nothing_is_compiled_that_was_saved(tmp_path: Path) -> None:
    await make(tmp_path)
    await check(tmp_path)


@run_async
async def test_a_snapshot_of_another_policy_is_not_used(tmp_path: Path) -> None:
    await make(tmp_path)
    await check(tmp_path, LOW, MIXED[:1], anew=3)
    # What was compiled under it serves as long as it holds.
    await check(tmp_path, LOW, MIXED[:1] * 2)


@run_async
async def test_a_policy_that_is_not_yet_applied_is_at_the_next_start(tmp_path: Path) -> None:
    await make(tmp_path)
    async with broker_fixture(tmp_path, ALL) as fixture:
        fixture.write_policy(LOW)
        # It is read, and the broker stops before anything is compiled by it.
        fixture.broker.access_control.reload()
        assert fixture.broker.access_control.reload()
        await subscribe(await fixture.login("ann", "reader"), "a > 0", "new")
    await check(tmp_path, LOW, MIXED[:1], anew=3)


@run_async
async def test_what_changed_after_the_snapshot_is_as_it_became(tmp_path: Path) -> None:
    await make(tmp_path / "before")
    async with broker_fixture(tmp_path / "before", ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        await ann.delete("y")
        await ann.renew("z", 60.0)
        await subscribe(ann, "a = 2", "new")
        # With other roles it is matched by those.
        child = await fixture.login("ann", "child")
        await subscribe(child, "a > 0", "x")
        shutil.copytree(tmp_path / "before", tmp_path / "crashed")
    async with broker_fixture(tmp_path / "crashed", ALL) as fixture:
        child, ann = await fixture.login("ann", "child"), await fixture.login("ann", "reader")
        await fixture.publish(*MIXED)
        assert await fetched(child, "x") == MIXED[:1]
        assert await fetched(ann, "new") == MIXED[1:]
        assert await fetched(ann, "z") == MIXED
        assert len(fixture.broker.engine) == 3
        fixture.clock.now += 61
        assert fixture.broker.engine.match(MIXED[0]) == [1]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("which", ["manifest", "*.engine"])
@pytest.mark.parametrize(
    "damage",
    [flip, Path.unlink, lambda path: path.write_bytes(b"")],
    ids=["flipped", "gone", "empty"],
)
@run_async
async def test_files_that_cannot_be_used_cost_time_alone(
    tmp_path: Path, which: str, damage: Callable[[Path], object]
) -> None:
    await make(tmp_path)
    [path] = (tmp_path / "data" / "engine").glob(which)
    damage(path)
    await check(tmp_path, anew=3)


@run_async
async def test_few_changes_are_not_worth_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MIN_CHANGED_SUBSCRIPTIONS", 4)
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        for name in ("x", "y", "z"):
            await subscribe(ann, "a > 0", name)
    assert not (tmp_path / "data" / "engine").exists()
    await check(tmp_path, anew=3)


@run_async
async def test_only_the_last_snapshot_is_kept(tmp_path: Path) -> None:
    for number in range(3):
        async with broker_fixture(tmp_path, ALL) as fixture:
            ann = await fixture.login("ann", "reader")
            await subscribe(ann, "a > 0", f"n{number}")
    assert len([*(tmp_path / "data" / "engine").iterdir()]) == 2
