"""Every file of a data folder damaged or removed: what is lost is named, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import sqlite_vfs
from storage.corruption import corrupt_often
from tamis.storage import Damage, StateStore, counts, opening, segments

pytestmark = pytest.mark.skipif(
    not sqlite_vfs.is_available(), reason="sqlite3 is linked without a shared library"
)


NO_DAMAGE = Damage("none", 0, 0, range(0), "")


def check(folder: Path, seeds: range, inputs: int) -> None:
    outcomes = corrupt_often(folder, seeds, inputs)
    total = sum(found.total() for found in outcomes.values())
    print(f"corruption: {total:,} inputs, 0 silent")
    for kind, found in sorted(outcomes.items()):
        print(f"  {kind}: {', '.join(f'{what} {n:,}' for what, n in sorted(found.items()))}")
    assert total == len(seeds) * inputs
    assert outcomes["segment"]["reported"] > outcomes["segment"]["same"] / 10
    assert outcomes["state.db"]["refused"] + outcomes["state.db"]["reported"]
    assert outcomes["log.count"]["reported"]
    assert outcomes["log.first"]["reported"]
    assert outcomes["state.count"]["refused"]


def test_no_loss_is_silent(quick_path: Path) -> None:
    check(quick_path, range(1), 80)


@pytest.mark.slow
def test_no_loss_is_silent_ten_thousand_times(quick_path: Path) -> None:
    check(quick_path, range(100, 150), 200)


@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        pytest.param(
            opening, "_gaps", lambda _segments, _removed_below: [], marks=pytest.mark.slow
        ),
        (segments.LogSegment, "_damage", lambda *_: NO_DAMAGE),
        (counts.CountFile, "read", lambda _count: 0),
        pytest.param(StateStore, "_lost_changes", lambda *_: 0, marks=pytest.mark.slow),
    ],
)
def test_a_check_that_is_left_out_is_found_out(
    owner: object,
    name: str,
    replacement: object,
    quick_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        check(quick_path, range(4), 300)
