"""Environments with another release of Spark or Python, for tests in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 3_000.0
"""Long, because the machine may be busy with other tests."""
TOOLS = ["hypothesis", "pytest", "pytest-rerunfailures", "pytest-xdist"]


def environment(
    folder: Path, release: str, *, base: str = sys.executable, also: Sequence[str] = ()
) -> str:
    """Make an environment with the newest patch of a release of Spark; return its Python.

    If the variable `TAMIS_TEST_ENVIRONMENTS` names a folder, what is there is used again.
    """
    kept = os.environ.get("TAMIS_TEST_ENVIRONMENTS")
    folder = Path(kept, f"{Path(base).name}-spark-{release}") if kept else folder
    if (folder / "bin" / "pytest").exists():
        return str(folder / "bin" / "python")
    subprocess.run([base, "-m", "venv", folder], check=True)  # noqa: S603
    python = str(folder / "bin" / "python")
    uv = Path(sys.executable).with_name("uv")
    with_uv = [str(uv), "pip", "install", "--python", python]
    install = with_uv if uv.exists() else [python, "-m", "pip", "install"]
    wanted = ["--editable", f"{ROOT}[all]", f"pyspark~={release}.0", *TOOLS, *also]
    subprocess.run([*install, "--quiet", *wanted], check=True, timeout=TIMEOUT_SECONDS)  # noqa: S603
    return python
