"""A thread that writes without the interpreter's lock, beside one of plain Python."""

from __future__ import annotations

import _thread
import errno
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest

from storage.writers import ThreadedWriter
from tamis import disk_kernels
from tamis.disk_writer import MAX_BYTES, DiskWriter, disk_writer
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


def is_stored_while_nobody_else_has_a_turn(writer: Writer, folder: Path) -> bool:
    """Return whether it is done although this thread keeps the interpreter's lock all the time."""
    files = Files(folder)
    os.ftruncate(files.file, 100)
    # To look into memory lets nobody else have the lock, as calls of the system do.
    content, before = mmap.mmap(files.file, 100), sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        writer.begin(files.file, b"x" * 100, 0, -1, b"")
        until = time.perf_counter() + 0.5
        while time.perf_counter() < until:
            pass
        return content[:] == b"x" * 100
    finally:
        sys.setswitchinterval(before)
        assert writer.is_stored(10)
        files.close()


def test_nobody_needs_the_interpreter_while_it_writes(writer: DiskWriter, tmp_path: Path) -> None:
    assert is_stored_while_nobody_else_has_a_turn(writer, tmp_path / "files")


def test_a_thread_of_python_would_need_the_interpreter(tmp_path: Path) -> None:
    class Later(ThreadedWriter):
        """Begins a thread without waiting until it runs."""

        def begin(self, *given: Any) -> None:
            self._thread = Thread(target=lambda: WaitingWriter.begin(self, *given))
            # As its `start` does but for waiting, which lets others have a turn.
            _thread.start_new_thread(self._thread.run, ())

        def is_stored(self, _seconds: float) -> bool:
            time.sleep(0.1)  # a turn for the thread
            return WaitingWriter.is_stored(self, 0)

    late = Later(SYSTEM_FILES, time.monotonic)
    assert not is_stored_while_nobody_else_has_a_turn(late, tmp_path / "files")


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


@pytest.mark.parametrize("missing", ["thread", "kernel", "file"])
def test_a_system_without_what_it_takes_goes_on_without_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a reviewer: some of what may be missing kept a broker from starting."""
    before = {*os.listdir("/proc/self/fd")}
    for_it = {
        "thread": (Thread, "start"),
        "kernel": (disk_kernels, "write_when_asked"),
        "file": (os, "eventfd"),
    }

    def refuse(*_: object) -> None:
        raise {"thread": RuntimeError, "kernel": AttributeError, "file": OSError}[missing]

    place, name = for_it[missing]
    with monkeypatch.context() as patched:
        patched.setattr(place, name, refuse)
        assert disk_writer() is None
    assert {*os.listdir("/proc/self/fd")} <= before
    made = disk_writer()
    assert made is not None
    made.close()


def test_several_threads_may_wait_for_the_answer(writer: DiskWriter) -> None:
    """Found by a reviewer: a second one met an error, and what was begun was forgotten."""
    # Nothing was begun, so nothing ends.
    writer._has_answer = False
    other = Thread(target=writer.is_stored, args=(0.5,))
    other.start()
    while not writer._hearing.locked() and other.is_alive():
        pass
    assert not writer.is_stored(0.02)
    other.join()
    assert not writer.is_stored(0.02)
    writer._has_answer = True
