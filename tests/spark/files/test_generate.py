"""Workloads on Spark: the same rows however the work is cut, and the paper's experiment."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner, Result

from tamis.cli.app import app
from tamis.errors import SparkError, WorkloadError
from tamis.events import decode_schema
from tamis.spark import (
    compile_subscriptions,
    density_experiment,
    event_rows,
    generate,
    match_files,
    subscription_rows,
)
from tamis.spark.files import generate as generate_module
from tamis.spark.report.experiment_tables import Measurement
from tamis.spark.runtime.versions import collect_table
from tamis.workloads import Workload

MARKET = Workload.load("market")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["spark", *map(str, arguments)])


def in_order(rows: DataFrame) -> pa.Table:
    return collect_table(rows).combine_chunks()


@pytest.mark.parametrize("tasks", [1, 5])
def test_rows_do_not_depend_on_the_number_of_tasks(
    spark: SparkSession, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate_module, "GENERATED_ROWS_PER_BATCH", 97)
    subscriptions = subscription_rows(spark, MARKET, 500, seed=7, tasks=tasks)
    assert in_order(subscriptions).to_pylist() == MARKET.subscriptions(0, 500, 7).to_pylist()
    events = event_rows(spark, "market", 1_000, seed=7, density=0.4, tasks=tasks)
    assert events.rdd.getNumPartitions() == tasks
    assert in_order(events).to_pylist() == MARKET.events(0, 1_000, 7, 0.4).to_pylist()


@pytest.mark.slow
def test_both_formats_hold_the_same_events_and_match_alike(
    spark: SparkSession, tmp_path: Path
) -> None:
    for format_ in generate_module.FORMATS:
        generate(spark, MARKET, tmp_path / format_, subscriptions=300, events=500, format_=format_)
    as_parquet = spark.read.parquet(str(tmp_path / "parquet/events"))
    as_lines = spark.read.schema(as_parquet.schema).json(str(tmp_path / "jsonl/events"))
    assert as_lines.collect() == as_parquet.collect()
    schema = decode_schema((tmp_path / "jsonl/schema.json").read_bytes())
    assert schema == MARKET.schema
    report = compile_subscriptions(
        tmp_path / "jsonl/subscriptions", tmp_path / "library", schema=schema, spark=spark
    )
    assert (report.subscriptions, report.rejected) == (300, 0)
    found = [
        sorted(row.subscriptions for row in match_files(spark, report.version, path).collect())
        for path in (tmp_path / "parquet/events", tmp_path / "jsonl/events")
    ]
    assert found[0] == found[1]
    assert any(found[0])


@pytest.mark.usefixtures("spark")
def test_the_command_writes_what_it_says(tmp_path: Path) -> None:
    given = ("generate", "be-a", "--subscriptions", "20", "--events", "30", "--to", tmp_path / "a")
    result = run(*given, "--seed", "5")
    assert result.exit_code == 0, result.output
    assert pq.read_table(tmp_path / "a/events").num_rows == 30
    filters = pq.read_table(tmp_path / "a/subscriptions").to_pylist()
    assert filters == Workload.load("be-a").subscriptions(0, 20, 5).to_pylist()
    again = run(*given)
    assert again.exit_code == 2
    assert "exists already; name another folder, or --overwrite it" in again.stderr
    assert run(*given, "--overwrite", "--format", "jsonl").exit_code == 0


def test_mistakes_are_sentences(spark: SparkSession, tmp_path: Path) -> None:
    result = run("generate", "markt", "--subscriptions", "1", "--events", "1", "--to", tmp_path)
    assert result.exit_code == 2
    assert 'did you mean "market"?' in result.stderr.replace("\n", " ")
    with pytest.raises(SparkError, match="'avro' is not a format to write"):
        generate(spark, MARKET, tmp_path, subscriptions=1, events=1, format_="avro")
    with pytest.raises(SparkError, match="density 7 should lie between 0 and 1"):
        event_rows(spark, MARKET, 1, density=7)
    with pytest.raises(SparkError, match="-1 is not a number of rows"):
        subscription_rows(spark, MARKET, -1)
    with pytest.raises(WorkloadError, match="there is no such file"):
        event_rows(spark, "none", 1)


@pytest.mark.slow
def test_the_density_experiment_finds_what_the_oracle_finds(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = density_experiment(
        spark, "paper", tmp_path, filters=[20], events=40, densities=(0.231, 1.0), repeat=1
    )
    assert [(one.mode, one.density) for one in found] == [
        ("strict", 0.231),
        ("strict", 1.0),
        ("total", 1.0),
    ]
    assert [one.matches for one in found] == [matches_by_the_oracle(one) for one in found]
    rows = list(csv.DictReader((tmp_path / "density.csv").read_text("utf-8").splitlines()))
    assert [int(row["matches"]) for row in rows] == [one.matches for one in found]
    assert pq.read_table(tmp_path / "density.parquet").num_rows == 3
    assert "| 20 | strict | 23.1% |" in (tmp_path / "density.md").read_text("utf-8")
    assert (tmp_path / "density.svg").read_text("utf-8").startswith("<svg xmlns=")


def matches_by_the_oracle(one: Measurement) -> int:
    paper = Workload.load("paper")
    filters = paper.filters(0, one.filters, seed=1)
    events = paper.events(0, one.events, seed=1, density=one.density).to_pylist()
    present = [{k: v for k, v in event.items() if v is not None} for event in events]
    return sum(
        filter_.matches(event, one.mode, paper.schema) for event in present for filter_ in filters
    )
