"""Damage in segments that nobody reads: found when the log is opened, or by verifying it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from storage.samples import UNSYNCED, everything, subscription
from tamis.storage import NewRecord, Storage
from tamis.storage.damage import Damage, DamageRegister
from tamis.storage.segments import HEADER_BYTES

EVENT = NewRecord("p", 0, 0, b"x" * 100)
EVENTS_PER_SEGMENT = 4


@pytest.fixture
def folder(quick_path: Path) -> Path:
    """Events 1 to 40 in ten segments, all of them matched and acknowledged."""
    with Storage.open(quick_path / "data", segment_bytes=500, files=UNSYNCED) as store:
        store.state.add_subscription(subscription("a"))
        for _ in range(40):
            store.log.append([EVENT])
        store.state.commit_matches(40, [(1, 5), (1, 6), (1, 20)], {})
    assert len(segments(quick_path / "data")) == 10
    return quick_path / "data"


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "log").iterdir())


def reopened(folder: Path) -> Storage:
    return Storage.open(folder, segment_bytes=500, files=UNSYNCED)


def lost(store: Storage) -> list[int]:
    return [sequence for damage in store.log.damage.places for sequence in damage.lost]


def remove(path: Path) -> None:
    path.unlink()


def halve(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("place", range(10))
@pytest.mark.parametrize("harm", [remove, halve, zero])
def test_a_segment_that_is_gone_is_reported_when_the_log_is_opened(
    harm: Callable[[Path], None], place: int, folder: Path
) -> None:
    harm(segments(folder)[place])
    first = 1 + EVENTS_PER_SEGMENT * place
    with reopened(folder) as store:
        gone = sorted(set(range(1, 41)) - {one.sequence for one in everything(store.log)})
        assert set(gone) <= set(range(first, first + EVENTS_PER_SEGMENT))
        assert len(gone) == (EVENTS_PER_SEGMENT if harm is not halve else 3)
        assert lost(store) == gone
        assert store.log.damage.lost_events == len(gone)
        assert f"lost: {gone[0]}" in str(store.recovery)
        assert "no record is lost" not in str(store.recovery)
        # Their sequences are not used again.
        assert store.log.append([EVENT]) == range(41, 42)
    with reopened(folder) as store:
        assert store.log.damage.lost_events == len(gone)


def test_a_log_that_is_gone_as_a_whole_is_reported(folder: Path) -> None:
    for path in segments(folder):
        path.unlink()
    with reopened(folder) as store:
        assert lost(store) == list(range(1, 41))
        assert store.log.append([EVENT]) == range(41, 42)


def test_unmatched_events_that_are_gone_are_reported_too(folder: Path) -> None:
    with reopened(folder) as store:
        for _ in range(5):
            store.log.append([EVENT])
    segments(folder)[-1].unlink()
    with reopened(folder) as store:
        assert lost(store) == [45]
        assert store.log.append([EVENT]) == range(46, 47)


def test_what_retention_removed_is_not_missing(folder: Path) -> None:
    with reopened(folder) as store:
        assert store.retain(max_bytes=1500).removed == range(1, 33)
    with reopened(folder) as store:
        assert store.recovery.is_clean
    segments(folder)[0].unlink()
    with reopened(folder) as store:
        assert lost(store) == [33, 34, 35, 36]


def test_a_state_that_begins_anew_takes_the_log_as_it_is(folder: Path) -> None:
    with reopened(folder) as store:
        store.retain(max_bytes=1500)
    for name in ("state.db", "state.count"):
        (folder / name).unlink()
    for _ in range(2):
        with reopened(folder) as store:
            assert store.recovery.is_clean


@pytest.mark.parametrize("harm", ["missing", "damaged"])
@pytest.mark.parametrize("name", ["log.count", "log.first"])
def test_a_number_of_the_log_that_cannot_be_read_is_reported_once(
    harm: str, name: str, folder: Path
) -> None:
    path = folder / name
    path.unlink() if harm == "missing" else path.write_bytes(b"x" * 12)
    with reopened(folder) as store:
        assert [str(damage) for damage in store.recovery.damaged] == [
            f"{name}, offset 0: the file is {harm}, and was written anew"
        ]
        assert store.log.next_sequence == 41
    with reopened(folder) as store:
        assert store.recovery.is_clean


def test_a_bit_in_an_old_segment_is_found_by_verifying_slice_by_slice(folder: Path) -> None:
    with reopened(folder) as store:
        for path in (segments(folder)[1], segments(folder)[7]):
            data = bytearray(path.read_bytes())
            data[HEADER_BYTES + 200] ^= 1
            path.write_bytes(data)
        steps = list(verified(store, 300))
        assert steps[-1] == 41
        assert all(2 <= after - before <= 4 for before, after in pairwise([1, *steps]))
        assert lost(store) == [6, 30]
        assert store.log.damage.lost_in(1, 6) == 0
        assert store.log.damage.lost_in(6, 31) == 2
        assert store.log.damage.lost_in(7, 30) == 0


def verified(store: Storage, max_bytes: int) -> Iterator[int]:
    """Verify a log, and return how far each slice reaches."""
    position = store.log.first_sequence
    while position < store.log.next_sequence:
        position = store.log.verify_some(position, max_bytes)
        yield position


def test_damage_is_kept_once_and_the_lost_events_are_counted_once() -> None:
    register = DamageRegister()
    register.add(Damage("a", 5, 1, range(3, 5), "x"))
    register.add(Damage("a", 5, 1, range(3, 5), "x"))
    register.add(Damage("a", 9, 1, range(4, 8), "x"))
    register.add(Damage("b", 0, 1, range(0), "header"))
    register.add(Damage("b", 9, 1, range(20, 21), "x"))
    assert len(register.places) == 4
    assert register.lost_events == 6
    assert [register.lost_in(a, b) for a, b in [(1, 100), (5, 7), (8, 20), (20, 21)]] == [
        6,
        2,
        0,
        1,
    ]
    # More is found of a place that is known.
    register.add(Damage("a", 5, 9, range(3, 12), "x"))
    assert register.places[-1].lost == range(3, 12)
    assert register.lost_events == 10
