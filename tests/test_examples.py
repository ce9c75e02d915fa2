"""Every example runs and prints what it should."""

from __future__ import annotations

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
    "quickstart.py": "Dell: cheap PCs, IBM or Dell",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_an_example_runs(script: Path) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=True
    )
    assert SAID[script.name] in done.stdout
    assert done.stderr == ""
