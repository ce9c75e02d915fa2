"""The store as a whole: its lock, what it recovers, what it forgets, and how it dies."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import pytest

from storage.appending import SEGMENT_BYTES, payload_of
from storage.samples import UNSYNCED, FrozenClock, everything, subscription
from tamis.errors import StorageError, StorageFullError
from tamis.ports import SystemFiles
from tamis.storage import NewRecord, PublisherTail, StateStore, Storage

TESTS = Path(__file__).parents[1]
CUT_SHORT = (
    "The last append was cut short by the end of the process: "
    "139 bytes that were not acknowledged are gone."
)


def event(publisher: str, sequence: int) -> NewRecord:
    return NewRecord(publisher, sequence, 0, b"x" * 100)


def test_a_folder_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    program = "import sys; from tamis.storage import Storage; Storage.open(sys.argv[1])"
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    with Storage.open(tmp_path / "data"):
        second = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        assert second.returncode == 1
        assert "the folder is in use by the process" in second.stderr
        with pytest.raises(StorageError, match=r"in use by the process .*; stop that process"):
            Storage.open(tmp_path / "data")
    subprocess.run(command, check=True)  # noqa: S603
    Storage.open(tmp_path / "data").close()


def test_a_store_that_cannot_be_opened_releases_its_folder(quick_path: Path) -> None:
    Storage.open(quick_path, files=UNSYNCED).close()
    whole = (quick_path / "state.db").read_bytes()
    (quick_path / "state.db").write_bytes(b"x" * 5000)
    for _ in range(2):
        with pytest.raises(StorageError, match="file is not a database"):
            Storage.open(quick_path, files=UNSYNCED)
    (quick_path / "state.db").write_bytes(whole)
    Storage.open(quick_path, files=UNSYNCED).close()


def test_a_folder_that_cannot_be_made_is_reported_in_one_sentence(quick_path: Path) -> None:
    (quick_path / "file").touch()
    with pytest.raises(StorageError, match="opening the store failed: Not a directory"):
        Storage.open(quick_path / "file" / "data")


@pytest.mark.parametrize("room", [0, 8_192, 65_536])
def test_a_full_disk_on_which_a_store_cannot_be_opened_is_to_be_freed_first(
    small_disk: Path, room: int
) -> None:
    free = os.statvfs(small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(free.f_bavail * free.f_bsize - room))
    with pytest.raises(StorageFullError, match=r"; free space on the disk, and start again$"):
        Storage.open(small_disk / "data")
    filler.unlink()
    Storage.open(small_disk / "data").close()


def test_a_store_can_be_opened_again_on_a_disk_that_is_full_since(small_disk: Path) -> None:
    with Storage.open(small_disk / "data") as store:
        store.log.append([event("p", 1)])
    free = os.statvfs(small_disk)
    # SQLite needs some room for what its connections share.
    (small_disk / "filler").write_bytes(bytes(free.f_bavail * free.f_bsize - 65_536))
    with Storage.open(small_disk / "data") as store:
        assert store.log.next_sequence == 2


def test_a_new_store_is_empty_and_says_so(quick_path: Path) -> None:
    with Storage.open(quick_path, files=UNSYNCED) as store:
        assert store.publishers == {}
        assert store.recovery.is_clean
        assert str(store.recovery).startswith("Opened in 0.")
        assert str(store.recovery).endswith(" s: 0 events, 0 of them to match.")


def test_publishers_are_known_from_the_state_and_from_what_is_not_matched(quick_path: Path) -> None:
    with Storage.open(quick_path, files=UNSYNCED) as store:
        store.log.append([event("a", 1), event("b", 7), event("", 0), event("a", 2)])
        store.state.commit_matches(2, [], {"a": PublisherTail(1), "b": PublisherTail(7, ((1, 7),))})
        store.log.append([event("c", 5), event("none", 0)])
    with Storage.open(quick_path, files=UNSYNCED) as store:
        found = {name: tail[:2] for name, tail in store.publishers.items()}
        assert found == {"a": (2, ()), "b": (7, ((1, 7),)), "c": (5, ((1, 5),))}
        assert str(store.recovery).endswith("6 events, 4 of them to match.")


def test_a_cut_tail_and_damage_are_reported_in_sentences(quick_path: Path) -> None:
    with Storage.open(quick_path, files=UNSYNCED) as store:
        for number in range(1, 6):
            store.log.append([event("a", number)])
        store.state.commit_matches(1, [], {})
    (path,) = (quick_path / "log").iterdir()
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    # The sixth was not acknowledged.
    path.write_bytes(data + data[-148:-9])
    with Storage.open(quick_path, files=UNSYNCED) as store:
        assert str(store.recovery).splitlines()[1:] == [
            CUT_SHORT,
            f"Damaged: log, {path.name}, offset 188: 148 bytes are damaged; lost: 2.",
        ]
        assert [record.sequence for record in everything(store.log)] == [1, 3, 4, 5]
        assert store.log.next_sequence == 6


def test_retention_removes_only_matched_events_and_reports_losses_by_subscription(
    quick_path: Path,
) -> None:
    synced: list[str] = []

    class Watched(SystemFiles):
        def sync(self, file: int) -> None:  # type: ignore[override]
            synced.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)

    with Storage.open(quick_path, segment_bytes=100, clock=FrozenClock(), files=Watched()) as store:
        store.state.add_subscriptions([subscription("a"), subscription("b")])
        for number in range(1, 11):
            store.log.append([event("p", number)])
        pairs = [(1, sequence) for sequence in range(1, 7)] + [(2, 5)]
        store.state.commit_matches(6, pairs, {"p": PublisherTail(6)})
        synced.clear()
        assert store.retain(max_bytes=0) == (range(1, 7), {1: 6, 2: 1})
        # What the log forgets, the state had brought to the disk before.
        assert synced == ["log.first", "state.db-wal", *["log"] * 6]
        assert store.retain(max_bytes=0) == (range(7, 7), {})
        assert store.state._counters.pending == 0
        assert store.log.first_sequence == 7
    with Storage.open(quick_path, files=UNSYNCED) as store:
        assert store.publishers["p"][:2] == (10, ())
        assert store.recovery.is_clean


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_pending_events_go_later_if_the_state_was_full_when_their_segment_was_removed(
    quick_path: Path,
    restarted: bool,
) -> None:
    with Storage.open(quick_path, segment_bytes=100, clock=FrozenClock(), files=UNSYNCED) as store:
        store.state.add_subscriptions([subscription("a")])
        for number in range(1, 4):
            store.log.append([event("p", number)])
        store.state.commit_matches(2, [(1, 1), (1, 2)], {"p": PublisherTail(2)})
        full = StorageFullError(quick_path, "the disk is full", advice="free space")
        with (
            patch.object(StateStore, "drop_pending", side_effect=full),
            pytest.raises(StorageFullError),
        ):
            store.retain(max_bytes=0)
        assert store.log.first_sequence == 3
        assert store.state._counters.pending == 2
        if restarted:
            store.close()
            store = Storage.open(quick_path, files=UNSYNCED)  # noqa: PLW2901 - as after a crash
        with store:
            later = store.retain(max_bytes=0)
            assert (later.removed.stop, later.dropped) == (3, {1: 2})
            assert store.state._counters.pending == 0
            assert store.retain(max_bytes=0).dropped == {}


# --- kill -9 ---------------------------------------------------------------------------------


class Killed(NamedTuple):
    acknowledged: int
    code: int


def run_and_kill(folder: Path, seed: int, after: int, *, early: bool = False) -> Killed:
    """Start a process that appends, and kill it after some acknowledgements."""
    command = [sys.executable, "-m", "storage.appending", str(folder), str(seed)]
    with subprocess.Popen(  # noqa: S603
        [*command, "early"] if early else command, cwd=TESTS, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for number in count(1):
            line = process.stdout.readline()
            assert line, "the process ended by itself"
            if number == after:
                break
        process.kill()
        # What it said before it died counts too.
        said = [line, *process.stdout.read().splitlines()]
        return Killed(int([text for text in said if text][-1]), process.wait())


def losses(folder: Path, acknowledged: int) -> list[str]:
    """Return what is wrong with what a killed process has left."""
    with Storage.open(folder, segment_bytes=SEGMENT_BYTES) as store:
        found = everything(store.log, 500)
        wrong = [record for record in found if record.payload != payload_of(record.sequence)]
        own = [record.publisher_sequence for record in found]
        problems = [f"{len(wrong)} events are not what was published"] if wrong else []
        if [record.sequence for record in found] != list(range(1, len(found) + 1)):
            problems.append("the sequences have gaps")
        if own != list(range(1, len(found) + 1)) or store.publishers.get(
            "p", PublisherTail()
        ).last != len(found):
            problems.append("the publisher's sequences are not in order")
        if len(found) < acknowledged:
            problems.append(f"{acknowledged - len(found)} acknowledged events are lost")
        if not store.recovery.is_clean:
            problems.append(str(store.recovery))
        return problems


def kill_often(folder: Path, kills: int, seed: int) -> int:
    """Kill a process that appends, again and again; return how many events were acknowledged."""
    rng = Random(seed)
    acknowledged = 0
    for kill in range(kills):
        acknowledged, code = run_and_kill(folder, seed + kill, rng.randrange(1, 200))
        assert code == -9
        assert losses(folder, acknowledged) == []
    return acknowledged


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    assert kill_often(tmp_path / "data", 3, 1) > 100


@pytest.mark.slow
def test_what_was_acknowledged_survives_kill_9_a_hundred_times(tmp_path: Path) -> None:
    events = sum(kill_often(tmp_path / str(seed), 10, 100 * seed) for seed in range(10))
    print(f"storage: 100 kills, {events:,} acknowledged events, 0 lost")
    assert events > 10_000


def test_a_process_that_acknowledges_too_early_is_found_out(tmp_path: Path) -> None:
    """Somewhere in the few kills it is between the two."""
    for seed in range(30):
        folder = tmp_path / str(seed)
        acknowledged, _ = run_and_kill(folder, seed, 1 + seed % 5, early=True)
        if any("acknowledged events are lost" in text for text in losses(folder, acknowledged)):
            return
    pytest.fail("30 kills, and none showed that it acknowledges before it appends")
