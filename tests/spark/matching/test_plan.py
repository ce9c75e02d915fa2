"""The planner takes the cheapest plan that fits, says why, and does as it is asked."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from spark.contract import Sub, compiled
from tamis.errors import LibraryError, SchemaError
from tamis.spark import CompileReport, Tally, Version, match
from tamis.spark.library.manifests import LibraryFile, Shard, new_manifest
from tamis.spark.matching import shuffle
from tamis.spark.matching.plan import Machine, Strategy, choose_plan

MB = 1_000_000


def version(sizes: list[int], *, buckets: int = 0) -> Version:
    """Return a version with shards of this many megabytes, the first ones in buckets."""
    shards = [
        Shard(
            number,
            1_000,
            LibraryFile(f"{number}", size * MB, ""),
            LibraryFile(f"{number}.ids", 0, ""),
            ("symbol",),
            number if number < buckets else None,
        )
        for number, size in enumerate(sizes)
    ]
    key = "symbol" if buckets else None
    manifest = new_manifest(
        mode="sql",
        schema=None,
        id_type="string",
        rows=0,
        rejected=0,
        shards=shards,
        key=key,
        buckets=buckets,
    )
    return Version(Path("library"), manifest)


@pytest.mark.parametrize(
    ("sizes", "buckets", "memory", "has_key", "strategy", "groups"),
    [
        ([100, 100], 0, 300, False, "single", [(0, 1)]),
        ([100, 100, 100], 0, 250, False, "grid", [(0,), (1,), (2,)]),
        ([40, 40, 100, 10], 0, 180, False, "grid", [(0, 1), (2,), (3,)]),
        ([40, 40, 40, 10], 3, 120, True, "keyed", [(0, 3), (1, 3), (2, 3)]),
        ([40, 40, 40, 10], 3, 120, False, "grid", [(0,), (1,), (2, 3)]),
        ([40, 40, 40, 90], 3, 180, True, "grid", [(0, 1), (2,), (3,)]),
        ([40, 40, 40, 10], 3, 300, True, "single", [(0, 1, 2, 3)]),
    ],
)
def test_the_cheapest_plan_that_fits_is_taken(  # noqa: PLR0917 - a table
    sizes: list[int],
    buckets: int,
    memory: int,
    has_key: bool,
    strategy: str,
    groups: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    plan = choose_plan(version(sizes, buckets=buckets), Machine(memory * MB, 2), has_key=has_key)
    assert (plan.strategy, list(plan.shard_groups)) == (strategy, groups)
    assert f"the plan is {strategy}: {plan.reason}" in caplog.text
    assert "MB" in plan.reason


def test_a_plan_can_be_asked_for() -> None:
    small = version([1, 1])
    plan = choose_plan(small, Machine(100 * MB, 2), has_key=False, wanted="grid")
    assert plan.strategy is Strategy.GRID
    with pytest.raises(LibraryError, match="'web' is not a plan; the plans are 'single', 'keyed'"):
        choose_plan(small, Machine(1, 1), has_key=False, wanted="web")
    with pytest.raises(LibraryError, match="cannot be 'keyed'"):
        choose_plan(small, Machine(1, 1), has_key=False, wanted="keyed")


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CompileReport:
    subs = [Sub(f"s{n}", f"price < {n}") for n in range(12)]
    return compiled(spark, subs, tmp_path_factory.mktemp("grid"), shards=4)


def test_a_grid_joins_what_its_groups_find(spark: SparkSession, report: CompileReport) -> None:
    texts = [f'{{"price": {n % 15}}}' for n in range(40)] + ["{", '{"a": 1}']
    events = spark.createDataFrame(list(enumerate(texts)), "n int, `pay load` string")
    ids = report.version.ids().to_pylist()

    def found(output: str, memory: int) -> dict[int, Any]:
        tally = Tally()
        planned = match(
            report.version, output=output, json="pay load", memory=memory, tally=tally, keep=["n"]
        )
        rows = events.transform(planned).collect()
        assert tally.counts()[:4] == (42, 32, 9, 1)
        return {row["n"]: row for row in rows}

    for output in ("ids", "packed", "counts"):
        single, grid = found(output, 10**9), found(output, 1)
        assert {n: (row["matches"], row["error"]) for n, row in single.items()} == {
            n: (row["matches"], row["error"]) for n, row in grid.items()
        }
        assert single[40]["error"] is not None
    assert {n: row["subscriptions"] for n, row in found("ids", 1).items()} == {
        n: row["subscriptions"] for n, row in found("ids", 10**9).items()
    }
    packed = found("packed", 1)[0]["subscriptions"]
    assert {ids[n] for n in np.frombuffer(packed, "<i4")} == {f"s{n}" for n in range(1, 12)}
    with pytest.raises(SchemaError, match="bitmaps of several groups cannot be joined"):
        found("bitmap", 1)


def test_rows_of_several_groups_in_one_batch_meet_each_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subs = [Sub(f"s{n}", f'symbol = "{"ABCDEFG"[n % 7]}" and price < {n}') for n in range(40)]
    keyed = compiled(spark, subs, tmp_path, key="symbol", shards=5)
    rows = [(n, "ABCDEFG"[n % 7], n % 40) for n in range(60)]
    events = spark.createDataFrame(rows, "n int, symbol string, price int")

    def found(plan: str) -> list[Any]:
        matched = events.transform(match(keyed.version, plan=plan)).collect()
        return sorted((row["n"], sorted(row["subscriptions"])) for row in matched)

    monkeypatch.setattr(shuffle, "repartition_by_number", lambda frame, *_: frame.coalesce(1))
    assert found("keyed") == found("single")
