"""Who writes to the log: a writer beside the caller, several threads, a fork of the process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from unittest.mock import patch

import pytest

from storage.disk import Disk
from tamis.errors import StorageError, StorageFullError
from tamis.ports import SystemFiles
from tamis.storage import EventLog, NewRecord, records
from tamis.storage import log as log_module
from tamis.storage.files import WaitingWriter

EVENT = NewRecord("p", 1, 2, b"x" * 50)


def test_an_append_that_somebody_else_has_ended_ends_no_other(tmp_path: Path) -> None:
    """Found by a reviewer: an earlier one, which had failed, was taken for one of its sequence."""
    disk = Disk(tmp_path)
    disk.writer = lambda: WaitingWriter(disk, lambda: 0.0)  # type: ignore[method-assign]
    with closing(EventLog(tmp_path, files=disk)) as log:
        log.write_beside()
        log.append([NewRecord("", 0, 0, b"1")])
        disk.plan = ["fail"]
        first = log.begin([NewRecord("", 0, 0, b"2")])
        assert first is not None
        # It begins a segment, after what could not be synced.
        log.append([])
        log.append([NewRecord("", 0, 0, b"other 2")])
        second = log.begin([NewRecord("", 0, 0, b"3")])
        assert second is not None
        with pytest.raises(StorageError, match="somebody else") as refused:
            log.end(first)
        assert not refused.value.is_outcome_known
        assert log.end(second) == range(3, 4)
        assert [one.payload for one in log.read(1, 9)] == [b"1", b"other 2", b"3"]


def test_large_appends_are_not_encoded_for_somebody_who_is_held_up(tmp_path: Path) -> None:
    with closing(EventLog(tmp_path)) as log:
        log.write_beside()
        log.append([NewRecord("", 0, 0, b"1")])
        small, large = NewRecord("", 0, 0, b"x"), NewRecord("", 0, 0, b"x" * (1 << 20))
        with patch.object(log_module, "encode", wraps=records.encode) as encode:
            assert log.begin([large]) is None
            assert not encode.called
            appending = log.begin([small])
            assert appending is not None
            assert log.begin([small]) is None
            assert log.end(appending) == range(2, 3)


def test_a_closed_log_has_nobody_write_beside(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.close()
    log.write_beside()
    assert log._beside is None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("is_beside", [False, True])
def test_a_fork_that_closes_its_log_takes_nothing_from_the_one_that_goes_on(
    tmp_path: Path, *, is_beside: bool
) -> None:
    """Found by a reviewer: it cut off what had been appended since, and rang for the writer."""
    with closing(EventLog(tmp_path)) as log:
        if is_beside:
            log.write_beside()
        log.append([NewRecord("", 0, 0, b"1")])
        inherited = _fork_of(log)
        for _ in range(20):
            appending = log.begin([NewRecord("", 0, 0, b"event")])
            assert (appending is not None) == is_beside
            if appending is None:
                log.append([NewRecord("", 0, 0, b"event")])
            else:
                log.end(appending)
        inherited.send("close")
        refusal = "this is a fork of the process that opened the log, which alone changes it"
        assert [inherited.recv() for _ in range(3)] == [refusal] * 3
        log.append([NewRecord("", 0, 0, b"last")])
        assert len(log.read(1, 100)) == 22
        assert not log.verify()
    with closing(EventLog(tmp_path)) as log:
        assert len(log.read(1, 100)) == 22


def _fork_of(log: EventLog) -> Connection:
    """Return a pipe to a fork that tries to append to a log, and closes it, once it is told to."""
    here, there = Pipe()
    if os.fork() == 0:
        there.recv()
        try:
            assert log.begin([NewRecord("", 0, 0, b"of the fork")]) is None
            changes: list[Callable[[], object]] = [
                lambda: log.append([NewRecord("", 0, 0, b"of the fork")]),
                lambda: log.retain(max_age=0.0, keep_from=100),
                lambda: log.remove_below(100),
            ]
            for change in changes:
                try:
                    change()
                except StorageError as error:
                    there.send(error.reason)
            log.close()
        finally:
            os._exit(0)
    there.close()
    return here


class SlowFiles(SystemFiles):
    """Files that take a while to sync, and refuse new ones."""

    now, seconds_to_sync, is_full = 0.0, 1.0, False

    def sync(self, file: int, /) -> None:  # type: ignore[override]
        self.now += self.seconds_to_sync
        os.fsync(file)

    def open(self, path: Path, flags: int) -> int:
        if self.is_full and flags & os.O_CREAT:
            self.now += 5
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, flags)


def test_the_time_of_an_append_is_that_of_all_it_does_and_of_one_that_is_refused(
    tmp_path: Path,
) -> None:
    """Found by a reviewer: a new segment was left out, and a refusal had the time of the last."""
    files = SlowFiles()
    with closing(EventLog(tmp_path, files=files, monotonic=lambda: files.now)) as log:
        log.append([EVENT])
        files.seconds_to_sync = 0.0
        log.append([EVENT])
        assert log.last_seconds == 0
        files.seconds_to_sync, log._segment_bytes = 1.0, 1
        log.append([EVENT])
        # The file of the segment and its folder; its records need another kind of sync.
        assert log.last_seconds >= 2
        files.is_full = True
        with pytest.raises(StorageFullError):
            log.append([EVENT])
        assert log.last_seconds == 5


def test_a_log_is_closed_while_somebody_else_waits_for_its_writer(tmp_path: Path) -> None:
    """Found by a reviewer: two threads waited for one answer, and the append was forgotten."""
    for _ in range(10):
        with closing(EventLog(tmp_path)) as log:
            log.write_beside()
            log.append([NewRecord("", 0, 0, b"1")])
            before = log.next_sequence
            appending = log.begin([NewRecord("", 0, 0, b"x" * 60_000)])
            if appending is None:
                pytest.skip("nobody writes beside the caller here")
            waiting = Thread(target=appending.writer.is_stored, args=(1.0,))
            waiting.start()
            log.close()
            waiting.join()
            assert log.next_sequence == before + 1
        with closing(EventLog(tmp_path)) as log:
            assert log.get(before) is not None
            assert log.cut_bytes == 0
            assert not log.damage.places
