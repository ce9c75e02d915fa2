"""Changes of a library: what all subscriptions together would give, at the price of the changes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from seeds import seeds
from spark.contract import Sub, compiled
from tamis.errors import FilterError
from tamis.languages import parse
from tamis.spark import Library, Version, change_subscriptions, match
from tamis.spark.library import changes
from tamis.spark.library.changes import ChangeRow, apply_changes
from tamis.spark.library.library import FolderVersions
from tamis.spark.library.manifests import new_manifest
from tamis.spark.library.shard_builder import ShardBuilder, ShardOptions
from tamis.spark.matching.shard_cache import ShardCache

EVENTS = [{"price": n, "symbol": "ABC"[n % 3]} for n in range(12)]
TYPES = "id string, filter string, change string"


def base(path: Path | str, filters: dict[str, str], shards: int = 2) -> Library:
    """Compile subscriptions without Spark."""
    library = Library(path)
    with library.draft() as draft:
        builders = [
            ShardBuilder(ShardOptions(draft, None, "sql", "string"), n) for n in range(shards)
        ]
        for place, (id_, text) in enumerate(filters.items()):
            row = {"id": id_, "filter": text}
            assert builders[place % shards].add(row, place, place)
        built = [builder.write().shard for builder in builders]
        manifest = new_manifest(
            mode="sql",
            schema=None,
            id_type="string",
            rows=len(filters),
            rejected=0,
            shards=built,
            key=None,
            buckets=0,
        )
        library.publish(draft, manifest)
    return library


def matched(version: Version) -> list[list[str]]:
    """Return what each event matches, as a worker finds it."""
    version.check()
    found: list[list[str]] = [[] for _ in EVENTS]
    for shard in ShardCache().open(version.place, version.manifest.shards):
        rows, numbers = shard.engine.match_batch(pa.Table.from_pylist(EVENTS)).numbers()
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            found[row].append(shard.ids[number].as_py())
    return [sorted(ids) for ids in found]


def by_the_oracle(filters: dict[str, str]) -> list[list[str]]:
    parsed = {id_: parse(text) for id_, text in filters.items()}
    return [sorted(id_ for id_, f in parsed.items() if f.matches(event)) for event in EVENTS]


def drawn_filter(rng: Random) -> str:
    return rng.choice(
        [f"price < {rng.randrange(12)}", f'symbol = "{rng.choice("ABC")}"', "price <<"]
    )


def drawn_changes(rng: Random, known: dict[str, str]) -> list[ChangeRow]:
    ids = [*rng.sample(sorted(known), min(len(known), rng.choice((0, 1, 5))))]
    ids += [f"n{rng.randrange(40)}" for _ in range(rng.choice((0, 0, 1, 20)))]
    kinds = ["insert", "update", "delete"]
    return [{"id": i, "filter": drawn_filter(rng), "change": rng.choice(kinds)} for i in ids]


def applied(known: dict[str, str], rows: list[ChangeRow]) -> tuple[dict[str, str], int]:
    """Return the subscriptions after changes, and how many were rejected: the reference."""
    after, seen, rejected = dict(known), set(), 0
    for row in rows:
        is_wrong = row["id"] not in known if row["change"] == "delete" else "<<" in row["filter"]
        if row["id"] in seen or is_wrong:
            rejected += 1
        elif row["change"] == "delete":
            del after[row["id"]]
        else:
            after[row["id"]] = row["filter"]
        seen.add(row["id"])
    return after, rejected


def compare(path: Path, rng: Random, rounds: int) -> int:
    known = {f"s{n}": f"price < {n % 12}" for n in range(rng.randrange(20))}
    library = base(path, known, shards=rng.choice((1, 2)))
    for _ in range(rounds):
        rows = drawn_changes(rng, known)
        after, rejected = applied(known, rows)
        report = apply_changes(library, rows)
        assert report.changes == sum(report[2:6])
        assert report.rejected == report.version.rejected_rows().num_rows == rejected
        assert report.version.subscriptions == len(after)
        assert matched(report.version) == by_the_oracle(after)
        known = after
    return library.latest().number


@pytest.mark.parametrize("seed", seeds(6))
def test_a_changed_library_matches_as_a_new_one(seed: int, tmp_path: Path) -> None:
    compare(tmp_path, Random(seed), rounds=15)


def test_shards_with_the_same_filters_have_ids_of_their_own(tmp_path: Path) -> None:
    """Their snapshots are the same file, since a snapshot has numbers for ids."""
    filters = {"a": "price < 5", "b": "price < 5"}
    version = base(tmp_path, filters, shards=2).latest()
    first, second = version.manifest.shards
    assert first.snapshot.sha256 == second.snapshot.sha256
    assert matched(version) == by_the_oracle(filters)


@pytest.mark.slow
def test_more_than_a_thousand_changed_versions(tmp_path: Path) -> None:
    versions = sum(compare(tmp_path / str(seed), Random(seed), 30) for seed in range(40))
    print(f"\n{versions:,} versions, 0 differences")


def one_after_another(known: dict[str, str], rows: list[ChangeRow]) -> dict[str, str]:
    """Return the subscriptions after changes of which each sees those before it."""
    after = dict(known)
    for row in rows:
        if row["change"] == "delete":
            after.pop(row["id"], None)
        elif "<<" not in row["filter"]:
            after[row["id"]] = row["filter"]
    return after


@pytest.mark.parametrize("seed", seeds(4))
def test_changes_in_order_leave_what_they_leave_one_by_one(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    known = {f"s{n}": f"price < {n % 12}" for n in range(4)}
    library = base(tmp_path, known)
    for _ in range(15):
        rows = [
            {
                "id": rng.choice(("s0", "s1", "n0", "n1", "n2")),
                "filter": drawn_filter(rng),
                "change": rng.choice(("insert", "update", "delete")),
            }
            for _ in range(rng.randrange(1, 9))
        ]
        known = one_after_another(known, rows)
        report = apply_changes(library, rows, in_order=True)
        assert report.changes == len(rows) == sum(report[2:7])
        assert report.rejected == report.version.rejected_rows().num_rows
        assert matched(report.version) == by_the_oracle(known)


def test_shards_of_changes_stay_few(tmp_path: Path) -> None:
    library = base(tmp_path, {f"s{n}": "price < 5" for n in range(50)})
    for n in range(60):
        report = apply_changes(
            library, [{"id": f"n{n}", "filter": "price < 3", "change": "insert"}]
        )
    assert report.version.subscriptions == 110
    assert len(report.version.manifest.shards) <= 6


def test_mistakes_are_rejected_and_change_nothing(tmp_path: Path) -> None:
    library = base(tmp_path, {"a": "price < 5", "b": "price < 7"})
    rows: list[ChangeRow] = [
        {"id": "a", "filter": "price <<", "change": "update"},
        {"id": "c", "filter": None, "change": "delete"},
        {"id": "b", "filter": "price < 1", "change": "remove"},
        {"id": "d", "filter": "price < 1", "change": "insert"},
        {"id": "d", "filter": "price < 2", "change": "insert"},
        {"id": None, "filter": "price < 2", "change": "insert"},
    ]
    report = apply_changes(library, rows)
    assert (report.inserted, report.updated, report.deleted, report.rejected) == (1, 0, 0, 5)
    reasons = {row["row"]: row["reason"] for row in report.version.rejected_rows().to_pylist()}
    assert reasons.keys() == {1, 2, 3, 5, 6}
    assert reasons[2] == "there is no subscription 'c' to delete"
    assert reasons[3] == "the change 'remove' is none of insert, update, delete"
    assert reasons[5] == "the id 'd' is already that of row 4"
    expected = by_the_oracle({"a": "price < 5", "b": "price < 7", "d": "price < 1"})
    assert matched(report.version) == expected


def test_changes_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    library = base(tmp_path, {"s": "price < 5"})

    def change(n: int) -> None:
        apply_changes(
            Library(tmp_path), [{"id": f"n{n}", "filter": "price < 3", "change": "insert"}]
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(8)))
    assert library.latest().subscriptions == 9
    assert library.versions() == list(range(1, 10))


def test_a_version_that_came_between_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = base(tmp_path, {"s": "price < 5"})
    publish, between = (
        FolderVersions.publish,
        [{"id": "x", "filter": "price < 3", "change": "insert"}],
    )

    def late(self: FolderVersions, *arguments: Any) -> Any:
        monkeypatch.undo()
        apply_changes(Library(tmp_path), between)
        return publish(self, *arguments)

    monkeypatch.setattr(FolderVersions, "publish", late)
    apply_changes(library, [{"id": "y", "filter": "price < 3", "change": "insert"}])
    assert sorted(library.latest().ids().to_pylist()) == ["s", "x", "y"]


def test_files_are_shared_with_the_version_before(tmp_path: Path) -> None:
    library = base(tmp_path, {f"s{n}": "price < 5" for n in range(9)})
    before = library.latest()
    after = apply_changes(library, [{"id": "s1", "filter": "", "change": "delete"}]).version
    (old, _), (new, *_) = before.manifest.shards, after.manifest.shards
    assert old.snapshot == new.snapshot
    assert after.file(new.snapshot).samefile(before.file(old.snapshot))


def test_changes_in_a_table(spark: SparkSession, tmp_path: Path) -> None:
    subs = [Sub(f"s{n}", f'symbol = "{"ABC"[n % 3]}" and price < {n}') for n in range(20)]
    compiled(spark, subs, tmp_path, key="symbol", shards=2)
    rows = [("s1", None, "delete"), ("s2", "price > 3", "update"), ("new", "price = 4", "insert")]
    report = change_subscriptions(spark.createDataFrame(rows, TYPES), tmp_path)
    assert (report.inserted, report.updated, report.deleted, report.rejected) == (1, 1, 1, 0)
    filters = {sub.id: sub.filter for sub in subs if sub.id != "s1"}
    expected = by_the_oracle(filters | {"s2": "price > 3", "new": "price = 4"})
    given = [(n, event["symbol"], event["price"]) for n, event in enumerate(EVENTS)]
    events = spark.createDataFrame(given, "n int, symbol string, price int")
    ids = report.version.ids().to_pylist()
    for plan in ("single", "keyed", "grid"):
        found = events.transform(match(tmp_path, plan=plan)).collect()
        assert {row["n"]: sorted(row["subscriptions"]) for row in found} == dict(
            enumerate(expected)
        )
    bitmaps = events.transform(match(tmp_path, output="bitmap")).collect()
    for row in bitmaps:
        bits = int.from_bytes(row["subscriptions"], "little")
        assert sorted(id_ for n, id_ in enumerate(ids) if bits >> n & 1) == expected[row["n"]]


def test_changes_expire_as_what_is_compiled(spark: SparkSession, tmp_path: Path) -> None:
    base(tmp_path, {"s": "price < 5"})
    times = [
        "timestamp'2026-01-01T00:00:00Z'",
        "timestamp_ntz'2026-01-01 00:00:00'",
        "date'2026-01-01'",
    ]
    for at, time in enumerate(times):
        row = f"SELECT 'e{at}' id, 'price < 9' filter, 'insert' change, {time} expires_at"
        assert change_subscriptions(spark.sql(row), tmp_path).rejected == 0
    shard = Library(tmp_path).latest().manifest.shards[-1]
    assert shard.rows is not None
    rows = json.loads((Library(tmp_path).latest().path / shard.rows.name).read_text())
    moment = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert {row["id"]: row["expires_at"] for row in rows} == dict.fromkeys(
        ("e0", "e1", "e2"), moment
    )


def test_deletes_need_no_filters(spark: SparkSession, tmp_path: Path) -> None:
    base(tmp_path, {"s": "price < 5", "t": "price < 6"})
    deletes = spark.createDataFrame([("s", "delete")], "id string, change string")
    assert change_subscriptions(deletes, tmp_path).deleted == 1
    mixed = spark.createDataFrame([("t", "delete"), ("u", "insert")], "id string, change string")
    with pytest.raises(FilterError, match='has no column "filter", which only deletes do without'):
        change_subscriptions(mixed, tmp_path)


def test_ids_of_another_type_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    base(tmp_path, {"s": "price < 5"})
    rows = spark.createDataFrame([(1, "delete")], "id int, change string")
    with pytest.raises(FilterError, match=r"has the type bigint, and the ids of .* type string; c"):
        change_subscriptions(rows, tmp_path)


def test_a_table_of_changes_is_checked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base(tmp_path, {"s": "price < 5"})
    with pytest.raises(FilterError, match='no column "change", which is insert, update or delete'):
        change_subscriptions(spark.createDataFrame([], "id string, filter string"), tmp_path)
    monkeypatch.setattr(changes, "MAX_CHANGES", 1)
    rows = [("a", "x = 1", "insert"), ("b", "x = 1", "insert")]
    with pytest.raises(FilterError, match="more than 1 changes; compile all subscriptions instead"):
        change_subscriptions(spark.createDataFrame(rows, TYPES), tmp_path)
