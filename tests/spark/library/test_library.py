"""Libraries on disk: whole or not there, and damage is reported in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from tamis.errors import LibraryError
from tamis.matching import Engine
from tamis.spark.library.ids import write_ids
from tamis.spark.library.library import Library, Version, newest_version
from tamis.spark.library.manifests import Shard, new_manifest
from tamis.spark.matching.shard_cache import ShardCache


def published(path: Path | str, ids: list[str]) -> Version:
    library = Library(path)
    with library.draft() as draft:
        engine = Engine()
        engine.add_many({"id": n, "filter": "price < 5"} for n in range(len(ids)))
        with draft.folder() as folder:
            engine.save(folder / "shard-0000.tamis")
            write_ids(folder / "shard-0000.ids.arrow", pa.array(ids, pa.string()))
            snapshot, names = (
                draft.keep(folder / f"shard-0000.{end}") for end in ("tamis", "ids.arrow")
            )
        shard = Shard(0, len(ids), snapshot, names, ("price",))
        manifest = new_manifest(
            mode="sql",
            schema=None,
            id_type="string",
            rows=len(ids),
            rejected=0,
            shards=[shard],
            key=None,
            buckets=0,
        )
        return library.publish(draft, manifest)


def test_versions_are_numbered_and_the_newest_is_taken(tmp_path: Path) -> None:
    assert published(tmp_path, ["a"]).number == 1
    assert published(tmp_path, ["a", "b"]).number == 2
    assert Library(tmp_path).versions() == [1, 2]
    assert newest_version(tmp_path).subscriptions == 2
    assert Library(tmp_path).version(1).ids().to_pylist() == ["a"]


def test_a_draft_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    library = Library(tmp_path)

    def fail() -> None:
        with library.draft() as draft, draft.folder() as folder:
            (folder / "half").write_text("a shard")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list((tmp_path / "versions").iterdir()) == []


def test_a_missing_library_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="there is no version in it; compile subscriptions"):
        newest_version(tmp_path / "nowhere")
    published(tmp_path, ["a"])
    with pytest.raises(LibraryError, match="there is no version 7 in it; it has 1"):
        Library(tmp_path).version(7)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    version = published(tmp_path, ["a"])
    version.check()
    (version.path / "shard-0000.tamis").unlink()
    with pytest.raises(LibraryError, match=r"shard-0000.tamis cannot be used: the file is missing"):
        version.check()


@pytest.mark.parametrize("name", ["shard-0000.tamis", "shard-0000.ids.arrow"])
def test_a_damaged_file_is_reported(name: str, tmp_path: Path) -> None:
    version = published(tmp_path, ["a"])
    data = bytearray((version.path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (version.path / name).write_bytes(data)
    with pytest.raises(
        LibraryError, match=f"{re.escape(name)} cannot be used: the file is damaged"
    ):
        version.check()


def test_a_damaged_manifest_is_reported(tmp_path: Path) -> None:
    version = published(tmp_path, ["a"])
    (version.path / "manifest.json").write_text('{"version": 1')
    with pytest.raises(LibraryError, match="the manifest is damaged"):
        newest_version(tmp_path)


def test_a_worker_keeps_shards_open_but_not_all_of_them(tmp_path: Path) -> None:
    versions = [published(tmp_path, ["a"] * size) for size in (1, 2, 3)]
    cache = ShardCache(capacity=2)

    def opened(version: Version) -> Engine:
        return cache.open(version.place, version.manifest.shards)[0].engine

    first, second = opened(versions[0]), opened(versions[1])
    assert opened(versions[0]) is first
    opened(versions[2])
    assert opened(versions[0]) is first
    assert opened(versions[1]) is not second


def test_a_shard_that_differs_from_the_manifest_is_reported(tmp_path: Path) -> None:
    version = published(tmp_path, ["a"])
    other = published(tmp_path, ["a", "b"])
    (shard,) = version.manifest.shards
    (other.path / shard.snapshot.name).replace(version.path / shard.snapshot.name)
    with pytest.raises(LibraryError, match="should hold 1 subscriptions, but holds 2"):
        ShardCache().open(version.place, [shard])
