"""The log in use: many threads, many files, clocks that go back, disks that refuse."""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from storage.disk import Disk, files_no_longer_than
from storage.samples import UNSYNCED, everything, frozen, new_records, one_file
from tamis.errors import LimitError, StorageError, StorageFullError
from tamis.ports import SystemFiles
from tamis.storage import EventLog, NewRecord
from tamis.storage.records import MAX_PAYLOAD_BYTES

EVENT = NewRecord("p", 1, 2, b"x" * 50)


def test_an_empty_log_has_nothing_to_read(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    assert (log.first_sequence, log.next_sequence, log.bytes) == (1, 1, 0)
    assert (log.read(1, 10), log.get(1), log.sequence_at(0)) == ([], None, 1)
    assert log.append([]) == range(1, 1)
    assert log.retain(max_age=0, max_bytes=0, keep_from=10) == range(1, 1)
    log.close()


def test_a_record_survives_a_round_trip(tmp_path: Path) -> None:
    log = EventLog(tmp_path, clock=frozen(12.5))
    assert log.append([EVENT]) == range(1, 2)
    assert log.get(1) == (1, 12.5, *EVENT)
    assert log.get(0) is log.get(2) is None
    log.close()


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (EVENT._replace(publisher="é" * 40_000), "a publisher's name in bytes: 80,000 exceeds"),
        (EVENT._replace(publisher_sequence=1 << 63), "a publisher's sequence"),
        (EVENT._replace(publisher_sequence=-1), "a publisher's sequence"),
        (EVENT._replace(format=128), "a format: 128 exceeds the limit of 127"),
        (EVENT._replace(payload=bytes(MAX_PAYLOAD_BYTES + 1)), "a payload's bytes"),
    ],
)
def test_what_a_record_cannot_hold_is_refused(record: NewRecord, what: str, tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    with pytest.raises(LimitError, match=what):
        log.append([EVENT, record])
    assert log.append([EVENT]) == range(1, 2)
    assert len(everything(log)) == 1
    log.close()


def test_a_record_may_be_larger_than_a_segment(tmp_path: Path) -> None:
    log = EventLog(tmp_path, segment_bytes=1000)
    large = EVENT._replace(payload=Random(1).randbytes(1 << 20))
    for record in (EVENT, large, EVENT, large):
        log.append([record])
    assert [record.payload for record in everything(log)] == [
        record.payload for record in (EVENT, large, EVENT, large)
    ]
    log.close()


def test_times_never_go_back_though_the_clock_does(tmp_path: Path) -> None:
    times = iter([50.0, 50.0, 40.0, 60.0, 10.0, 70.0])
    log = EventLog(tmp_path, clock=lambda: next(times))
    for _ in range(4):
        log.append([EVENT])
    found = [record.time for record in everything(log)]
    assert found == sorted(set(found))
    assert found == pytest.approx([50, 50, 60, 60])
    log.close()
    log = EventLog(tmp_path, clock=frozen(5.0))
    log.append([EVENT])
    last = log.get(5)
    assert last is not None
    assert last.time > found[-1]
    log.close()


@pytest.mark.parametrize("segment_bytes", [500, 100_000])
def test_a_record_is_found_wherever_it_lies(segment_bytes: int, tmp_path: Path) -> None:
    rng = Random(segment_bytes)
    log = EventLog(tmp_path, segment_bytes=segment_bytes, files=UNSYNCED)
    for _ in range(60):
        log.append(new_records(rng, rng.randrange(1, 60), 300))
    wanted = everything(log, 1000)
    assert [record.sequence for record in wanted] == list(range(1, log.next_sequence))
    log.close()
    # Once more without anything learned by appending.
    log = EventLog(tmp_path, segment_bytes=segment_bytes, files=UNSYNCED)
    for record in rng.sample(wanted, 300):
        assert log.get(record.sequence) == record
        assert log.sequence_at(record.time) <= record.sequence
        assert log.read(record.sequence, 3) == wanted[record.sequence - 1 :][:3]
    log.close()


def test_readers_see_whole_groups_in_order_while_another_thread_appends(tmp_path: Path) -> None:
    log = EventLog(tmp_path, segment_bytes=20_000, files=UNSYNCED)
    rounds, size = 150, 8
    mistakes: list[str] = []

    def read() -> None:
        at = 1
        while at < rounds * size + 1:
            for record in log.read(at, 50):
                number = int(record.payload)
                if record.sequence != at or number != at:
                    mistakes.append(f"{record.sequence} where {at} should be: {number}")
                    return
                at += 1

    readers = [Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(rounds):
        first = number * size + 1
        payloads = (str(first + place).encode() for place in range(size))
        log.append([EVENT._replace(payload=payload) for payload in payloads])
    for reader in readers:
        reader.join(60)
        assert not reader.is_alive()
    assert mistakes == []
    log.close()


def test_reading_goes_on_while_retention_removes_what_is_read(tmp_path: Path) -> None:
    log = EventLog(tmp_path, segment_bytes=500, files=UNSYNCED)
    for _ in range(100):
        log.append([EVENT] * 3)
    seen: list[int] = []

    def read() -> None:
        at = 1
        while some := log.read(at, 2):
            seen.extend(record.sequence for record in some)
            at = seen[-1] + 1

    reader = Thread(target=read)
    reader.start()
    for left in range(20_000, 0, -500):
        log.retain(max_bytes=left, keep_from=301)
    reader.join(60)
    assert seen == sorted(set(seen))
    assert seen[-1] == 300
    assert log.damage.places == ()
    log.close()


def open_files(folder: Path) -> int:
    links = (os.readlink(f"/proc/self/fd/{number}") for number in _numbers())
    return sum(link.startswith(f"{folder}/") for link in links)


def _numbers() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        if os.path.lexists(f"/proc/self/fd/{number}"):
            yield number


def test_the_number_of_open_files_is_limited(tmp_path: Path) -> None:
    log = EventLog(tmp_path, segment_bytes=100, files=UNSYNCED)
    for _ in range(80):
        log.append([EVENT])
    assert len(everything(log)) == 80
    assert len(list(tmp_path.iterdir())) == 80
    assert open_files(tmp_path) <= 33
    log.close()
    assert open_files(tmp_path) == 0


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.close()
    with pytest.raises(StorageError, match="the log is closed"):
        log.append([EVENT])


# --- forgetting ------------------------------------------------------------------------------


def test_retention_by_age_forgets_what_is_old_and_soon_after(tmp_path: Path) -> None:
    now = [0.0]
    log = EventLog(tmp_path, clock=lambda: now[0], files=UNSYNCED)
    for second in range(100):
        now[0] = float(second)
        log.append([EVENT])
        log.retain(max_age=40, keep_from=1000)
    oldest = everything(log)[0].time
    # All within the age, and not much more: an eighth of it, and a segment is begun with an event.
    assert 99 - 40 - 40 / 8 - 1 <= oldest <= 99 - 40
    now[0] = 1000.0
    assert log.retain(max_age=40, keep_from=1000).stop == 101
    assert everything(log) == []
    assert log.append([EVENT]) == range(101, 102)
    log.close()


def test_retention_keeps_what_is_not_matched_yet(tmp_path: Path) -> None:
    log = EventLog(tmp_path, segment_bytes=100, files=UNSYNCED)
    for _ in range(10):
        log.append([EVENT])
    assert log.retain(max_bytes=0, keep_from=4) == range(1, 4)
    assert log.first_sequence == 4
    log.close()
    log = EventLog(tmp_path)
    assert [record.sequence for record in everything(log)] == list(range(4, 11))
    log.close()


def test_retention_forgets_in_full_disks(tmp_path: Path) -> None:
    log = EventLog(tmp_path, segment_bytes=100, clock=frozen(0))
    for _ in range(10):
        log.append([EVENT])
    with files_no_longer_than(0):
        assert log.retain(max_bytes=300, max_age=1e9, keep_from=100)
    log.close()


# --- room ------------------------------------------------------------------------------------


def test_the_file_seldom_grows_and_has_no_room_left_when_it_is_closed(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Watched(SystemFiles):
        def sync_data(self, file: int) -> None:  # type: ignore[override]
            sizes.append(os.fstat(file).st_size)

    log = EventLog(tmp_path, files=Watched())
    large = EVENT._replace(payload=bytes(10_000))
    for _ in range(250):
        log.append([large])
    wanted = everything(log)
    assert Counter(sizes).keys() == {1 << 20, 2 << 20, 3 << 20}
    assert one_file(tmp_path).stat().st_size == 3 << 20
    log.close()
    assert one_file(tmp_path).stat().st_size == log.bytes < 3 << 20
    log = EventLog(tmp_path)
    assert everything(log) == wanted
    assert log.append([EVENT]) == range(251, 252)
    log.close()


def test_the_room_that_a_killed_process_left_is_neither_torn_nor_damaged(quick_path: Path) -> None:
    log = EventLog(quick_path / "log", segment_bytes=1000)
    log.append([EVENT] * 30)
    log.append([EVENT] * 3)
    wanted = everything(log)
    # With all room, as a process that is killed leaves the last segment, and a power failure that
    # forgets the truncation of those before it.
    left = {path.name: path.read_bytes() for path in (quick_path / "log").iterdir()}
    log.close()
    for path in (quick_path / "log").iterdir():
        path.write_bytes(left[path.name].ljust(1 << 20, b"\0"))
    log = EventLog(quick_path / "log", segment_bytes=1000)
    assert everything(log) == wanted
    assert (log.cut_bytes, log.verify()) == (0, ())
    assert log.append([EVENT]) == range(34, 35)
    log.close()
    # A record that was begun is torn, however much room follows it.
    path = max((quick_path / "log").iterdir())
    path.write_bytes((path.read_bytes() + b"torn").ljust(3 << 20, b"\0"))
    log = EventLog(quick_path / "log", segment_bytes=1000)
    assert (log.cut_bytes, log.verify(), log.next_sequence) == (4, (), 35)
    log.close()


def test_where_a_file_cannot_be_made_longer_it_grows_as_it_is_written(tmp_path: Path) -> None:
    class Unwilling(SystemFiles):
        def truncate(self, file: int, size: int) -> None:
            if size > os.fstat(file).st_size:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            os.ftruncate(file, size)

    log = EventLog(tmp_path, files=Unwilling())
    for number in range(1, 4):
        assert log.append([EVENT]) == range(number, number + 1)
        assert one_file(tmp_path).stat().st_size == log.bytes
    log.close()


# --- disks that refuse -----------------------------------------------------------------------


def test_a_full_disk_refuses_and_loses_nothing_and_goes_on_with_room(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append([EVENT] * 5)
    log.close()
    log = EventLog(tmp_path)
    size = one_file(tmp_path).stat().st_size
    with files_no_longer_than(size + 130):
        with pytest.raises(StorageFullError, match=r"writing failed: .*; free space on the disk"):
            log.append([EVENT] * 3)
        # The part that found room is no part of the log, and is gone.
        assert one_file(tmp_path).stat().st_size == size
        assert log.append([EVENT]) == range(6, 7)
    assert log.append([EVENT] * 3) == range(7, 10)
    assert len(everything(log)) == 9
    assert len(list(tmp_path.iterdir())) == 1
    log.close()


@pytest.mark.parametrize("failing", ["", "truncate", "sync"])
def test_a_refused_append_that_ends_with_zeros_is_gone_or_said_to_be_unknown(
    failing: str, quick_path: Path
) -> None:
    """Found by a stranger: what is missing are zeros, and so is the room behind the records."""

    class Faulty(SystemFiles):
        fails = False

        def pwrite(self, file: int, data: bytes | memoryview, offset: int, /) -> int:  # type: ignore[override]
            if self.fails and len(data) < 200:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return os.pwrite(file, data[:150] if self.fails else data, offset)

        def truncate(self, file: int, size: int, /) -> None:
            if self.fails and failing == "truncate":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            os.ftruncate(file, size)

        def sync(self, _file: int, /) -> None:  # type: ignore[override]
            if self.fails and failing == "sync":
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    files = Faulty()
    log = EventLog(quick_path / "log", files=files)
    log.append([EVENT])
    files.fails = True
    with pytest.raises(StorageFullError) as refused:
        log.append([EVENT._replace(payload=b"zeros follow" + bytes(300))])
    left = shutil.copytree(quick_path / "log", quick_path / "left")
    after_kill = EventLog(left)
    assert refused.value.is_outcome_known is (failing == "")
    assert len(everything(after_kill)) == (2 if failing == "truncate" else 1)
    after_kill.close()
    files.fails = False
    # It goes on with the same sequence.
    assert log.append([EVENT]) == range(2, 3)
    log.close()
    log = EventLog(quick_path / "log")
    assert [record.payload for record in everything(log)] == [EVENT.payload] * 2
    assert log.verify() == ()
    log.close()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_sync_that_fails_refuses_and_the_next_append_begins_a_segment(
    failing: int, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    log = EventLog(tmp_path, files=disk)
    log.append([EVENT])
    wanted = everything(log)
    disk.plan = ["fail"]
    with pytest.raises(StorageError, match="bringing what was written to the disk failed: Input"):
        log.append([EVENT] * 3)
    assert everything(log) == wanted
    # Nothing is written behind what nobody knows to be there.
    disk.plan = ["work"] * (failing - 1) + ["fail"]
    with pytest.raises(StorageError, match="failed: Input/output error"):
        log.append([EVENT] * 2)
    assert log.append([EVENT]) == range(2, 3)
    assert len(list(tmp_path.glob("*.log"))) == 2
    assert not list(tmp_path.glob("*.part"))
    log.close()
    log = EventLog(tmp_path)
    assert [record.sequence for record in everything(log)] == [1, 2]
    assert log.verify() == ()
    log.close()


@pytest.mark.parametrize("plan", [["fail"], ["fail", "fail"]], ids=["once", "twice"])
def test_what_could_not_be_synced_is_known_to_be_gone_only_if_its_removal_is_synced(
    plan: list[str], tmp_path: Path
) -> None:
    is_known, found = len(plan) == 1, Counter[int]()
    for seed in range(60):
        folder = tmp_path / str(seed)
        disk = Disk(folder, seed)
        log = EventLog(folder, files=disk)
        log.append([EVENT])
        disk.plan = [*plan]
        with pytest.raises(StorageError) as refused:
            log.append([EVENT] * 3)
        assert refused.value.is_outcome_known is is_known
        disk.image(Random(seed), tmp_path / f"image-{seed}")
        left = EventLog(tmp_path / f"image-{seed}")
        found[len(everything(left))] += 1
        left.close()
        log.close()
    # All of it or nothing, and a client who was told so finds nothing.
    assert found.keys() == ({1} if is_known else {1, 4})


def test_a_sector_that_cannot_be_read_takes_only_its_own_records(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append([EVENT] * 400)
    log.close()
    bad = range(8192, 12288)

    class BadSector(SystemFiles):
        def pread(self, file: int, size: int, offset: int) -> bytes:
            if offset < bad.stop and offset + size > bad.start:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return os.pread(file, size, offset)

    log = EventLog(tmp_path, synced_up_to=400, files=BadSector())
    found = [record.sequence for record in everything(log)]
    size = (one_file(tmp_path).stat().st_size - 40) / 400
    assert len(bad) / size <= 400 - len(found) <= len(bad) / size + 2
    (damage,) = log.verify()
    assert set(damage.lost) == set(range(1, 401)) - set(found)
    assert str(damage).endswith(f"lost: {damage.lost[0]} to {damage.lost[-1]}")
    log.close()


def test_a_real_full_disk_refuses_and_goes_on(small_disk: Path) -> None:
    log = EventLog(small_disk / "log", segment_bytes=200_000)
    acknowledged = 0
    with pytest.raises(StorageFullError, match="No space left on device"):  # noqa: PT012
        while True:
            acknowledged = log.append([EVENT] * 37)[-1]
    assert acknowledged > 5000
    with pytest.raises(StorageFullError):
        log.append([EVENT] * 37)
    assert len(everything(log, 1000)) == acknowledged
    log.close()
    log = EventLog(small_disk / "log", segment_bytes=200_000)
    assert len(everything(log, 1000)) == acknowledged
    log.retain(max_bytes=500_000, keep_from=acknowledged)
    assert log.append([EVENT] * 37)[0] == acknowledged + 1
    assert log.verify() == ()
    log.close()


def test_a_clock_that_was_ahead_removes_nothing_too_early(tmp_path: Path) -> None:
    day, now = 86_400.0, [1_000.0]
    log = EventLog(tmp_path, segment_bytes=300, clock=lambda: now[0], files=UNSYNCED)
    for moment in (0.0, 8 * day, 3_600.0):
        now[0] = 1_000.0 + moment
        for _ in range(6):
            log.append([EVENT])
    # Times do not go back; events stored after the clock was set right have those of before.
    times = [record.time for record in everything(log)]
    assert times == sorted(times)
    for passed in (3_600.0, 6.9 * day):
        now[0] = 1_000.0 + passed
        assert not log.retain(max_age=7 * day, keep_from=100)
    now[0] = 1_000.0 + 7.1 * day
    removed = log.retain(max_age=7 * day, keep_from=100)
    assert 1 <= len(removed) <= 6
    now[0] = 1_000.0 + 14.9 * day
    assert not log.retain(max_age=7 * day, keep_from=100)
    # A limit of bytes holds, whatever the times are, and so does the age once it is reached.
    assert log.retain(max_bytes=500, keep_from=100)
    now[0] = 1_000.0 + 15.1 * day
    log.append([EVENT])
    log.retain(max_age=7 * day, keep_from=100)
    assert log.first_sequence > 12
    log.close()
