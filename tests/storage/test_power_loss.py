"""Power failures at any moment: nothing acknowledged is lost, and nothing is invented."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage import sqlite_vfs
from storage.power_loss import PowerLoss
from tamis.errors import StorageError
from tamis.storage import StateStore, counts, database, opening, segments

pytestmark = pytest.mark.skipif(
    not sqlite_vfs.is_available(), reason="sqlite3 is linked without a shared library"
)


@pytest.fixture(autouse=True)
def small_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the write-ahead log every few changes, so that images show it half done."""
    monkeypatch.setattr(database, "CHECKPOINT_TRANSACTIONS", 5)


def lose_power(folder: Path, seeds: range, images: int, kind: type[PowerLoss] = PowerLoss) -> int:
    """Open this many images at least, of workloads with and without faults of the disk."""
    opened = 0
    for seed in seeds:
        workload = kind(folder / str(seed), seed, faults=bool(seed % 2))
        opened += workload.run(rounds=3, steps=40, chance=0.08)
        if opened >= images:
            break
    assert not sqlite_vfs.failures
    print(f"power loss: {opened:,} images, 0 with a loss")
    return opened


def test_nothing_acknowledged_is_lost_with_the_power(quick_path: Path) -> None:
    assert lose_power(quick_path, range(100), 300) >= 300


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_with_the_power_ten_thousand_times(quick_path: Path) -> None:
    assert lose_power(quick_path, range(1_000, 5_000), 10_000) >= 10_000


# --- planted mistakes ------------------------------------------------------------------------


def not_lasting(method: str) -> Callable[..., Any]:
    """Return a `_change` that does not wait for the disk when one method calls it."""
    change = StateStore._change

    def changed(state: StateStore, *, lasting: bool) -> Any:
        caller = sys._getframe(1).f_code.co_name
        return change(state, lasting=lasting and caller != method)

    return changed


class WithoutSyncOfFiles(PowerLoss):
    forgets_files = True


class WithoutSyncOfFolders(PowerLoss):
    forgets_folders = True


@pytest.mark.parametrize("kind", [WithoutSyncOfFiles, WithoutSyncOfFolders])
def test_a_disk_that_does_not_sync_is_found_out(kind: type[PowerLoss], quick_path: Path) -> None:
    with pytest.raises((AssertionError, StorageError)):
        lose_power(quick_path, range(0, 20, 2), 1_000, kind)


@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        (StateStore, "_change", not_lasting("add_token")),
        (StateStore, "_change", not_lasting("revoke_token")),
        (StateStore, "_change", not_lasting("remove_subscriptions")),
        pytest.param(StateStore, "make_lasting", lambda _state: None, marks=pytest.mark.slow),
        pytest.param(
            database.Database,
            "_note_failure",
            lambda _database, _error: None,
            marks=pytest.mark.slow,
        ),
        (counts.CountFile, "begin", counts.CountFile.write),
        (opening, "sync_folder", lambda _files, _folder: None),
        (segments, "sync_folder", lambda _files, _folder: None),
        pytest.param(opening, "_cut", lambda _segment, _end, _files: 0, marks=pytest.mark.slow),
    ],
)
def test_a_planted_mistake_is_found_out(
    owner: object,
    name: str,
    replacement: object,
    quick_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises((AssertionError, StorageError)):
        lose_power(quick_path, range(200), 5_000)
