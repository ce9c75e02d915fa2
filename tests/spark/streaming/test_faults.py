"""Kills in mid-batch: after a restart the results are exactly those of a clean run.

While streams run, new versions of the library are published at random moments, subscriptions expire
and some events are malformed. A comparison that could not fail would be worth nothing: two bugs are
planted, and it must see them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.killing import Driver, Setting, is_noted_by_spark
from spark.streams import Site, add_file, assert_all_are_counted, compare_with_a_clean_run
from tamis.spark import Library, compile_subscriptions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc"),
]

VERSIONS = 8
SUBSCRIPTIONS = 400
SYMBOLS = 50


class Publisher:
    """Publishes one version after another, at moments that the dice tell."""

    def __init__(self, spark: SparkSession, site: Site, rng: Random) -> None:
        self._rng = rng
        self._target = Library(site.library)
        staged = Library(site.library.with_name("staged"))
        for _ in range(VERSIONS):
            compile_subscriptions(_subscriptions(spark, rng), staged)
        self._staged: Iterator[Path] = iter(sorted((staged.path / "versions").iterdir()))
        (site.library / "versions").mkdir(parents=True)
        self.publish()

    def publish(self) -> None:
        """Publish the next version in one step, if there is one."""
        version = next(self._staged, None)
        if version is not None:
            version.rename(self._target.path / "versions" / version.name)

    def may_publish(self) -> None:
        if self._rng.random() < 0.5:
            self.publish()


def _subscriptions(spark: SparkSession, rng: Random) -> DataFrame:
    soon = time.time()
    rows = [
        (
            f"s{n}",
            f'symbol = "S{rng.randrange(SYMBOLS)}" and price < {rng.uniform(0, 100):.2f}',
            soon + rng.uniform(0, 600) if rng.random() < 0.3 else None,
        )
        for n in rng.sample(range(2 * SUBSCRIPTIONS), SUBSCRIPTIONS)
    ]
    table = spark.createDataFrame(rows, "id string, filter string, expires_at double")
    return table.withColumn("expires_at", table.expires_at.cast("timestamp"))


def add_events(site: Site, rng: Random, format_: str, files: int, size: int) -> int:
    """Write files of events; return how many events there are."""
    for number in range(files):
        symbols = [f"S{rng.randrange(SYMBOLS)}" for _ in range(size)]
        prices = [round(rng.uniform(0, 100), 2) for _ in range(size)]
        if format_ == "parquet":
            table = pa.table({"symbol": symbols, "price": prices})
            pq.write_table(table, site.events / f"{number:04}.parquet", row_group_size=size // 4)
        else:
            events = zip(symbols, prices, strict=True)
            lines = [json.dumps({"symbol": s, "price": p, "text": "x" * 30}) for s, p in events]
            for broken in range(0, size, 97):
                lines[broken] = lines[broken][:-3]
            add_file(site.events, f"{number:04}.jsonl", lines)
    return files * size


def assert_like_a_clean_run(
    spark: SparkSession, site: Site, format_: str, events: int, kills: int
) -> None:
    difference = compare_with_a_clean_run(spark, site, format_)
    versions = sorted({pin.version for pin in site.pins()})
    print(
        f"\n{kills} kills, {events:,} events in {len(site.pins())} batches by versions {versions}: "
        f"{sum(difference.values())} differences"
    )
    assert not difference
    assert_all_are_counted(spark, site, events)
    assert len(versions) > 1


def test_killed_drivers(spark: SparkSession, tmp_path: Path) -> None:
    rng, site, kills = Random(1), Site(tmp_path), 8
    publisher = Publisher(spark, site, rng)
    events = add_events(site, rng, "parquet", files=40, size=9_000)
    setting = Setting("local[2]", "parquet")
    for _ in range(kills):
        driver = Driver(tmp_path, setting)
        moment = rng.choice(("pinned", "writing", "committed"))
        assert driver.wait_for(moment, len(site.pins()) + rng.randrange(2))
        driver.kill(with_its_jvm=rng.random() < 0.7)
        publisher.may_publish()
    Driver(tmp_path, setting).finish()
    assert_like_a_clean_run(spark, site, "parquet", events, kills)


def test_killed_workers(spark: SparkSession, tmp_path: Path) -> None:
    rng, site, kills = Random(2), Site(tmp_path), 7
    publisher = Publisher(spark, site, rng)
    events = add_events(site, rng, "json", files=20, size=20_000)
    # Without the second number, Spark gives up when the first task fails.
    driver = Driver(tmp_path, Setting("local[2,4]"))
    # One that is hit between two tasks is not missed by anyone, so there are two more.
    for number in range(kills + 2):
        assert driver.kill_one("worker", batch=2 * number + rng.randrange(2))
        publisher.may_publish()
    assert driver.finish() >= kills, "a kill hit no task"
    assert_like_a_clean_run(spark, site, "json", events, kills)


def test_killed_executors(spark: SparkSession, tmp_path: Path) -> None:
    rng, site, kills = Random(3), Site(tmp_path), 5
    publisher = Publisher(spark, site, rng)
    events = add_events(site, rng, "json", files=15, size=20_000)
    driver = Driver(tmp_path, Setting("local-cluster[2,1,1024]"))
    for number in range(kills):
        assert driver.kill_one("executor", batch=2 * number + rng.randrange(2))
        publisher.may_publish()
    assert driver.finish() >= kills, "a kill hit no task"
    assert_like_a_clean_run(spark, site, "json", events, kills)


@pytest.mark.parametrize(("plant", "moment"), [("unpinned", "writing"), ("append", "committed")])
def test_the_comparison_sees_planted_bugs(
    plant: str, moment: str, spark: SparkSession, tmp_path: Path
) -> None:
    rng, site = Random(4), Site(tmp_path)
    publisher = Publisher(spark, site, rng)
    add_events(site, rng, "json", files=12, size=3_000)
    setting = Setting("local[2]", plant=plant)
    while not _kill_in_time(Driver(tmp_path, setting), moment):
        pass
    publisher.publish()
    Driver(tmp_path, setting).finish()
    difference = compare_with_a_clean_run(spark, site, "json")
    print(f"\nplanted {plant}: {dict(difference)}")
    assert difference["too many"] >= 3_000
    assert (difference["missing"] >= 3_000) == (plant == "unpinned")


def _kill_in_time(driver: Driver, moment: str) -> bool:
    """Kill a driver; tell whether its last batch will run again."""
    assert driver.wait_for(moment, len(driver.site.pins()) + 1)
    driver.kill(with_its_jvm=True)
    return not is_noted_by_spark(driver.site, driver.site.pins()[-1].batch)
