"""Versions that go: the newest stay whole, in a folder and in a store, and nothing else does."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from seeds import seeds
from spark.library.test_changes import (
    base,
    by_the_oracle,
    drawn_changes,
    matched,
    one_after_another,
)
from spark.library.test_stores import URL, FolderAccess
from tamis.errors import LibraryError
from tamis.spark import Library, forget_versions
from tamis.spark.library.changes import apply_changes
from tamis.spark.library.manifests import LibraryFile
from tamis.spark.runtime.stores import ObjectStore

HOUR = 3600.0


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a library is: a folder, or a folder that is taken for a store."""
    monkeypatch.setenv("TAMIS_LIBRARY_CACHE", str(tmp_path / "cache"))
    if request.param == "folder":
        return str(tmp_path / "files")
    access = FolderAccess(tmp_path / "files")
    monkeypatch.setattr("tamis.spark.library.library.driver_access", lambda: access)
    for module in ("library", "store_library"):
        monkeypatch.setattr(f"tamis.spark.library.{module}.shared_access", lambda given: given)
    return URL


def grow(library: Library, known: dict[str, str], rng: Random) -> dict[str, str]:
    rows = drawn_changes(rng, known)
    apply_changes(library, rows, in_order=True)
    return one_after_another(known, rows)


def make_old(tmp_path: Path, hours: float) -> None:
    then = time.time() - hours * HOUR
    for path in (tmp_path / "files").rglob("*"):
        os.utime(path, (then, then))


@pytest.mark.parametrize("seed", seeds(2))
def test_what_is_kept_matches_as_before(seed: int, place: str, tmp_path: Path) -> None:
    rng = Random(seed)
    history = [{f"s{n}": f"price < {n % 12}" for n in range(8)}]
    library = base(place, history[0])
    for _ in range(6):
        history.append(grow(library, history[-1], rng))
    make_old(tmp_path, hours=48)
    before = size_of(tmp_path)
    forgotten = forget_versions(library, keep=2)
    assert library.versions() == [6, 7]
    assert forgotten.versions == [1, 2, 3, 4, 5]
    assert before - size_of(tmp_path) == forgotten.size > 0
    for number in (6, 7):
        assert matched(Library(place).version(number)) == by_the_oracle(history[number - 1])
    # The library goes on, and there is nothing more to forget.
    after = grow(library, history[-1], rng)
    assert matched(library.latest()) == by_the_oracle(after)
    assert library.versions() == [6, 7, 8]
    assert forget_versions(library, keep=3).versions == []


def size_of(tmp_path: Path) -> int:
    files = [path for path in (tmp_path / "files").rglob("*") if path.is_file()]
    states = {path.stat().st_ino: path.stat().st_size for path in files}
    return sum(states.values())


def test_a_version_that_was_just_replaced_stays(place: str, tmp_path: Path) -> None:
    """A job that began with it has yet to fetch or open some of its files."""
    library = base(place, {"a": "price < 1"})
    make_old(tmp_path, hours=48)
    for n in range(2, 5):
        apply_changes(library, [{"id": "a", "filter": f"price < {n}", "change": "update"}])
    before = matched(library.version(1))
    assert forget_versions(library, keep=1).versions == []
    assert matched(Library(place).version(1)) == before
    assert forget_versions(library, keep=1, replaced_for=0).versions == [1, 2, 3]
    assert matched(library.latest()) == by_the_oracle({"a": "price < 4"})


def test_two_may_forget_at_once(place: str, tmp_path: Path) -> None:
    library = base(place, {"a": "price < 1"})
    for n in range(2, 12):
        apply_changes(library, [{"id": "a", "filter": f"price < {n}", "change": "update"}])
    make_old(tmp_path, hours=48)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: forget_versions(Library(place), keep=1), range(4)))
    assert library.versions() == [11]
    assert matched(library.latest()) == by_the_oracle({"a": "price < 11"})


