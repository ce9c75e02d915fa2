"""Damaged logs: what is returned is what was written, and what is not returned is reported."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest

from seeds import in_volume
from storage.samples import UNSYNCED, appended, everything, new_records, one_file
from tamis.errors import StorageError
from tamis.ports import SystemFiles
from tamis.storage import EventLog, NewRecord, Record
from tamis.storage.records import MIN_RECORD_BYTES, encode
from tamis.storage.segments import HEADER_BYTES

GROUPS = (1, 3, 1, 2)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Record]]]:
    """A log in one file, and the groups that were appended to it."""
    folder = tmp_path_factory.mktemp("small")
    log = EventLog(folder, files=UNSYNCED)
    rng = Random(5)
    groups = appended(log, [new_records(rng, size, 12) for size in GROUPS])
    log.close()
    return one_file(folder), groups


def opened(path: Path, folder: Path, data: bytes, synced_up_to: int = 0) -> EventLog:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / path.name).write_bytes(data)
    return EventLog(folder, synced_up_to=synced_up_to, files=UNSYNCED)


def flat(groups: Iterable[Sequence[Record]]) -> list[Record]:
    return [record for group in groups for record in group]


def test_a_log_cut_at_any_byte_is_what_was_appended_before_and_goes_on(
    small: tuple[Path, list[list[Record]]], quick_path: Path
) -> None:
    path, groups = small
    whole = path.read_bytes()
    # Where each group ends: what is cut later must be there.
    ends = [HEADER_BYTES + sum(sizes[:place]) for sizes in [sizes_of(groups)] for place in range(5)]
    for cut in range(HEADER_BYTES, len(whole) + 1):
        log = opened(path, quick_path / "cut", whole[:cut])
        kept = max(place for place, end in enumerate(ends) if end <= cut)
        wanted = flat(groups[:kept])
        assert everything(log) == wanted, cut
        # Zeros at the end may be room that nothing was written to.
        assert log.cut_bytes == len(whole[ends[kept] : cut].rstrip(b"\0"))
        assert log.damage.places == ()
        assert log.append([NewRecord("again", 1, 0, b"")])[0] == len(wanted) + 1
        assert everything(log)[:-1] == wanted
        log.close()


def sizes_of(groups: Sequence[Sequence[Record]]) -> list[int]:
    return [
        len(encode([NewRecord(*record[2:]) for record in group], 1, 0.0, b"mark")[0])
        for group in groups
    ]


@pytest.mark.parametrize("matched", [0, 3, 6, 7], ids=lambda matched: f"matched up to {matched}")
def test_a_bit_that_falls_over_anywhere_is_found_and_takes_little_with_it(
    matched: int, small: tuple[Path, list[list[Record]]], quick_path: Path
) -> None:
    path, groups = small
    whole, wanted = path.read_bytes(), flat(groups)
    # Each takes others, and together they take all bits of all bytes many times over.
    for bit in range(matched, 8 * len(whole), max(1, 7 // in_volume(1))):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        log = opened(path, quick_path / "flipped", bytes(data), matched)
        found = everything(log)
        # Records are as they were, or are not returned.
        assert set(found) <= set(wanted), bit
        assert [record.sequence for record in found] == sorted({r.sequence for r in found})
        assert log.damage.places or log.cut_bytes, bit
        gone = len(wanted) - len(found)
        in_last_group = bit // 8 >= len(whole) - sizes_of(groups)[-1]
        assert gone == (bit // 8 >= HEADER_BYTES) * (
            len(groups[-1]) if in_last_group and matched < 6 else 1
        )
        assert log.next_sequence == (len(wanted) + 1 if matched >= 6 else found[-1].sequence + 1)
        assert log.append([NewRecord("again", 1, 0, b"")])[0] == log.next_sequence - 1
        assert everything(log)[:-1] == found
        log.close()


def test_damage_is_named_by_segment_offset_and_sequence(
    small: tuple[Path, list[list[Record]]], quick_path: Path
) -> None:
    path, groups = small
    data = bytearray(path.read_bytes())
    second = HEADER_BYTES + sizes_of(groups)[0]
    data[second + 20] ^= 1
    log = opened(path, quick_path / "log", bytes(data))
    size = sizes_of([groups[1][:1]])[0]
    assert [str(damage) for damage in log.damage.places] == [
        f"{path.name}, offset {second}: {size} bytes are damaged; lost: 2"
    ]
    assert log.get(2) is None
    log.close()


@pytest.mark.parametrize("knows", [False, True])
def test_a_payload_can_imitate_a_record_only_with_the_mark(knows: bool, quick_path: Path) -> None:
    log = EventLog(quick_path, files=UNSYNCED)
    log.append([NewRecord("p", 1, 0, b"first")])
    secret = bytes.fromhex(one_file(quick_path).stem[-8:])
    marks = [secret] if knows else [b"mark", b"\0\0\0\0", b"tami", b"\xff\xff\xff\xff"]
    forged = [encode([NewRecord("admin", 9, 0, b"forged")], 2, 1e12, mark)[0] for mark in marks]
    log.append([NewRecord("p", 2, 0, b"".join(forged))])
    log.append([NewRecord("p", 3, 0, b"last")])
    log.close()
    path = one_file(quick_path)
    whole = path.read_bytes()
    inner = whole.index(forged[0])
    for place in range(inner - MIN_RECORD_BYTES, inner):
        data = bytearray(whole)
        data[place] ^= 255
        path.write_bytes(data)
        log = EventLog(quick_path, files=UNSYNCED)
        assert [record.payload for record in everything(log)] == (
            # Times do not go back: the real event is then taken for one that was left over.
            [b"first", b"forged"] if knows else [b"first", b"last"]
        )
        log.close()


def test_every_segment_is_read_around_its_damage(quick_path: Path) -> None:
    log = EventLog(quick_path, segment_bytes=600, files=UNSYNCED)
    rng = Random(3)
    wanted = flat(appended(log, [new_records(rng, 2, 50) for _ in range(40)]))
    log.close()
    paths = sorted(quick_path.iterdir())
    assert len(paths) > 8
    headless, torn, missing = paths[2], paths[4], paths[6]
    headless.write_bytes(bytes(HEADER_BYTES) + headless.read_bytes()[HEADER_BYTES:])
    torn.write_bytes(torn.read_bytes()[:-5])
    gone = {int(paths[5].name[:20]) - 1}
    gone |= set(range(int(missing.name[:20]), int(paths[7].name[:20])))
    missing.unlink()
    log = EventLog(quick_path, files=UNSYNCED)
    # What is missing at the end of a file, or between two, is found without reading them all.
    found = [damage.segment for damage in log.damage.places]
    assert found == [headless.name, torn.name, paths[5].name]
    assert everything(log) == [record for record in wanted if record.sequence not in gone]
    assert {sequence for damage in log.verify() for sequence in damage.lost} == gone
    assert len(log.verify()) == 3
    assert log.sequence_at(0.0) == 1
    assert log.sequence_at(wanted[-1].time) == len(wanted) - 1
    log.close()


class CountingFiles(SystemFiles):
    """Counts the bytes that are read."""

    read_bytes = 0

    def pread(self, file: int, size: int, offset: int) -> bytes:
        data = super().pread(file, size, offset)
        self.read_bytes += len(data)
        return data


def test_events_lost_with_a_large_part_of_the_log_are_not_searched_for_each(
    quick_path: Path,
) -> None:
    log = EventLog(quick_path, segment_bytes=1 << 20, files=UNSYNCED)
    for _ in range(60):
        log.append([NewRecord("p", 0, 0, bytes(20_000))] * 5)
    log.close()
    first, *_ = sorted(quick_path.glob("*.log"))
    first.write_bytes(bytes(first.stat().st_size))
    files = CountingFiles()
    log = EventLog(quick_path, files=files)
    log.verify()
    lost = log.damage.lost_events
    assert lost > 40
    files.read_bytes = 0
    assert [log.get(sequence) for sequence in range(1, lost + 1)] == [None] * lost
    assert files.read_bytes < 1 << 20
    assert log.get(lost + 1)
    log.close()


def test_a_damaged_header_makes_no_event_go_too_early(quick_path: Path) -> None:
    now = [0.0]
    log = EventLog(quick_path, segment_bytes=300, clock=lambda: now[0], files=UNSYNCED)
    for moment in range(100, 110):
        now[0] = float(moment)
        log.append([NewRecord("p", 1, 0, bytes(100))] * 2)
    log.close()
    second = sorted(quick_path.iterdir())[1]
    second.write_bytes(bytes(HEADER_BYTES) + second.read_bytes()[HEADER_BYTES:])
    log = EventLog(quick_path, clock=lambda: 110.5, files=UNSYNCED)
    assert log.retain(max_age=10, keep_from=1000) == range(1, 1)
    assert log.sequence_at(101.0) == 3
    log.close()


def test_sequences_that_were_matched_are_never_used_again(quick_path: Path) -> None:
    """They point to an event; another one must not take its place."""
    log = EventLog(quick_path, files=UNSYNCED)
    wanted = flat(appended(log, [[NewRecord("p", 1, 0, b"x")]] * 9))
    log.close()
    path = one_file(quick_path)
    path.write_bytes(path.read_bytes()[:-90])
    left = path.read_bytes()
    log = EventLog(quick_path, synced_up_to=9, files=UNSYNCED)
    assert everything(log) == wanted[:7]
    assert [damage.lost for damage in log.damage.places] == [range(8, 10)]
    assert log.append([NewRecord("p", 2, 0, b"y")]) == range(10, 11)
    # What is left of an event that was acknowledged is there for whoever can make sense of it.
    assert path.read_bytes() == left
    log.close()
    shutil.rmtree(quick_path)
    log = EventLog(quick_path, synced_up_to=30, files=UNSYNCED)
    assert log.append([NewRecord("p", 2, 0, b"y")]) == range(31, 32)
    log.close()


def test_what_a_refused_append_left_on_the_disk_is_no_part_of_the_log(quick_path: Path) -> None:
    """The sync failed, though all was written; cutting it off did not come through either."""
    left: list[bytes] = []

    class FailingOnce(SystemFiles):
        def sync(self, _file: int) -> None:  # type: ignore[override]
            if len(log_files := list(quick_path.glob("*.log"))) == 1 and log.next_sequence == 2:
                left.append(log_files[0].read_bytes())
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        sync_data = sync  # type: ignore[assignment]

    log = EventLog(quick_path, files=FailingOnce())
    log.append([NewRecord("p", 1, 0, b"first")])
    path = one_file(quick_path)
    with pytest.raises(StorageError):
        log.append([NewRecord("p", 2, 0, b"refused")] * 3)
    (quick_path / "any.log").touch()
    log.append([NewRecord("p", 3, 0, b"second")])
    log.close()
    path.write_bytes(left[0])
    log = EventLog(quick_path, synced_up_to=2, files=UNSYNCED)
    assert [record.payload for record in everything(log)] == [b"first", b"second"]
    assert log.verify() == ()
    log.close()


def test_parts_of_two_appends_make_no_whole_one(quick_path: Path) -> None:
    """One was refused, the next was written over it, and the power went before its sync."""
    log = EventLog(quick_path, files=UNSYNCED)
    wanted = flat(appended(log, [[NewRecord("p", 1, 0, b"first")]]))
    log.close()
    path = one_file(quick_path)
    mark, whole = bytes.fromhex(path.stem[-8:]), path.read_bytes()
    later = wanted[0].time + 1
    refused, (_, half) = encode([NewRecord("p", 2, 0, b"refused")] * 2, 2, later, mark)
    written, _ = encode([NewRecord("p", 3, 0, b"written")] * 2, 2, later + 1, mark)
    path.write_bytes(whole + refused[:half] + written[half:])
    log = EventLog(quick_path, files=UNSYNCED)
    assert everything(log) == wanted
    assert log.cut_bytes == len(written)
    log.close()


def test_files_of_others_are_refused_or_left_alone(quick_path: Path) -> None:
    log = EventLog(quick_path, files=UNSYNCED)
    log.append([NewRecord("p", 1, 0, b"x")])
    log.close()
    path = one_file(quick_path)
    (quick_path / "notes.log").write_text("mine")
    (quick_path / "00000000000000000002-aabbccdd.part").write_text("left by a crash")
    EventLog(quick_path, files=UNSYNCED).close()
    assert sorted(p.suffix for p in quick_path.iterdir()) == [".log", ".log"]
    renamed = path.rename(path.with_name(f"{5:020}-aabbccdd.log"))
    with pytest.raises(StorageError, match=f"once named {path.name}; rename it back"):
        EventLog(quick_path, files=UNSYNCED)
    shutil.copy(renamed, path)
    renamed.rename(path.with_name(f"{1:020}-aabbccdd.log"))
    with pytest.raises(StorageError, match="begins with the same sequence; move one of them"):
        EventLog(quick_path, files=UNSYNCED)


def test_a_log_of_another_version_is_refused(quick_path: Path) -> None:
    from tamis.storage import segments  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "VERSION", 3)
        log = EventLog(quick_path, files=UNSYNCED)
        log.append([NewRecord("p", 1, 0, b"x")])
        log.close()
    with pytest.raises(StorageError, match="not written by this version of Tamis"):
        EventLog(quick_path, files=UNSYNCED)
