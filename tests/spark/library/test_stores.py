"""Libraries in stores without rename: published once, fetched once, and never half."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyarrow import fs

from tamis.errors import LibraryError, TamisError
from tamis.spark.files.splits import absolute_path
from tamis.spark.library import store_library
from tamis.spark.library.file_cache import FileCache
from tamis.spark.library.library import Library
from tamis.spark.library.manifests import LibraryFile, VersionManifest, new_manifest
from tamis.spark.library.places import Draft, LibraryPlace
from tamis.spark.library.store_library import StoreVersions
from tamis.spark.runtime import stores
from tamis.spark.runtime.addresses import is_remote
from tamis.spark.runtime.records import record_folder
from tamis.spark.runtime.stores import BYTES_PER_READ, ObjectStore, StoreAccess, StoredObject
from waiting import eventually

URL = "s3a://bucket/library"


class FolderAccess(StoreAccess):
    """Opens a folder as if it were a store."""

    def __init__(self, folder: Path) -> None:
        super().__init__({"folder": str(folder)})
        self.folder = folder

    def file_system(self, *_: object) -> tuple[fs.FileSystem, str]:
        return fs.LocalFileSystem(), str(self.folder)


class CountingStore(ObjectStore):
    """Counts how often objects are read."""

    reads = 0
    lists = 0

    def chunks(self, name: str) -> Iterator[bytes]:
        CountingStore.reads += 1
        return super().chunks(name)

    def objects(self, folder: str) -> list[StoredObject]:
        self.lists += 1
        return super().objects(folder)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    CountingStore.reads = 0
    return CountingStore(URL, FolderAccess(tmp_path / "store"))


def put(store: ObjectStore, data: bytes) -> LibraryFile:
    digest = hashlib.sha256(data).hexdigest()
    store.write(f"files/{digest}", data)
    return LibraryFile(f"files/{digest}", len(data), digest)


def manifest(rows: int) -> VersionManifest:
    return new_manifest(
        mode="sql",
        schema=None,
        id_type="string",
        rows=rows,
        rejected=0,
        shards=[],
        key=None,
        buckets=0,
    )


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("/data/library", False),
        ("library", False),
        ("file:///data/library", False),
        (Path("/data/library"), False),
        ("file:/data/library", False),
        ("FILE:/data/library", False),
        ("c:/data/library", False),
        ("data/a:/b", False),
        ("dbfs:/mnt/library", True),
        ("hdfs:/library", True),
        ("s3a://[x", True),
        ("s3a://bucket/library", True),
        ("hdfs://node:8020/library", True),
        ("abfss://container@account.dfs.core.windows.net/library", True),
    ],
)
def test_addresses_of_stores_are_recognised(path: str | Path, remote: bool) -> None:
    assert is_remote(path) is remote


@pytest.mark.parametrize(
    "path", ["/data/x", "file:/data/x", "file:///data/x", "file://localhost/data/x", "File:/data/x"]
)
def test_a_path_of_this_machine_may_have_its_scheme(path: str) -> None:
    """Otherwise it would be a folder below that of the process."""
    assert Library(path).location == record_folder(path).location == "/data/x"
    assert str(absolute_path(path)) == "/data/x"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("file://data/x", "file://data/x names the machine 'data'; a path of this machine has thr"),
        ("dbfs:/mnt/x", "Arrow does not reach such a store: Unrecognized filesystem type in URI"),
        ("hdfs:/x", "the address has one slash after hdfs:, which needs two, and a bucket or"),
        (Path("s3a://bucket/x"), "one slash after s3a:.* as a text, since a Path joins slashes"),
        ("gs://bucket/x#eu", "Arrow does not read an address after #; choose another name"),
        ("s3a://[x", r"s3a://\[x cannot be used: '\[x' cannot be the name of a bucket"),
        ("s3a:///x", "'' cannot be the name of a bucket"),
    ],
)
def test_what_is_no_address_is_one_sentence(path: str | Path, sentence: str) -> None:
    with pytest.raises(TamisError, match=sentence) as found:
        Library(path).versions()
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["lib#eu", "lib?x=1", "a%20b", "a b", "é", "run[1]"])
def test_names_in_a_bucket_are_taken_as_they_are(name: str) -> None:
    """As Spark takes them: what it wrote to one of them could not be found in another."""
    access = StoreAccess({"fs.s3a.endpoint": "http://127.0.0.1:1"})
    _, place = access.file_system(f"s3a://bucket/{name}/")
    assert place == f"bucket/{name}"


def test_a_store_that_arrow_does_not_know_is_reported() -> None:
    with pytest.raises(LibraryError, match=r"ftp://x/y cannot be used: Arrow does not reach such"):
        ObjectStore("ftp://x/y")


@pytest.mark.parametrize(
    "url",
    [
        "s3a://key:hidden@bucket/library",
        "abfs://:hidden@account.blob.core.windows.net/c/library",
        "abfss://c@account.dfs.core.windows.net/library?sv=1&sig=hidden",
        "abfss://c@account.dfs.core.windows.net/library?sv=1&SIG=hidden",
        "abfss://c@account.dfs.core.windows.net/library?tenant_id=b&client_secret=hidden",
        "s3a://bucket/library?X-Amz-Signature=hidden",
        "s3a://hidden@bucket/library",
        "gs://bucket/library?access_token=hidden",
    ],
)
def test_an_address_with_a_secret_is_refused(url: str) -> None:
    """It would be in manifests, checkpoints, plans and messages."""
    with pytest.raises(LibraryError, match="the address holds a secret; give it to Spark") as found:
        ObjectStore(url)
    assert "hidden" not in f"{found.value!r} {found.value}"


@pytest.mark.parametrize("endpoint", ["s3.amazonaws.com", "https://s3.amazonaws.com"])
def test_the_central_endpoint_stands_for_that_of_the_region(endpoint: str) -> None:
    """Spark 3.5 has it without being told, and Arrow would look for all buckets there."""
    access = StoreAccess({"fs.s3a.endpoint": endpoint, "fs.s3a.endpoint.region": "eu-west-1"})
    found = access.s3_options("ours")
    assert found["region"] == "eu-west-1"
    assert "endpoint_override" not in found


def test_options_of_a_bucket_come_before_those_of_all() -> None:
    options = {"fs.s3a.access.key": "all", "fs.s3a.secret.key": "secret"}
    options |= {"fs.s3a.bucket.ours.access.key": "ours", "fs.s3a.bucket.ours.endpoint": "x:1"}
    access = StoreAccess(options)
    assert access.s3_options("other") == {"access_key": "all", "secret_key": "secret"}
    assert access.s3_options("ours") == {
        "access_key": "ours",
        "secret_key": "secret",
        "endpoint_override": "x:1",
    }


def test_options_never_show() -> None:
    access = StoreAccess({"fs.s3a.secret.key": "hidden", "fs.s3a.access.key": "hidden too"})
    place = LibraryPlace(URL, access)
    assert "hidden" not in f"{access!r} {access} {place!r} {Draft(place)!r}"


# --- versions ------------------------------------------------------------------------------------


def _number(published: VersionManifest | None) -> int:
    assert published is not None
    return published.version


def test_changes_follow_the_version_that_they_change(store: CountingStore) -> None:
    versions = StoreVersions(store)
    for rows in (1, 2):
        versions.publish(versions.draft(), manifest(rows))
    assert versions.publish(versions.draft(), manifest(3), after=1) is None
    assert _number(versions.publish(versions.draft(), manifest(3), after=2)) == 3
    assert sorted(versions.numbers()) == [1, 2, 3]


CLAIM = "claims/00000002/somebody"


def test_changes_wait_for_who_claimed_the_next_number(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = StoreVersions(store)
    versions.publish(versions.draft(), manifest(1))
    store.write(CLAIM, b"claimed")
    monkeypatch.setattr(store_library, "PATIENCE_SECONDS", 0.1)
    with pytest.raises(LibraryError, match=r"somebody publishes version 2, or died .* 10 minutes"):
        versions.publish(versions.draft(), manifest(2), after=1)
    assert store.names("claims/00000003") == []
    monkeypatch.setattr(store_library, "PATIENCE_SECONDS", 60)
    with ThreadPoolExecutor(1) as pool:
        lists = store.lists
        waiting = pool.submit(versions.publish, versions.draft(), manifest(2), after=1)
        eventually(lambda: store.lists > lists + 3)
        assert not waiting.done()
        store.write("versions/00000002/manifest.json", b"{}")
        assert waiting.result() is None
    assert _number(versions.publish(versions.draft(), manifest(3), after=2)) == 3


def test_changes_pass_the_claim_of_a_dead_process(store: CountingStore, tmp_path: Path) -> None:
    """Otherwise a feed whose driver died at the wrong moment could never go on."""
    versions = StoreVersions(store)
    versions.publish(versions.draft(), manifest(1))
    store.write(CLAIM, b"claimed")
    then = time.time() - 700
    os.utime(tmp_path / "store" / CLAIM, (then, then))
    assert _number(versions.publish(versions.draft(), manifest(3), after=1)) == 3
    assert versions.publish(versions.draft(), manifest(3), after=1) is None


def test_who_is_late_after_its_claim_does_not_publish(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = StoreVersions(store)
    monkeypatch.setattr(store_library, "CLAIM_SECONDS", -1.0)
    with pytest.raises(LibraryError, match="others may take for dead by now; compile again"):
        versions.publish(versions.draft(), manifest(1))
    assert versions.numbers() == []


class UnevenStore(ObjectStore):
    """Takes now and then longer."""

    def write(self, name: str, data: bytes | Path) -> None:
        super().write(name, data)
        self._pause()

    def objects(self, folder: str) -> list[StoredObject]:
        self._pause()
        found = super().objects(folder)
        self._pause()
        return found

    def delete(self, name: str) -> None:
        self._pause()
        super().delete(name)

    def _pause(self) -> None:
        time.sleep(Random().choice((0, 0, 0.001, 0.004)))  # so that others come between


def test_changes_and_compilations_at_once_overwrite_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = FolderAccess(tmp_path)
    monkeypatch.setattr(store_library, "_POLL_SECONDS", 0.001)

    def publish(rows: int) -> int:
        versions = StoreVersions(UnevenStore(URL, access))
        while rows % 3:
            newest = max(versions.numbers(), default=0)
            if named := versions.publish(versions.draft(), manifest(rows), newest):
                return named.version
        return _number(versions.publish(versions.draft(), manifest(rows)))

    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(publish, range(1, 10)))
    found = StoreVersions(ObjectStore(URL, access))
    assert len(set(numbers)) == 9
    for rows, number in enumerate(numbers, 1):
        assert f'"rows": {rows},'.encode() in found.manifest(number)


class HalfWay(Exception):  # noqa: N818
    """The process is gone."""


def test_a_file_system_never_shows_half_of_an_object(store: CountingStore, tmp_path: Path) -> None:
    """HDFS and folders show a file while it is written, and keep it if the writer dies."""
    big = tmp_path / "big"
    big.write_bytes(bytes(2 * BYTES_PER_READ))
    store.write("files/a", b"before")

    def parts(path: Path) -> Iterator[bytes]:
        yield b"half of " + path.name.encode()
        assert store.read("files/a") == b"before"
        assert store.read("files/b") is None
        raise HalfWay

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_parts", parts)
        for name in ("files/a", "files/b"):
            with pytest.raises(HalfWay):
                store.write(name, big)
    assert store.names("") == ["files/a"]
    assert store.read("files/a") == b"before"
    store.write("files/a", big)
    assert store.size("files/a") == 2 * BYTES_PER_READ


def test_a_manifest_without_data_is_no_version(store: CountingStore) -> None:
    """Azure shows an object, empty, before its data is committed."""
    versions = StoreVersions(store)
    versions.publish(versions.draft(), manifest(1))
    store.write("versions/00000002/manifest.json", b"")
    assert versions.numbers() == [1]


def test_a_version_is_there_when_its_manifest_is(store: CountingStore) -> None:
    versions = StoreVersions(store)
    draft = versions.draft()
    put(store, b"a shard")
    assert versions.numbers() == []
    assert _number(versions.publish(draft, manifest(1))) == 1
    assert _number(versions.publish(versions.draft(), manifest(2))) == 2
    assert sorted(versions.numbers()) == [1, 2]
    assert b'"rows": 2' in versions.manifest(2)
    with pytest.raises(FileNotFoundError):
        versions.manifest(3)


def test_no_two_compilations_publish_the_same_number(tmp_path: Path) -> None:
    access = FolderAccess(tmp_path)

    def publish(rows: int) -> int:
        versions = StoreVersions(ObjectStore(URL, access))
        return _number(versions.publish(versions.draft(), manifest(rows)))

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(publish, range(1, 41)))
    assert len(set(numbers)) == 40
    found = StoreVersions(ObjectStore(URL, access))
    for rows, number in enumerate(numbers, 1):
        assert f'"rows": {rows},'.encode() in found.manifest(number)


# --- the cache -----------------------------------------------------------------------------------


def test_a_file_is_fetched_once(store: CountingStore, tmp_path: Path) -> None:
    file = put(store, b"a shard" * 1000)
    cache = FileCache(tmp_path / "cache")
    path = cache.path(store, file)
    assert path.read_bytes() == b"a shard" * 1000
    assert cache.path(store, file) == FileCache(tmp_path / "cache").path(store, file) == path
    assert CountingStore.reads == 1


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_copy_is_fetched_again(damage: str, store: CountingStore, tmp_path: Path) -> None:
    file = put(store, b"a shard" * 1000)
    path = FileCache(tmp_path / "cache").path(store, file)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    damaged = {"flip": bytes(data), "cut": bytes(data[:50]), "empty": b""}
    path.write_bytes(damaged[damage])
    again = FileCache(tmp_path / "cache").path(store, file)
    assert again.read_bytes() == b"a shard" * 1000


@pytest.mark.parametrize("data", [b"", b"a shar", b"b shard"])
def test_a_damaged_object_is_reported(data: bytes, store: CountingStore, tmp_path: Path) -> None:
    file = put(store, b"a shard")
    store.write(file.name, data)
    cache = FileCache(tmp_path / "cache")
    with pytest.raises(LibraryError, match=r"s3a://.* cannot be used: the object is damaged: it"):
        cache.path(store, file)
    assert [one.name for one in cache.folder.iterdir()] == [f"{file.sha256}.lock"]


def test_a_missing_object_is_reported(store: CountingStore, tmp_path: Path) -> None:
    file = put(store, b"a shard")
    (tmp_path / "store" / file.name).unlink()
    with pytest.raises(LibraryError, match="there is no such object or bucket"):
        FileCache(tmp_path / "cache").path(store, file)


def test_a_half_copy_of_a_dead_process_does_no_harm(store: CountingStore, tmp_path: Path) -> None:
    file = put(store, b"a shard")
    cache = FileCache(tmp_path / "cache")
    cache.folder.mkdir()
    half = cache.folder / f"{file.sha256}.0123.part"
    half.write_bytes(b"a sh")
    # Every file that was ever fetched had a lock.
    old = cache.folder / f"{'0' * 64}.lock"
    old.write_bytes(b"")
    for path in (half, old):
        os.utime(path, (0, 0))
    assert cache.path(store, file).read_bytes() == b"a shard"
    assert not half.exists()
    assert not old.exists()


SLOW_FETCH = """
import sys
from tamis.spark.library.file_cache import FileCache
from tamis.spark.library.manifests import LibraryFile
from tamis.spark.runtime.stores import ObjectStore