def test_what_is_not_ours_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs leave marks of folders in stores."""
    access = FolderAccess(tmp_path / "files")
    monkeypatch.setattr("tamis.spark.library.library.driver_access", lambda: access)
    for module in ("library", "store_library"):
        monkeypatch.setattr(f"tamis.spark.library.{module}.shared_access", lambda given: given)
    library = base(URL, {"a": "price < 1"})
    mark = tmp_path / "files" / "claims" / "00000001_$folder$"
    mark.write_bytes(b"")
    make_old(tmp_path, hours=48)
    forget_versions(library, keep=1)
    assert mark.exists()
    with pytest.raises(LibraryError, match="`grace` cannot be less than 43200 seconds in a store"):
        forget_versions(library, keep=1, grace=60)


def test_files_of_a_version_that_is_being_written_stay(place: str, tmp_path: Path) -> None:
    library = base(place, {"a": "price < 1"})
    make_old(tmp_path, hours=48)
    with library.draft() as draft, draft.folder() as folder:
        (folder / "shard").write_bytes(b"of the next version")
        file = draft.keep(folder / "shard")
        forget_versions(library, keep=1)
        assert draft.place.path(file).read_bytes() == b"of the next version"


@pytest.fixture
def in_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    access = FolderAccess(tmp_path / "files")
    monkeypatch.setenv("TAMIS_LIBRARY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tamis.spark.library.library.driver_access", lambda: access)
    for module in ("library", "store_library"):
        monkeypatch.setattr(f"tamis.spark.library.{module}.shared_access", lambda given: given)
    return Library(URL)


def kept(library: Library, data: bytes) -> LibraryFile:
    with library.draft() as draft, draft.folder() as folder:
        (folder / "shard").write_bytes(data)
        return draft.keep(folder / "shard")


def test_an_old_object_does_not_serve_a_new_version(
    in_store: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be removed between being found, or written anew, and being named by a manifest."""
    now = 1e9
    monkeypatch.setattr("tamis.spark.library.places.time", SimpleNamespace(time=lambda: now))
    file = kept(in_store, b"the same in two versions")
    assert kept(in_store, b"the same in two versions") == file
    now += 13 * HOUR
    again = kept(in_store, b"the same in two versions")
    assert again.sha256 == file.sha256
    assert again.name != file.name


def test_what_is_published_while_others_are_forgotten_stays(
    in_store: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version has the files of one that is being forgotten."""
    filters = [{"a": f"price < {n}"} for n in (1, 2)]
    library = [base(URL, one) for one in filters][-1]
    make_old(tmp_path, hours=48)
    later = time.time() + 13 * HOUR
    monkeypatch.setattr("tamis.spark.library.places.time", SimpleNamespace(time=lambda: later))
    delete, published = ObjectStore.delete, list[Library]()

    def delete_late(store: ObjectStore, name: str) -> None:
        if name.startswith("files/") and not published:
            published.append(base(URL, filters[0]))
        delete(store, name)

    monkeypatch.setattr(ObjectStore, "delete", delete_late)
    forget_versions(library, keep=1)
    assert published
    in_store.latest().check()
    assert matched(in_store.latest()) == by_the_oracle(filters[0])


def test_a_damaged_object_is_written_again(in_store: Library, tmp_path: Path) -> None:
    """As the sentence says that one reads who needs it; its size does not show that."""
    file = kept(in_store, b"a shard")
    place = tmp_path / "files" / file.name
    place.write_bytes(b"b shard")
    assert kept(in_store, b"a shard") == file
    assert place.read_bytes() == b"a shard"


def test_a_manifest_that_cannot_be_read_stops_it(place: str, tmp_path: Path) -> None:
    library = base(place, {"a": "price < 1"})
    apply_changes(library, [{"id": "b", "filter": "price < 2", "change": "insert"}])
    make_old(tmp_path, hours=48)
    [newest] = (tmp_path / "files").glob("versions/00000002/manifest.json")
    newest.write_text("{")
    before = sorted((tmp_path / "files").rglob("*"))
    if place == URL:
        with pytest.raises(LibraryError, match="the manifest is damaged"):
            forget_versions(library, keep=1)
        assert sorted((tmp_path / "files").rglob("*")) == before


def test_the_newest_version_always_stays(tmp_path: Path) -> None:
    with pytest.raises(
        LibraryError, match="its newest version always stays, so `keep` cannot be 0"
    ):
        forget_versions(base(tmp_path, {"a": "price < 1"}), keep=0)
