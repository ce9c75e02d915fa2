"""Spark 3.5 to 4.3: what stands in for newer functions, and what says that it needs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.environments import ROOT, TIMEOUT_SECONDS, environment
from tamis.errors import SparkError
from tamis.spark.runtime import versions
from tamis.spark.runtime.versions import (
    collect_table,
    hash_of_integer,
    release_of,
    repartition_by_number,
    require_spark,
)

# The newest release is what all other tests run on.
OLDER = ["3.5", "4.0", "4.1", "4.2"]
# Batch, files, streams, rejected rows, every plan and every output, against the oracle.
CONTRACT = [
    "runtime/test_versions.py",
    "library/test_changes.py",
    "library/test_compile.py",
    "matching/test_contract.py",
    "matching/test_match.py",
    "matching/test_plan.py",
    "matching/test_sql_function.py",
    "files/test_match_files.py",
    "streaming/test_stream.py",
    "report/test_report.py",
]


def test_hashes_are_those_of_spark(spark: SparkSession) -> None:
    numbers = [*range(-20, 200), 2**31 - 1, -(2**31)]
    frame = spark.createDataFrame([(number,) for number in numbers], "number int")
    rows = frame.select("number", F.hash("number").alias("hash")).collect()
    assert {row["number"]: row["hash"] for row in rows} == {
        number: hash_of_integer(number) for number in numbers
    }


@pytest.mark.parametrize(
    "partitions", [7, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 40))]
)
@pytest.mark.parametrize("release", [(3, 5), versions.SPARK])
def test_rows_are_in_the_partitions_that_they_number(
    partitions: int,
    release: tuple[int, int],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(versions, "SPARK", release)
    numbers = spark.range(100).select((F.col("id") % partitions).cast("int").alias("number"))
    placed = repartition_by_number(numbers, partitions, F.col("number"))
    rows = placed.select("number", F.spark_partition_id().alias("partition")).collect()
    assert [row["number"] for row in rows] == [row["partition"] for row in rows]
    assert len(rows) == 100


def test_tables_are_collected_also_if_they_are_empty(spark: SparkSession) -> None:
    table = collect_table(spark.range(3))
    assert table.to_pydict() == {"id": [0, 1, 2]}
    nothing = collect_table(spark.range(3).filter("id > 5"))
    assert (nothing.num_rows, nothing.schema.names) == (0, ["id"])


def test_what_needs_a_newer_spark_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    require_spark((3, 5), "nothing takes")
    monkeypatch.setattr(versions, "SPARK", (3, 5))
    with pytest.raises(SparkError, match=r"^reading .* takes Spark 4.0 or newer, and this is Sp"):
        require_spark((4, 0), "reading events from a broker takes")


@pytest.mark.parametrize(("version", "release"), [("3.5.9", (3, 5)), ("4.2.0.dev4", (4, 2))])
def test_releases(version: str, release: tuple[int, int]) -> None:
    assert release_of(version) == release


@pytest.mark.slow
@pytest.mark.parametrize("release", OLDER)
def test_the_contract_holds_on_older_releases(release: str, tmp_path: Path) -> None:
    """Run the tests of `CONTRACT` in an environment with the newest patch of a release."""
    run_contract(release, environment(tmp_path / "environment", release))


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_contract_holds_on_newer_pythons(version: str, tmp_path: Path) -> None:
    """Run them with the newest Spark, on an interpreter of pyenv or one that is on the path."""
    roots = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    base = str(roots[-1]) if roots else shutil.which(f"python{version}")
    if base is None:
        pytest.skip(f"there is no Python {version} on this machine")
    newest = ".".join(map(str, versions.SPARK))
    run_contract(version, environment(tmp_path / "environment", newest, base=base))


def run_contract(name: str, python: str) -> None:
    tests = [f"tests/spark/{name}" for name in CONTRACT]
    # Older versions warn of what is deprecated in newer libraries.
    command = [python, "-m", "pytest", "-q", "-n", "0", "-W", "ignore", *tests]
    variables = {**os.environ, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    run = subprocess.run(  # noqa: S603
        command,
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    shown = f"{name}, exit {run.returncode}:\n{run.stdout[-5_000:]}{run.stderr[-5_000:]}"
    assert run.returncode == 0, shown
    print(name, run.stdout.splitlines()[-1])
