"""Jars that PySpark does not contain, fetched by Maven, which keeps them for the next test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def fetch_jars(pom: Path, profile: str, folder: Path) -> list[Path]:
    """Return the jars of a profile of a pom; skip the test without them."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"the test needs {program}")
    target = folder / profile
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    command = ["mvn", "-q", "-B", "-f", str(pom), "-P", profile, *copy]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if fetched.returncode:
        pytest.skip(f"Maven did not get the jars of {profile}: {fetched.stdout[-500:]}")
    return sorted(target.glob("*.jar"))
