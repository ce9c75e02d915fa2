"""What a match will take, told from a sample, without a session of Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark.contract import Sub, compiled
from tamis.cli.app import app
from tamis.spark import CompileReport, forecast_files

SUBS = [Sub("cheap", "price < 50"), Sub("acme", 'symbol = "ACME"'), Sub("any", "price >= 0")]
EVENTS = 2_000


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CompileReport:
    return compiled(spark, SUBS, tmp_path_factory.mktemp("forecast") / "library", shards=2)


def write_files(folder: Path, format_: str) -> Path:
    folder.mkdir()
    # Every file has events of all kinds, in turn.
    rows = [{"price": n % 100, "symbol": ("ACME", "BOLT")[n // 100 % 2]} for n in range(EVENTS)]
    for number in range(4):
        part = rows[number * EVENTS // 4 :][: EVENTS // 4]
        if format_ == "parquet":
            pq.write_table(pa.Table.from_pylist(part), folder / f"{number}.parquet")
        else:
            lines = [json.dumps(row) for row in part]
            lines[0] = lines[0][:-1]
            (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_a_sample_tells_what_all_events_take(
    format_: str, report: CompileReport, tmp_path: Path
) -> None:
    found = forecast_files(report.version, write_files(tmp_path / "events", format_), cores=2)
    assert found.plan.strategy == "single"
    assert found.events == pytest.approx(EVENTS, rel=0.1)
    assert found.matches_per_event == pytest.approx(2, abs=0.2)
    assert found.rejected == pytest.approx(4 / EVENTS if format_ == "json" else 0, abs=4 / EVENTS)
    assert 0 < found.seconds < 60
    assert found.worker_bytes > found.shared_bytes > 0
    assert any("Parquet are read" in one for one in found.advice) == (format_ == "json")


def test_a_grid_costs_a_pass_for_each_group(report: CompileReport, tmp_path: Path) -> None:
    events = write_files(tmp_path / "events", "json")
    single = forecast_files(report.version, events, cores=1)
    grid = forecast_files(report.version, events, cores=1, plan="grid", memory=1)
    assert grid.tasks == 2 * single.tasks
    assert any("groups of shards" in one for one in grid.advice)


def test_the_command_explains_and_writes_nothing(report: CompileReport, tmp_path: Path) -> None:
    events = write_files(tmp_path / "events", "json")
    library = str(report.version.path.parents[1])
    command = ["spark", "match", str(events), "--library", library]
    told = CliRunner().invoke(app, [*command, "--explain", "--master", "local[2]"])
    assert told.exit_code == 0, told.output
    for words in ("single: 3 subscriptions need", "seconds of matching", "cheaper: events in Parq"):
        assert words in told.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "name a folder for the results with --to, or --explain" in refused.stderr