class SlowStore(ObjectStore):
    def __init__(self): pass
    def address(self, name): return name
    def chunks(self, name):
        yield b"a sh"
        print("half", flush=True)
        sys.stdin.read()

folder, name, size, digest = sys.argv[1:]
FileCache(Path(folder)).path(SlowStore(), LibraryFile(name, int(size), digest))
"""


def test_a_process_killed_in_mid_fetch_leaves_no_harm(store: CountingStore, tmp_path: Path) -> None:
    file = put(store, b"a shard")
    program = "from pathlib import Path\n" + SLOW_FETCH
    arguments = [str(tmp_path / "cache"), file.name, str(file.size), file.sha256]
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.kill()
    assert list((tmp_path / "cache").glob("*.part"))
    assert FileCache(tmp_path / "cache").path(store, file).read_bytes() == b"a shard"


def test_processes_that_need_the_same_file_fetch_it_once(
    store: CountingStore, tmp_path: Path
) -> None:
    file = put(store, bytes(10_000_000))

    def fetched(_: int) -> bool:
        return FileCache(tmp_path / "cache").path(store, file).stat().st_size == file.size

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(fetched, range(6)))
    assert CountingStore.reads == 1


def test_the_least_recently_used_copies_make_room(store: CountingStore, tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", size=250)
    files = [put(store, bytes([n]) * 100) for n in range(3)]
    first, second = (cache.path(store, file) for file in files[:2])
    os.utime(first, (1, 1))
    os.utime(second, (2, 2))
    cache.path(store, files[0])
    third = cache.path(store, files[2])
    assert first.exists()
    assert third.exists()
    assert not second.exists()


def test_copies_that_are_about_to_be_mapped_stay(store: CountingStore, tmp_path: Path) -> None:
    """A shard has several files, which may be more than the cache may hold."""
    cache = FileCache(tmp_path / "cache", size=1)
    files = [put(store, bytes([n]) * 100) for n in range(2)]
    assert all(path.exists() for path in [cache.path(store, file) for file in files])


def test_what_is_not_a_copy_stays(store: CountingStore, tmp_path: Path) -> None:
    """People may name a folder that has files of theirs."""
    cache = FileCache(tmp_path / "cache", size=1)
    names = ["poetry.lock", "film.part", "thesis", "Makefile", "0" * 63, f"{'0' * 64}.txt"]
    (cache.folder / "folder").mkdir(parents=True)
    (cache.folder / ("a" * 64)).mkdir()
    for name in names:
        (cache.folder / name).write_text("precious")
    for path in cache.folder.iterdir():
        os.utime(path, (0, 0))
    assert cache.path(store, put(store, b"a shard")).exists()
    assert {*names, "folder", "a" * 64} <= {path.name for path in cache.folder.iterdir()}


def test_a_copy_that_is_being_checked_stays(
    store: CountingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process computes a checksum before the first use, while another makes room."""
    first, second = (put(store, bytes([n]) * 100) for n in range(2))
    path = FileCache(tmp_path / "cache").path(store, first)
    os.utime(path, (0, 0))
    digest = hashlib.file_digest

    def slow_digest(data: Any, kind: str) -> Any:
        monkeypatch.setattr(hashlib, "file_digest", digest)
        FileCache(tmp_path / "cache", size=1).path(store, second)
        return digest(data, kind)

    monkeypatch.setattr(hashlib, "file_digest", slow_digest)
    found = FileCache(tmp_path / "cache").path(store, first)
    assert found.read_bytes() == bytes(100)
    # Nor does it go right after that.
    (tmp_path / "cache" / second.sha256).unlink()
    FileCache(tmp_path / "cache", size=1).path(store, second)
    assert found.exists()


