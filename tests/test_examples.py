"""Every example runs and prints what it should."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))

SAID = {
    "absence.py": "price < 1000 or price >= 1000    refused  -        matches  -",
    "covering.py": "2 of 5 filters are forwarded.",
    "detection.py": "Found: shell from office, any shell, encoded command, from inside",
    "orders.py": "many chairs: order 1\nfirst is a table: <sku>table</sku>",
    "quickstart.py": "Dell: cheap PCs, IBM or Dell",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_an_example_runs(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    out, err = capsys.readouterr()
    assert SAID[script.name] in out
    assert err == ""


@pytest.mark.slow  # It starts a Java virtual machine of its own.
def test_the_demo_makes_a_report(tmp_path: Path) -> None:
    """Seen failing: the command line that it imports was a module."""
    sizes = ("--subscriptions", "100", "--events", "1000", "--to", str(tmp_path / "demo"))
    script = ROOT / "examples" / "market-spark" / "demo.py"
    done = subprocess.run(  # noqa: S603
        [sys.executable, script, *sizes], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "The report is" in done.stdout
    assert (tmp_path / "demo" / "report.html").stat().st_size > 1_000
