"""A real cluster, whose workers share this machine's folders but not the driver's own folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark.cluster import standalone

pytestmark = pytest.mark.slow
TIMEOUT_SECONDS = 600.0


def test_relative_paths_reach_the_workers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "demo" / "events").mkdir(parents=True)
    (home / "demo" / "events" / "a.jsonl").write_text('{"price": 5}\n{"price": 50}\n')
    rows = [{"id": "cheap", "filter": "price < 10"}, {"id": "dear", "filter": "price > 10"}]
    (home / "subscriptions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with standalone(tmp_path / "cluster", workers=1) as cluster:
        library = ["--library", "library", "--master", cluster.master]
        _run(home, "compile", "subscriptions.jsonl", *library)
        results = ["--to", "matches", "--report", "report.html", "--output", "pairs"]
        _run(home, "match", "demo/events", *library, *results)
    found = pq.read_table(home / "matches").to_pylist()
    assert sorted((row["position"], row["subscription"]) for row in found) == [
        (0, "cheap"),
        (13, "dear"),
    ]
    assert {row["file"] for row in found} == {str(home / "demo" / "events" / "a.jsonl")}
    assert "cheap" in (home / "report.html").read_text()


def _run(folder: Path, *arguments: str) -> None:
    tamis = Path(sys.executable).with_name("tamis")
    run = subprocess.run(  # noqa: S603
        [tamis, "spark", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert run.returncode == 0, run.stdout + run.stderr
