"""The Spark benchmark in the small: it runs, its alternatives agree, and none may find nothing."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from benchmarks.harness import DisagreementError
from benchmarks.spark import __main__ as spark
from benchmarks.spark import data, documents
from benchmarks.spark.data import Place, Truth, truth_of
from benchmarks.spark.memory import processes_that_map
from benchmarks.workloads import conjunctions as conjunctive

from benchmarks import harness

SMALL = (
    "--subscriptions 500 --events 4000 --paper-events 4000 "
    "--few-subscriptions 100 --few-events 2000 --many-subscriptions 2000"
)


@pytest.mark.slow
def test_the_benchmark_writes_a_table_and_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "REPEATS", 1)
    # Workload A has matches only where there are many subscriptions, or many events.
    monkeypatch.setattr(spark, "WORKLOAD", conjunctive.growth)
    spark.main([*SMALL.split(), "--out", str(tmp_path)])
    table = (tmp_path / "spark-500.md").read_text(encoding="utf-8")
    expected = ["files, counts", "local[2] / local[1]", "pandas_udf", "worker 1", "paper, 500"]
    assert all(words in table for words in expected)
    assert "nan" not in table
    assert (tmp_path / "spark-500.svg").stat().st_size > 1000


@pytest.mark.slow
def test_the_benchmark_of_documents_writes_a_table_and_a_plot(tmp_path: Path) -> None:
    small = "--subscriptions 300 --documents 60 --looped 4 --repeats 1"
    documents.main([*small.split(), "--out", str(tmp_path)])
    table = (tmp_path / "spark_documents-300-60.md").read_text(encoding="utf-8")
    assert all(words in table for words in ("column of texts", "files", "every query, by lxml"))


def test_what_must_be_found_is_what_the_filters_say(tmp_path: Path) -> None:
    work, place = conjunctive.growth(60, 1), Place(tmp_path)
    Path(place.events).mkdir()
    data._write_events(place, work, 80)
    events = [event for seed in range(data.FILES) for event in work.events(10, 2 + seed).dicts()]
    filters = work.filters()
    matches = np.array([[filter_.matches(event) for filter_ in filters] for event in events])
    truth = truth_of(work, place)
    assert truth.by_subscription.tolist() == matches.sum(axis=0).tolist()
    assert truth.by_matches.tolist() == np.bincount(matches.sum(axis=1)).tolist()


def test_data_without_matches_are_refused() -> None:
    nothing = Truth(np.zeros(3, np.int64), np.array([5]))
    with pytest.raises(DisagreementError, match="no event matches"):
        spark.require_matches(nothing)


def test_other_matches_are_refused() -> None:
    with pytest.raises(DisagreementError, match="loop finds other"):
        spark.require_equal("loop", np.array([1, 0]), np.array([0, 1]))


def test_a_mapping_is_found_with_what_is_resident_of_it(tmp_path: Path) -> None:
    file = tmp_path / "mapped"
    file.write_bytes(bytes(1_000_000))
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        assert not any(data[:])
        found = {one.process: one for one in processes_that_map(str(tmp_path))}[os.getpid()]
    assert found.size == found.resident == 1_003_520
    assert found.private <= found.share <= found.resident < found.own
