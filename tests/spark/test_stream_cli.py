"""`tamis spark stream`: files in a folder, results batch by batch, an end by Ctrl-C."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import SparkSession

from spark.contract import Sub, compiled
from spark.streams import Site, add_file, wait_until
from spark.test_cli import facts, run
from tamis.spark import read_batches


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Site:
    site = Site(tmp_path)
    compiled(spark, [Sub("cheap", "price < 10")], site.library)
    add_file(site.events, "a.jsonl", [{"price": 5}, {"price": 50}, "{"])
    return site


def arguments(site: Site) -> tuple[str | Path, ...]:
    where = ("--to", site.results, "--checkpoint", site.checkpoint)
    return ("stream", site.events, "--library", site.library, *where)


def test_a_stream_says_what_came_of_each_batch(site: Site) -> None:
    result = run(*arguments(site), "--once")
    assert result.exit_code == 0, result.output
    assert "batch 0, version 1: 3 events: 1 matched, 1 unmatched, 1 rejected" in result.stderr
    reported = facts(result)
    assert [reported[name] for name in ("batches", "versions", "events")] == ["1", "1", "3"]
    again = run(*arguments(site), "--once")
    assert again.exit_code == 1
    assert facts(again)["versions"] == "none"


def test_ctrl_c_ends_a_stream_and_the_next_start_goes_on(site: Site) -> None:
    interrupting = Thread(target=interrupt_after_a_batch, args=(site,))
    interrupting.start()
    result = run(*arguments(site), "--every", "100ms")
    interrupting.join()
    assert result.exit_code == 0, result.output
    assert "stopped; the next start continues from here" in result.stderr
    assert facts(result)["batches"] == "1"
    add_file(site.events, "b.jsonl", [{"price": 5}])
    assert facts(run(*arguments(site), "--once"))["events"] == "1"


def interrupt_after_a_batch(site: Site) -> None:
    wait_until(lambda: read_batches(site.results))
    os.kill(os.getpid(), signal.SIGINT)


def test_mistakes_of_streams_are_sentences(site: Site) -> None:
    result = run(*arguments(site), "--every", "soon")
    assert result.exit_code == 2
    assert "'soon' is not a duration; write one like 30, 30s, 5 minutes" in result.stderr
    result = run(*arguments(site), "--every", "1s", "--once")
    assert result.exit_code == 2
    assert "not both" in result.stderr
    site.results.mkdir()
    (site.results / "something").touch()
    result = run(*arguments(site), "--once")
    assert result.exit_code == 2
    assert "it holds something else; name a new folder for results" in result.stderr
    assert "Traceback" not in result.output
