"""Spark Connect: compiling, matching and functions of SQL, with a client that has no JVM."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from spark.environments import TIMEOUT_SECONDS, environment
from spark.matching.connect_program import events, subscriptions
from tamis.languages import parse

TESTS = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_session_of_connect_finds_what_the_oracle_says(tmp_path: Path) -> None:
    python = environment(tmp_path / "environment", "4.3", also=["pyspark[connect]"])
    ran = subprocess.run(  # noqa: S603
        [python, "-m", "spark.matching.connect_program", str(tmp_path)],
        cwd=TESTS,
        env={**os.environ, "PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    filters = [(id_, parse(text)) for id_, text in subscriptions()]
    wanted = sorted(
        [n, id_]
        for n, symbol, price in events()
        for id_, filter_ in filters
        if filter_.matches({"n": n, "symbol": symbol, "price": price})
    )
    assert len(wanted) > 100
    for way in ("match", "function", "table"):
        assert sorted(found[way]) == wanted, way
    assert found["counts"]["matches"] == len(wanted)
    assert found["errors"] == len(events())
    assert found["subscriptions"] == len(subscriptions())
    assert found["stream"].startswith("streams need a classic session of Spark")
