"""The test disk itself: it keeps what was synced, and loses, tears and mixes the rest."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from storage import sqlite_vfs
from storage.disk import Disk, RandomFaults
from storage.samples import subscription
from tamis.errors import StorageError, StorageFullError
from tamis.storage import NewRecord, PublisherTail, StateStore, Storage

needs_vfs = pytest.mark.skipif(
    not sqlite_vfs.is_available(), reason="sqlite3 is linked without a shared library"
)


@pytest.fixture
def disk(quick_path: Path) -> Iterator[Disk]:
    disk = Disk(quick_path / "disk")
    yield disk
    disk.unplug()
    assert not sqlite_vfs.failures


def images(disk: Disk, number: int = 100) -> Iterator[Path]:
    for seed in range(number):
        target = disk.folder.with_name(f"image {seed}")
        disk.image(Random(seed), target)
        yield target


def test_what_was_synced_is_in_every_image_and_the_rest_in_some(disk: Disk) -> None:
    file = disk.open(disk.folder / "a", os.O_RDWR | os.O_CREAT)
    assert {(target / "a").exists() for target in images(disk, 20)} == {True, False}
    folder = disk.open(disk.folder, os.O_RDONLY)
    disk.sync(folder)
    disk.pwrite(file, b"a" * 1000, 0)
    disk.sync(file)
    disk.pwrite(file, b"b" * 1000, 500)
    disk.pwrite(file, b"c" * 100, 0)
    found = [(target / "a").read_bytes() for target in images(disk, 200)]
    assert {data[100:500] for data in found} == {b"a" * 400}
    assert {len(data) for data in found} >= {1000, 1500}
    whole = b"c" * 100 + b"a" * 400 + b"b" * 1000
    assert whole in found
    assert b"a" * 1000 in found
    assert len(set(found)) > 20
    disk.sync(file)
    assert {(target / "a").read_bytes() for target in images(disk, 20)} == {whole}


def test_a_name_is_there_before_or_after_a_rename(disk: Disk) -> None:
    file = disk.open(disk.folder / "a", os.O_RDWR | os.O_CREAT)
    disk.pwrite(file, b"x", 0)
    disk.sync(file)
    disk.sync(disk.open(disk.folder, os.O_RDONLY))
    disk.rename(disk.folder / "a", disk.folder / "b")
    found = [{path.name for path in target.iterdir()} for target in images(disk, 50)]
    assert {"a"} in found
    assert {"b"} in found
    assert all(len(names) == 1 for names in found)


def test_a_failed_sync_forgets_what_it_did_not_write(disk: Disk) -> None:
    file = disk.open(disk.folder / "a", os.O_RDWR | os.O_CREAT)
    disk.sync(disk.open(disk.folder, os.O_RDONLY))
    lost = 0
    for _ in range(20):
        disk.pwrite(file, b"x" * 100, 0)
        disk.plan = ["fail"]
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync(file)
        disk.sync(file)
        (content,) = {(target / "a").read_bytes() for target in images(disk, 5)}
        lost += content != b"x" * 100
        disk.truncate(file, 0)
        disk.sync(file)
    assert 0 < lost < 20


@needs_vfs
def test_sqlite_writes_to_the_disk(disk: Disk) -> None:
    state = StateStore(disk.folder / "state.db", files=disk)
    disk.sync(disk.open(disk.folder, os.O_RDONLY))
    state.add_subscription(subscription("a"))
    state.commit_matches(7, [(1, 7)], {"p": PublisherTail(7)})
    matched = set()
    for target in images(disk, 40):
        found = StateStore(target / "state.db")
        assert [one.name for one in found.subscriptions()] == ["a"]
        assert (found.damaged, found.lost_changes) == ((), 0)
        matched.add(found.matched_up_to)
        found.close()
    assert matched == {0, 7}
    state.close()
    for target in images(disk, 5):
        found = StateStore(target / "state.db")
        assert found.matched_up_to == 7
        found.close()


@needs_vfs
def test_sqlite_finds_the_disk_full_and_failing(disk: Disk) -> None:
    state = StateStore(disk.folder / "state.db", files=disk)
    disk.is_full = True
    with pytest.raises(StorageFullError):
        state.add_subscription(subscription("a"))
    disk.is_full = False
    disk.fault = RandomFaults(Random(1), sync=1.0)
    with pytest.raises(StorageError, match="disk I/O error"):
        state.add_subscription(subscription("a"))
    disk.fault = lambda operation, _: errno.EIO if operation == "write" else 0
    with pytest.raises(StorageError, match="writing it again after an error failed"):
        state.add_subscription(subscription("a"))
    disk.fault = lambda *_: 0
    state.add_subscription(subscription("a"))
    state.close()


@needs_vfs
def test_a_seed_writes_the_same_bytes(quick_path: Path) -> None:
    found = []
    for name in ("first", "second"):
        disk = Disk(quick_path / name)
        with Storage.open(disk.folder, files=disk, random=Random(7).randbytes) as store:
            store.log.append([NewRecord("p", 1, 0, b"x")])
            found.append([path.name for path in (disk.folder / "log").iterdir()])
        disk.unplug()
    assert found[0] == found[1]


@needs_vfs
def test_other_files_of_sqlite_are_left_alone(disk: Disk, quick_path: Path) -> None:
    connection = sqlite3.connect(f"file:{quick_path}/other.db?vfs={disk.vfs}", uri=True)
    connection.execute("CREATE TABLE a (b)")
    connection.close()
    assert "other.db" not in disk.root.now
