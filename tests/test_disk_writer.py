"""A thread that writes without the interpreter's lock, beside one of plain Python."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tamis.disk_writer import MAX_BYTES, DiskWriter
from tamis.ports import SYSTEM_FILES, SystemFiles, Writer
from tamis.storage.files import WaitingWriter

pytestmark = pytest.mark.skipif(not hasattr(os, "eventfd"), reason="eventfds are Linux's")


@pytest.fixture
def writer() -> Iterator[DiskWriter]:
    made = DiskWriter()
    yield made
    made.close()


class Files:
    """A file and a count for a writer to write to, and files that cannot be written or synced."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path, self.count_path = folder / "file", folder / "count"
        flags = os.O_RDWR | os.O_CREAT
        self.file, self.count = os.open(self.path, flags), os.open(self.count_path, flags)
        self.others = {
            "full": os.open("/dev/full", os.O_WRONLY),
            "without sync": os.open("/dev/null", os.O_WRONLY),
            "for reading": os.open(self.path, os.O_RDONLY),
        }

    def close(self) -> None:
        for file in (self.file, self.count, *self.others.values()):
            os.close(file)

    def written(self) -> tuple[bytes, bytes]:
        return self.path.read_bytes(), self.count_path.read_bytes()


def outcome(writer: Writer) -> tuple[int | None, bool]:
    error = writer.end()
    return None if error is None else error.errno, error is None or writer.is_written


def test_it_does_what_plain_python_does(writer: DiskWriter, tmp_path: Path) -> None:
    plain, rng = WaitingWriter(SYSTEM_FILES, time.monotonic), Random(7)
    ours, theirs = Files(tmp_path / "ours"), Files(tmp_path / "theirs")
    outcomes = set()
    for number in range(1_500):
        data = rng.randbytes(rng.choice((1, 100, 5_000, MAX_BYTES)))
        offset = rng.randrange(20_000)
        which = rng.choice(("file",) * 5 + tuple(ours.others))
        with_count = rng.random() < 0.7
        for one, files in ((writer, ours), (plain, theirs)):
            file = files.file if which == "file" else files.others[which]
            count_file = files.count if with_count else -1
            one.begin(file, data, offset, count_file, b"%012d" % number)
        assert writer.is_stored(10) == plain.is_stored(10)
        assert outcome(writer) == outcome(plain), (which, len(data))
        assert 0 < writer.seconds < 10
        outcomes.add((which, *outcome(writer)))
        assert ours.count_path.read_bytes() == theirs.count_path.read_bytes()
        assert os.fstat(ours.file).st_size == os.fstat(theirs.file).st_size
    assert ours.written() == theirs.written()
    assert outcomes >= {
        ("file", None, True),
        ("full", errno.ENOSPC, False),
        ("without sync", errno.EINVAL, True),
        ("for reading", errno.EBADF, False),
    }
    ours.close()
    theirs.close()


def test_a_file_without_offsets_is_refused(writer: DiskWriter) -> None:
    read, write = os.pipe()
    writer.begin(write, b"x", 0, -1, b"")
    assert not writer.is_stored(10)
    assert outcome(writer) == (errno.ESPIPE, False)
    os.close(read)
    os.close(write)


def test_nobody_needs_the_interpreter_while_it_writes(writer: DiskWriter, tmp_path: Path) -> None:
    """It is done although this thread keeps the interpreter's lock all the time."""
    files = Files(tmp_path / "files")
    done = files.path.stat
    writer.begin(files.file, b"x" * 100, 0, -1, b"")
    until = time.perf_counter() + 10
    while done().st_size < 100 and time.perf_counter() < until:
        pass
    assert writer.is_stored(10)
    files.close()


def test_it_waits_no_longer_than_it_is_told(writer: DiskWriter) -> None:
    # Nothing was begun, so nothing ends.
    writer._has_answer = False
    begun = time.perf_counter()
    assert not writer.is_stored(0.02)
    assert 0.01 < time.perf_counter() - begun < 5
    writer._has_answer = True


def test_its_thread_and_files_end_with_it() -> None:
    before = {*os.listdir("/proc/self/fd")}
    one = DiskWriter()
    assert "tamis-disk" in {thread.name for thread in threading.enumerate()}
    one.close()
    assert "tamis-disk" not in {thread.name for thread in threading.enumerate()}
    assert {*os.listdir("/proc/self/fd")} <= before


def test_files_with_calls_of_their_own_have_no_writer_past_them() -> None:
    class Watched(SystemFiles):
        pass

    assert Watched().writer() is None
    made = SYSTEM_FILES.writer()
    assert made is not None
    made.close()
