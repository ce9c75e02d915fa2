"""`tamis spark`: a table in, a library; files in, results; mistakes as sentences."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from spark.library.test_changes import base
from tamis.cli.app import app
from tamis.spark.library.changes import apply_changes
from tamis.spark.runtime.failures import reason_of


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["spark", *map(str, arguments)])


def facts(result: Result) -> dict[str, str]:
    parted = (line.rstrip().rpartition("  ") for line in result.stdout.splitlines())
    return {name.strip(): value for name, _, value in parted}


@pytest.mark.usefixtures("spark")
def test_compile_and_match(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "subscriptions.jsonl"
    rows = [{"id": "cheap", "filter": "price < 10"}, {"id": "typo", "filter": "price << 10"}]
    table.write_text("\n".join(map(json.dumps, rows)))
    result = run("compile", table, "--library", tmp_path / "library", "--lint")
    assert result.exit_code == 1, result.output
    assert 'rejected: row 2, typo: expected a condition or value, found "<"' in result.stderr
    reported = facts(result)
    assert (reported["version"], reported["rows"], reported["rejected"]) == ("1", "2", "1")

    events = tmp_path / "events.jsonl"
    events.write_text('{"price": 5}\n{"price": 50}\n{"price": \n')
    matching = ("match", events, "--library", tmp_path / "library", "--to", tmp_path / "out")
    result = run(*matching, "--output", "pairs")
    assert result.exit_code == 0, result.output
    reported = facts(result)
    names = ("events", "matched", "unmatched", "rejected", "matches")
    assert [reported[name] for name in names] == ["3", "1", "1", "1", "1"]
    out = spark.read.parquet(str(tmp_path / "out"))
    assert {(row["position"], row["subscription"], row["outcome"]) for row in out.collect()} == {
        (0, "cheap", "matched"),
        (27, None, "rejected"),
    }
    again = run(*matching)
    assert again.exit_code == 2
    assert "exists already; name another folder, or --overwrite it" in again.stderr
    assert run(*matching, "--overwrite", "--only-matched").exit_code == 0


def test_forget(tmp_path: Path) -> None:
    library = base(tmp_path, {"a": "price < 1"})
    for n in range(3):
        apply_changes(library, [{"id": "a", "filter": f"price < {n}", "change": "update"}])
    recent = ("forget", "--library", tmp_path, "--keep", "2")
    assert facts(run(*recent))["removed"] == "none"
    arguments = (*recent, "--replaced-for", "0s")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert (facts(result)["removed"], facts(result)["kept"]) == ("1, 2", "3, 4")
    assert run(*arguments).exit_code == 1
    assert run("forget", "--library", tmp_path, "--keep", "0").exit_code == 2
    assert run(*recent, "--replaced-for", "soon").exit_code == 2


@pytest.mark.usefixtures("spark")
def test_mistakes_are_sentences(tmp_path: Path) -> None:
    result = run("compile", tmp_path / "none.csv", "-L", tmp_path)
    assert result.exit_code == 2
    assert "there is no such file or folder of subscriptions" in result.stderr
    result = run("match", tmp_path, "-L", tmp_path / "library", "--to", tmp_path / "out")
    assert result.exit_code == 2
    assert "there is no version in it; compile subscriptions first" in result.stderr
    assert "Traceback" not in result.output


def test_without_spark_it_says_how_to_get_it() -> None:
    arguments = ["tamis", "spark", "compile", "a.csv", "-L", "library"]
    start = f"import sys; sys.modules['pyspark'] = None; sys.argv = {arguments}"
    command = [sys.executable, "-c", f"{start}; import tamis.cli.__main__"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert result.returncode == 2, result.stderr
    assert "pip install 'tamis[spark]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_spark_gives_a_reason() -> None:
    traceback = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "/x/worker.py", line 3, in f\n'
        "tamis.errors.SnapshotError: the snapshot x cannot be used: it is cut\n"
    )
    assert reason_of(traceback) == "the snapshot x cannot be used: it is cut"