def test_a_copy_that_vanishes_is_fetched_again(
    store: CountingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders for temporary files are cleaned by others."""
    file = put(store, b"a shard")
    path = FileCache(tmp_path / "cache").path(store, file)
    open_ = Path.open

    def open_late(self: Path, mode: str = "r") -> Any:
        if self == path:
            self.unlink(missing_ok=True)
        return open_(self, mode)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_late)
        assert FileCache(tmp_path / "cache").path(store, file).exists()
    digest = hashlib.file_digest

    def digest_early(data: Any, kind: str) -> Any:
        path.unlink(missing_ok=True)
        return digest(data, kind)

    monkeypatch.setattr(hashlib, "file_digest", digest_early)
    assert FileCache(tmp_path / "cache").path(store, file).exists()


@pytest.mark.parametrize("has_copy", [False, True])
def test_a_folder_of_somebody_else_is_not_used(
    has_copy: bool, store: CountingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(store, b"a shard")
    if has_copy:
        FileCache(tmp_path / "cache").path(store, file)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(LibraryError, match="belongs to another user; name one in TAMIS_LIBRARY_C"):
        FileCache(tmp_path / "cache").path(store, file)


def test_the_environment_names_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAMIS_LIBRARY_CACHE", str(tmp_path))
    assert FileCache.of_environment().folder == tmp_path
    monkeypatch.setenv("TAMIS_LIBRARY_CACHE_BYTES", "many")
    with pytest.raises(LibraryError, match="TAMIS_LIBRARY_CACHE_BYTES should be a number, but"):
        FileCache.of_environment()
