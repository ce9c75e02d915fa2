"""What can be seen of a match: counts while it runs, and in Spark's pages when it has run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.contract import Sub, compiled
from spark.streams import Site, add_file
from tamis.spark import Tally, match
from tamis.spark.matching.live_counts import LiveCounts
from tamis.spark.runtime import ui

SUBS = [Sub("cheap", "price < 10"), Sub("dear", "price > 5"), Sub("any", "price < 90")]


@pytest.mark.parametrize("plan", ["single", "grid"])
def test_what_is_counted_meanwhile_is_what_is_counted_at_the_end(
    plan: str, spark: SparkSession, tmp_path: Path
) -> None:
    report = compiled(spark, SUBS, tmp_path, shards=3)
    live = LiveCounts(spark.sparkContext)
    tally = Tally(live)
    events = spark.range(100).selectExpr("cast(id as double) AS price").repartition(3)
    chosen: dict[str, Any] = {"plan": plan, "memory": 1} if plan == "grid" else {"plan": plan}
    results = events.transform(match(report.version, output="counts", tally=tally, **chosen))
    assert live.so_far() == (0, 0)
    results.collect()
    counts = tally.counts()
    assert live.so_far() == (counts.events, counts.matches) == (100, 10 + 94 + 90)


def descriptions(spark: SparkSession) -> list[str]:
    """Return what the page of queries says of each, the newest last."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    found = store.executionsList()
    return [str(found.apply(number).description()) for number in range(found.size())]


def test_pages_of_spark_show_the_counts_of_every_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    compiled(spark, SUBS, site.library)
    add_file(site.events, "a.jsonl", [{"price": 7}, {"price": 95}, "{"])
    assert not ui.has_ui(spark)
    monkeypatch.setattr(ui, "has_ui", lambda _: True)
    site.run(spark)
    counted = "3 events: 2 matched, 0 unmatched, 1 rejected; 4 matches"
    shown = [text for text in descriptions(spark) if counted in text]
    assert len(shown) == 1
    assert shown[0].startswith(f"tamis {site.checkpoint}")
